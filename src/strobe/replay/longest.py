"""How long may the longest call of another run be? The longest that was recorded is not the longest there is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strobe.core.measure.statistics import Array, validate_times

FEWEST = 20  # calls that are judged
TAIL = 4  # the longest calls: few, since further down times fall off otherwise
_POINTS = (np.arange(200) + 0.5) / 200


def chance_of_longer(times: Sequence[float] | Array, limit_ms: float, calls: int) -> float | None:
    """Return the chance that one of ``calls`` further calls takes longer than ``limit_ms``; None of too few ``times``.

    Beyond the `TAIL` longest of ``times``, times are held to fall off as a power law, whose exponent these tell (Hill,
    "A simple general approach to inference about the tail of a distribution", Annals of Statistics 3, 1975). Neither
    it nor the share of calls out there is known: the chance is the mean over both. Times that fall off faster are
    longer more rarely than this. Of no use are ``times`` against what is rarer than one call in so many.

    Args:
        times: milliseconds of calls of the same law.

    Raises:
        ValueError: as `statistics.checked`.
    """
    from scipy import stats

    ordered = np.sort(validate_times(times))
    count = len(ordered)
    if count < FEWEST:
        return None
    start = float(ordered[-TAIL - 1])
    if limit_ms < start:
        return 1.0
    if start == ordered[-1]:
        return 0.0
    if start <= 0:
        return None
    rate = float(np.log(ordered[-TAIL:] / start).mean())
    beyond = np.exp(-math.log(limit_ms / start) / rate * stats.gamma.ppf(_POINTS, TAIL) / TAIL)
    share = stats.beta.ppf(_POINTS, TAIL + 1, count - TAIL)
    return float(1 - ((1 - np.outer(beyond, share)) ** calls).mean())
