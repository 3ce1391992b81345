"""Bets against a mean: what a gambler would own who bets, in a fair game, that the mean is not what is claimed.

A claim "the mean is m" makes a game fair: whoever bets on it owns on average no more than he began with. Who still
ends up with 40 times his stake has shown the claim wrong, at 1 − 1/40 and at any time he likes to look (Ville 1939).

The game and its hedge are Waudby-Smith and Ramdas's ("Estimating means of bounded random variables by betting",
Journal of the Royal Statistical Society B 86, 2024): the hedged capital process with θ = 1/2, one gambler who bets
that the mean is above m and one who bets that it is below. The bets are their diversified Kelly bets: each gambler
splits his stake evenly over many constant bets. The share c of what is owned that is put at risk takes the nodes of
Chebyshev, which is the mixture with Beta(1/2, 1/2), the one that Cover and Ordentlich's universal portfolio uses
("Universal portfolios with side information", IEEE Transactions on Information Theory 42, 1996).

Constant bets are chosen for two reasons. Capital then depends on counts alone, not on their order: results that were
resumed, or merged from two machines, give the same numbers. And tasks with different means may be played in turn: at
the end of each round a constant bet still owns no more than it began with on average (the mean of the factors' logs is
at most the log of their mean), which bets that follow the outcomes do not keep.

Values lie in [0, 1]: 0, 1/2 or 1. A success is 1; a paired difference d in {−1, 0, 1} is (d + 1) / 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Any finite set of bets is a fair game: few of them cost no validity. With 96 the log of the capital is the same to
# 0.001 after 5,000 pairs.
_BETS = 32
_RISKED = (1 - np.cos((np.arange(_BETS) + 0.5) * np.pi / _BETS)) / 2
_HALVINGS = 24  # the last bracket is 6e-8 wide


def log_capital(lowest: ArrayLike, middle: ArrayLike, highest: ArrayLike, mean: ArrayLike) -> NDArray[np.float64]:
    """Log of what a stake of 1 has become by betting that the mean is above ``mean``.

    A bet that risks the share c turns 1 into (1 − c) + c × value / mean. It falls as ``mean`` grows.

    Args:
        lowest, middle, highest: how often the values 0, 1/2 and 1 came; arrays of one shape, or numbers.
        mean: the claim, above 0 and up to 1; of that shape, or a number.
    """
    lowest, middle, highest, mean = (np.asarray(each, float)[..., None] for each in (lowest, middle, highest, mean))
    safe, gain = 1 - _RISKED, _RISKED / mean
    return _shared_evenly(lowest * np.log(safe) + middle * np.log(safe + gain / 2) + highest * np.log(safe + gain))


def log_capital_of_gains(gains: ArrayLike) -> NDArray[np.float64]:
    """Log of what a stake of 1 has become in a game that turns a bet of 1 into 1 + gain, with the same bets.

    It is fair where a claim says that the gains have the mean 0. Two or more games may be played at once.

    Args:
        gains: (…, pairs), each −1 or more.
    """
    values = np.asarray(gains, float)
    return _shared_evenly(np.log1p(values[..., None] * _RISKED).sum(axis=-2))


def _shared_evenly(owned: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of the mean of the bets' capital; ``owned``: the log of it, (…, bets)."""
    largest = owned.max(axis=-1)  # scipy's logsumexp is the same, and half as fast on arrays of this size
    return largest + np.log(np.exp(owned - largest[..., None]).mean(axis=-1))


def decisive_log_capital(level: float) -> float:
    """Log of the capital that shows a claim wrong: half of 1 − ``level`` is for each of the two gamblers."""
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not at {level}")
    return float(np.log(2 / (1 - level)))


def mean_bounds(
    lowest: ArrayLike, middle: ArrayLike, highest: ArrayLike, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lowest and the highest mean, in [0, 1], that the bets have not shown wrong at ``level``.

    Valid at all times at once: the chance that the mean is ever outside is at most 1 − ``level``.

    Args:
        lowest, middle, highest: how often the values 0, 1/2 and 1 came; arrays of one shape, or numbers.
    """
    lowest, middle, highest = (np.asarray(each, float) for each in (lowest, middle, highest))
    if min(each.min(initial=0) for each in (lowest, middle, highest)) < 0:
        raise ValueError("counts cannot be negative")
    return _low(lowest, middle, highest, level), 1 - _low(highest, middle, lowest, level)


def _low(
    lowest: NDArray[np.float64], middle: NDArray[np.float64], highest: NDArray[np.float64], level: float
) -> NDArray[np.float64]:
    enough = decisive_log_capital(level)
    wrong = np.zeros(np.broadcast_shapes(lowest.shape, middle.shape, highest.shape))
    possible = np.ones_like(wrong)
    for _ in range(_HALVINGS):
        between = (wrong + possible) / 2
        shown = log_capital(lowest, middle, highest, between) >= enough
        wrong, possible = np.where(shown, between, wrong), np.where(shown, possible, between)
    # Capital falls in the mean, so that each mean up to `wrong` is shown wrong. That end of the bracket is the outer
    # one: halving widens the interval by 6e-8 at most, and never narrows it.
    return wrong


Intervals = NDArray[np.float64]


def rate_sequence(outcomes: Sequence[bool] | ArrayLike, level: float = 0.95, every: int = 1) -> Intervals:
    """Intervals of a success rate after 1, 2, … episodes: (episodes, 2), from 0 to 1. See `difference_sequence`."""
    won = np.asarray(outcomes, bool)
    highest = np.cumsum(won)
    low, high = mean_bounds(np.cumsum(~won), np.zeros(len(won)), highest, level)
    return _running(low, high, every, (0.0, 1.0))


def difference_sequence(differences: Sequence[int] | ArrayLike, level: float = 0.95, every: int = 1) -> Intervals:
    """Intervals of the mean of paired differences after 1, 2, … pairs: (pairs, 2), from −1 to 1.

    With the chance ``level`` all of them hold the true mean, whatever number of pairs one stops at and for whatever
    reason (`strobe.evaluate.measure.betting`). Each holds the mean of the pairs that it rests on. They take the pairs
    as independent, with one mean, or with one mean per task and the tasks played in turn. Where finished results come
    in another order, such as all of an easy task before all of a hard one, they do not hold:
    `strobe.evaluate.measure.success_rates.decide_once` is for those.

    Args:
        differences: second − first of each pair: −1 (lost), 0 or 1 (won), in the order they were played.
        every: pairs in a round, where tasks are played in turn: the interval changes only when a round is complete, and
            rests on complete rounds alone.

    Raises:
        ValueError: another value than −1, 0, 1, or ``every`` below 1.
    """
    values = np.asarray(differences, int)
    if values.ndim != 1 or not np.isin(values, (-1, 0, 1)).all():
        raise ValueError("paired differences are −1, 0 or 1, in a list")
    lost, won = np.cumsum(values < 0), np.cumsum(values > 0)
    low, high = mean_bounds(lost, np.arange(1, len(values) + 1) - lost - won, won, level)
    return _running(2 * low - 1, 2 * high - 1, every, (-1.0, 1.0))


def _running(low: NDArray[np.float64], high: NDArray[np.float64], every: int, widest: tuple[float, float]) -> Intervals:
    if every < 1:
        raise ValueError(f"a round has one pair or more, not {every}")
    # Their intersection would be as valid and a little narrower. It may exclude the mean of all pairs, though: a
    # figure outside of its own interval.
    at = np.arange(1, len(low) + 1) // every * every
    ends = np.concatenate([[widest], np.stack([low, high], axis=1)])
    return ends[at]
