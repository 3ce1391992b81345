"""Whether chunks are in time for a rate, in sentences."""

from __future__ import annotations

from strobe.core.results import units
from strobe.core.results.numerals import significant
from strobe.ladder.results import InTime


def describe_share(judged: InTime) -> str:
    """Return how many chunks were in time and, if that reaches the target, the share of all chunks that it shows."""
    if judged.outcome == "missed" and judged.on_time:
        return f"{_count(judged)}, {percent_of_chunks(judged.asked)} required"
    if judged.outcome != "reached":
        return _count(judged)
    shown = f"at least {_bound_in_words(judged.low, judged)} of all chunks, {100 * judged.level:.3g} % confidence"
    return f"{_count(judged)} ({shown}{describe_scope(judged)})"


def describe_scope(judged: InTime) -> str:
    """Return for which bursts of late chunks 'reached' holds; '' where it is not reached."""
    return f", if no more than {judged.burst} in a row are late" if judged.burst is not None else ""


def describe_lack(judged: InTime) -> str:
    """Return how many chunks were in time, and what it takes to decide."""
    if judged.needed is None:
        return f"{_count(judged)}, too few to decide on {percent_of_chunks(judged.asked)}"
    return f"{_count(judged)}; proof takes {judged.needed:,} (--iterations={judged.needed})"


def _count(judged: InTime) -> str:
    chunks = units.count(judged.chunks, "chunk")
    return f"{judged.on_time:,} of {chunks} within {significant(judged.within_ms, 4)} ms"


def percent_of_chunks(value: float) -> str:
    """Return a share of chunks; never 100 % where one was late."""
    return f"{100 * value:.3g} %" if value in (0, 1) or 0.1 < 100 * value < 99.9 else f"{100 * value:.2f} %"


def _bound_in_words(value: float, judged: InTime) -> str:
    for figures in range(3, 8):
        if float(f"{100 * value:.{figures}g}") != 100 * judged.asked:
            return f"{100 * value:.{figures}g} %"
    return percent_of_chunks(value)
