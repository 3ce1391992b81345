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
    reason (`strobe.measure.betting`). Each holds the mean of the pairs that it rests on. They take the pairs as
    independent, with one mean, or with one mean per task and the tasks played in turn. Where finished results come in
    another order, such as all of an easy task before all of a hard one, they do not hold:
    `strobe.measure.decision.decide_once` is for those.

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
    """The ends after each pair; within a round those of the round before it, and ``widest`` within the first."""
    if every < 1:
        raise ValueError(f"a round has one pair or more, not {every}")
    # Their intersection would be as valid and a little narrower. It may lie beside the mean of all pairs, though: a
    # figure with an interval that excludes it.
    at = np.arange(1, len(low) + 1) // every * every
    ends = np.concatenate([[widest], np.stack([low, high], axis=1)])
    return ends[at]
