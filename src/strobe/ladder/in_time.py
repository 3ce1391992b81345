"""Are chunks in time for a rate, and which rung of a ladder is best? One rule for a climb, its answer and a budget.

A median within the period says that half of the chunks are in time. A robot waits for the other half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strobe.core.measure.statistics import Array, inflation, validate_times
from strobe.core.measure.verdicts import paired_verdict
from strobe.ladder.results import InTime

REQUIRED = 0.95  # share of chunks in time, unless another share is required
LEVEL = 0.95  # level of either bound
_MOST = 1_000_000  # chunks: nobody times more
# Looks at a run, as in `looks`: the first has this share of the error, each later one this share of what is left.
_AT_FIRST, _LATER, _GROWTH = 0.4, 0.5, 2


def judge_in_time(
    times: Sequence[float] | Array, within_ms: float, required: float = REQUIRED, level: float = LEVEL
) -> InTime:
    """Judge whether ``required`` of the chunks are ready within ``within_ms``.

    Each bound of the share is Clopper and Pearson's (Biometrika 26, 1934), and holds with confidence ``level``. Where
    neighbours resemble each other, chunks count for fewer (Korn and Graubard, "Confidence intervals for proportions
    with small expected number of positive counts estimated from survey data", Survey Methodology 24, 1998), by
    `statistics.inflation`.

    Args:
        times: milliseconds of chunks, in the order in which they were timed.
        required: share of chunks, 0 to 1.

    Raises:
        ValueError: no times, or times that are negative, NaN or infinite; a share outside (0, 1).
    """
    if not 0 < required < 1:
        raise ValueError(f"a share of chunks lies between 0 and 1, not at {required:g}")
    array = validate_times(times)
    on_time = array <= within_ms
    chunks, hits = len(array), int(on_time.sum())
    # Of the slowest too: where none is late, lateness itself cannot show that late chunks would come together.
    slowest = array > np.quantile(array, required)
    each = max(inflation(slowest.astype(float)), inflation(on_time.astype(float)), _bursts(on_time))
    low = _low(hits / each, chunks / each, level)
    high = 1 - _low((chunks - hits) / each, chunks / each, level)
    outcome = "reached" if low >= required else "missed" if high < required else "not judged"
    needed = _chunks_needed(hits / chunks, required, level, each) if outcome == "not judged" else None
    burst = _longest_burst(hits, chunks, required, level) if outcome == "reached" else None
    return InTime(
        within_ms=within_ms, asked=required, chunks=chunks, on_time=hits, low=low, high=high, level=level,
        outcome=outcome, needed=needed, burst=burst,
    )  # fmt: skip


def _bursts(on_time: NDArray[np.bool_]) -> float:
    """Return by how much the variance of a share grows where late chunks come in bursts: two states that take turns.

    The states are a Markov chain, whose autocorrelation fades by the same share from chunk to chunk: one less the
    chances of leaving either state. A run that is longer than chance explains counts in full: a mean hides it.
    """
    late = ~on_time
    runs = np.diff(np.flatnonzero(np.diff(late, prepend=False, append=False)))[::2]
    if not len(runs) or not on_time.any():
        return 1.0
    fading = 1 - len(runs) / int(late.sum()) - len(runs) / int(on_time.sum())
    longest = int(runs.max()) if len(late) * float(late.mean()) ** int(runs.max()) < 1 - LEVEL else 1
    return max(longest, (1 + fading) / (1 - fading))


def _longest_burst(hits: int, chunks: int, required: float, level: float) -> int:
    """Return the longest bursts (chunks, their mean) that the chunks would show, were too few of all in time.

    Late chunks that come so many at a time are as good as so many fewer chunks; a run may fall between rarer bursts.
    """
    most = 1
    while _low(hits / (most + 1), chunks / (most + 1), level) >= required:
        most += 1
    return most


def fewest_chunks(required: float = REQUIRED, level: float = LEVEL) -> int:
    """Return the fewest chunks that can show it: if all of them are in time."""
    return math.ceil(math.log(1 - level) / math.log(required) - 1e-9)


@dataclass
class InTimeLooks:
    """When to end a run of one variant: once its chunks show whether ``required`` of them are in time.

    All looks together have the error of one, whatever the number of looks (Bonferroni, as in `looks`).

    Args:
        name: of the variant.
    """

    name: str
    within_ms: float
    required: float = REQUIRED
    _next: int = 0
    _left: float = 1.0  # of the error
    _stopped: float | None = None  # the share of the error that the look had which ended it

    def __post_init__(self) -> None:
        self._next = fewest_chunks(self.required, self._level(_AT_FIRST))

    def due(self, pairs: int) -> bool:
        """Return whether it is time to look, with so many chunks."""
        return pairs >= self._next

    def look(self, samples: Mapping[str, Array]) -> str | None:
        """Return why to stop, in words. ``samples``: milliseconds by name, without the warm-up."""
        values = samples[self.name]
        spent = _AT_FIRST if self._left == 1 else _LATER * self._left
        judged = judge_in_time(values, self.within_ms, self.required, self._level(spent))
        self._left -= spent
        self._next = _GROWTH * len(values)
        if judged.outcome == "not judged":
            return None
        self._stopped = spent
        return f"{judged.on_time} of {judged.chunks} chunks were in time"

    def judge_run(self, times: Sequence[float] | Array) -> InTime:
        """Judge the run, which has ended: at the level of the look that ended it, else with all the error left."""
        share = self._left if self._stopped is None else self._stopped
        return judge_in_time(times, self.within_ms, self.required, self._level(share))

    @staticmethod
    def _level(share: float) -> float:
        return 1 - share * (1 - LEVEL)


def _low(hits: float, chunks: float, level: float) -> float:
    from scipy import stats

    return float(stats.beta.ppf(1 - level, hits, chunks - hits + 1)) if hits > 0 else 0.0


def _chunks_needed(share: float, required: float, level: float, each: float) -> int | None:
    if share <= required:
        return None

    def enough(chunks: float) -> bool:
        return _low(share * chunks, chunks, level) >= required

    low, high = 1.0, 2.0
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return int(np.ceil(each * high))


def best_rung(
    times: Sequence[Sequence[float] | Array], shown: Sequence[bool], allowed: Sequence[bool], first: int = 0
) -> int:
    """Return the index of the best rung by one run of all of them in alternation.

    A rung takes the place of the best so far where the run shows it to be faster. It must not be slower than the rung
    right below it: a try has shown that it is faster, or this run does, and this run does not show the reverse.

    Args:
        times: of each rung, milliseconds, paired by round.
        shown: of each rung, whether a try has shown that it is faster than the one below.
        allowed: of each rung, whether it may be the best: its guard held.
        first: the rung to begin with, which needs no gain.

    Raises:
        ValueError: as `verdicts.paired_verdict`.
    """

    def kind(before: int, after: int) -> str:
        return paired_verdict(times[before], times[after]).kind

    best = first
    for rung in range(first + 1, len(times)):
        if not allowed[rung] or kind(best, rung) != "faster":
            continue
        below = "faster" if best == rung - 1 else kind(rung - 1, rung)
        if below == "faster" or (shown[rung] and below != "slower"):
            best = rung
    return best
