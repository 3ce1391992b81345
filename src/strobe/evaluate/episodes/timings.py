"""Timings of episodes that are true to time: how calls are made, and the sources of their latency."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from strobe.core.errors import UserError, os_error_reason
from strobe.core.untrusted import contents
from strobe.evaluate import episode_log
from strobe.evaluate.episode_flags import LIVE
from strobe.evaluate.results import Engine
from strobe.loops.files import EVENTS
from strobe.loops.measure.rollout import draw_latencies
from strobe.simulators.held_action import Hold


@dataclass(frozen=True)
class RequestedTiming:
    """How calls are made, and how long they take.

    Args:
        fps: control ticks per second.
        rtc: fields of LeRobot's RTCConfig that are not its defaults.
        threshold: --inference.queue_threshold, in actions.
        client: fields of LeRobot's RobotClientConfig that are not its defaults, for async.
        differing: of these, what sets the row apart from others of its engine, in words.
    """

    engine: Engine
    latency: Latency
    hold: Hold
    fps: float
    rtc: dict[str, object] = field(default_factory=dict)
    threshold: int = 30
    differing: str | None = None
    client: dict[str, object] = field(default_factory=dict)

    @property
    def setting(self) -> str:
        """The engine, with what sets it apart: 'rtc', or 'rtc, horizon 20'."""
        return ", ".join(filter(None, (self.engine, self.differing)))

    @property
    def name(self) -> str:
        """The engine and the latency: 'rtc, 100 ms'."""
        return f"{self.setting}, {self.latency.name}"

    @property
    def settings_text(self) -> str:
        """All settings, for `episode_log.EvaluationRequest`."""
        rtc = f", queue_threshold {self.threshold}, {dict(sorted(self.rtc.items()))}" if self.engine == "rtc" else ""
        client = f", {dict(sorted(self.client.items()))}" if self.engine == "async" else ""
        return f"{self.engine}{rtc}{client}, {self.latency.source_with_digest}, hold {self.hold.kind}, {self.fps:g} Hz"


MOST_MS = 60_000  # more than an episode lasts


@dataclass(frozen=True)
class Latency:
    """A source of latencies.

    Args:
        name: '100 ms', 'live', or the run's folder.
        fixed_ns: of each call; None if they are not all alike.
        runs: of a kept run, nanoseconds of its calls by the name of the variant; '' for any other variant.
    """

    name: str
    fixed_ns: int | None = None
    runs: dict[str, Sequence[int]] = field(default_factory=dict)

    @property
    def source_with_digest(self) -> str:
        """The source with a digest of what it holds, so that a changed run is noticed."""
        if not self.runs:
            return self.name
        content = hashlib.sha256(repr(sorted(self.runs.items())).encode()).hexdigest()
        return f"{self.name} ({content[:12]})"

    def source(self, variant: str, seed: int, measured: Callable[[], int]) -> Iterator[int]:
        """Yield nanoseconds of each call of an episode, without end.

        Drawn ones are blocks of neighbouring calls of the run without its first, which is slow for reasons of its own
        (`strobe.loops.measure.rollout.draw_latencies`); the same seed draws the same ones.

        Args:
            measured: nanoseconds of the call that has just ended, for 'live'.
        """
        if self.fixed_ns is not None:
            return itertools.repeat(self.fixed_ns)
        if not self.runs:
            return iter(measured, -1)
        calls = self.runs.get(variant) or self.runs[""]
        return draw_latencies(list(calls[1:] or calls), np.random.default_rng(seed), 0)


def fixed_latency(ms: float) -> Latency:
    """Return a source whose calls all take ``ms`` milliseconds."""
    return Latency(f"{ms:.6g} ms", round(ms * 1e6))


def parse_latency(parts: Sequence[str]) -> list[Latency]:
    """``0``, ``live`` and ``runs/RUN`` as sources. Raises UserError."""
    text = ",".join(parts)
    sources = [_source(text, part) for part in parts]
    return _each_once(f"--latency={text}", sources, "write --latency=0,100,300 (ms), live, or a run's folder")


def parse_ticks(ticks: Sequence[int], fps: float) -> list[Latency]:
    """Control ticks at ``fps`` as sources. Raises UserError."""
    text = ",".join(map(str, ticks))
    if too_many := [count for count in ticks if 1e3 * count / fps > MOST_MS]:
        raise UserError(f"--delay_ticks={text}: {too_many[0]} ticks are more than {MOST_MS // 1000} s")
    sources = [fixed_latency(1e3 * count / fps) for count in ticks]
    return _each_once(f"--delay_ticks={text}", sources, "write --delay_ticks=0,2,5")


def _each_once(flag: str, sources: list[Latency], example: str) -> list[Latency]:
    if not sources:
        raise UserError(f"{flag}: {example}")
    names = [source.name for source in sources]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UserError(f"{flag}: {twice} is given twice")
    return sources


def _source(text: str, part: str) -> Latency:
    if part == LIVE:
        return Latency(LIVE)
    try:
        ms = float(part)
    except ValueError:
        return _recorded_latency(text, Path(part))
    if not 0 <= ms <= MOST_MS:
        raise UserError(f"--latency={text}: {part} must be between 0 and {MOST_MS} ms")
    return fixed_latency(ms)


def _recorded_latency(text: str, run: Path) -> Latency:
    """Return the calls of a rollout or of an evaluation. Raises UserError."""
    from strobe.loops.recorded_run import load

    if not run.exists():
        raise UserError(f"--latency={text}: '{run}' is not a number of milliseconds, nor 'live', nor a run's folder")
    folder = run.parent if run.name == "result.json" else run
    episodes = folder / episode_log.NAME if folder.is_dir() else folder
    try:
        if episodes.name == episode_log.NAME and episodes.is_file():
            runs = dict(_evaluation_calls(episodes))
        elif (folder / EVENTS).is_file() or (folder.is_file() and folder.suffix in (".events", ".gz")):
            runs: dict[str, Sequence[int]] = {"": load(folder).latencies}
        else:
            raise UserError(f"it holds neither {EVENTS} of a rollout nor {episode_log.NAME} of an evaluation")
    except UserError as error:
        flag = "--latency" if str(folder) in str(error) else f"--latency={run}"  # the path once
        raise UserError(f"{flag}: {error}") from None
    except OSError as error:
        raise UserError(f"--latency={run}: it cannot be read: {os_error_reason(error)}") from None
    except (ValueError, KeyError, IndexError) as error:
        raise UserError(f"--latency={run}: it cannot be read: {type(error).__name__}") from None
    return Latency(str(run), runs=runs)


def _evaluation_calls(path: Path) -> dict[str, Sequence[int]]:
    """Return the calls of each variant of an evaluation, in nanoseconds; '': those of its first variant."""
    try:
        options, episodes, _ = episode_log.parse(contents(path, episode_log.MOST_BYTES))
    except UserError as error:
        raise UserError(f"it is no evaluation: {error} ({path.name})") from None
    runs: dict[str, Sequence[int]] = {}
    for name in options.variants:
        calls = [round(ms * 1e6) for line in episodes.values() if line.variant == name for ms in line.call_ms]
        if calls:
            runs.setdefault("", calls)
            runs[name] = calls
    if not runs:
        raise UserError("no episode has ended in it")
    return runs
