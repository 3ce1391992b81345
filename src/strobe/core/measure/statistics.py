"""Describe a list of timings: its summary, its warm-up, and notes about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from strobe.core.results.data import Interval, Line, Summary
from strobe.core.results.numerals import significant
from strobe.core.results.run_summary import Level

Array = NDArray[np.floating]


def validate_times(values: Sequence[float] | Array, what: str = "samples") -> Array:
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
    multiplied instead. None if there are too few values for ``level`` (fewer than six at 95 %).
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


def median_variance(count: int) -> float:
    """The variance of the median of ``count`` independent, normal values of variance 1, or up to 15 % more."""
    return 1 / count if count < 3 else math.pi / (2 * count + math.pi - 2)


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
_ALIKE = 1e-13  # share of the largest value: averages closer than that are ties


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
    return [_ranked_pair_mean(ordered, rank) for rank in ranks]


def _ranked_pair_mean(ordered: NDArray[np.float64], rank: int) -> float:
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


_LEVEL = 0.95
# A note blames the machine; at this level a quiet run is blamed wrongly once in a thousand.
_SURE = 0.001
_FEWEST_TO_DESCRIBE = 20
# Theil's slopes and the ranks grow with the square of the samples; above this many, neighbours are merged first.
_MOST_TO_DESCRIBE = 1000
_TIMES = 5  # a change by more than so many times is told by the times before and after


def summarise(values: Sequence[float] | Array) -> Summary:
    """Median with its distribution-free 95 % interval, mean, spread, extremes and 95th percentile.

    ``values`` in the order in which they were taken, in any unit (milliseconds). Where neighbours resemble each other
    the interval is wider (see `median_interval`). Raises ValueError for empty, negative, NaN or infinite
    values.
    """
    array = validate_times(values)
    ends = median_interval(array, _LEVEL)
    smallest, largest = float(array.min()), float(array.max())
    return Summary(
        n=len(array),
        median=float(np.median(array)),
        interval=None if ends is None else Interval(low=max(0.0, ends[0]), high=ends[1], level=_LEVEL),
        # Rounding may push the mean of equal values just outside of them.
        mean=min(max(float(array.mean()), smallest), largest),
        std=float(array.std(ddof=1)) if len(array) > 1 else 0.0,
        min=smallest,
        max=largest,
        p95=float(np.percentile(array, 95)),
    )


def find_warmup(values: Sequence[float] | Array) -> int:
    """How many leading ``values`` are warm-up: slower than what follows; at most half of them.

    Warm-up ends where the mean of the rest is known best: MSER (White, "An effective truncation heuristic for
    bias reduction in simulation output", Simulation 69, 1997). Values are clipped at the outer fence of their
    later half (Tukey 1977), so that a spike counts little. There is no warm-up unless the values before that end
    lie beyond the fence or are slower by Mann and Whitney's test at 1 %. Raises ValueError as `summarise` does.
    """
    array = validate_times(values)
    count, most = len(array), len(array) // 2
    if count < 4:
        return 0
    from scipy import stats

    low, high = np.percentile(array[most:], [25, 75])
    fence = float(high + 3 * (high - low))
    clipped = np.minimum(array, fence)
    centred = clipped - clipped.mean()
    remaining = count - np.arange(most + 1)
    sums = np.cumsum(centred[::-1])[::-1][: most + 1]
    squares = np.cumsum(centred[::-1] ** 2)[::-1][: most + 1]
    cut = int(np.argmin((squares - sums**2 / remaining) / remaining**2))
    lead, rest = array[:cut], array[cut:]
    if cut and (np.median(lead) > fence or np.asarray(stats.mannwhitneyu(lead, rest, alternative="greater"))[1] < 0.01):
        return cut
    return int(np.argmax(array[: most + 1] <= fence)) if (array[: most + 1] <= fence).any() else most


def describe(values: Sequence[float] | Array) -> list[str]:
    """One sentence for each thing to know about ``values`` (in order, warm-up removed): none for a quiet run.

    Drift or a step, two modes, spikes, wide noise. Fewer than twenty values say nothing.
    Raises ValueError as `summarise` does.
    """
    array = validate_times(values)
    median = float(np.median(array))
    if len(array) < _FEWEST_TO_DESCRIBE or not array.any():
        return []
    notes = [_change_over_time(array), _modes(array)]
    if median > 0:  # the others are told by it
        notes += [_spikes(array), _noise(array)]
    return [sentence for sentence in notes if sentence]


def _change_over_time(array: Array) -> str | None:
    """A step or a trend of over 2 %, whichever fits better, if either is significant."""
    from scipy import stats

    size = math.ceil(len(array) / _MOST_TO_DESCRIBE)
    groups = np.array_split(array, math.ceil(len(array) / size))
    series = np.array([np.median(group) for group in groups])
    count, at = len(series), np.arange(len(series))
    slope, intercept = (float(part) for part in np.asarray(stats.theilslopes(series, at))[:2])
    off_trend = series - (slope * at + intercept)
    split = int(np.argmax(np.abs(_pettitt(series)))) + 1
    before, after = float(np.median(series[:split])), float(np.median(series[split:]))
    off_step = series - np.where(at < split, before, after)
    start, end = intercept, intercept + slope * (count - 1)
    if np.abs(off_step).sum() < np.abs(off_trend).sum():
        # Pettitt, "A non-parametric approach to the change-point problem", Applied Statistics 28, 1979.
        highest = float(np.abs(_pettitt(series)).max())
        chance = 2 * math.exp(-6 * highest**2 / (count**3 + count**2) / inflation(stats.rankdata(off_step)))
        if chance < _SURE and _differ(before, after):
            return (
                f"a step {'up' if after > before else 'down'}{_describe_change(before, after, ' of')} after "
                f"{split / count * 100:.0f} % of the run, from {significant(before, 4)} to {significant(after, 4)} ms"
            )
        return None
    # Mann-Kendall's trend test, corrected for autocorrelation as by Hamed and Rao, Journal of Hydrology 204,
    # 1998.
    tau = np.asarray(stats.kendalltau(at, series))[0]
    deviation = math.sqrt(2 * (2 * count + 5) / (9 * count * (count - 1)) * inflation(stats.rankdata(off_trend)))
    if np.isfinite(tau) and 2 * stats.norm.sf(abs(tau) / deviation) < _SURE and _differ(start, end):
        by = (
            _describe_change(start, end, " by")
            or f" from {significant(max(start, 0.0))} to {significant(max(end, 0.0))} ms"
        )
        return f"times drift {'up' if end > start else 'down'}{by} over the run"
    return None


def _differ(before: float, after: float) -> bool:
    """By more than 2 %, of the one before or, of a series that begins at nothing, of the other."""
    return abs(after - before) > 0.02 * (before if before > 0 else abs(after))


def _describe_change(before: float, after: float, word: str) -> str:
    """The change in per cent; empty if it is so large that the two times say more."""
    if before <= 0 or abs(after - before) >= _TIMES * before:
        return ""
    return f"{word} {abs(after / before - 1) * 100:.1f} %"


def _pettitt(series: Array) -> Array:
    from scipy import stats

    count = len(series)
    # The number of later values below, minus those above, from the ranks.
    return 2 * np.cumsum(stats.rankdata(series))[:-1] - np.arange(1.0, count) * (count + 1)


def _modes(array: Array) -> str | None:
    """Two groups of samples with a gap between: Otsu's threshold (1979) on the logarithms explains most of it."""
    times = np.sort(array)
    ordered = np.log(np.maximum(times, np.finfo(float).tiny))
    count = len(ordered)
    fewest = max(4, math.ceil(0.15 * count))
    sizes = np.arange(1, count)
    sums = np.cumsum(ordered - ordered.mean())[:-1]
    between = sums**2 * count / (sizes * (count - sizes))
    split = int(np.argmax(between)) + 1
    total = float(((ordered - ordered.mean()) ** 2).sum())
    faster, slower = (float(np.median(part)) for part in (times[:split], times[split:]))
    separated = slower > 1.05 * faster and total > 0 and between[split - 1] / total > 0.87
    if min(split, count - split) < fewest or not separated:
        return None
    return (
        f"times fall into two groups: {split} of {count} near {significant(faster, 4)} ms "
        f"and {count - split} near {significant(slower, 4)} ms; the median may jump from one to the other"
    )


def _spikes(array: Array) -> str | None:
    median = float(np.median(array))
    high = int((array > 2 * median).sum())
    if not 0 < high < 0.15 * len(array):
        return None
    longest = significant(float(array.max()), 4)
    return f"{high} of {len(array)} samples took more than twice the median, the longest {longest} ms"


def _noise(array: Array) -> str | None:
    low, median, high = np.percentile(array, [25, 50, 75])
    if (high - low) / median <= 0.2:
        return None
    return (
        f"noisy: the middle half of the samples spreads over {(high - low) / median * 100:.0f} % of the median; "
        "a quieter machine would say more in less time"
    )


def bonferroni(several: int, level: float = 0.95) -> float:
    """The level of each of ``several`` verdicts that together are as sure as one at ``level`` (Bonferroni)."""
    return 1 - (1 - level) / max(1, several)


FEWEST_OF_RUN = 6  # samples of a run that is judged


def run_level(times: Array | Sequence[float]) -> Level | None:
    """Return the level of a run's times (ms); None with fewer than `FEWEST_OF_RUN`, or where one is zero."""
    values = np.asarray(times, float)
    if len(values) < FEWEST_OF_RUN or values.min() <= 0:
        return None
    logs = np.log(values)
    ends = median_interval(logs, 0.95)
    assert ends is not None  # six are enough for 95 %
    return Level(log_ms=float(np.median(logs)), error=(ends[1] - ends[0]) / (2 * 1.96))


RESAMPLES = 2000


def steps_line(part: str, samples: Mapping[int, Sequence[float]], resamples: int = RESAMPLES) -> Line | None:
    """Least squares through (steps, median of the samples); None with fewer than two numbers of steps.

    The 95 % intervals are percentiles of a bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
    chapter 13) that draws whole rounds, so that what slows a round alike stays together, wider by what neighbouring
    rounds share (see `inflation`). They say how well the line through these numbers of steps is known, not how straight
    it is. Below six rounds there are none.

    Args:
        samples: steps → milliseconds of each round, equally many for all.

    Raises:
        ValueError: not equally many samples, or none.
    """
    steps = np.array(sorted(samples), dtype=float)
    if len(steps) < 2:
        return None
    rounds = np.array([samples[int(count)] for count in steps], dtype=float)  # (numbers of steps, rounds)
    if rounds.ndim != 2 or not rounds.size:
        raise ValueError("a line needs as many samples for each number of steps, one at least")
    medians = np.median(rounds, axis=1)
    per_step, fixed = map(float, np.polyfit(steps, medians, 1))
    ends: tuple[Interval | None, Interval | None] = (None, None)
    if rounds.shape[1] >= 6:
        drawn = np.random.default_rng(0).integers(rounds.shape[1], size=(resamples, rounds.shape[1]))
        fits = np.polyfit(steps, np.median(rounds[:, drawn], axis=2), 1)  # (slope and offset, resamples)
        of_rounds = np.polyfit(steps, rounds, 1)
        slope, offset = (
            around + (np.percentile(drawn_fits, [2.5, 97.5]) - around) * math.sqrt(inflation(series))
            for around, drawn_fits, series in zip((per_step, fixed), fits, of_rounds, strict=True)
        )
        ends = (Interval(low=offset[0], high=offset[1]), Interval(low=slope[0], high=slope[1]))
    return Line(
        part=part,
        fixed_ms=fixed,
        fixed_interval=ends[0],
        per_step_ms=per_step,
        per_step_interval=ends[1],
        one_step_ms=float(medians[0] / steps[0]),
        predicted={int(count): fixed + per_step * float(count) for count in steps},
    )


def interpolate_peak(values: Array, peak: int) -> float:
    """Return where ``values`` peak, by the parabola through the largest, at ``peak``, and its neighbours."""
    if peak in (0, len(values) - 1):
        return float(peak)
    before, here, after = values[peak - 1 : peak + 2]
    curve = before - 2 * here + after
    return float(peak + (0.5 * (before - after) / curve if curve < 0 else 0.0))
