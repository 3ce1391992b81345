"""Time to task: does a variant do the task sooner? Survival curves, and a verdict that holds at every number of pairs.

Two figures compare the times of two variants from the same starts, and each has its interval:

- **The middle ratio**: r such that in pairs the first variant's time is as often above r × the second's as below it.
  An episode that fails never does the task, so its time is above every other. A pair in which both fail says nothing.
  That a success at 9 s comes before a failure at the limit of 20 s is known for certain: censoring costs no assumption,
  and no proportional hazards are supposed. It is the sign test's interval of a median (Thompson, "On confidence ranges
  for the median", Annals of Mathematical Statistics 7, 1936), of paired times with the rule for failures of Buyse
  ("Generalized pairwise comparisons of prioritized outcomes in the two-sample problem", Statistics in Medicine 29,
  2010). Instead of a sign test at one look, bets on won and lost pairs (`strobe.evaluate.measure.betting`) exclude a
  ratio, so that one may look after every pair. The verdict rests on this interval: it depends neither on how far the
  limit is nor on the failures that both share.
- **The ratio of the mean times over all starts**, a failure counted as the limit: restricted means (Royston and Parmar,
  "The use of restricted mean survival time", Statistics in Medicine 30, 2011). A time up to the limit is always seen,
  and bounded. E[first − r × second] = 0 is a claim on a mean of bounded differences, so bets exclude it in the same
  way. This one needs more pairs, because a rare failure at a far limit could outweigh every gain.

Tasks may be played in turn, as for success rates: only complete rounds are judged, with the mean over the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from strobe.evaluate.measure.betting import decisive_log_capital, log_capital, log_capital_of_gains
from strobe.evaluate.measure.success_rates import LEVEL, count_in_whole_rounds, paired_rates
from strobe.evaluate.pairs import MATTERS, PairedRates, PairedTimes, TimeKind, TimeToTask

Times = NDArray[np.float64]
_HALVINGS = 40
_WIDEST = 1e6  # times that a ratio of means may be off what was seen


@dataclass(frozen=True, slots=True)
class Ended:
    """How one episode ended: seconds from its start, and the seconds that it may last."""

    seconds: float
    success: bool
    limit_s: float


class EpisodeSeen(Protocol):
    """An episode, in whatever record: its seconds, and those that it may last; None in one of an older version."""

    success: bool
    seconds: float | None
    limit_s: float | None


def episode_ends(episodes: Iterable[EpisodeSeen]) -> list[Ended]:
    """Return how episodes ended. Seconds that an older record lacks become 0: `why_not_judged` tells of them."""
    return [Ended(each.seconds or 0.0, each.success, each.limit_s or 0.0) for each in episodes]


def time_unjudged_reason(episodes: Sequence[Ended], others: Sequence[Ended] = ()) -> str | None:
    """Return why a variant's ``episodes`` and those of the first variant show no time to task; None if they do."""
    both = [*episodes, *others]
    if not all(episode.limit_s > 0 for episode in both):
        return "these episodes are of a version of Strobe that did not save their limit"
    if not np.isfinite(_seconds_to_done(episodes)).any():
        return "no episode succeeded within its limit"
    if all(episode.seconds >= episode.limit_s for episode in both if episode.success):
        return "every success lasted until the limit: this simulator may not end an episode when the task is done"
    return None


def time_to_task(episodes: Sequence[Ended], paired: PairedTimes | None = None) -> TimeToTask:
    """Return the figures of one variant's ``episodes``, of which one or more succeeded. Raises ValueError if none."""
    done, limit = _seconds_to_done(episodes), np.array([episode.limit_s for episode in episodes])
    known = done[np.isfinite(done)]
    if not len(known):
        raise ValueError("no episode succeeded: there is no time to task")
    at, share = survival(done, limit)
    half = np.flatnonzero(share <= 0.5 + 1e-9)
    return TimeToTask(
        episodes=len(episodes),
        done=len(known),
        limit_s=float(limit.max()),
        mean_done_s=float(known.mean()),
        mean_s=float(np.minimum(done, limit).mean()),
        middle_s=float(at[half[0]]) if len(half) else None,
        at_s=at.tolist(),
        not_done=share.tolist(),
        paired=paired,
    )


def survival(done: Times, limit: Times) -> tuple[Times, Times]:
    """Kaplan and Meier's share of episodes that are not done, from each moment on (JASA 53, 1958).

    An episode that fails never does the task: it is not done at any time up to its limit, however early it ended, and
    is censored there. With one limit for all, the curve is the plain share of the episodes.

    Args:
        done: seconds until each episode succeeded; inf where it failed.
        limit: seconds that it may last.

    Returns:
        The moments from 0 to the last one that was seen, and the share from each on.
    """
    end, failed = np.minimum(done, limit), done > limit
    curve = stats.ecdf(stats.CensoredData(uncensored=end[~failed], right=end[failed])).sf
    kept = np.isin(curve.quantiles, [*end[~failed], end.max()])
    return np.array([0.0, *curve.quantiles[kept]]), np.array([1.0, *curve.probabilities[kept]])


def judge_times(first: Sequence[Ended], second: Sequence[Ended], level: float = LEVEL, every: int = 1) -> PairedTimes:
    """Judge the pairs ``first[i]``, ``second[i]`` in the order in which they were played; may be asked after each pair.

    "Sooner" and "later" are claimed where the interval of the middle ratio excludes 1. Each is wrong with a chance of
    1 − ``level`` at most, whenever one looks. "Not sooner" excludes a gain of `MATTERS`. Where the mean over all starts
    is shown to say the opposite, nothing is claimed.

    Args:
        every: pairs in a round, where tasks are played in turn. Others are not counted, unless no round is complete.

    Raises:
        ValueError: no pairs, or lists of different lengths.
    """
    if not first or len(first) != len(second):
        raise ValueError(f"pairs are needed: {len(first)} episodes against {len(second)}")
    counted = count_in_whole_rounds(len(first), every)
    before, after = _seconds_to_done(first[:counted]), _seconds_to_done(second[:counted])
    limit = np.array([max(a.limit_s, b.limit_s) for a, b in zip(first[:counted], second[:counted], strict=True)])
    low, high, mean_low, mean_high = 0.0, np.inf, 0.0, np.inf
    if counted % every == 0:
        low, high = middle_interval(before, after, level)
        mean_low, mean_high = mean_interval(before, after, limit, level)
    neither = np.isinf(before) & np.isinf(after)
    return PairedTimes(
        pairs=counted,
        sooner=int((after < before).sum()),
        later=int((before < after).sum()),
        together=int(((before == after) & ~neither).sum()),
        neither=int(neither.sum()),
        kind=_kind(low, high, mean_low, mean_high),
        ratio=_middle(before, after),
        low=_finite(low),
        high=_finite(high),
        mean_ratio=float(np.minimum(before, limit).mean() / np.minimum(after, limit).mean()),
        mean_low=mean_low,
        mean_high=_finite(mean_high),
        level=level,
    )


class Judgement(NamedTuple):
    """Pairs of episodes, judged by success and then by time.

    ``rates`` is None where there are no pairs, ``times`` where ``times_not_judged`` says why.
    """

    rates: PairedRates | None
    times: PairedTimes | None
    times_not_judged: str | None


def judge_pairs(
    pairs: Sequence[tuple[EpisodeSeen, EpisodeSeen]], margin: float | None, level: float = LEVEL, every: int = 1
) -> Judgement:
    """Judge pairs in the order in which they were played, as `paired_rates` and `judge_times` do. Raises ValueError."""
    first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    rates = paired_rates([each.success for each in first], [each.success for each in second], margin, level, every)
    before, after = episode_ends(first), episode_ends(second)
    why = time_unjudged_reason(after, before)
    return Judgement(rates, None if why else judge_times(before, after, level, every), why)


def middle_interval(before: Times, after: Times, level: float = LEVEL) -> tuple[float, float]:
    """The interval of the middle ratio, valid at every number of pairs: 0 and inf are its widest ends.

    Args:
        before, after: (pairs,) seconds until each episode succeeded; inf where it failed.
    """
    high = _lowest_middle(after, before, level)
    return _lowest_middle(before, after, level), (np.inf if high == 0 else 1 / high)


def _lowest_middle(before: Times, after: Times, level: float) -> float:
    ratios = _ratios(before, after)
    alike = len(before) - len(ratios)
    # Counts change only where a ratio was seen. Just above each, the pairs with that ratio are lost.
    at = np.unique([0.0, *ratios[np.isfinite(ratios)]])
    won = (ratios[None] > at[:, None]).sum(axis=1)
    shown = log_capital(len(ratios) - won, np.full(len(at), alike), won, 0.5) >= decisive_log_capital(level)
    return float("inf") if shown.all() else float(at[int(np.argmin(shown))])


def mean_interval(before: Times, after: Times, limit: Times, level: float = LEVEL) -> tuple[float, float]:
    """The interval of mean(before) ÷ mean(after), each time cut at its limit; valid at every number of pairs.

    Args:
        before, after: (pairs,) seconds until each episode succeeded; inf where it failed.
        limit: (pairs,) seconds.
    """
    first, second = np.minimum(before, limit) / limit.max(), np.minimum(after, limit) / limit.max()
    low, inverse = _lowest_mean(first, second, level), _lowest_mean(second, first, level)
    return low, (np.inf if inverse == 0 else 1 / inverse)


def _lowest_mean(first: Times, second: Times, level: float) -> float:
    """The last ratio that bets have shown too low; ``first`` and ``second`` lie in [0, 1]."""
    enough, seen = decisive_log_capital(level), float(first.mean() / second.mean())
    # A bet of 1 on "the ratio is above r" gains first / r − second: on average nothing if r is the ratio, and it never
    # loses more than 1. It gains less with each larger r.
    wrong, possible = seen / _WIDEST, seen
    if log_capital_of_gains(first / wrong - second) < enough:
        return 0.0
    for _ in range(_HALVINGS):
        between = float(np.sqrt(wrong * possible))
        if log_capital_of_gains(first / between - second) >= enough:
            wrong = between
        else:
            possible = between
    return wrong


def _kind(low: float, high: float, mean_low: float, mean_high: float) -> TimeKind:
    if low > 1:
        return "sooner" if mean_high >= 1 else "not shown"
    if high < 1:
        return "later" if mean_low <= 1 else "not shown"
    return "not sooner" if high < 1 + MATTERS else "not shown"


def _seconds_to_done(episodes: Sequence[Ended]) -> Times:
    """Return seconds until each episode succeeded, inf where it failed or took longer than its limit."""
    return np.array([e.seconds if e.success and e.seconds <= e.limit_s else np.inf for e in episodes], float)


def _ratios(before: Times, after: Times) -> Times:
    """Return the ratios of the pairs in which one or both did the task: 0 where only the first did, inf the second."""
    known = np.isfinite(before) | np.isfinite(after)
    with np.errstate(divide="ignore"):
        return before[known] / after[known]


def _middle(before: Times, after: Times) -> float | None:
    """Return the middle ratio that was seen; None if there is none, or only one of the two did the task in it."""
    ratios = np.sort(_ratios(before, after))
    if not len(ratios):
        return None
    pair = ratios[[(len(ratios) - 1) // 2, len(ratios) // 2]]
    return float(np.sqrt(pair.prod())) if np.isfinite(pair).all() and (pair > 0).all() else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
