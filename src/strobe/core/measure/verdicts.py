"""Faster, slower, or no difference that these samples can show: always with the interval it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from strobe.core.measure.statistics import Array, bonferroni, centre, median_interval, median_variance, validate_times
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Interval
from strobe.core.results.queued import find_filled_calls

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
) -> Verdict:
    """Judge two lists of milliseconds whose entries are paired by round of one interleaved run.

    The ratio is the centre of the pairs' log-ratios (see `statistics.centre`): what slows a whole round
    cancels. It need not be the ratio of the medians. A difference is claimed when the interval excludes 1, and the
    ratio is further from it than `TRIFLE`. Otherwise the verdict is 'too noisy' where the interval reaches further
    from the ratio than `TOO_WIDE` (a difference of 10 % could have hidden in it) or there are fewer than six pairs,
    and 'no difference shown' where not. Of these, the candidate is called as fast as the baseline where the whole
    interval lies within ``within`` (0.02: 2 %) of the same time: two one-sided tests (Schuirmann, Journal of
    Pharmacokinetics and Biopharmaceutics 15, 1987). Below eight pairs the interval's level is what they can reach.

    The typical pair says nothing of calls of which a few do the work of many (see `queued.filled`): then nothing is
    claimed.

    Raises ValueError for empty, unequal, non-finite or non-positive samples, and for a ``within`` below 0.
    """
    first, second = _positive(baseline, baseline_name), _positive(candidate, candidate_name)
    if len(first) != len(second):
        raise ValueError(
            f"paired samples must be equally many: {baseline_name} has {len(first)}, {candidate_name} {len(second)}"
        )
    pairs = len(first)
    basis = f"{pairs} pair{'s' * (pairs != 1)}"
    ratio = _LogRatio(*centre(np.log(second) - np.log(first), level), basis, pairs >= FEWEST_PAIRS)
    verdict = _judge(ratio, pairs, within, baseline_name, candidate_name)
    return _drop_typical_call_claim(verdict, first, second, baseline_name, candidate_name)


def unpaired_verdict(
    baseline: Sequence[float] | Array,
    candidate: Sequence[float] | Array,
    *,
    baseline_name: str = "baseline",
    candidate_name: str = "candidate",
    level: float = LEVEL,
    within: float = WITHIN,
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
    basis = f"separate runs of {len(first)} and {len(second)} samples"
    ratio = _LogRatio(estimate, low, high, min(level, 1 - 2.0 ** (1 - fewest)), basis, fewest >= FEWEST_PAIRS)
    verdict = _judge(ratio, 0, within, baseline_name, candidate_name)
    return _drop_typical_call_claim(verdict, *times, baseline_name, candidate_name)


def drop_short_claim(
    verdict: Verdict, seconds: float, needed_s: float, *, baseline_name: str, candidate_name: str
) -> Verdict:
    """Return the verdict on two processes that were sampled for ``seconds``, without its claim below ``needed_s``.

    An operating system may have one process share its core with other work for longer than that, and the other not.
    """
    if seconds >= needed_s or verdict.kind not in ("faster", "slower"):
        return verdict
    sentence = (
        f"Too short to judge {candidate_name} against {baseline_name}: their processes took turns for {seconds:.1f} s, "
        f"and {needed_s:g} s are needed. Seen: {_change(verdict.ratio)}"
    )
    return verdict.model_copy(update={"kind": "too noisy", "cause": "too short", "sentence": sentence})


def _drop_typical_call_claim(verdict: Verdict, first: Array, second: Array, baseline: str, candidate: str) -> Verdict:
    """Return the verdict without its claim where a few calls do the work of many: it is on the typical call."""
    if verdict.kind == "too noisy":
        return verdict
    for name, times in ((baseline, first), (candidate, second)):
        if (few := find_filled_calls(times.tolist())) is not None:
            sentence = (
                f"Not judged: {candidate} against {baseline}. {few.calls * 100:.3g} % of the calls of {name} hold "
                f"{few.time * 100:.0f} % of its time, as those do that fill a queue of actions. The sums of all calls "
                f"differ by {_change(float(second.mean() / first.mean()))}. Compare the method that makes a chunk"
            )
            return verdict.model_copy(
                update={"kind": "too noisy", "cause": "a queue", "within": None, "sentence": sentence}
            )
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
    """How far the median of ``logs`` may lie below and above where it was seen."""
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
    basis: str
    enough: bool  # samples for a verdict

    @property
    def ratios(self) -> tuple[float, float, float]:
        """The ratio and the ends of its interval."""
        # Past a factor of e^300 a ratio would leave the range of a float, and a reader's patience before that.
        ratio, bottom, top = (math.exp(min(max(log, -300.0), 300.0)) for log in (self.estimate, self.low, self.high))
        return ratio, bottom, top

    @property
    def reach(self) -> float:
        """How far the interval reaches from the estimate, as a share of the time."""
        return math.expm1(min(max(self.estimate - self.low, self.high - self.estimate), 300.0))


def _judge(log: _LogRatio, pairs: int, within: float, baseline: str, candidate: str) -> Verdict:
    """The verdict on a log-ratio, in the words of its sentence."""
    if not within >= 0:
        raise ValueError(f"within must be a share of the time, 0 or more, got {within}")
    ratio, bottom, top = log.ratios
    rests_on = f"({log.level * 100:.3g} % interval, {log.basis})"
    shown = f"{_change(ratio)} [{_change(bottom, '')}, {_change(top, '')}] {rests_on}"
    bound = None
    if not log.enough:
        kind = "too noisy"
        sentence = (
            f"Too few samples to judge {candidate} against {baseline}: {log.basis}, and {FEWEST_PAIRS} are needed. "
            f"Seen: {_change(ratio)}"
        )
    elif (log.low > 0 or log.high < 0) and abs(ratio - 1) >= TRIFLE:
        kind = "slower" if log.low > 0 else "faster"
        sentence = f"{candidate} is {kind} than {baseline} {_describe_ratio(ratio, bottom, top)} {rests_on}"
    elif log.reach > TOO_WIDE:
        kind = "too noisy"
        possible = _reach(bottom, top, "up to", "or")
        sentence = f"Too noisy to judge {candidate} against {baseline}: {shown}. It may be {possible}"
    elif max(-log.low, log.high) <= math.log1p(within):
        kind, bound = "no difference shown", within
        sentence = f"{candidate} is as fast as {baseline} within {within * 100:.3g} %: {shown}"
    else:
        kind = "no difference shown"
        possible = _reach(bottom, top, "at most", "and at most")
        sentence = f"{candidate} shows no difference to {baseline}: {shown}. It is {possible}"
    interval = Interval(low=bottom, high=top, level=log.level)
    return Verdict(kind=kind, ratio=ratio, interval=interval, pairs=pairs, sentence=sentence, within=bound)


# From this factor on a change is a factor: "+1,900 %" says less than "20 ×". Past the second one, nobody reads on.
_MANY, _MOST = 10.0, 1e6


def _describe_ratio(ratio: float, bottom: float, top: float) -> str:
    """By how much one is slower (a ratio above 1) or faster, with the interval."""
    if ratio < 1:
        factor, low, high = 1 / ratio, 1 / top, 1 / bottom
    else:
        factor, low, high = ratio, bottom, top
    if factor > _MOST:
        return f"by a factor of over {_MOST:,.0f}"
    if high >= _MANY:
        return f"by a factor of {_times(factor)} [{_times(low)}, {_times(high)}]"
    # The end of the interval that is nearest to no difference comes first.
    ends = (bottom, top) if ratio > 1 else (top, bottom)
    by, least, most = (f"{abs(value - 1) * 100:.1f}" for value in (ratio, *ends))
    return f"by {by} % [{least}, {most}]"


def _times(factor: float) -> str:
    return f"over {_MOST:,.0f}" if factor > _MOST else f"{factor:,.0f}" if factor >= 100 else f"{factor:.3g}"


def _reach(bottom: float, top: float, how: str, joined: str) -> str:
    """How much slower and how much faster the interval leaves open, such as 'at most 2 % slower and at most …'."""
    slower = f"{_share(top - 1) if top < _MANY else f'{_times(top)} ×'} slower"
    faster = f"{_share(1 - bottom)} faster"
    return f"{how} {faster if top <= 1 else slower if bottom >= 1 else f'{slower} {joined} {faster}'}"


def _share(share: float) -> str:
    return f"{max(share * 100, 0.1):.1f} %"


def _change(ratio: float, unit: str = " %") -> str:
    """A ratio as a change in percent, with its sign."""
    if ratio >= _MANY:
        return f"{_times(ratio)} ×"
    return f"{round((ratio - 1) * 100, 1) + 0.0:+.1f}{unit}".replace("-", "−")


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
