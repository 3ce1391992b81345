"""Times of calls of which no single one stands for all: a few fill a queue, or each takes longer than the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from pydantic import Field

from strobe.core.results import units
from strobe.core.results.data import Data, Finite, Samples

SLOW = 3.0  # times the median: a call that fills the queue; where each second one does, times the lower quartile
MOST_OF_IT = 0.85  # share of the time in the slow calls: whatever they are, no typical call stands for the sum
MUCH_OF_IT = 0.15  # share of the time in slow calls at equal distances, which a machine's hiccups do not have
REGULAR = 0.8  # share of equal distances between slow calls
_FEWEST = 2  # slow calls; one is a hiccup
_FEWEST_TIMES = 6  # calls, of which less than half may be slow by chance; as many as a verdict needs
GROWN = 1.2  # last calls over the first ones: less may be a drift of the machine
EVEN = 1 / 7  # least share of the growth from each quarter to the next: a step has less, and so has heat in its end
_FEWEST_GROWING = 20
MACHINE_PART = 0.25  # of what calls grow by: a machine that slows down by as much has a part in it
_FIRST, _LAST = slice(3), slice(-3, None)  # calls that stand for the first and the last, by their median


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
    if len(times) < _FEWEST_TIMES:
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


class Growth(Data):
    """Calls that take longer and longer, up to the end."""

    first_ms: Finite = Field(description="median of the first three calls, of those after each reset where that helps")
    last_ms: Finite = Field(description="median of the last three")
    calls: int
    resets: int = Field(description="number of resets after which the calls were as short as at first")

    @property
    def words(self) -> str:
        """The first and the last times and the growth a call, as the beginning of a sentence."""
        first, last = units.short_ms(self.first_ms), units.short_ms(self.last_ms)
        more = units.short_ms((self.last_ms - self.first_ms) / (self.calls - 3))
        again = f"; reset() brings it back ({units.count(self.resets, 'time')})" if self.resets else ""
        return f"{first} ms in the first calls, {last} ms in the last of {self.calls:,}: +{more} ms a call{again}"


def find_growth(times: Sequence[float], begins: Sequence[int] = ()) -> Growth | None:
    """Return how calls grow, by a fifth or more; None if they do not, or end in a level, as under heat.

    Args:
        times: milliseconds, in order.
        begins: the indices of the first calls after a reset.
    """
    series, resets = times, 0
    first_run, *runs = [times[start:end] for start, end in pairwise(sorted({0, *begins, len(times)}))] or [times]
    ends = [median(first_run[part]) for part in (_FIRST, _LAST) if first_run]
    if runs and median(run[0] for run in runs) < sum(ends) / 2:  # by position in a run, as far as half of them reach
        resets, runs = len(runs), [first_run, *runs]
        reached = sorted(map(len, runs))[len(runs) // 2]
        series = [median(run[at] for run in runs if len(run) > at) for at in range(reached)]
    if (count := len(series)) < _FEWEST_GROWING:
        return None
    quarters = [median(series[count * at // 4 : count * (at + 1) // 4]) for at in range(4)]
    steps = [after - before for before, after in pairwise(quarters)]
    # Four standard errors of the difference of two quarters' medians, by the differences of neighbours.
    noise = 14 * median(abs(after - before) for before, after in pairwise(series)) / count**0.5
    first, last = median(series[_FIRST]), median(series[_LAST])
    uneven = min(steps) <= EVEN * sum(steps)
    if uneven or sum(steps) < noise or last < GROWN * first:
        return None
    return Growth(first_ms=first, last_ms=last, calls=count, resets=resets)


def find_own_growth(samples: Samples) -> Growth | None:
    """Return how calls grow; None where the machine, which was looked at between them, has a part in it."""
    change, grown = samples.machine_change, find_growth(samples.values)
    if grown is None or (change is not None and change - 1 >= MACHINE_PART * (grown.last_ms / grown.first_ms - 1)):
        return None
    return grown
