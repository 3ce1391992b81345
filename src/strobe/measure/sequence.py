"""Confidence sequences: intervals that hold at every number of episodes at once, so that one may stop at any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strobe.measure.betting import mean_bounds

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
    reason (`strobe.measure.betting`). Each is the intersection of those before it, so they only ever narrow. They
    take the pairs as independent, with one mean, or with one mean per task and the tasks played in turn.

    Args:
        differences: second − first of each pair: −1 (lost), 0 or 1 (won), in the order they were played.
        every: pairs in a round, where tasks are played in turn: the interval changes only when a round is complete.

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
    between = np.arange(1, len(low) + 1) % every != 0
    low = np.maximum.accumulate(np.where(between, widest[0], low))
    high = np.minimum.accumulate(np.where(between, widest[1], high))
    crossed = low > high
    if crossed.any():
        # No mean is left: a chance of 1 − level, or the mean changed. The last interval that was not empty stays, which
        # is as valid, for it holds more means; a verdict that was given stays as well.
        first = int(np.argmax(crossed))
        low[first:], high[first:] = low[first - 1], high[first - 1]
    return np.stack([low, high], axis=1)
