"""A steady rate with its interval, from the times that blocks of work took."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strobe.measure.intervals import inflation
from strobe.results.data import Interval
from strobe.results.dataloader import Rate

_LEVEL = 0.95
_FEWEST = 3
_WIDEST = math.log(1000)


def rate_of(block_samples: int, blocks_s: Sequence[float]) -> Rate:
    """Samples per second over ``blocks_s``, the seconds that successive blocks of ``block_samples`` took.

    The interval is Student's on the mean of the blocks, wider by what neighbours share (see `intervals.inflation`).
    None for fewer than three blocks.

    Raises:
        ValueError: no blocks, or one that took no time.
    """
    from scipy import stats

    array = np.asarray(blocks_s, dtype=float)
    if not len(array) or not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError("a rate needs blocks that took some time")
    mean, count = float(array.mean()), len(array)
    interval = None
    if count >= _FEWEST:
        error = float(array.std(ddof=1)) * math.sqrt(inflation(array) / count) / mean
        half = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1)) * error
        # Symmetric in the logarithm: a rate is positive, however little is known of it.
        factor = math.exp(min(half, _WIDEST))
        interval = Interval(low=block_samples / mean / factor, high=block_samples / mean * factor, level=_LEVEL)
    return Rate(
        samples_per_s=block_samples / mean, interval=interval, block_samples=block_samples, blocks_s=array.tolist()
    )


def merged(first: Rate | None, second: Rate) -> Rate:
    """Both looks at one loader as one."""
    if first is None:
        return second
    if first.block_samples != second.block_samples:
        raise ValueError(f"blocks of {first.block_samples} and of {second.block_samples} samples are not alike")
    return rate_of(first.block_samples, [*first.blocks_s, *second.blocks_s])


def low(rate: Rate) -> float:
    """The lower end of what the rate may be; 0 where that is not known."""
    return rate.interval.low if rate.interval is not None else 0.0


def high(rate: Rate) -> float:
    """The upper end of what the rate may be; infinity where that is not known."""
    return rate.interval.high if rate.interval is not None else math.inf
