"""A gate of speed: is a measurement slower than it may be? *Held*, *broken*, or *not judged* where that is not shown.

What was not looked at is not held: a gate passes only where the interval excludes a slow-down above the one allowed, or
above `WIDEST` where less is allowed, for no noise lets an interval exclude everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from strobe.results.agreement import Outcome

WIDEST = 0.10


@dataclass(frozen=True)
class Gated:
    """One measurement at a gate.

    Args:
        what: the measurement, in words.
        why: what was seen and, where it is not judged, what is missing and what to give.
    """

    outcome: Outcome
    what: str
    why: str


def excluded(allowed: float) -> float:
    """Return the slow-down that must be excluded where one of ``allowed`` (0.05 is 5 %) may be."""
    return max(allowed, WIDEST)
