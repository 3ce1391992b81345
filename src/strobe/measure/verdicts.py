"""Faster, slower, or no difference that these samples can show: always with the interval it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strobe.measure.intervals import Array, centre, checked, inflation, median_interval
from strobe.results.comparison import Verdict
from strobe.results.data import Interval

# 99 % for a claim: A/A comparisons then claim a difference in about 1 %, which leaves room below 5 % for what
# no interval knows of (early stopping, neighbours that resemble each other over longer times than the run).
LEVEL = 0.99
FEWEST_PAIRS = 6


def paired_verdict(
    baseline: Sequence[float] | Array,
    candidate: Sequence[float] | Array,
    *,
    baseline_name: str = "baseline",
    candidate_name: str = "candidate",
    level: float = LEVEL,
    too_wide: float = 0.10,
) -> Verdict:
    """Judge two lists of milliseconds whose entries are paired by round of one interleaved run.

    The ratio is the centre of the pairs' log-ratios (see `intervals.centre`): what slows a whole round
    cancels. A difference is claimed when the interval excludes 1. Otherwise the verdict is 'too noisy' where
    the interval reaches further than ``too_wide`` (0.10: a difference of 10 % could have hidden in it) or
    there are fewer than six pairs, and 'no difference shown' where not. Below eight pairs the interval's
    level is what they can reach.

    Raises ValueError for empty, unequal, non-finite or non-positive samples.
    """
    first, second = _positive(baseline, baseline_name), _positive(candidate, candidate_name)
    if len(first) != len(second):
        raise ValueError(
            f"paired samples must be equally many: {baseline_name} has {len(first)}, {candidate_name} {len(second)}"
        )
    estimate, low, high, reached = centre(np.log(second) - np.log(first), level)
    pairs = len(first)
    basis = f"{pairs} pair{'s' * (pairs != 1)}"
    enough = pairs >= FEWEST_PAIRS
    return _judge(estimate, low, high, reached, pairs, basis, enough, too_wide, baseline_name, candidate_name)


def unpaired_verdict(
    baseline: Sequence[float] | Array,
    candidate: Sequence[float] | Array,
    *,
    baseline_name: str = "baseline",
    candidate_name: str = "candidate",
    level: float = LEVEL,
    too_wide: float = 0.10,
    between_runs: float = 0.02,
) -> Verdict:
    """Judge two lists of milliseconds from separate runs; ``pairs`` is 0.

    The interval of the ratio of medians joins the two medians' distribution-free intervals by MOVER (Zou and
    Donner, Statistics in Medicine 27, 2008), each widened by what neighbours share (see
    `intervals.inflation`). Two runs of the same thing differ by more than the noise inside either (Kalibera
    and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013), and one run of each cannot show by how
    much: ``between_runs`` is the relative difference allowed for that, added on both sides.

    Raises ValueError for empty, non-finite or non-positive samples.
    """
    first, second = np.log(_positive(baseline, baseline_name)), np.log(_positive(candidate, candidate_name))
    estimate = float(np.median(second) - np.median(first))
    (below_first, above_first), (below_second, above_second) = _arms(first, level), _arms(second, level)
    allowance = math.log1p(between_runs)
    low = estimate - math.hypot(below_second, above_first) - allowance
    high = estimate + math.hypot(above_second, below_first) + allowance
    fewest = min(len(first), len(second))
    reached = min(level, 1 - 2.0 ** (1 - fewest))
    basis = f"separate runs of {len(first)} and {len(second)} samples"
    enough = fewest >= FEWEST_PAIRS
    return _judge(estimate, low, high, reached, 0, basis, enough, too_wide, baseline_name, candidate_name)


def difference_interval(
    baseline: Sequence[float] | Array,
    candidate: Sequence[float] | Array,
    *,
    paired: bool = True,
    level: float = LEVEL,
) -> tuple[float, Interval | None]:
    """Candidate − baseline in milliseconds, at the baseline's median, and its interval.

    It is the verdict's ratio and interval carried over to milliseconds, so the two never contradict each
    other. The interval is None with fewer than six samples. Raises ValueError as the verdicts do.
    """
    judge = paired_verdict if paired else unpaired_verdict
    verdict = judge(baseline, candidate, level=level)
    median = float(np.median(np.asarray(baseline)))
    low, high = (median * (ratio - 1) for ratio in (verdict.interval.low, verdict.interval.high))
    enough = min(len(baseline), len(candidate)) >= FEWEST_PAIRS
    interval = Interval(low=low, high=high, level=verdict.interval.level) if enough else None
    return median * (verdict.ratio - 1), interval


def _positive(values: Sequence[float] | Array, name: str) -> Array:
    array = checked(values, name)
    if (array == 0).any():
        raise ValueError(f"{name}: a ratio needs times above zero, but value {int(np.argmin(array))} is 0")
    return array


def _arms(logs: Array, level: float) -> tuple[float, float]:
    """How far the median of ``logs`` may lie below and above where it was seen."""
    from scipy import stats

    median = float(np.median(logs))
    # With too few samples for the level the whole range is the widest interval there is.
    low, high = median_interval(logs, level) or (float(logs.min()), float(logs.max()))
    wider = math.sqrt(inflation(stats.rankdata(logs)))
    return wider * (median - low), wider * (high - median)


def _judge(
    estimate: float,
    low: float,
    high: float,
    level: float,
    pairs: int,
    basis: str,
    enough: bool,
    too_wide: float,
    baseline: str,
    candidate: str,
) -> Verdict:
    """The verdict on a log-ratio and its interval, in the words of its sentence."""
    # Past a factor of e^300 a ratio would leave the range of a float, and a reader's patience before that.
    ratio, bottom, top = (math.exp(min(max(value, -300.0), 300.0)) for value in (estimate, low, high))
    shown = f"[{_signed(bottom)}, {_signed(top)}] ({level * 100:.3g} % interval, {basis})"
    widest = math.expm1(min(max(estimate - low, high - estimate), 300.0))
    if not enough:
        kind = "too noisy"
        sentence = (
            f"Too few samples to judge {candidate} against {baseline}: {basis}, and {FEWEST_PAIRS} are needed. "
            f"Seen: {_percent(ratio)}"
        )
    elif low > 0 or high < 0:
        kind = "slower" if low > 0 else "faster"
        ends = (bottom - 1, top - 1) if low > 0 else (1 - top, 1 - bottom)
        sentence = (
            f"{candidate} is {kind} than {baseline} by {abs(ratio - 1) * 100:.1f} % "
            f"[{ends[0] * 100:.1f}, {ends[1] * 100:.1f}] ({level * 100:.3g} % interval, {basis})"
        )
    elif widest > too_wide:
        kind = "too noisy"
        sentence = (
            f"Too noisy to judge {candidate} against {baseline}: {_percent(ratio)} {shown}. Only a difference above "
            f"{widest * 100:.3g} % would have been seen"
        )
    else:
        kind = "no difference shown"
        sentence = (
            f"{candidate} is as fast as {baseline}, as far as these samples can show: {_percent(ratio)} {shown}. "
            f"A difference above {widest * 100:.2g} % would have been seen"
        )
    interval = Interval(low=bottom, high=top, level=level)
    return Verdict(kind=kind, ratio=ratio, interval=interval, pairs=pairs, sentence=sentence)


def _percent(ratio: float) -> str:
    return f"{_signed(ratio)} %"


def _signed(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f}"
