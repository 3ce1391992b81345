"""The rung that a ladder ends with: the best of those that its closing run shows."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.measure.intervals import Array
from strobe.measure.verdicts import paired_verdict


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
