"""A steady rate with its interval, from the times that blocks of work took."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strobe.results.data import Interval
from strobe.results.dataloader import Rate

_LEVEL = 0.95
_MOST_BATCHES = 20
_FEWEST = 3
_WIDEST = math.log(1000)


def rate_of(block_samples: int, blocks_s: Sequence[float]) -> Rate:
    """Samples per second over ``blocks_s``, the seconds that successive blocks of ``block_samples`` took.

    The interval is Student's, on the means of at most twenty batches of successive blocks: neighbours hang together,
    means over longer stretches hardly do (batch means; Schmeiser, "Batch size effects in the analysis of simulation
    output", Operations Research 30, 1982). None for fewer than three blocks.

    Raises:
        ValueError: no blocks, or one that took no time.
    """
    from scipy import stats

    array = np.asarray(blocks_s, dtype=float)
    if not len(array) or not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError("a rate needs blocks that took some time")
    mean = float(array.mean())
    interval = None
    if len(array) >= _FEWEST:
        each = math.ceil(len(array) / _MOST_BATCHES)
        count = len(array) // each
        means = array[len(array) - count * each :].reshape(count, each).mean(axis=1)
        half = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1)) * float(means.std(ddof=1)) / math.sqrt(count) / mean
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
