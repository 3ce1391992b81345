"""How long episodes take until the task is done, and the verdict on two variants. Plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite
from strobe.core.results.numerals import significant

TimeKind = Literal["sooner", "later", "not sooner", "not shown"]
OLDER = "this answer is of a version of Strobe that did not judge it"
MATTERS = 0.05  # "not sooner" excludes that a variant is sooner by this share or more


class PairedTimes(Data):
    """A variant against the first one, in pairs of episodes from the same start.

    A ratio is the first variant's time ÷ this one's: above 1 this one is sooner. An episode that fails never does the
    task, so the variant that does it is sooner in that pair.
    """

    pairs: int
    sooner: int = Field(description="pairs in which this variant did the task first")
    later: int = Field(description="pairs in which the first variant did the task first")
    together: int = Field(description="pairs in which both did it at the same moment")
    neither: int = Field(description="pairs in which both failed")
    kind: TimeKind
    ratio: Finite | None = Field(description="ratio of the median pair; None if only one of the two did the task in it")
    low: Finite | None = Field(description="lower end of its interval, anytime-valid; None: above every ratio")
    high: Finite | None = Field(description="upper end of its interval; None: unbounded")
    mean_ratio: Finite = Field(description="ratio of the mean times over all starts, a failure counted as the limit")
    mean_low: Finite = Field(description="lower end of its interval, anytime-valid")
    mean_high: Finite | None = Field(description="upper end of its interval; None: unbounded")
    level: Finite

    @property
    def same(self) -> bool:
        """Whether each start was done at the same moment by both, or by neither."""
        return not self.sooner and not self.later


class TimeToTask(Data):
    """Seconds from the start of an episode until it succeeds: control ticks ÷ their rate, or of a virtual clock."""

    episodes: int
    done: int = Field(description="number of episodes that succeeded")
    limit_s: Finite = Field(description="longest duration of an episode; the longest limit, if tasks differ")
    mean_done_s: Finite = Field(description="mean over the episodes that succeeded")
    mean_s: Finite = Field(description="mean over all episodes, a failure counted as the limit")
    middle_s: Finite | None = Field(description="time after which half of the episodes are done; None: fewer are, ever")
    at_s: list[Finite] = Field(description="times at which the curve falls, from 0 to the last end of an episode")
    not_done: list[Finite] = Field(description="share not yet done from each of these times on (Kaplan and Meier)")
    paired: PairedTimes | None = Field(default=None, description="comparison with the first variant; None for itself")


def time_in_words(paired: PairedTimes) -> str:
    """Return the verdict with its figures: 'finishes 1.4 × sooner [1.2, 1.6]'."""
    shown = f" {_interval(paired.low, paired.high)}"
    if paired.kind == "not sooner":
        return f"does not finish sooner: a gain of {100 * MATTERS:.0f} % is excluded ({_times(paired.ratio)}{shown})"
    apart = paired.low is None or paired.low > 1 or (paired.high is not None and paired.high < 1)
    if paired.kind == "not shown" and apart:
        middle, mean = f"{_times(paired.ratio)}{shown}", mean_in_words(paired)
        return f"is not judged: most pairs ({middle}) and the mean over all starts ({mean}) say the opposite"
    if paired.kind == "not shown":
        return f"is not shown to finish sooner or later ({_times(paired.ratio)}{shown})"
    if paired.ratio is None or paired.ratio == 0:
        only = paired.pairs - paired.neither - paired.together
        return (
            f"finishes {paired.kind} (no ratio: the middle one of {only} starts is one that only one of the two does)"
        )
    if paired.kind == "sooner":
        return f"finishes {significant(paired.ratio)} × sooner{shown}"
    ends = (None if paired.high == 0 else _inverse(paired.high), _inverse(paired.low))
    return f"finishes {significant(1 / paired.ratio)} × later {_interval(*ends)}"


def mean_in_words(paired: PairedTimes) -> str:
    """Return the ratio of the means over all starts: '1.21 × [0.9, 1.6]'."""
    return f"{significant(paired.mean_ratio)} × {_interval(paired.mean_low, paired.mean_high)}"


def _times(ratio: float | None) -> str:
    return "no ratio" if ratio is None else f"{significant(ratio)} ×"


def _inverse(ratio: float | None) -> float | None:
    return None if not ratio else 1 / ratio


def _interval(low: float | None, high: float | None) -> str:
    return f"[{'∞' if low is None else significant(low)}, {'∞' if high is None else significant(high)}]"
