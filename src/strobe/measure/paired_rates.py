"""Success rates at a number of episodes that was fixed beforehand: exact intervals and tests, of one rate and of two.

They hold for one look, at the end. Whoever looks while episodes are played uses `strobe.measure.sequence`.
"""

from __future__ import annotations

import math

from strobe.results.data import Interval


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
        found = optimize.root_scalar(lambda one: tango_score(lost, won, pairs, one) - score, bracket=(low, high))
        return float(found.root)

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
