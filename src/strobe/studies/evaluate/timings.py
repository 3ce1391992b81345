"""Rows of an evaluation that is true to time: each variant with an engine and a latency, and its loop's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from strobe.errors import UserError
from strobe.measure.rollout import quantiles
from strobe.results.timing import Engine, Timing
from strobe.runs.episode_log import EpisodeLine
from strobe.simulators.held_action import Hold
from strobe.studies.evaluate.latencies import Latency
from strobe.studies.evaluate.variants import Candidate

ENGINES = ("sync", "rtc")


@dataclass(frozen=True)
class AskedTiming:
    """How calls are made, and how long they take.

    Args:
        fps: control ticks per second.
        rtc: fields of LeRobot's RTCConfig that are not its defaults.
        threshold: --inference.queue_threshold, in actions.
    """

    engine: Engine
    latency: Latency
    hold: Hold
    fps: float
    rtc: dict[str, Any] = field(default_factory=dict)
    threshold: int = 30

    @property
    def name(self) -> str:
        return f"{self.engine}, {self.latency.name}"

    @property
    def written(self) -> str:
        """Everything that was asked for, for `episode_log.Request`."""
        rtc = f", queue_threshold {self.threshold}, {dict(sorted(self.rtc.items()))}" if self.engine == "rtc" else ""
        return f"{self.engine}{rtc}, {self.latency.written}, hold {self.hold.kind}, {self.fps:g} Hz"


@dataclass(frozen=True)
class TimedCandidate(Candidate):
    """A variant at one timing."""

    timing: AskedTiming | None = None

    @property
    def name(self) -> str:
        assert self.timing is not None
        return f"{self.variant.name}, {self.timing.name}"


def timed(candidates: Sequence[Candidate], timings: Sequence[AskedTiming]) -> list[TimedCandidate]:
    """Each variant at each timing; the policy as it is at the first timing comes first."""
    return [
        TimedCandidate(one.variant, f"{one.written} | {timing.written}", one.steps, one.recipe, timing)
        for one in candidates
        for timing in timings
    ]


def parse_engines(text: str) -> list[Engine]:
    """``'sync,rtc'`` as LeRobot's types of inference. Raises UserError."""
    found: list[Any] = []
    for part in (part.strip() for part in text.split(",")):
        if part not in ENGINES:
            raise UserError(f"--inference.type={text}: '{part}' is none of {', '.join(ENGINES)}")
        if part in found:
            raise UserError(f"--inference.type={text}: each engine once")
        found.append(part)
    return found


def timing_of(one: Candidate, played: Sequence[EpisodeLine]) -> Timing | None:
    """The figures of a row's episodes; None where they were not true to time."""
    asked = one.timing if isinstance(one, TimedCandidate) else None
    episodes = [line.timing for line in played if line.timing is not None]
    if asked is None or not episodes:
        return None
    ages, steps, jumps = (
        [value for episode in episodes for value in values(episode)]
        for values in (lambda each: each.age_ms, lambda each: each.steps, lambda each: each.jumps)
    )
    usual = float(np.percentile(steps, 95)) if steps else 0.0
    return Timing(
        variant=one.variant.name,
        engine=asked.engine,
        latency=asked.latency.name,
        hold=asked.hold.kind,
        fps=asked.fps,
        imposed=quantiles([ms for episode in episodes for ms in episode.imposed_ms]),
        ticks=sum(line.ticks for line in played),
        held=sum(episode.held for episode in episodes),
        lost=sum(episode.lost for episode in episodes),
        age=quantiles(ages) if ages else None,
        jumps=len(jumps),
        jump_ratio=float(np.median(jumps)) / usual if jumps and usual else None,
    )
