"""Whether chunks are in time for a rate, in words."""

from __future__ import annotations

from strobe.report import units
from strobe.results.in_time import InTime
from strobe.results.ladder import Ladder


def share(found: InTime) -> str:
    """How many chunks were in time, and what that shows of all others."""
    missed = found.outcome == "missed"
    bound = (
        f"at most {_bound_in_words(found.high, found)}" if missed else f"at least {_bound_in_words(found.low, found)}"
    )
    return f"{_percent(found.share)} of {units.count(found.chunks, 'chunk')} are in time ({bound}, {_level(found)})"


def lacking(found: InTime) -> str:
    """What chunks that show nothing lack."""
    seen = f"{found.on_time} of {units.count(found.chunks, 'chunk')} {'was' if found.on_time == 1 else 'were'} in time"
    if found.needed is None:
        return f"{seen}, too near to {_percent(found.asked)} to tell"
    return (
        f"{seen}, and it takes {found.needed:,} to show that {_percent(found.asked)} are (--iterations={found.needed})"
    )


def answer(name: str, target: str, median_ms: float, ladder: Ladder) -> str:
    """Whether the rung that a ladder ends with reaches its target, in a sentence or two.

    Args:
        name: of the policy.
        target: the rate, with its milliseconds.
    """
    found = ladder.in_time
    by = median_ms - ladder.target_ms
    if found is None:  # of an earlier version, which looked at the median
        return f"{name} reaches {target} by its median." if ladder.met else f"{name} misses {target}{_by(by)}."
    if found.outcome == "reached":
        return f"{name} reaches {target}: {share(found)}."
    if found.outcome == "missed":
        asked = f", where {_percent(found.asked)} must be" if by <= 0 else ""
        return f"{name} misses {target}{_by(by)}: {share(found)}{asked}."
    return f"Too few chunks to say whether {name} reaches {target}: {lacking(found)}."


def _by(missing_ms: float) -> str:
    return f" by {units.short_ms(missing_ms)} ms" if missing_ms > 0 else ""


def _level(found: InTime) -> str:
    return f"{100 * found.level:.3g} %"


def _percent(value: float) -> str:
    """A share of chunks; never 100 % where one was late."""
    return f"{100 * value:.3g} %" if value in (0, 1) or 0.1 < 100 * value < 99.9 else f"{100 * value:.2f} %"


def _bound_in_words(value: float, found: InTime) -> str:
    """A bound of the share, with as many figures as it takes to see that it is not what was asked for."""
    for figures in range(3, 8):
        if float(f"{100 * value:.{figures}g}") != 100 * found.asked:
            return f"{100 * value:.{figures}g} %"
    return _percent(value)
