"""One column of a replay: the figures of one play, with the interval that many draws of its latencies give."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from strobe.loops.measure import rollout as measure
from strobe.loops.measure.rollout import Call, LoopRun, cycle_latencies, draw_latencies, jumps, middle
from strobe.loops.recorded_run import RecordedRun
from strobe.loops.results.rollout import SEAM_JUMP
from strobe.loops.virtual_rollout import Beat, EngineInputs, Setting, make_zero_inputs
from strobe.loops.virtual_time import PlayOptions, play
from strobe.replay.results import Check, ColumnName, Range, Replayed

POLL_NS = 10_000_000  # interval between two looks at LeRobot's inference thread
FEWEST, MOST_TICKS = 20, 200_000  # draws; ticks of all draws of one column together

Progress = Callable[[int, int], None]  # done, of


@dataclasses.dataclass
class Options:
    """How a replay is made.

    Args:
        draws: of latencies, at most.
        seed: of draws and of the policy's noise.
        calls: of the policy in each column, at most; 0: it is not called.
        recipe: opens what puts the requested recipe on the policy.
        seam_jump: a joint jumps where its jumps are so many times its steps.
        stage, tell: progress: what is done, and how many of how many.
    """

    draws: int = 100
    seed: int = 0
    calls: int = 200
    recipe: Callable[[], contextlib.AbstractContextManager[object]] | None = None
    seam_jump: float = SEAM_JUMP
    stage: Callable[[str], None] = lambda _: None
    tell: Progress = lambda done, of: None


@dataclasses.dataclass(frozen=True)
class Column:
    """The settings of a column: what is played, with which latencies, by which policy.

    Args:
        ideal: calls take no time, and the loop is never late.
        inputs: a policy, called with the recorded latencies in their order; None: none is called.
    """

    name: ColumnName
    setting: Setting
    latencies: Sequence[int]
    inputs: EngineInputs | None = None
    ideal: bool = False


@dataclasses.dataclass(frozen=True)
class PlayedColumn:
    """A column's figures, the calls that its policy answered, and whether it was interrupted."""

    column: Replayed
    answered: int
    interrupted: bool


def draw_count(run: RecordedRun, most: int) -> int:
    """Return how many draws a run of this length is worth: ``most``, fewer where it is long."""
    return max(1, min(most, max(FEWEST, MOST_TICKS // max(1, len(run.beats)))))


def recorded_column(run: RecordedRun) -> Replayed:
    """Return the recording as a column."""
    return _make_column("recorded", run, run.setting, run.record, {})


def play_column(run: RecordedRun, column: Column, options: Options, draws: int) -> PlayedColumn:
    """Play a column.

    The figures are those with the recorded latencies in their order. The intervals are those of plays with drawn
    latencies, each with the loop's turns begun at another one.

    Args:
        draws: number of those plays.

    Returns:
        The column. If interrupted, from the draws and calls made by then.

    Raises:
        KeyboardInterrupt: before its first play was over.
    """
    setting = column.setting
    once = _play_in_order(run, column, make_zero_inputs(setting), PlayOptions(until_ns=run.span_ns + 1))
    values: dict[str, list[float]] = {}
    answered, interrupted = 0, False
    try:
        for number in range(0 if column.ideal else draws):
            options.tell(number, draws)
            played = drawn_play(run, setting, column.latencies, options.seed + number)
            drawn_column = _measure_column(column.name, setting, played)
            for figure, value in figures(drawn_column, played.calls, setting.engine == "rtc").items():
                if value is not None:
                    values.setdefault(figure, []).append(value)
        if column.inputs is not None:
            most = min(options.calls or len(once.calls), len(once.calls))
            play_options = PlayOptions(
                until_ns=run.span_ns + 1,
                seed=options.seed,
                most_calls=options.calls,
                on_call=lambda calls: options.tell(calls, most),
            )
            with_policy = _play_in_order(run, column, column.inputs, play_options)
            once.actions, answered = with_policy.actions, len(with_policy.calls)
    except KeyboardInterrupt:
        interrupted = True
    return PlayedColumn(_make_column(column.name, run, setting, once, values), answered, interrupted)


def _play_in_order(run: RecordedRun, column: Column, inputs: EngineInputs, options: PlayOptions) -> LoopRun:
    beats = _ideal(run) if column.ideal else run.beats
    latencies = (
        itertools.repeat(0) if column.ideal else cycle_latencies(column.latencies, max(1, column.setting.warmups))
    )
    return play(cycle_beats(beats), column.setting, latencies, inputs, options)


def drawn_play(run: RecordedRun, setting: Setting, latencies: Sequence[int], seed: int) -> LoopRun:
    """Play with drawn latencies, the turns begun at another one, the inference thread at another moment."""
    rng = np.random.default_rng(seed)
    beats, first = run.beats, max(1, setting.warmups)
    at = int(rng.integers(len(beats))) if not setting.warmups else 0
    source = draw_latencies(latencies, rng, first)
    options = PlayOptions(until_ns=run.span_ns + 1, phase_ns=int(rng.integers(POLL_NS)))
    return play(cycle_beats([*beats[at:], *beats[:at]]), setting, source, make_zero_inputs(setting), options)


def cycle_beats(beats: Sequence[Beat]) -> Iterator[Beat]:
    """Yield the beats, over and over: at a higher rate the same time has more of them."""
    yield from beats
    for beat in itertools.cycle(beats):
        yield dataclasses.replace(beat, reset=False) if beat.reset else beat


def _ideal(run: RecordedRun) -> list[Beat]:
    share = min(1.0, 0.5 * run.setting.period_ns / max(1, max(beat.send_ns for beat in run.beats)))
    return [
        dataclasses.replace(
            beat,
            notify_ns=round(beat.notify_ns * share),
            get_ns=round(beat.get_ns * share),
            send_ns=round(beat.send_ns * share),
            work_ns=round(beat.send_ns * share),
            over_ns=0,
        )
        for beat in run.beats
    ]


def figures(column: Replayed, calls: Sequence[Call], rtc: bool) -> dict[str, float | None]:
    """Return the figures of a column, by the names of `results.FIGURES`.

    Args:
        calls: of its play.
        rtc: whether its engine is that of Real-Time Chunking.
    """
    pace, queue, age = column.pace, column.queue, column.age
    delays = None if column.inference is None else column.inference.delays
    return {
        "held_hz": None if pace is None else pace.held_hz,
        "late": None if pace is None else float(pace.late),
        "first_ms": queue.first_action_ms,
        "starved": float(queue.starved),
        "starved_ms": queue.starved_ms,
        "longest_ms": queue.longest_ms,
        "least": None if queue.least is None else float(queue.least),
        "age_ms": None if age is None else age.median,
        "age_p95_ms": None if age is None else age.p95,
        "calls": float(len(calls)),
        "useless": float(sum(call.after == 0 for call in calls)) if rtc else None,
        "assumed": None if delays is None else delays.assumed.median,
        "executed": None if delays is None else delays.executed.median,
        "skipped": float(sum(max(0, (call.dropped or 0) - (call.executed or 0)) for call in calls)) if rtc else None,
    }


def setting_flags(setting: Setting) -> dict[str, str]:
    """Return a setting in LeRobot's spelling."""
    shown = {"inference.type": setting.engine, "fps": f"{setting.fps:g}"}
    if setting.multiplier > 1:
        shown["interpolation_multiplier"] = str(setting.multiplier)
    if setting.engine == "rtc":
        shown["inference.queue_threshold"] = str(setting.threshold)
        shown |= {f"inference.rtc.{name}": str(value) for name, value in setting.rtc.items() if name in _SHOWN}
        shown["inference_delay"] = {"max": "longest so far", "p95": "95 % of the latest"}.get(
            setting.delay, setting.delay
        )
        if setting.pr_4454:
            shown["rtc_version"] = "4454"
    else:
        shown["policy.n_action_steps"] = str(setting.chunk)
    return shown


_SHOWN = ("execution_horizon", "max_guidance_weight", "prefix_attention_schedule", "enabled")


def checks(recorded: Replayed, own: Replayed, period_ms: float) -> list[Check]:
    """Compare the replay under the run's own settings with the recording.

    A figure agrees where the recorded value lies in the interval of the draws, or that of the recorded order, widened
    by a tick (for the rate 2 %, for counts one): a replay knows moments no finer than the loop and its thread look up.
    """
    compared = []
    for name in ("held_hz", "starved_ms", "age_ms", "executed", "assumed"):
        was, now = recorded.figures[name].value, own.figures[name]
        if was is None or now.value is None:
            continue
        slack = {"held_hz": 0.02 * was, "executed": 1.0, "assumed": 1.0}.get(name, period_ms)
        ends = [end for end in (now.low, now.value, now.high) if end is not None]
        low, high = min(ends), max(ends)
        agrees = low - slack <= was <= high + slack
        compared.append(Check(figure=name, recorded=was, low=low, high=high, agrees=agrees))
    return [*compared, *_compare_jumps(recorded, own)]


def _compare_jumps(recorded: Replayed, own: Replayed) -> list[Check]:
    replayed = {jump.joint: jump for jump in own.jumps}
    compared = []
    for was in recorded.jumps:
        now = replayed.get(was.joint)
        if now is None or now.interval is None or was.interval is None:
            continue
        agrees = now.interval.low <= was.interval.high and was.interval.low <= now.interval.high
        compared.append(
            Check(
                figure=f"jump of {was.joint} over its steps",
                recorded=was.ratio,
                low=now.interval.low,
                high=now.interval.high,
                agrees=agrees,
            )
        )
    return compared


def _make_column(
    name: ColumnName, run: RecordedRun, setting: Setting, played: LoopRun, values: dict[str, list[float]]
) -> Replayed:
    column = _measure_column(name, setting, played)
    for figure, value in figures(column, played.calls, setting.engine == "rtc").items():
        low = high = None
        if value is not None and figure in values:
            ends = middle(values[figure])
            low, high = min(value, ends[0]), max(value, ends[1])
        column.figures[figure] = Range(value=value, low=low, high=high)
    if setting.is_guided:
        column.seams = measure.seams(played.actions, run.header.joints)
    if column.seams:
        column.jumps = jumps(played.actions, run.header.joints, np.random.default_rng(0))
    column.series = measure.series(played.ticks, played.calls, 1500)
    return column


def _measure_column(name: ColumnName, setting: Setting, played: LoopRun) -> Replayed:
    ages = [tick.age_ns / 1e6 for tick in played.ticks if tick.age_ns is not None]
    return Replayed(
        name=name,
        settings=setting_flags(setting),
        pace=measure.pace(played.ticks, setting.fps * setting.multiplier),
        inference=measure.inference(played.calls, setting.fps),
        queue=measure.queue(played.ticks, setting.threshold if setting.engine == "rtc" else None),
        age=measure.quantiles(ages) if ages else None,
    )
