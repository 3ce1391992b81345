"""From latencies to a budget: a line over denoising steps, what each part may take, and what asynchrony makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strobe.budget.results import Asynchrony, Latency
from strobe.core.measure.statistics import Array
from strobe.core.results.data import Interval, Line
from strobe.ladder.in_time import REQUIRED, judge_in_time
from strobe.ladder.results import InTime

DENOISE = ("denoise step", "denoise", "denoising")
MOST_BEYOND = 10  # times the most steps that were measured: no line is held to reach further


def denoise_part(latency: Latency) -> str | None:
    """The part that is repeated in every denoising step."""
    return next((name for name in latency.parts if name.lower() in DENOISE), None)


def line(part: str, points: Sequence[tuple[int, float]]) -> Line | None:
    """The line through (steps, milliseconds); None with one number of steps.

    Its 95 % t-intervals cover the spread of repeats and the departure from a straight line. With only two numbers of
    steps the line has no intervals.
    """
    import statsmodels.api as sm  # slow to import

    steps, ms = np.array([s for s, _ in points], dtype=float), np.array([y for _, y in points])
    if len(set(steps)) < 2:
        return None
    fit = sm.OLS(ms, np.column_stack([np.ones_like(steps), steps])).fit()
    ends = fit.conf_int() if len(set(steps)) > 2 else None
    first, took = min(points)

    def interval(row: int) -> Interval | None:
        return None if ends is None else Interval(low=float(ends[row][0]), high=float(ends[row][1]))

    return Line(
        part=part,
        fixed_ms=float(fit.params[0]),
        fixed_interval=interval(0),
        per_step_ms=float(fit.params[1]),
        per_step_interval=interval(1),
        one_step_ms=took / first,
        predicted={int(s): float(fit.params[0] + fit.params[1] * s) for s in sorted(set(steps))},
    )


def most_steps(total: Line | None, latencies: Sequence[Latency], target_ms: float) -> int | None:
    """Return the most steps with which a chunk takes at most ``target_ms``; None if even the fewest take longer.

    What was measured counts, and between two numbers of steps the line. Beyond them a step is taken to cost the most
    that the line's interval allows; nothing is beyond where `Line.unknown_beyond` has a reason.
    """
    met = [latency for latency in latencies if latency.total_ms <= target_ms]
    fewest_missed = min((latency.steps for latency in latencies if latency.total_ms > target_ms), default=math.inf)
    last = max((each for each in met if each.steps < fewest_missed), key=lambda each: each.steps, default=None)
    measured = 0 if last is None else last.steps
    most: float = measured
    if total is None or total.per_step_ms <= 0:
        pass
    elif last is None or math.isfinite(fewest_missed):
        most = math.floor((target_ms - total.fixed_ms) / total.per_step_ms + 1e-9)
    elif total.per_step_interval is not None and not total.unknown_beyond:
        most = measured + math.floor((target_ms - last.total_ms) / total.per_step_interval.high + 1e-9)
        most = min(most, MOST_BEYOND * measured)
    most = max(measured, min(most, fewest_missed - 1))
    return int(most) if most >= 1 else None


def asynchrony(
    latency: Latency, control_hz: float, times: Sequence[float] | Array = (), required: float = REQUIRED
) -> Asynchrony:
    """Return the delay and the age of observations where the robot acts on one chunk while the next is computed.

    The delay is the latency in whole control ticks, as LeRobot's RTC counts it (Black, Galliker and Levine, "Real-Time
    Execution of Action Chunking Flow Policies", 2025). A chunk has to last for as many ticks as the next one takes. So
    the last action executed of it rests on an observation that is twice the delay old, less one tick.

    Args:
        times: milliseconds of chunks. The delay is the least that ``required`` of all chunks are shown to keep, or the
            one that so many of these keep if they are too few to show it. Without them it is the median's.
    """
    tick_ms = 1e3 / control_hz
    delay = _ticks(latency.total_ms, tick_ms)
    judged: InTime | None = None
    if len(times):
        seen = delay = max(delay, _ticks(float(np.quantile(times, required, method="inverted_cdf")), tick_ms))
        judged = judge_in_time(times, delay * tick_ms, required)
        while judged.outcome != "reached" and delay * tick_ms < max(times):
            delay += 1
            judged = judge_in_time(times, delay * tick_ms, required)
        if judged.outcome != "reached":
            delay, judged = seen, judge_in_time(times, seen * tick_ms, required)
    return Asynchrony(
        steps=latency.steps,
        hz=1e3 / latency.total_ms,
        delay_ticks=delay,
        in_time=judged,
        horizon=delay,
        youngest_ms=delay * tick_ms,
        oldest_ms=(2 * delay - 1) * tick_ms,
    )


def _ticks(ms: float, tick_ms: float) -> int:
    return max(1, math.ceil(ms / tick_ms - 1e-9))
