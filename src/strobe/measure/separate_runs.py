"""How much slower many configurations are than the fastest, where each ran in processes of its own, by any quantile.

Two sources of error, and both intervals must exclude 'as fast' before one is called slower. Within a run: intervals of
the quantile from order statistics, without a distribution (Conover, "Practical Nonparametric Statistics", 1999, section
3.2), joined by MOVER (Zou and Donner, Statistics in Medicine 27, 2008). Between runs of one configuration (Kalibera and
Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013): what repeats differ by, pooled over the configurations;
with one run of each it is not known, and `BETWEEN_RUNS` is allowed for.

The fastest is found in the same samples, so that every pair of configurations may be the one that is judged. The error
is that of all pairs together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strobe.measure.decision import each_of
from strobe.measure.intervals import Array, checked, inflation
from strobe.measure.verdicts import LEVEL
from strobe.results.data import Interval

BETWEEN_RUNS = 0.02  # relative difference of two runs of one thing that is allowed for where there are no repeats
Runs = Sequence[Sequence[float]]  # of one configuration: the times of each run
Ends = tuple[float, float, float]  # the low end, the figure, the high end; logarithms


def slower(fastest: Runs, others: Sequence[Runs], share: float = 0.5) -> list[Interval | None]:
    """How many times as long each of ``others`` takes as the fastest, by the ``share`` quantile of its times.

    One is shown to be slower where the whole interval is above 1. None where one of the two has too few samples for an
    interval (`fewest`).

    Args:
        fastest: the configuration whose quantile was found to be the smallest.
        share: 0.5 for the median, 0.95 for the 95th percentile.

    Raises:
        ValueError: a run without samples, or with times that are not finite and above 0.
    """
    cells = [[np.log(_positive(run)) for run in runs] for runs in (fastest, *others)]
    level = level_of(len(cells))
    arms = [_arms(runs, share, level) for runs in cells]
    between = _between(cells, share, level)
    return [
        None if arms[0] is None or own is None else _ratio(arms[0], own, len(fastest), len(runs), between, level)
        for own, runs in zip(arms[1:], others, strict=True)
    ]


def level_of(configurations: int) -> float:
    """The level of each verdict, with which those on all pairs of ``configurations`` are together 95 % sure or more."""
    return max(LEVEL, each_of(configurations * (configurations - 1) // 2))


def fewest(configurations: int, share: float) -> int:
    """The fewest samples of which the ``share`` quantile has an interval, among so many configurations."""
    rarer = max(share, 1 - share)
    return math.ceil(math.log((1 - level_of(configurations)) / 2) / math.log(rarer))


def _ratio(first: Ends, own: Ends, first_runs: int, own_runs: int, between: float | None, level: float) -> Interval:
    apart = own[1] - first[1]
    low = apart - math.hypot(own[1] - own[0], first[2] - first[1])
    high = apart + math.hypot(own[2] - own[1], first[1] - first[0])
    if between is None:
        allowed = math.log1p(BETWEEN_RUNS)
        low, high = low - allowed, high + allowed
    else:
        allowed = between * math.sqrt(1 / own_runs + 1 / first_runs)
        low, high = min(low, apart - allowed), max(high, apart + allowed)
    return Interval(low=math.exp(low), high=math.exp(high), level=level)


def _between(cells: Sequence[Sequence[Array]], share: float, level: float) -> float | None:
    """What to allow for between one run and one other, from what repeats differ by; None where there are none."""
    from scipy import stats

    known = [np.array([np.quantile(run, share) for run in runs]) for runs in cells]
    free = sum(len(runs) - 1 for runs in known)
    if not free:
        return None
    variance = sum(float(((runs - runs.mean()) ** 2).sum()) for runs in known) / free
    return float(stats.t.ppf((1 + level) / 2, free)) * math.sqrt(variance)


def _arms(runs: Sequence[Array], share: float, level: float) -> Ends | None:
    """The mean of the runs' quantiles between the ends of its interval; None where there are too few samples.

    The ends are of what samples differ by from their own run's quantile. Samples that resemble their neighbours count
    as fewer (`strobe.measure.intervals.inflation`).
    """
    from scipy import stats

    quantiles = [float(np.quantile(run, share)) for run in runs]
    off = [run - quantile for run, quantile in zip(runs, quantiles, strict=True)]
    worth = sum(math.floor(len(run) / inflation((run <= 0).astype(float))) for run in off)
    below, above = (int(stats.binom.ppf(tail, worth, share)) for tail in ((1 - level) / 2, (1 + level) / 2))
    if not 1 <= below <= above < worth:
        return None
    ordered, at = np.sort(np.concatenate(off)), float(np.mean(quantiles))
    low = ordered[math.floor((below - 1) / worth * len(ordered))]
    high = ordered[math.ceil((above + 1) / worth * len(ordered)) - 1]
    return at + float(low), at, at + float(high)


def _positive(run: Sequence[float]) -> Array:
    array = checked(run)
    if (array == 0).any():
        raise ValueError("a ratio needs times above zero")
    return array
