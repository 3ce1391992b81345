"""Bets against a mean: what a gambler would own who bets, in a fair game, that the mean is not what is claimed.

A claim "the mean is m" makes a game fair: whoever bets on it owns on average no more than he began with. Who still
ends up with 40 times his stake has shown the claim wrong, at 1 − 1/40 and at any time he likes to look (Ville 1939).

The game and its hedge are Waudby-Smith and Ramdas's ("Estimating means of bounded random variables by betting",
Journal of the Royal Statistical Society B 86, 2024): the hedged capital process with θ = 1/2, one gambler who bets
that the mean is above m and one who bets that it is below. The bets are their diversified Kelly bets: each gambler
splits his stake evenly over many constant bets. The share c of what is owned that is put at risk takes the nodes of
Chebyshev, which is the mixture with Beta(1/2, 1/2), the one that Cover and Ordentlich's universal portfolio uses
("Universal portfolios with side information", IEEE Transactions on Information Theory 42, 1996).

Constant bets are chosen for two reasons. Capital then depends on the values alone, not on their order: results that
were resumed, or merged from two machines, give the same numbers. And tasks with different means may be played in turn:
at the end of each round a constant bet still owns no more than it began with on average (the mean of the factors' logs
is at most the log of their mean), which bets that follow the outcomes do not keep.

Values lie in [0, 1], and may be any numbers there. A success is 1, and progress is the share of the task that was done;
a paired difference d of two such scores is taken as (d + 1) / 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Any finite set of bets is a fair game: few of them cost no validity. With 96 the log of the capital is the same to
# 0.001 after 5,000 pairs.
_BETS = 32
_RISKED = (1 - np.cos((np.arange(_BETS) + 0.5) * np.pi / _BETS)) / 2
_HALVINGS = 25  # the last bracket is 6e-8 wide


def log_capital(lowest: ArrayLike, middle: ArrayLike, highest: ArrayLike, mean: ArrayLike) -> NDArray[np.float64]:
    """Log of what a stake of 1 has become by betting that the mean of values 0, 1/2 and 1 is above ``mean``.

    A bet that risks the share c turns 1 into (1 − c) + c × value / mean. It falls as ``mean`` grows.

    Args:
        lowest, middle, highest: how often the values 0, 1/2 and 1 came; arrays of one shape, or numbers.
        mean: the claim, above 0 and up to 1; of that shape, or a number.
    """
    lowest, middle, highest, mean = (np.asarray(each, float)[..., None] for each in (lowest, middle, highest, mean))
    safe, gain = 1 - _RISKED, _RISKED / mean
    return _shared_evenly(lowest * np.log(safe) + middle * np.log(safe + gain / 2) + highest * np.log(safe + gain))


def log_capital_of_gains(gains: ArrayLike, counts: ArrayLike = 1) -> NDArray[np.float64]:
    """Log of what a stake of 1 has become in a game that turns a bet of 1 into 1 + gain, with the same bets.

    It is fair where a claim says that the gains have the mean 0. Two or more games may be played at once.

    Args:
        gains: (…, pairs), each −1 or more.
        counts: how often each gain came, of that shape; or a number.
    """
    counts = np.asarray(counts, float)[..., None]
    return _shared_evenly((counts * np.log1p(np.asarray(gains, float)[..., None] * _RISKED)).sum(axis=-2))


def log_capital_after_each(gains: ArrayLike) -> NDArray[np.float64]:
    """The log of that capital after 1, 2, … pairs: (…, pairs). ``gains`` are those of `log_capital_of_gains`."""
    return _shared_evenly(np.cumsum(np.log1p(np.asarray(gains, float)[..., None] * _RISKED), axis=-2))


def gains_above(differences: ArrayLike, claim: float) -> NDArray[np.float64]:
    """Gain in each pair of a bet of 1 that the mean of the differences is above ``claim``.

    Args:
        differences: of two scores in [0, 1], so in [−1, 1].
        claim: a mean, above −1.
    """
    return (np.asarray(differences, float) - claim) / (1 + claim)


def _shared_evenly(owned: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of the mean of the bets' capital; ``owned``: the log of it, (…, bets)."""
    largest = owned.max(axis=-1)  # scipy's logsumexp is the same, and half as fast on arrays of this size
    return largest + np.log(np.exp(owned - largest[..., None]).mean(axis=-1))


def decisive_log_capital(level: float) -> float:
    """Log of the capital that shows a claim wrong: half of 1 − ``level`` is for each of the two gamblers."""
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not at {level}")
    return float(np.log(2 / (1 - level)))


def difference_bounds(differences: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """The lowest and the highest mean of paired differences, in [−1, 1], that the bets have not shown wrong.

    Valid at all times at once: the chance that the mean is ever outside is at most 1 − ``level``, whatever number of
    pairs one stops at and for whatever reason. It takes the pairs as independent, with one mean, or with one mean per
    task and the tasks played in turn. Where finished results come in another order, such as all of an easy task before
    all of a hard one, it does not hold: `strobe.evaluate.measure.success_rates.decide_once` is for those.
    """
    values, counts = np.unique(np.asarray(differences, float), return_counts=True)
    enough = decisive_log_capital(level)
    return _lowest_mean(values, counts, enough), -_lowest_mean(-values, counts, enough)


def _lowest_mean(values: NDArray[np.float64], counts: NDArray[np.int64], enough: float) -> float:
    wrong, possible = -1.0, 1.0
    for _ in range(_HALVINGS):
        between = (wrong + possible) / 2
        if log_capital_of_gains(gains_above(values, between), counts) >= enough:
            wrong = between
        else:
            possible = between
    # Capital falls in the mean, so that each mean up to `wrong` is shown wrong. That end of the bracket is the outer
    # one: halving widens the interval by 6e-8 at most, and never narrows it.
    return wrong
