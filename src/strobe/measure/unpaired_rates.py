"""The difference of two success rates from episodes that are not in pairs, task by task.

Two runs may have played an easy task unequally often. Then the rates of all episodes can say the opposite of what each
task says (Simpson's paradox), so the difference is a mean of the tasks' differences. A task weighs n₁ n₂ / (n₁ + n₂),
as Mantel and Haenszel weigh it, which is in proportion to its episodes where both runs have equally many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strobe.measure.decision import decide_once
from strobe.results.data import Interval
from strobe.results.judged import UnpairedRates

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
        difference=tasks.difference, interval=decision.interval, kind=decision.kind, by_task=not tasks.alike
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
        return float(optimize.root_scalar(lambda one: tasks.score(one) - score, bracket=bracket).root)

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
    def alike(self) -> bool:
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
