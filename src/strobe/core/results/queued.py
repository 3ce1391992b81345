"""Calls that take from a queue which a few of them fill: then no single call stands for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

SLOW = 3.0  # times the median: a call that fills the queue; where each second one does, times the lower quartile
MOST_OF_IT = 0.85  # share of the time in the slow calls: whatever they are, no typical call stands for the sum
MUCH_OF_IT = 0.15  # share of the time in slow calls at equal distances, which a machine's hiccups do not have
REGULAR = 0.8  # share of equal distances between slow calls
_FEWEST = 2  # slow calls; one is a hiccup


class Filled(NamedTuple):
    """A few calls that hold much of the time.

    Args:
        calls: those calls, as a share of all.
        time: what they hold, as a share of the time of all.
        each_ms: their mean, milliseconds.
        mean_ms: of all calls, milliseconds.
    """

    calls: float
    time: float
    each_ms: float
    mean_ms: float


def find_filled_calls(times: Sequence[float]) -> Filled | None:
    """Return the few calls that hold much of ``times`` (ms, in order); None if the typical call stands for all."""
    if len(times) <= _FEWEST:
        return None
    found = _find_slow_calls(times, SLOW * median(times), MUCH_OF_IT)
    return found or _find_slow_calls(times, SLOW * sorted(times)[len(times) // 4], MOST_OF_IT)


def _find_slow_calls(times: Sequence[float], limit: float, of_regular: float) -> Filled | None:
    slow = [index for index, time in enumerate(times) if time > limit]
    if len(slow) < _FEWEST:
        return None
    share = sum(times[index] for index in slow) / sum(times)
    distances = Counter(after - before for before, after in pairwise(slow))
    regular = len(slow) > _FEWEST and max(distances.values()) >= REGULAR * distances.total()
    if share <= (of_regular if regular else MOST_OF_IT):
        return None
    return Filled(len(slow) / len(times), share, fmean(times[index] for index in slow), fmean(times))
