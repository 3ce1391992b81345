"""Intervals that hold for timings: skewed, with spikes, and with neighbours that resemble each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

# Walsh averages grow with the square of the pairs; above this many, neighbours are merged first.
_MOST_DIFFERENCES = 1000


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

    None where there are too few values for ``level`` (fewer than six at 95 %).
    """
    from scipy import stats

    low, high = stats.quantile_test(values, p=0.5).confidence_interval(level)
    return (float(low), float(high)) if np.isfinite(low) and np.isfinite(high) else None


def inflation(scores: Array) -> float:
    """How many times the variance of a mean grows because neighbouring ``scores`` resemble each other; ≥ 1.

    The integrated autocorrelation time by the initial positive sequence (Geyer, "Practical Markov chain Monte
    Carlo", Statistical Science 7, 1992). Independent or alternating scores give 1.
    """
    from scipy import signal

    count = len(scores)
    centred = scores - scores.mean()
    variance = float(centred @ centred)
    if count < 4 or variance <= 0:
        return 1.0
    correlation = signal.correlate(centred, centred, mode="full")[count - 1 :] / variance
    # Removing the mean biases every correlation down by about 1/n (Marriott and Pope 1954).
    correlation[1:] += 1 / count
    usable = 2 * (min(count, 2 + 10 * round(math.log2(count))) // 2)
    pairs = correlation[:usable].reshape(-1, 2).sum(axis=1)
    positive = pairs[: int(np.argmax(pairs <= 0))] if (pairs <= 0).any() else pairs
    return max(1.0, float(2 * positive.sum() - 1))


def centre(differences: Array, level: float) -> tuple[float, float, float, float]:
    """The centre of ``differences`` with its interval: ``(estimate, low, high, level reached)``.

    Hodges and Lehmann's estimate and the interval that inverts Wilcoxon's signed-rank test (Hollander, Wolfe
    and Chicken, "Nonparametric Statistical Methods", 2014, sections 3.2 and 3.3), so that spikes count as
    ranks only. The null variance is multiplied by `inflation`, which keeps the level when neighbours resemble
    each other. With n differences no interval reaches more than 1 − 2 ** (1 − n); the level says what was
    reached.
    """
    from scipy import stats

    merged = _merge(differences)
    count = len(merged)
    rows, columns = np.triu_indices(count)
    walsh = np.sort((merged[rows] + merged[columns]) / 2)
    estimate = float(np.median(walsh))
    residuals = merged - estimate
    scores = np.sign(residuals) * stats.rankdata(np.abs(residuals))
    reached = min(level, 1 - 2.0 ** (1 - count))
    deviation = math.sqrt(count * (count + 1) * (2 * count + 1) / 24 * inflation(scores))
    cut = max(0, math.floor(count * (count + 1) / 4 - float(stats.norm.ppf((1 + reached) / 2)) * deviation))
    return estimate, float(walsh[cut]), float(walsh[-1 - cut]), reached


def _merge(differences: Array) -> Array:
    """At most `_MOST_DIFFERENCES` values: the medians of groups of neighbours."""
    size = math.ceil(len(differences) / _MOST_DIFFERENCES)
    groups = np.array_split(differences, math.ceil(len(differences) / size))
    return np.array([np.median(group) for group in groups]) if size > 1 else differences
