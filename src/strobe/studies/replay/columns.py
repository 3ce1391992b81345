"""One column of a replay: the figures of one play, with the interval that many draws of its latencies give."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from strobe.measure import rollout as measure
from strobe.measure.rollout import drawn, in_order, jumps, middle
from strobe.results.replay import Check, Range, Replayed
from strobe.studies.replay.recorded import Recorded
from strobe.studies.replay.settings import Beat, Brain, Played, Setting, no_policy
from strobe.studies.replay.virtual_time import play

POLL_NS = 10_000_000  # between two looks of LeRobot's inference thread
FEWEST, MOST_TICKS = 20, 200_000  # draws; ticks of all draws of one column together

Tell = Callable[[int, int], None]  # done, of


@dataclasses.dataclass(frozen=True)
class Made:
    """A column, the calls that its policy answered, and whether it was interrupted."""

    column: Replayed
    answered: int
    stopped: bool


def draws_for(found: Recorded, most: int) -> int:
    """How many draws a run of this length is worth: ``most``, fewer where it is long."""
    return max(1, min(most, max(FEWEST, MOST_TICKS // max(1, len(found.beats)))))


def recorded_column(found: Recorded) -> Replayed:
    """The recording, as a column."""
    course = found.course
    played = Played(course.ticks, course.calls, course.actions)
    return _column("recorded", found, found.setting, played, {})


def column(
    name: Any,
    found: Recorded,
    setting: Setting,
    latencies: Sequence[int],
    *,
    draws: int,
    seed: int = 0,
    ideal: bool = False,
    brain: Brain | None = None,
    most_calls: int | None = None,
    tell: Tell = lambda done, of: None,
) -> Made:
    """A column under ``setting``.

    The figures are those with the recorded latencies in their order; the intervals those of ``draws`` plays with drawn
    latencies, each with the loop's turns begun at another one.

    Args:
        ideal: calls that take no time, and a loop that is never late.
        brain: asked for its actions with the recorded latencies in their order; None: no policy is asked.

    Returns:
        The column; interrupted, one from the draws and calls made by then.

    Raises:
        KeyboardInterrupt: before its first play was over.
    """
    beats = _ideal(found) if ideal else found.beats
    first = max(1, setting.warmups)
    source = itertools.repeat(0) if ideal else in_order(latencies, first)
    once = play(beats_for(beats), setting, source, no_policy(setting), until_ns=found.span_ns + 1)
    values: dict[str, list[float]] = {}
    answered, stopped = 0, False
    try:
        for number in range(0 if ideal else draws):
            tell(number, draws)
            for figure, value in figures(drawn_play(found, setting, latencies, seed + number), setting).items():
                if value is not None:
                    values.setdefault(figure, []).append(value)
        if brain is not None:
            source = itertools.repeat(0) if ideal else in_order(latencies, first)
            most = min(most_calls or len(once.calls), len(once.calls))
            asked = play(
                beats_for(beats), setting, source, brain, until_ns=found.span_ns + 1, seed=seed, most_calls=most_calls,
                answered=lambda calls: tell(calls, most),
            )  # fmt: skip
            once.actions, answered = asked.actions, len(asked.calls)
    except KeyboardInterrupt:
        stopped = True
    return Made(_column(name, found, setting, once, values), answered, stopped)


def drawn_play(found: Recorded, setting: Setting, latencies: Sequence[int], seed: int) -> Played:
    """A play with drawn latencies, its turns begun at another one, the inference thread at another moment."""
    rng = np.random.default_rng(seed)
    beats, first = found.beats, max(1, setting.warmups)
    at = int(rng.integers(len(beats))) if not setting.warmups else 0
    return play(
        beats_for([*beats[at:], *beats[:at]]),
        setting,
        drawn(latencies, rng, first),
        no_policy(setting),
        until_ns=found.span_ns + 1,
        phase_ns=int(rng.integers(POLL_NS)),
    )


def beats_for(beats: Sequence[Beat]) -> Any:
    """The beats, over and over: at a higher rate the same time has more of them."""
    yield from beats
    for beat in itertools.cycle(beats):
        yield dataclasses.replace(beat, reset=False) if beat.reset else beat


def _ideal(found: Recorded) -> list[Beat]:
    """The run's turns without what made them late; they still observe before they act."""
    period = 1e9 / (found.header["fps"] * found.header["multiplier"])
    share = min(1.0, 0.5 * period / max(1, max(beat.send_ns for beat in found.beats)))
    return [
        dataclasses.replace(
            beat,
            notify_ns=round(beat.notify_ns * share),
            get_ns=round(beat.get_ns * share),
            send_ns=round(beat.send_ns * share),
            work_ns=round(beat.send_ns * share),
            over_ns=0,
        )
        for beat in found.beats
    ]


def figures(played: Played, setting: Setting) -> dict[str, float | None]:
    """The figures of a play, by the names of `results.replay.FIGURES`."""
    ticks, calls = played.ticks, played.calls
    pace = measure.pace(ticks, setting.fps * setting.multiplier)
    queue = measure.queue(ticks)
    ages = [tick.age_ns / 1e6 for tick in ticks if tick.age_ns is not None]
    delays = measure.delays(calls, setting.fps)
    rtc = setting.engine == "rtc"
    return {
        "held_hz": None if pace is None else pace.held_hz,
        "late": None if pace is None else float(pace.late),
        "first_ms": queue.first_action_ms,
        "starved": float(queue.starved),
        "starved_ms": queue.starved_ms,
        "longest_ms": queue.longest_ms,
        "least": None if queue.least is None else float(queue.least),
        "age_ms": float(np.median(ages)) if ages else None,
        "age_p95_ms": float(np.percentile(ages, 95)) if ages else None,
        "calls": float(len(calls)),
        "useless": float(sum(call.after == 0 for call in calls)) if rtc else None,
        "assumed": None if delays is None else delays.assumed.median,
        "executed": None if delays is None else delays.executed.median,
        "skipped": float(sum(max(0, (call.dropped or 0) - (call.executed or 0)) for call in calls)) if rtc else None,
    }


def settings_of(setting: Setting) -> dict[str, str]:
    """A setting in LeRobot's spelling."""
    found = {"inference.type": setting.engine, "fps": f"{setting.fps:g}"}
    if setting.multiplier > 1:
        found["interpolation_multiplier"] = str(setting.multiplier)
    if setting.engine == "rtc":
        found["inference.queue_threshold"] = str(setting.threshold)
        found |= {f"inference.rtc.{name}": str(value) for name, value in setting.rtc.items() if name in _SHOWN}
        found["inference_delay"] = {"max": "longest so far", "p95": "95 % of the latest"}.get(
            setting.delay, setting.delay
        )
        if setting.mended:
            found["rtc_version"] = "4454"
    else:
        found["policy.n_action_steps"] = str(setting.chunk)
    return found


_SHOWN = ("execution_horizon", "max_guidance_weight", "prefix_attention_schedule", "enabled")


def checks(recorded: Replayed, own: Replayed, period_ms: float) -> list[Check]:
    """The replay under the run's own settings against the recording.

    A figure agrees where the recorded value lies in the interval of the draws, or that of the recorded order, widened
    by a tick (for the rate 2 %, for counts one): a replay knows moments no finer than the loop and its thread look up.
    """
    found = []
    for name in ("held_hz", "starved_ms", "age_ms", "executed", "assumed"):
        was, now = recorded.figures[name].value, own.figures[name]
        if was is None or now.value is None:
            continue
        slack = {"held_hz": 0.02 * was, "executed": 1.0, "assumed": 1.0}.get(name, period_ms)
        ends = [end for end in (now.low, now.value, now.high) if end is not None]
        low, high = min(ends), max(ends)
        agrees = low - slack <= was <= high + slack
        found.append(Check(figure=name, recorded=was, low=low, high=high, agrees=agrees))
    return [*found, *_jumps_alike(recorded, own)]


def _jumps_alike(recorded: Replayed, own: Replayed) -> list[Check]:
    """Joint by joint, whether the intervals of both jumps have something in common; joints without two are left out."""
    replayed = {jump.joint: jump for jump in own.jumps}
    found = []
    for was in recorded.jumps:
        now = replayed.get(was.joint)
        if now is None or now.interval is None or was.interval is None:
            continue
        agrees = now.interval.low <= was.interval.high and was.interval.low <= now.interval.high
        found.append(
            Check(
                figure=f"jump of {was.joint} over its steps",
                recorded=was.ratio,
                low=now.interval.low,
                high=now.interval.high,
                agrees=agrees,
            )
        )
    return found


def _column(name: Any, found: Recorded, setting: Setting, played: Played, values: dict[str, list[float]]) -> Replayed:
    ranges = {}
    for figure, value in figures(played, setting).items():
        low = high = None
        if value is not None and figure in values:
            ends = middle(values[figure])
            low, high = min(value, ends[0]), max(value, ends[1])
        ranges[figure] = Range(value=value, low=low, high=high)
    ticks, calls = played.ticks, played.calls
    ages = [tick.age_ns / 1e6 for tick in ticks if tick.age_ns is not None]
    joints = found.header["joints"]
    seams = measure.seams(played.actions, joints) if setting.guided else []
    return Replayed(
        name=name,
        settings=settings_of(setting),
        figures=ranges,
        pace=measure.pace(ticks, setting.fps * setting.multiplier),
        inference=measure.inference(calls, setting.fps),
        queue=measure.queue(ticks, setting.threshold if setting.engine == "rtc" else None),
        age=measure.quantiles(ages) if ages else None,
        seams=seams,
        jumps=jumps(played.actions, joints, np.random.default_rng(0)) if seams else [],
        series=measure.series(ticks, calls, 1500),
    )
