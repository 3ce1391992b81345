"""Errors of predicted actions against recorded ones, and the comparison of two errors in pairs over episodes.

Frames of one episode resemble each other, and so do a chunk's actions. An episode therefore counts as one observation,
however many of its frames were looked at: the logarithm of the ratio of its two errors. Its mean over the episodes has
an interval by Student's t.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from strobe.core.results.data import Interval
from strobe.open_loop.results import PairedError

Array = NDArray[np.float64]

FEWEST_EPISODES = 4
LEVEL = 0.95
_FLOOR = 1e-6  # σ²: smaller errors are none, and a ratio needs some
_LARGEST = 1e12  # σ²: larger errors are all the same


def squared_errors(predicted: Array, recorded: Array, spread: Array) -> Array:
    """Return squared errors in σ, (frames, actions, dimensions); NaN where nothing was recorded.

    Args:
        predicted, recorded: actions in their own units, (frames, actions, dimensions).
        spread: σ of each dimension; 0 for one that never moves, which has no errors.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (predicted - recorded) / np.where(spread > 0, spread, np.nan)
        return np.minimum(scaled**2, _LARGEST)


def mean_square(squares: Array) -> float | None:
    """Return the mean of what is known of ``squares``; None if nothing is."""
    known = squares[np.isfinite(squares)]
    return float(known.mean()) if known.size else None


def rms(squares: Array) -> float | None:
    """Return the root of the mean of what is known of ``squares``."""
    mean = mean_square(squares)
    return None if mean is None else math.sqrt(mean)


def explained_variance(squares: Array, of_mean: Array) -> float | None:
    """Return 1 − MSE / MSE of the mean action, over the actions of which both are known; None without any."""
    known = np.isfinite(squares) & np.isfinite(of_mean)
    below = float(of_mean[known].sum()) if known.any() else 0.0
    return 1 - float(squares[known].sum()) / below if below > 0 else None


def paired_error(
    squares: Array, others: Array, episodes: NDArray[np.int64], level: float = LEVEL
) -> PairedError | None:
    """Compare two errors on the same frames, in pairs over episodes. None if no action is known of both.

    Args:
        squares, others: squared errors, (frames, actions, dimensions); NaN for what is not known.
        episodes: of each frame.
        level: of the interval.
    """
    known = np.isfinite(squares) & np.isfinite(others)
    logs: list[float] = []
    for episode in np.unique(episodes):
        own = known[episodes == episode]
        if own.any():
            first, second = (float(each[episodes == episode][own].mean()) + _FLOOR for each in (squares, others))
            logs.append(math.log(first / second) / 2)
    if not logs:
        return None
    centre, count = float(np.mean(logs)), len(logs)
    interval = None
    if count >= FEWEST_EPISODES:
        from scipy import stats

        reach = float(stats.t.ppf((1 + level) / 2, count - 1)) * float(np.std(logs, ddof=1)) / math.sqrt(count)
        interval = Interval(low=math.exp(centre - reach), high=math.exp(min(centre + reach, 700.0)), level=level)
    return PairedError(ratio=math.exp(centre), interval=interval, episodes=count)


def assignment(predicted: Array, recorded: Array, spread: Array) -> list[int]:
    """Return the order of the predicted dimensions that is nearest to the recorded ones.

    Dimension d of the record is nearest to the predicted dimension at place d of the order, all together (the
    assignment of the least squared error). Errors are in σ of the recorded dimension.

    Args:
        predicted, recorded: (frames, actions, dimensions).
    """
    from scipy.optimize import linear_sum_assignment

    width = recorded.shape[-1]
    costs = np.zeros((width, width))
    for target in range(width):
        if spread[target] > 0:
            scaled = ((predicted - recorded[..., target : target + 1]) / spread[target]) ** 2
            costs[target] = np.nan_to_num(np.nanmean(scaled, axis=(0, 1)), nan=_LARGEST, posinf=_LARGEST)
    costs -= np.eye(width) * 1e-9  # where two are as near, none changes its place
    return [int(place) for place in linear_sum_assignment(costs)[1]]
