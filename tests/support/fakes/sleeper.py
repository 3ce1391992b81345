"""A subject that sleeps instead of computing, and treatments planted in the catalogue that change how long.

It sleeps by a clock of its own, which nothing else on the machine can hold up: `Clock.wind` makes it the one that
sections, the sampler and studies read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from strobe.core.families.family import Family
from strobe.core.measure.sampling import collect
from strobe.core.results.subject import SubjectInfo
from strobe.core.results.traits import PolicyTraits, Traits
from strobe.core.subjects.subject import ITERATION, Abilities, InputSource, Phase
from strobe.core.timeline import section
from strobe.core.timeline.probe import Hook
from strobe.core.treatments.treatment import STRUCTURE, Entry, Treatment
from strobe.ladder.settings import SilentClimb
from support.checks.presence import require_value

VISION_MS, HEAD_MS = 8.0, 4.0


class Clock:
    """Time that passes only where someone sleeps, and a little unevenly."""

    def __init__(self) -> None:
        self.now = 1e3
        self._uneven = random.Random(0)

    def sleep(self, seconds: float) -> None:
        self.now += seconds * self._uneven.uniform(0.99, 1.01) + 1e-5

    def wind(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr("strobe.core.timeline.timeline.host_ns", lambda: round(self.now * 1e9))
        # The sampler's budget is counted by a default that was bound when the function was made.
        monkeypatch.setitem(require_value(collect.__kwdefaults__), "clock", lambda: self.now)
        # A climb collects garbage after each refusal: with torch and LeRobot loaded, a third of a second for nothing.
        monkeypatch.setattr("strobe.ladder.runner.gc.collect", lambda: 0)
        return self


class Sleeper(Abilities):
    """Parts 'vision' and 'head'; ``on`` holds the planted treatments that are on."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.module = nn.Linear(1, 1)
        nn.init.zeros_(self.module.weight)  # each has the same weights
        nn.init.zeros_(self.module.bias)
        self.on: set[str] = set()
        self.ms: dict[str, float] = {"vision": VISION_MS, "head": HEAD_MS}
        self.change: Callable[[Tensor, int], Tensor] = lambda chunk, _: chunk
        self.info = SubjectInfo(
            name="sleeper",
            kind="sleeper",
            source="here",
            parameters=2,
            weight_bytes=8,
            dtypes={"float32": 2},
            inputs="",
        )
        self.notes: list[str] = []
        self.device = torch.device("cpu")
        self.compiled_methods: Sequence[tuple[str, str]] = ()
        self.input_source = InputSource("made up")
        self.family = Family("modules", ())

    def call(self, phase: Phase, batch_size: int = 1) -> Callable[[int], Any]:
        def run(index: int) -> Tensor:
            chunk = torch.randn(1, 5, 2, generator=torch.Generator().manual_seed(index))
            with section(ITERATION), section("policy"):
                for name in ("vision", "head"):
                    with section(name):
                        self.clock.sleep(self.ms[name] / 1e3)
            return self.change(chunk, index)

        return run

    def hooks(self, phase: Phase, depth: int) -> list[Hook]:
        return []

    def traits(self, phase: Phase, batch_size: int) -> Traits:
        return Traits(policy=PolicyTraits(denoising_steps=10))


class Lines(SilentClimb):
    """The lines that a climb has said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class Planted(Treatment):
    """What a planted treatment does: ``ms`` to the parts' times, ``change`` to a chunk (given what else is on)."""

    name: str
    ms: Callable[[Sleeper], dict[str, float]] = lambda _: {}
    change: Callable[[Tensor, int, set[str]], Tensor] = lambda chunk, _, __: chunk
    on_apply: Callable[[], None] = lambda: None
    effect: Any = "exact"
    value: Any = field(default=None)

    def facts(self) -> dict[str, Any]:
        return {self.name: True}

    def apply(self, subject: Any) -> Callable[[], None]:
        self.on_apply()
        before = dict(subject.ms), subject.change
        subject.on.add(self.name)
        subject.ms = subject.ms | self.ms(subject)
        inner = subject.change
        subject.change = lambda chunk, index: self.change(inner(chunk, index), index, subject.on)

        def undo() -> None:
            subject.ms, subject.change = before
            subject.on.discard(self.name)

        return undo


def entry(planted: Planted, *parts: str, effect: Any = "exact", rank: int = STRUCTURE, offered: bool = True) -> Entry:
    """``planted`` as an entry of the catalogue, written ``NAME=true``."""
    return Entry(
        planted.name,
        "planted",
        effect,
        rank,
        lambda _: planted,
        candidates=lambda _: [{planted.name: True}] if offered else [],
        parts=lambda _, __: parts,
    )
