"""Success rates and verdicts in words and in plots, alike in all reports on episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.report import units
from strobe.results.data import Interval
from strobe.results.evaluation import Decided, SuccessRate, VariantOnTask

AXIS = {"title": {"text": "success (%)"}, "range": [-4, 104]}
BARS = "Bars are the exact 95 % intervals of the success rates."
OF = "%{customdata[0]} of %{customdata[1]}<extra>%{fullData.name}</extra>"  # successes of episodes


def verdict(kind: Decided, margin: float) -> str:
    """Return a verdict in a few words: 'not worse by more than 10 points'."""
    return kind.replace("the margin", points(margin))


def each(verdicts: int) -> str:
    """Return how sure several verdicts on success are together, as a sentence; '' where there is one."""
    if verdicts < 2:
        return ""
    together = min(100, 5 * verdicts)
    return f" Each verdict is wrong with a chance of at most 5 %; one of all {verdicts}, of at most {together} %."


TASKS = "The verdicts on a row's tasks are held to the same 5 %, all tasks together: each has a wider interval."


def points(share: float) -> str:
    """Return a difference of success rates: 0.1 is '10 points'."""
    return f"{units.number(100 * share, 3)} point{'' if abs(share) == 0.01 else 's'}"


def rate(success: SuccessRate) -> str:
    """Return a rate with its interval: '50.0 % [1.3, 98.7]'."""
    return f"{units.percent(success.rate)} [{100 * success.interval.low:.1f}, {100 * success.interval.high:.1f}]"


def difference(value: float, interval: Interval) -> str:
    """Return a difference of rates in points, with its interval: '+0.0 [−9.8, +9.8]'."""
    told, low, high = (units.signed(100 * each, 1) for each in (value, interval.low, interval.high))
    return f"{told} [{low}, {high}]"


def still(on: VariantOnTask) -> str:
    """Return the loss that episodes do not exclude, as a clause; '' where there is none, or nothing to lose against."""
    lost = -on.paired.decision.interval.low if on.paired is not None else 0.0
    return f"; a loss of up to {points(lost)} is not excluded" if lost > 0 else ""


def bars(successes: Sequence[SuccessRate], colour: str) -> dict[str, Any]:
    """Return Plotly's error bars of rates in percent."""
    shares = [(_share(one.interval.low), _share(one.rate), _share(one.interval.high)) for one in successes]
    return {
        "type": "data",
        "symmetric": False,
        "color": colour,
        "thickness": 1.5,
        "array": [round(100 * (high - rate), 3) for _, rate, high in shares],
        "arrayminus": [round(100 * (rate - low), 3) for low, rate, _ in shares],
    }


def _share(rate: float) -> float:
    """A rate as a plot can show it: a file that was written by hand may hold any number."""
    return min(max(rate, 0.0), 1.0)
