"""Success and progress of episodes: exact intervals and tests, and the verdict on two variants, paired or not.

The intervals and tests are for a number of episodes that was fixed beforehand: for one look, at the end, in whatever
order the results come (`decide_once`). While episodes are played, a verdict comes from a confidence sequence, at any
number of pairs (`decide`, `strobe.evaluate.measure.betting`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strobe.core.results.data import Interval
from strobe.evaluate.measure.betting import (
    decisive_log_capital,
    difference_bounds,
    gains_above,
    log_capital_after_each,
)
from strobe.evaluate.pairs import Decided, Decision, PairedRates, PairedScores, SuccessRate, UnpairedRates


def rate_interval(successes: int, episodes: int, level: float = 0.95) -> Interval:
    """Clopper and Pearson's exact interval of a success rate (Biometrika 26, 1934).

    Exact means that it covers the true rate at least as often as it says, for every rate and number of episodes.
    Wilson's is narrower and falls short of its level near 0 and 1.

    Raises:
        ValueError: no episodes, or more successes than episodes.
    """
    from scipy import stats

    if not 0 <= successes <= episodes or not episodes:
        raise ValueError(f"{successes} successes in {episodes} episodes")
    low, high = stats.binomtest(successes, episodes).proportion_ci(level, method="exact")
    return Interval(low=float(low), high=float(high), level=level)


def mcnemar_p(lost: int, won: int) -> float:
    """McNemar's exact test of no difference between two rates seen in pairs; two-sided p-value.

    Of the pairs that disagree, half are lost and half won if there is no difference: a sign test.

    Args:
        lost, won: pairs in which only the first, only the second succeeded; no other pairs matter.
    """
    from scipy import stats

    return float(stats.binomtest(lost, lost + won, 0.5).pvalue) if lost + won else 1.0


def tango_interval(lost: int, won: int, pairs: int, level: float = 0.95) -> Interval:
    """Tango's score interval of the difference of two rates seen in pairs, second − first.

    All differences that the score test does not reject, with the other rate estimated by maximum likelihood under each
    ("Equivalence test and confidence interval for the difference in proportions for the paired-sample design",
    Statistics in Medicine 17, 1998). It holds its level with few pairs, and where none of them differs.

    Args:
        lost, won: pairs in which only the first, only the second succeeded.

    Raises:
        ValueError: no pairs, or fewer than disagree.
    """
    from scipy import optimize, stats

    if min(lost, won) < 0 or not 0 < pairs >= lost + won:
        raise ValueError(f"{lost} lost and {won} won of {pairs} pairs")
    limit, seen = float(stats.norm.ppf((1 + level) / 2)), (won - lost) / pairs

    # The score falls as the difference grows; at the ends of the range it is infinite unless nothing speaks against it.
    def end(of_range: float, score: float) -> float:
        if seen == of_range:
            return of_range
        inside = of_range * (1 - 1e-12)
        low, high = min(inside, seen), max(inside, seen)
        root = optimize.root_scalar(
            lambda difference: tango_score(lost, won, pairs, difference) - score, bracket=(low, high)
        )
        return float(root.root)

    return Interval(low=end(-1.0, limit), high=end(1.0, -limit), level=level)


def tango_score(lost: int, won: int, pairs: int, difference: float) -> float:
    """Tango's score statistic of the hypothesis that the second rate − the first is ``difference``, within (−1, 1).

    About standard normal where the hypothesis is true, positive where more was won than it says.
    """
    # The maximum-likelihood estimate of the chance of a loss under the hypothesis (Tango 1998, equation 3).
    linear = -won - lost + (2 * pairs - won + lost) * difference
    root = math.sqrt(max(0.0, linear**2 + 8 * pairs * lost * difference * (1 - difference)))
    losing = max(0.0, (root - linear) / (4 * pairs))
    variance = pairs * (2 * losing + difference * (1 - difference))
    excess = won - lost - pairs * difference
    if variance <= 0:
        return 0.0 if excess == 0 else math.copysign(math.inf, excess)
    return excess / math.sqrt(variance)


LEVEL = 0.95  # level of each interval and each verdict; a non-inferiority verdict alone has half of the error


def decide(
    differences: Sequence[float] | ArrayLike, margin: float | None = None, level: float = LEVEL, every: int = 1
) -> Decision:
    """Decide from paired differences, in the order they were played; may be asked again after each pair.

    The chance that a verdict is ever wrong is at most 1 − ``level``, however often it is asked.

    Args:
        differences: second − first of each pair, of two scores in [0, 1]: −1, 0 or 1 of successes; may be empty.
        margin: loss of the score, 0 to 1, that counts as not worse. It must be stated before the first pair is seen.
        every: pairs in a round, where tasks are played in turn: it decides only when a round is complete.

    Raises:
        ValueError: a difference outside [−1, 1], a margin outside (0, 1), or ``every`` below 1.
    """
    if margin is not None and not 0 < margin < 1:
        raise ValueError(f"a margin lies between 0 and 1, not at {margin:g}")
    values, enough = np.asarray(differences, float), decisive_log_capital(level)
    if values.ndim != 1 or not (np.abs(values) <= 1).all():
        raise ValueError("paired differences are a list of numbers from −1 to 1")
    if every < 1:
        raise ValueError(f"a round has one pair or more, not {every}")
    low, high = difference_bounds(values[: len(values) // every * every], level)

    # An interval excludes a mean where the bets against that mean have won.
    def is_shown(side: NDArray[np.float64], claim: float) -> list[bool]:
        return (log_capital_after_each(gains_above(side, claim)) >= enough)[every - 1 :: every].tolist()

    within = is_shown(values, -margin) if margin is not None else [False] * (len(values) // every)
    looks = zip(is_shown(values, 0.0), is_shown(-values, 0.0), within, strict=True)
    kinds: list[Decided] = [_kind(*each) for each in looks]
    kind, since = kinds[-1] if kinds else "undecided", len(kinds)
    while since > 1 and kinds[since - 2] == kind:
        since -= 1
    return Decision(
        kind=kind,
        interval=Interval(low=low, high=high, level=level),
        margin=margin,
        within_margin=bool(within) and within[-1],
        pairs=None if kind == "undecided" else since * every,
    )


def decide_once(interval: Interval, p: float, margin: float | None, pairs: int) -> Decision:
    """Decide at one look, at results whose number was fixed before they were seen, in whatever order they come.

    The interval of a score test holds its level about, and an exact test holds it surely. Where they disagree about 0,
    the interval is widened up to 0: so a difference is claimed of equals in at most 1 − level of all results.

    Args:
        interval: of the difference, second − first.
        p: of an exact test of no difference, two-sided.
        margin: see `decide`.
    """
    if p > 1 - interval.level:
        interval = Interval(low=min(interval.low, 0.0), high=max(interval.high, 0.0), level=interval.level)
    within = margin is not None and interval.low > -margin
    kind = _kind(interval.low > 0, interval.high < 0, within)
    decided = None if kind == "undecided" else pairs
    return Decision(kind=kind, interval=interval, margin=margin, within_margin=within, pairs=decided)


def _kind(above: bool, below: bool, within_margin: bool) -> Decided:
    if above or below:
        return "better" if above else "worse"
    return "not worse by more than the margin" if within_margin else "undecided"


def success_rate(outcomes: Sequence[bool] | ArrayLike, level: float = LEVEL) -> SuccessRate:
    """The share of ``outcomes`` that succeeded, with its exact interval; raises ValueError where there are none."""
    won = np.asarray(outcomes, bool)
    episodes, successes = len(won), int(won.sum())
    interval = rate_interval(successes, episodes, level)
    return SuccessRate(episodes=episodes, successes=successes, rate=successes / episodes, interval=interval)


def paired_rates(
    first: Sequence[bool] | ArrayLike,
    second: Sequence[bool] | ArrayLike,
    margin: float | None = None,
    level: float = LEVEL,
    every: int | None = 1,
) -> PairedRates:
    """Compare two variants on the same starts; ``first[i]`` and ``second[i]`` are one pair, in the order played.

    Pairs of a round that is not complete are not counted, unless it is the first.

    Args:
        margin: see `decide`.
        every: see `decide`; None for finished results, which are judged at one look.

    Raises:
        ValueError: no pairs, or lists of different lengths.
    """
    before, after = np.asarray(first, bool), np.asarray(second, bool)
    if before.shape != after.shape or before.ndim != 1 or not len(before):
        raise ValueError(f"pairs are needed: {len(before)} outcomes against {len(after)}")
    counted = count_in_whole_rounds(len(before), every or 1)
    before, after = before[:counted], after[:counted]
    lost, won = int((before & ~after).sum()), int((after & ~before).sum())
    interval, p = tango_interval(lost, won, counted, level), mcnemar_p(lost, won)
    if every is None:
        decision = decide_once(interval, p, margin, counted)
    else:
        decision = decide(after.astype(int) - before.astype(int), margin, level, every)
    return PairedRates(
        both=int((before & after).sum()),
        lost=lost,
        won=won,
        neither=int((~before & ~after).sum()),
        difference=(won - lost) / counted,
        interval=interval,
        p=p,
        decision=decision,
    )


def paired_scores(
    first: Sequence[float], second: Sequence[float], margin: float | None = None, level: float = LEVEL, every: int = 1
) -> PairedScores:
    """Compare the progress of two variants, 0 to 1, as `paired_rates` compares their success: at any number of pairs.

    Partial credit and its sequential comparison are Snyder et al.'s question ("Beyond Binary Success", arXiv
    2603.13616, 2026); the bets are those on success, which hold for any values in [0, 1]. Raises ValueError as there.
    """
    before, after = np.asarray(first, float), np.asarray(second, float)
    if before.shape != after.shape or before.ndim != 1 or not len(before):
        raise ValueError(f"pairs are needed: {len(before)} outcomes against {len(after)}")
    counted = count_in_whole_rounds(len(before), every)
    differences = (after - before)[:counted]
    decision = decide(differences, margin, level, every)
    return PairedScores(pairs=counted, difference=float(differences.mean()), decision=decision)


def count_in_whole_rounds(pairs: int, every: int) -> int:
    """How many of ``pairs`` are in complete rounds of ``every``; all of them, where none is complete."""
    return pairs // every * every or pairs


# The difference of two success rates from episodes that are not in pairs, task by task.
#
# Two runs may have played an easy task unequally often. Then the rates of all episodes can say the opposite of what
# each task says (Simpson's paradox), so the difference is a mean of the tasks' differences. A task weighs n₁ n₂ / (n₁
# + n₂), as Mantel and Haenszel weigh it, which is in proportion to its episodes where both runs have equally many.

Counts = Sequence[tuple[int, int]]  # successes and episodes of each task
Numbers = NDArray[np.float64]


def unpaired_rates(first: Counts, second: Counts, margin: float, level: float = 0.95) -> UnpairedRates:
    """Judge the second of two runs at one look: by `score_interval`, and by `exact_p` whether they differ at all.

    Args:
        first, second: successes and episodes of each task, the tasks in one order.
        margin: loss of success rate, 0 to 1, that counts as not worse.

    Raises:
        ValueError: no tasks, unlike ones, a task without episodes, or more successes than episodes.
    """
    tasks = _Tasks(first, second)
    decision = decide_once(score_interval(first, second, level), exact_p(first, second), margin, int(tasks.all.sum()))
    return UnpairedRates(
        difference=tasks.difference, interval=decision.interval, kind=decision.kind, by_task=not tasks.same_shares
    )


def score_interval(first: Counts, second: Counts, level: float = 0.95) -> Interval:
    """The interval of the weighted difference, second − first, that inverts Miettinen and Nurminen's score test.

    "Comparative analysis of two rates", Statistics in Medicine 4, 1985, with strata: all differences that the test does
    not reject, with the rates estimated by maximum likelihood under each. It is sound where a rate is 0 or 1, and where
    a task was played once. Where tasks differ in their difference, it is wider than it needs to be.

    Args and errors are those of `unpaired_rates`.
    """
    from scipy import optimize, stats

    tasks = _Tasks(first, second)
    limit = float(stats.norm.ppf((1 + level) / 2))

    def end(of_range: float, score: float) -> float:
        if abs(tasks.difference - of_range) < 1e-12:
            return of_range
        inside = of_range * (1 - 1e-9)
        bracket = min(inside, tasks.difference), max(inside, tasks.difference)
        return float(optimize.root_scalar(lambda difference: tasks.score(difference) - score, bracket=bracket).root)

    return Interval(low=end(-1.0, limit), high=end(1.0, -limit), level=level)


def exact_p(first: Counts, second: Counts) -> float:
    """The exact test of no difference in any task: Cochran, Mantel and Haenszel's, Fisher's with one task; two-sided.

    Given all that a task's episodes came to, the second run's successes are hypergeometric (Agresti, "Categorical Data
    Analysis", 2013, section 7.3). Twice the smaller tail. Args and errors are those of `unpaired_rates`.
    """
    from scipy import stats

    tasks = _Tasks(first, second)
    chances, least = np.ones(1), 0
    for every, won, own in np.stack([tasks.all, tasks.won_1 + tasks.won_2, tasks.of_2], axis=1).astype(int):
        low, high = max(0, won - (every - own)), min(won, own)
        chances = np.convolve(chances, stats.hypergeom.pmf(np.arange(low, high + 1), every, won, own))
        least += low
    seen = int(tasks.won_2.sum()) - least
    return float(min(1.0, 2 * min(chances[: seen + 1].sum(), chances[seen:].sum())))


class _Tasks:
    """Counts of both runs as arrays over tasks, and their weighted difference."""

    def __init__(self, first: Counts, second: Counts) -> None:
        if len(first) != len(second) or not len(first):
            raise ValueError(f"{len(first)} tasks against {len(second)}")
        for won, of in (*first, *second):
            if not 0 <= won <= of or not of:
                raise ValueError(f"{won} successes in {of} episodes")
        self.won_1, self.of_1 = np.array(first, float).T
        self.won_2, self.of_2 = np.array(second, float).T
        self.all: Numbers = self.of_1 + self.of_2
        weights = self.of_1 * self.of_2 / self.all
        self.weights: Numbers = weights / weights.sum()
        self.difference = float(self.weights @ (self.won_2 / self.of_2 - self.won_1 / self.of_1))

    @property
    def same_shares(self) -> bool:
        """Whether the runs share out their episodes among the tasks alike."""
        return bool(np.allclose(self.of_1 / self.of_1.sum(), self.of_2 / self.of_2.sum()))

    def score(self, difference: float) -> float:
        """About standard normal where the difference of the rates is ``difference``, within (−1, 1), in each task."""
        rate = self._first_rate(difference)
        variance = rate * (1 - rate) / self.of_1 + (rate + difference) * (1 - rate - difference) / self.of_2
        spread = math.sqrt(max(0.0, float(self.weights**2 @ (variance * self.all / (self.all - 1)))))
        excess = self.difference - difference
        return excess / spread if spread else math.copysign(math.inf, excess) if excess else 0.0

    def _first_rate(self, difference: float) -> Numbers:
        """The first run's rate of each task by maximum likelihood, if the second's is higher by ``difference``.

        The root of a cubic, in closed form (Miettinen and Nurminen 1985, appendix I).
        """
        won = self.won_1 + self.won_2
        square = (self.of_2 + 2 * self.of_1) * difference - self.all - won
        linear = (self.of_1 * difference - self.all - 2 * self.won_1) * difference + won
        constant = self.won_1 * difference * (1 - difference)
        turn = (square / (3 * self.all)) ** 3 - square * linear / (6 * self.all**2) + constant / (2 * self.all)
        reach = np.sqrt(np.maximum(0.0, (square / (3 * self.all)) ** 2 - linear / (3 * self.all)))
        reach = np.where(turn < 0, -reach, reach)
        cosine = np.divide(turn, reach**3, out=np.zeros_like(turn), where=reach != 0)
        root = 2 * reach * np.cos((math.pi + np.arccos(np.clip(cosine, -1, 1))) / 3) - square / (3 * self.all)
        return np.clip(root, max(0.0, -difference), min(1.0, 1 - difference))
