"""Order statistics of Walsh averages, the means of all pairs of values, without making all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# So many averages for each value are made and sorted once the rest is ruled out; more would take memory, fewer time.
_MADE = 4
_ALIKE = 1e-13  # of the largest value: averages closer than that are ties


def walsh_averages(values: NDArray[np.floating], ranks: Sequence[int]) -> list[float]:
    """The Walsh averages (a + b) / 2 of all pairs of ``values``, each with itself too, at ``ranks`` of their order.

    Exact, in O(n) memory: the pairs up to a bound are counted in the sorted values, and the bound is moved by bisection
    until few are left (after Monahan, "Algorithm 616: fast computation of the Hodges-Lehmann location estimator", ACM
    Transactions on Mathematical Software 10, 1984, which moves it from row to row).

    Args:
        values: finite, one at least.
        ranks: from 0 to n (n + 1) / 2 − 1.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return [_at(ordered, rank) for rank in ranks]


def _at(ordered: NDArray[np.float64], rank: int) -> float:
    rows = np.arange(len(ordered))
    # Row i holds the pairs (i, j) from j = i on. Those before ``low_ends[i]`` come before the rank, and those from
    # ``high_ends[i]`` on come after it.
    low, low_ends = float(ordered[0]), rows
    high, high_ends = float(ordered[-1]), np.full(len(ordered), len(ordered))
    alike = _ALIKE * max(abs(low), abs(high))
    while int((high_ends - low_ends).sum()) > _MADE * len(ordered) and high - low > alike:
        middle = low + (high - low) / 2
        ends = np.maximum(np.searchsorted(ordered, 2 * middle - ordered, side="right"), rows)
        if int((ends - rows).sum()) > rank:
            high, high_ends = middle, ends
        else:
            low, low_ends = middle, ends
    left = high_ends - low_ends
    if high - low <= alike:
        row = int(np.argmax(left))
        return float(ordered[row] + ordered[high_ends[row] - 1]) / 2
    first = np.repeat(rows, left)
    second = np.arange(len(first)) - np.repeat(np.cumsum(left) - left, left) + np.repeat(low_ends, left)
    made = (ordered[first] + ordered[second]) / 2
    at = rank - int((low_ends - rows).sum())
    return float(np.partition(made, at)[at])
