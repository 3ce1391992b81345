"""Which of many settings does the task best, and soonest: how they are ranked, and which are shown to be worse.

Success comes first: no setting leads for its speed that is behind in success. Settings whose success is equal, as far
as it was seen, are ranked by their mean time to task over all starts, with a failure counted as the limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from strobe.measure.success_rates import decide
from strobe.measure.time_to_task import Ended, judge_times

Played = Mapping[str, Sequence[Ended]]  # setting → its episodes, all from the same starts in the same order
MARGIN = 0.03  # of success rate, within which time decides


def ranked(played: Played, margin: float = MARGIN) -> list[str]:
    """Return the settings, the best first.

    First come those whose success rate is within ``margin`` of the highest, by their mean time over all starts; then
    the others, by their success rate and then by that time.

    Raises:
        ValueError: settings with different numbers of episodes, or none.
    """
    if len({len(episodes) for episodes in played.values()}) != 1 or not next(iter(played.values())):
        raise ValueError("settings are ranked on the same starts, one or more")
    rates = {name: _rate(episodes) for name, episodes in played.items()}
    highest = max(rates.values())

    def key(name: str) -> tuple[bool, float, float]:
        leads = rates[name] >= highest - margin
        return not leads, 0.0 if leads else -rates[name], mean_s(played[name])

    return sorted(played, key=key)


def standard_error(first: Sequence[Ended], second: Sequence[Ended]) -> float:
    """The standard error of the difference of two success rates seen in pairs, 0 to 1."""
    differences = np.array([int(b.success) - int(a.success) for a, b in zip(first, second, strict=True)], float)
    return float(differences.std() / math.sqrt(len(differences)))


def best(played: Played, count: int) -> list[str]:
    """Return the ``count`` settings that are played on with, the best first.

    A setting is not left out for a success rate that is lower by less than its standard error: there, time decides
    ("one standard error" as in Breiman et al., "Classification and Regression Trees", 1984). Args and errors as of
    `ranked`.
    """
    first = ranked(played)[0]
    widest = max((standard_error(played[first], played[name]) for name in played), default=0.0)
    return ranked(played, max(MARGIN, widest))[:count]


def shown_worse(leader: Sequence[Ended], other: Sequence[Ended], level: float, every: int = 1) -> str:
    """Return in what ``other`` is shown to be worse than ``leader`` in pairs: 'success', 'time', or ''.

    Each is wrong with a chance of 1 − ``level`` at most, at any number of pairs. Time counts against a setting only
    where its success rate is no higher.
    """
    differences = [int(b.success) - int(a.success) for a, b in zip(leader, other, strict=True)]
    if decide(differences, None, level, every).kind == "worse":
        return "success"
    if sum(differences) <= 0 and judge_times(leader, other, level, every).kind == "later":
        return "time"
    return ""


def _rate(episodes: Sequence[Ended]) -> float:
    return sum(each.success for each in episodes) / len(episodes)


def mean_s(episodes: Sequence[Ended]) -> float:
    """Return the mean seconds to the task over all ``episodes``, a failure counted as its limit."""
    return sum(min(each.seconds, each.limit_s) if each.success else each.limit_s for each in episodes) / len(episodes)
