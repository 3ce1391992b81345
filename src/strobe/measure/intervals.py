"""Intervals that hold for timings: skewed, with spikes, and with neighbours that resemble each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def checked(values: Sequence[float] | Array, what: str = "samples") -> Array:
    """``values`` as an array of milliseconds; raises ValueError when empty, negative, NaN or infinite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{what}: expected a non-empty list of milliseconds, got shape {array.shape}")
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{what}: every value must be finite, but value {at} is {array[at]}")
    if (array < 0).any():
        at = int(np.flatnonzero(array < 0)[0])
        raise ValueError(f"{what}: a time cannot be negative, but value {at} is {array[at]:g}")
    return array


def median_interval(values: Array, level: float = 0.95) -> tuple[float, float] | None:
    """Distribution-free interval of the median from two order statistics (Conover 1999, section 3.2).

    ``values`` in the order in which they were taken: the ranks of the two order statistics lie further from the middle
    by the root of `inflation`. Where they would lie beyond the smallest and the largest value, the distance to these is
    multiplied instead. None where there are too few values for ``level`` (fewer than six at 95 %).
    """
    from scipy import stats

    count = len(values)
    outside = int(stats.binom.ppf((1 - level) / 2, count, 0.5))
    if outside < 1:
        return None
    ordered, middle = np.sort(values), (count - 1) / 2
    reach = (middle - outside + 1) * math.sqrt(inflation(stats.rankdata(values)))
    at = max(0, math.floor(middle - reach))
    beyond = max(1.0, reach / middle)
    median = float(np.median(values))
    return median - beyond * (median - float(ordered[at])), median + beyond * (float(ordered[-1 - at]) - median)


def inflation(scores: Array) -> float:
    """How many times the variance of a mean grows because neighbouring ``scores`` resemble each other; ≥ 1.

    The integrated autocorrelation time, the larger of two estimates. One is the initial positive sequence (Geyer,
    "Practical Markov chain Monte Carlo", Statistical Science 7, 1992), which sees any memory, and too little of it in
    few scores. The other takes the memory to fade by the same share from score to score, AR(1): the correlation of
    neighbours and half its standard error (Bartlett 1946), without its bias (Marriott and Pope 1954).
    """
    from scipy import signal

    count = len(scores)
    centred = scores - scores.mean()
    variance = float(centred @ centred)
    if count < 4 or variance <= 0:
        return 1.0
    correlation = signal.correlate(centred, centred, mode="full")[count - 1 :] / variance
    neighbours = float(correlation[1])
    neighbours += (1 + 4 * max(neighbours, 0.0)) / count + math.sqrt(max(1 - neighbours**2, 0.0) / count) / 2
    neighbours = min(max(neighbours, 0.0), 1 - 1 / count)
    # Removing the mean biases every correlation down by about 1/n.
    correlation[1:] += 1 / count
    pairs = correlation[: 2 * (count // 2)].reshape(-1, 2).sum(axis=1)
    positive = pairs[: int(np.argmax(pairs <= 0))] if (pairs <= 0).any() else pairs
    return max(1.0, float(2 * positive.sum() - 1), (1 + neighbours) / (1 - neighbours))


def centre(differences: Array, level: float) -> tuple[float, float, float, float]:
    """The centre of ``differences`` with its interval: ``(estimate, low, high, level reached)``.

    Hodges and Lehmann's estimate and the interval that inverts Wilcoxon's signed-rank test (Hollander, Wolfe
    and Chicken, "Nonparametric Statistical Methods", 2014, sections 3.2 and 3.3), so that spikes count as
    ranks only. The null variance is multiplied by `inflation`, which keeps the level when neighbours resemble
    each other; where that asks for more than the differences reach, their ends are moved out by as much. With n
    differences no interval reaches more than 1 − 2 ** (1 − n); the level says what was reached.
    """
    from scipy import stats

    count = len(differences)
    averages = count * (count + 1) // 2
    lower, upper = walsh_averages(differences, [(averages - 1) // 2, averages // 2])
    estimate = (lower + upper) / 2
    residuals = differences - estimate
    scores = np.sign(residuals) * stats.rankdata(np.abs(residuals))
    reached = min(level, 1 - 2.0 ** (1 - count))
    mean, deviation = averages / 2, math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    reach = float(stats.norm.ppf((1 + reached) / 2)) * deviation
    wanted = reach * math.sqrt(inflation(scores))
    cut = max(0, math.floor(mean - wanted))
    low, high = walsh_averages(differences, [cut, averages - 1 - cut])
    beyond = max(1.0, wanted / max(mean, reach))
    return estimate, estimate - beyond * (estimate - low), estimate + beyond * (high - estimate), reached


# So many averages for each value are made and sorted once the rest is ruled out; more would take memory, fewer time.
_MADE = 4
_ALIKE = 1e-13  # of the largest value: averages closer than that are ties


def walsh_averages(values: NDArray[np.floating], ranks: Sequence[int]) -> list[float]:
    """The Walsh averages (a + b) / 2 of all pairs of ``values``, each with itself too, at ``ranks`` of their order.

    Exact, in O(n) memory: the pairs up to a bound are counted in the sorted values, and the bound is moved by bisection
    until few are left (after Monahan, "Algorithm 616: fast computation of the Hodges-Lehmann location estimator", ACM
    Transactions on Mathematical Software 10, 1984, which moves it from row to row).

    Args:
        values: finite, one at least.
        ranks: from 0 to n (n + 1) / 2 − 1.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return [_at(ordered, rank) for rank in ranks]


def _at(ordered: NDArray[np.float64], rank: int) -> float:
    rows = np.arange(len(ordered))
    # Row i holds the pairs (i, j) from j = i on. Those before ``low_ends[i]`` come before the rank, and those from
    # ``high_ends[i]`` on come after it.
    low, low_ends = float(ordered[0]), rows
    high, high_ends = float(ordered[-1]), np.full(len(ordered), len(ordered))
    alike = _ALIKE * max(abs(low), abs(high))
    while int((high_ends - low_ends).sum()) > _MADE * len(ordered) and high - low > alike:
        middle = low + (high - low) / 2
        ends = np.maximum(np.searchsorted(ordered, 2 * middle - ordered, side="right"), rows)
        if int((ends - rows).sum()) > rank:
            high, high_ends = middle, ends
        else:
            low, low_ends = middle, ends
    left = high_ends - low_ends
    if high - low <= alike:
        row = int(np.argmax(left))
        return float(ordered[row] + ordered[high_ends[row] - 1]) / 2
    first = np.repeat(rows, left)
    second = np.arange(len(first)) - np.repeat(np.cumsum(left) - left, left) + np.repeat(low_ends, left)
    made = (ordered[first] + ordered[second]) / 2
    at = rank - int((low_ends - rows).sum())
    return float(np.partition(made, at)[at])
