"""Faster, slower, or no difference that these samples can show: always with the interval it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from strobe.core.measure.statistics import Array, bonferroni, centre, median_interval, median_variance, validate_times
from strobe.core.results.call_times import find_filled_calls
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Interval
from strobe.core.results.units import capital, quote

# 99 % for a claim: A/A comparisons then claim a difference in about 1 %, which leaves room below 5 % for what
# no interval knows of (early stopping, neighbours that resemble each other over longer times than the run).
LEVEL = 0.99
FEWEST_PAIRS = 6
WITHIN = 0.02  # equivalence margin of "as fast as": the interval lies within ± this share
TOO_WIDE = 0.10  # more than that to one side: the samples say nothing
TRIFLE = 0.0005  # a sentence would show it as 0.0 %


def paired_verdict(
    baseline: Sequence[float] | Array,
    candidate: Sequence[float] | Array,
    *,
    baseline_name: str = "baseline",
    candidate_name: str = "candidate",
    level: float = LEVEL,
    within: float = WITHIN,
    unit: str = "call",
) -> Verdict:
    """Judge two lists of milliseconds whose entries are paired by round of one interleaved run.

    The ratio is the centre of the pairs' log-ratios (see `statistics.centre`): a disturbance of a whole round cancels.
    It need not be the ratio of the medians. A difference is claimed if the interval excludes 1 and the ratio is further
    from it than `TRIFLE`. Otherwise the verdict is 'inconclusive' with fewer than six pairs, or if the interval
    reaches further from the ratio than `TOO_WIDE` (it could hide a difference of 10 %), and 'no difference shown' if
    not. The candidate is then called as fast as the baseline if the whole interval lies within ``within`` (0.02: 2 %)
    of the same time: two one-sided tests (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987). Fewer
    than eight pairs cannot reach every level: their interval has the level that they reach.

    The typical pair says nothing about calls of which a few do the work of many (see `call_times.find_filled_calls`):
    nothing is claimed of these.

    Args:
        unit: the work that a time is of, such as 'call' or 'step'.

    Raises ValueError for empty, unequal, non-finite or non-positive samples, and for a ``within`` below 0.
    """
    first, second = _positive(baseline, baseline_name), _positive(candidate, candidate_name)
    if len(first) != len(second):
        raise ValueError(
            f"paired samples must be equally many: {baseline_name} has {len(first)}, {candidate_name} {len(second)}"
        )
    pairs = len(first)
    basis = f"{pairs:,} pair{'s' * (pairs != 1)}"
    ratio = _LogRatio(*centre(np.log(second) - np.log(first), level), pairs, "pairs", basis)
    verdict = _judge(ratio, pairs, within, baseline_name, candidate_name, unit)
    return _drop_typical_call_claim(verdict, first, second, baseline_name, candidate_name)


def unpaired_verdict(
    baseline: Sequence[float] | Array,
    candidate: Sequence[float] | Array,
    *,
    baseline_name: str = "baseline",
    candidate_name: str = "candidate",
    level: float = LEVEL,
    between_runs: float = 0.02,
) -> Verdict:
    """Judge two lists of milliseconds from separate runs; ``pairs`` is 0.

    The interval of the ratio of medians joins the two medians' distribution-free intervals (see
    `statistics.median_interval`) by MOVER (Zou and Donner, Statistics in Medicine 27, 2008). Two runs of the same
    thing differ by more than the noise inside either (Kalibera and Jones, "Rigorous Benchmarking in Reasonable
    Time", ISMM 2013), and one run of each cannot show by how much: ``between_runs`` is the relative difference
    allowed for that, added on both sides.

    Raises ValueError for empty, non-finite or non-positive samples.
    """
    times = _positive(baseline, baseline_name), _positive(candidate, candidate_name)
    first, second = (np.log(each) for each in times)
    estimate = float(np.median(second) - np.median(first))
    (below_first, above_first), (below_second, above_second) = _arms(first, level), _arms(second, level)
    allowance = math.log1p(between_runs)
    low = estimate - math.hypot(below_second, above_first) - allowance
    high = estimate + math.hypot(above_second, below_first) + allowance
    fewest = min(len(first), len(second))
    basis = f"separate runs of {len(first):,} and {len(second):,} samples"
    ratio = _LogRatio(estimate, low, high, min(level, 1 - 2.0 ** (1 - fewest)), fewest, "samples a run", basis)
    verdict = _judge(ratio, 0, WITHIN, baseline_name, candidate_name, "call")
    return _drop_typical_call_claim(verdict, *times, baseline_name, candidate_name)


def drop_short_claim(
    verdict: Verdict, seconds: float, needed_s: float, *, baseline_name: str, candidate_name: str
) -> Verdict:
    """Return the verdict on two processes that were sampled for ``seconds``, without its claim below ``needed_s``.

    An operating system may have one process share its core with other work for longer than that, and the other not.
    """
    if seconds >= needed_s or verdict.kind not in ("faster", "slower"):
        return verdict
    names = f"{quote(candidate_name)} against {quote(baseline_name)}"
    sentence = f"Inconclusive: {names} needs {needed_s:g} s of turns, has {seconds:.1f} s."
    detail = f"Measured: {_change(verdict.ratio)} time, from two processes that took turns too briefly."
    return verdict.model_copy(
        update={"kind": "inconclusive", "cause": "too short", "sentence": sentence, "detail": detail}
    )


def _drop_typical_call_claim(verdict: Verdict, first: Array, second: Array, baseline: str, candidate: str) -> Verdict:
    if verdict.kind == "inconclusive":
        return verdict
    for name, times in ((baseline, first), (candidate, second)):
        if (few := find_filled_calls(times.tolist())) is not None:
            sentence = f"Inconclusive: a few calls of {quote(name)} do most of its work."
            detail = (
                f"{few.calls * 100:.3g} % of its calls take {few.time * 100:.0f} % of its time, as calls that fill a "
                f"queue of actions do. The means of all calls differ by {_change(float(second.mean() / first.mean()))}."
            )
            update = {"kind": "inconclusive", "cause": "a queue", "within": None}
            return verdict.model_copy(update={**update, "sentence": sentence, "detail": detail})
    return verdict


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
    array = validate_times(values, name)
    if (array == 0).any():
        raise ValueError(f"{name}: a ratio needs times above zero, but value {int(np.argmin(array))} is 0")
    return array


def _arms(logs: Array, level: float) -> tuple[float, float]:
    median = float(np.median(logs))
    # With too few samples for the level the whole range is the widest interval there is.
    low, high = median_interval(logs, level) or (float(logs.min()), float(logs.max()))
    return median - low, high - median


class _LogRatio(NamedTuple):
    """The logarithm of candidate over baseline between the ends of its interval, and what the interval rests on."""

    estimate: float
    low: float
    high: float
    level: float
    samples: int  # pairs, or samples of the shorter run
    noun: str  # for these
    basis: str  # all samples in words

    @property
    def ratios(self) -> tuple[float, float, float]:
        """The ratio and the ends of its interval."""
        # Past a factor of e^300 a ratio would leave the range of a float, and a reader's patience before that.
        ratio, bottom, top = (math.exp(min(max(log, -300.0), 300.0)) for log in (self.estimate, self.low, self.high))
        return ratio, bottom, top

    @property
    def reach(self) -> float:
        """How far the interval reaches from the estimate, as a logarithm."""
        return max(self.estimate - self.low, self.high - self.estimate)

    @property
    def samples_needed(self) -> int:
        """About how many samples narrow the interval to `TOO_WIDE`: its width falls with their square root."""
        needed = self.samples * (self.reach / math.log1p(TOO_WIDE)) ** 2
        step = 10 ** max(math.floor(math.log10(needed)) - 1, 0)
        return math.ceil(needed / step) * step


def _judge(log: _LogRatio, pairs: int, within: float, baseline: str, candidate: str, unit: str) -> Verdict:
    if not within >= 0:
        raise ValueError(f"within must be a share of the time, 0 or more, got {within}")
    ratio, bottom, top = log.ratios
    first, second = quote(baseline), quote(candidate)
    rests_on = f"{log.level * 100:.3g} % CI, {log.basis}"
    kind: Literal["faster", "slower", "no difference shown", "inconclusive"] = "inconclusive"
    cause: Literal["noise", "too few"] = "noise"
    detail, bound, needed = f"{_change_between(ratio, bottom, top)} time per {unit}, {rests_on}.", None, None
    if log.samples < FEWEST_PAIRS:
        cause, needed = "too few", FEWEST_PAIRS
        sentence = f"Inconclusive: {second} against {first} needs {needed} {log.noun}, has {log.samples}."
        detail = f"Measured: {_change(ratio)} time per {unit}, from {log.basis}."
    elif (log.low > 0 or log.high < 0) and abs(ratio - 1) >= TRIFLE:
        kind = "slower" if log.low > 0 else "faster"
        by, ends = _factor(ratio, bottom, top)
        sentence = f"{capital(second)} is {by} {kind} than {first}."
        more = "less" if kind == "faster" else "the" if by.endswith("×") else "more"
        detail = f"{by}{ends} {more} time per {unit}, {rests_on}."
    elif math.expm1(min(log.reach, 300.0)) > TOO_WIDE:
        needed = log.samples_needed
        sentence = f"Inconclusive: {second} against {first} needs about {needed:,} {log.noun}, has {log.samples:,}."
    elif max(-log.low, log.high) <= math.log1p(within):
        kind, bound = "no difference shown", within
        sentence = f"{capital(second)} is as fast as {first} within {within * 100:.3g} %."
    else:
        kind = "no difference shown"
        most = max(top - 1, 1 - bottom, 0.001)
        sentence = f"{capital(second)} and {first} differ by at most {most * 100:.1f} %."
    return Verdict(
        kind=kind,
        cause=cause,
        ratio=ratio,
        interval=Interval(low=bottom, high=top, level=log.level),
        pairs=pairs,
        sentence=sentence,
        detail=detail,
        needed=needed,
        within=bound,
    )


# From this factor on a change is a factor: "+1,900 %" says less than "20 ×". Past the second one, nobody reads on.
_MANY, _MOST = 10.0, 1e6


def _factor(ratio: float, bottom: float, top: float) -> tuple[str, str]:
    """By how much one is slower (a ratio above 1) or faster, and the interval."""
    factor, low, high = (1 / ratio, 1 / top, 1 / bottom) if ratio < 1 else (ratio, bottom, top)
    if factor > _MOST:
        return f"over {_MOST:,.0f} ×", ""
    if high >= _MANY:
        return f"{_times(factor)} ×", f" [{_times(low)}, {_times(high)}]"
    # The end of the interval that is nearest to no difference comes first.
    ends = (bottom, top) if ratio > 1 else (top, bottom)
    by, least, most = (abs(value - 1) * 100 for value in (ratio, *ends))
    decimals = _decimals(most - least, least)
    return f"{by:.{decimals}f} %", f" [{least:.{decimals}f}, {most:.{decimals}f}]"


def _change_between(ratio: float, bottom: float, top: float) -> str:
    if top >= _MANY:
        return f"{_times(ratio)} × [{_times(bottom)}, {_times(top)}] the"
    decimals = _decimals(100 * (top - bottom))
    change, low, high = (_format_change(100 * (value - 1), decimals) for value in (ratio, bottom, top))
    return f"{change} % [{low}, {high}]"


def _change(ratio: float) -> str:
    return f"{_times(ratio)} × the" if ratio >= _MANY else f"{_format_change(100 * (ratio - 1), 1)} %"


def _decimals(width: float, least: float = math.inf) -> int:
    """Decimals that an interval of ``width`` percent deserves, and that keep its end ``least`` from being 0."""
    decimals = 0 if width >= 2 else 1 if width >= 0.2 else 2
    while decimals < 3 and round(least, decimals) == 0:
        decimals += 1
    return decimals


def _format_change(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:+.{decimals}f}".replace("-", "−")


def _times(factor: float) -> str:
    return f"over {_MOST:,.0f}" if factor > _MOST else f"{factor:,.0f}" if factor >= 100 else f"{factor:.3g}"


# How much slower many configurations are than the fastest, where each ran in processes of its own, by any quantile.
#
# The unit is the run (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013): two runs of one thing
# differ by more than the noise inside either, and only repeats show by how much. So a run is one figure, its quantile,
# and what figures of one configuration differ by, pooled over all, holds the noise inside runs as well. Of three runs
# or more the median counts: one run that is off, as machines have them, moves no verdict.
#
# The fastest is found in the same samples, so that every pair of configurations may be the one that is judged. The
# error is that of all pairs together (Bonferroni).

Runs = Sequence[Sequence[float]]  # of one configuration: the times of each run


def slower(fastest: Runs, others: Sequence[Runs], share: float = 0.5) -> list[Interval | None]:
    """How many times as long each of ``others`` takes as the fastest, by the ``share`` quantile of its times.

    One is shown to be slower where the whole interval is above 1. None if no configuration ran twice, and where one
    of the two has a run of fewer samples than `fewest`.

    Args:
        fastest: the configuration whose quantile was found to be the smallest.
        share: 0.5 for the median, 0.95 for the 95th percentile.

    Raises:
        ValueError: a run without samples, or with times that are not finite and above 0.
    """
    from scipy import stats

    cells = [fastest, *others]
    figures = [np.log([np.quantile(_positive(run, "a run"), share) for run in runs]) for runs in cells]
    free = sum(len(runs) - 1 for runs in cells)
    enough = [free > 0 and min(map(len, runs)) >= fewest(share) for runs in cells]
    if not enough[0]:
        return [None] * len(others)
    level = pairwise_level(len(cells))
    spread = math.sqrt(sum(float(((runs - runs.mean()) ** 2).sum()) for runs in figures) / free)
    apart = float(stats.t.ppf((1 + level) / 2, free)) * spread
    found: list[Interval | None] = []
    for own, known in zip(figures[1:], enough[1:], strict=True):
        difference = float(np.median(own) - np.median(figures[0]))
        reach = apart * math.sqrt(median_variance(len(own)) + median_variance(len(figures[0])))
        ends = (math.exp(min(end, 300.0)) for end in (difference - reach, difference + reach))
        found.append(Interval(low=next(ends), high=next(ends), level=level) if known else None)
    return found


def pairwise_level(configurations: int) -> float:
    """The level of each verdict, with which those on all pairs of ``configurations`` are together 95 % sure or more."""
    return max(LEVEL, bonferroni(configurations * (configurations - 1) // 2))


def fewest(share: float) -> int:
    """The fewest samples of a run that has a ``share`` quantile: one of them lies beyond it."""
    return round(1 / min(share, 1 - share))
