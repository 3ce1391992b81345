"""Past states, where observations come one at a time, and how far the state moved since."""

from __future__ import annotations

from collections import deque

from torch import Tensor


class StateHistory:
    """The states of the last calls and how many ticks lay between them."""

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self._seen: deque[tuple[int, Tensor]] = deque()  # (tick, state), the newest last

    def clear(self) -> None:
        self._seen.clear()

    def change(self, state: Tensor, ticks: int) -> Tensor:
        """Add the state now, (B, D), ``ticks`` after the last one; return its change over ``frames`` ticks.

        If no state was seen exactly ``frames`` ticks ago, it is interpolated between the neighbours: a policy that is
        called every 20th tick still gets a change over ``frames`` ticks. The state before the first call is taken to
        equal the first one, as LeRobot's datasets do at an episode's start. A batch of another size starts again.
        """
        if self._seen and self._seen[-1][1].shape != state.shape:
            self.clear()
        now = self._seen[-1][0] + max(ticks, 1) if self._seen else 0
        self._seen.append((now, state.detach().clone()))
        then = now - self.frames
        while len(self._seen) > 1 and self._seen[1][0] <= then:
            self._seen.popleft()
        tick, earlier = self._seen[0]
        if tick < then:
            later_tick, later = self._seen[1]
            earlier = earlier + (later - earlier) * ((then - tick) / (later_tick - tick))
        return state - earlier
