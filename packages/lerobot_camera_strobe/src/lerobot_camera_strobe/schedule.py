"""When a camera captures its frames, when a program can read them, and what they show. Reads no clock."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

Span = tuple[float, float]  # seconds, from the first to before the second


@dataclass(frozen=True)
class Schedule:
    """Frame ``k`` is captured ``(phase + k) / fps`` seconds after the start, and comes ``latency_s`` later.

    ``jitter_s`` is the most that a frame comes later still. Frames captured in ``gap`` never come; those captured in
    ``freeze`` show what the last one before it showed.
    """

    fps: float
    phase: float = 0.0
    latency_s: float = 0.0
    jitter_s: float = 0.0
    gap: Span = (0.0, 0.0)
    freeze: Span = (0.0, 0.0)
    seed: int = 0

    def captured_s(self, k: int) -> float:
        return (self.phase + k) / self.fps

    def comes_s(self, k: int) -> float:
        """When frame ``k`` comes; infinity for never."""
        if _is_within(self.captured_s(k), self.gap):
            return math.inf
        late = random.Random(f"{self.seed} {k}").random() * self.jitter_s if self.jitter_s else 0.0
        return self.captured_s(k) + self.latency_s + late

    def shows_s(self, k: int) -> float:
        """The moment whose picture frame ``k`` shows."""
        captured = self.captured_s(k)
        if not _is_within(captured, self.freeze):
            return captured
        before = math.ceil(self.freeze[0] * self.fps - self.phase) - 1
        return self.captured_s(max(before, 0))

    def newest(self, now: float, after: int) -> int | None:
        """The newest frame behind ``after`` that has come by ``now``; those between are missed, as with a camera."""
        last = math.floor((now - self.latency_s) * self.fps - self.phase + 1e-9)
        for k in range(last, after, -1):
            if self.comes_s(k) <= now + 1e-9:
                return k
        return None

    def next_s(self, after: int) -> float:
        """When the first frame behind ``after`` comes. With jitter, a later one may overtake it."""
        k = after + 1
        if _is_within(self.captured_s(k), self.gap):  # however long that is
            k = max(k, math.ceil(self.gap[1] * self.fps - self.phase - 1e-6))
        while math.isinf(first := self.comes_s(k)):
            k += 1
        while self.captured_s(k + 1) + self.latency_s < first:
            k += 1
            first = min(first, self.comes_s(k))
        return first


def _is_within(at: float, span: Span) -> bool:
    return span[0] <= at < span[1]
