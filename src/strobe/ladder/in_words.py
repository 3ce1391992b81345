"""Whether chunks are in time for a rate, in sentences."""

from __future__ import annotations

from strobe.core.results import units
from strobe.ladder.results import InTime, Ladder


def describe_share(judged: InTime) -> str:
    """Return how many chunks were in time, and what that shows of all others."""
    missed = judged.outcome == "missed"
    bound = (
        f"at most {_bound_in_words(judged.high, judged)}"
        if missed
        else f"at least {_bound_in_words(judged.low, judged)}"
    )
    text = f"{_percent(judged.share)} of {units.count(judged.chunks, 'chunk')} are in time ({bound}, {_level(judged)}"
    return f"{text}, if no more than {judged.burst} in a row are late)" if judged.burst is not None else f"{text})"


def describe_lack(judged: InTime) -> str:
    """Return what chunks that show nothing lack."""
    seen = (
        f"{judged.on_time} of {units.count(judged.chunks, 'chunk')} {'was' if judged.on_time == 1 else 'were'} in time"
    )
    if judged.needed is None:
        return f"{seen}, too near to {_percent(judged.asked)} to tell"
    needed = f"{judged.needed:,} to show that {_percent(judged.asked)} are (--iterations={judged.needed})"
    return f"{seen}, and it takes {needed}"


def describe_target(name: str, target: str, median_ms: float, ladder: Ladder) -> str:
    """Return whether the rung that a ladder ends with reaches its target, in a sentence or two.

    Args:
        name: of the policy.
        target: the rate, with its milliseconds.
    """
    judged = ladder.in_time
    by = median_ms - ladder.target_ms
    if judged is None:  # of an earlier version, which looked at the median
        return f"{name} reaches {target} by its median." if ladder.met else f"{name} misses {target}{_by(by)}."
    if judged.outcome == "reached":
        return f"{name} reaches {target}: {describe_share(judged)}."
    if judged.outcome == "missed":
        required = f", where {_percent(judged.asked)} must be" if by <= 0 else ""
        return f"{name} misses {target}{_by(by)}: {describe_share(judged)}{required}."
    return f"Too few chunks to say whether {name} reaches {target}: {describe_lack(judged)}."


def _by(missing_ms: float) -> str:
    return f" by {units.short_ms(missing_ms)} ms" if missing_ms > 0 else ""


def _level(judged: InTime) -> str:
    return f"{100 * judged.level:.3g} %"


def _percent(value: float) -> str:
    """Return a share of chunks; never 100 % where one was late."""
    return f"{100 * value:.3g} %" if value in (0, 1) or 0.1 < 100 * value < 99.9 else f"{100 * value:.2f} %"


def _bound_in_words(value: float, judged: InTime) -> str:
    """Return a bound of the share, with as many figures as it takes to see that it is not the requested share."""
    for figures in range(3, 8):
        if float(f"{100 * value:.{figures}g}") != 100 * judged.asked:
            return f"{100 * value:.{figures}g} %"
    return _percent(value)
