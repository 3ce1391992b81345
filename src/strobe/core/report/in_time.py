"""Whether chunks are in time for a rate, in sentences."""

from __future__ import annotations

from strobe.core.results import units
from strobe.core.results.in_time import InTime


def describe_share(judged: InTime) -> str:
    """Return how many chunks were in time, and what that shows of all others."""
    missed = judged.outcome == "missed"
    bound = (
        f"at most {_bound_in_words(judged.high, judged)}"
        if missed
        else f"at least {_bound_in_words(judged.low, judged)}"
    )
    share, chunks = percent_of_chunks(judged.share), units.count(judged.chunks, "chunk")
    text = f"{share} of {chunks} are in time ({bound}, {_level(judged)}"
    return f"{text}, if no more than {judged.burst} in a row are late)" if judged.burst is not None else f"{text})"


def describe_lack(judged: InTime) -> str:
    """Return what chunks that show nothing lack."""
    seen = (
        f"{judged.on_time} of {units.count(judged.chunks, 'chunk')} {'was' if judged.on_time == 1 else 'were'} in time"
    )
    if judged.needed is None:
        return f"{seen}, too near to {percent_of_chunks(judged.asked)} to tell"
    needed = f"{judged.needed:,} to show that {percent_of_chunks(judged.asked)} are (--iterations={judged.needed})"
    return f"{seen}, and it takes {needed}"


def _level(judged: InTime) -> str:
    return f"{100 * judged.level:.3g} %"


def percent_of_chunks(value: float) -> str:
    """Return a share of chunks; never 100 % where one was late."""
    return f"{100 * value:.3g} %" if value in (0, 1) or 0.1 < 100 * value < 99.9 else f"{100 * value:.2f} %"


def _bound_in_words(value: float, judged: InTime) -> str:
    """Return a bound of the share, with as many figures as it takes to see that it is not the requested share."""
    for figures in range(3, 8):
        if float(f"{100 * value:.{figures}g}") != 100 * judged.asked:
            return f"{100 * value:.{figures}g} %"
    return percent_of_chunks(value)
