"""Which of several does the task best? Successive elimination and ranks, on starts that all share.

Even-Dar, Mannor and Mansour ("Action elimination and stopping conditions for the multi-armed bandit and reinforcement
learning problems", JMLR 7, 2006) play all arms that remain in turn. An arm goes as soon as its interval shows that
another arm is better. Their intervals are of each arm's own rate, by Hoeffding. Here an interval is of the difference
of two arms in pairs from the same starts, by bets (`strobe.evaluate.measure.betting`): it is narrower where starts
differ in difficulty.

How sure that is. K arms make K (K − 1) / 2 pairs, and each pair has a confidence sequence at the level
1 − 0.05 / (K (K − 1) / 2). A sequence is wrong if it ever excludes the true difference, at any start. For one pair the
chance of that is at most 0.05 / (K (K − 1) / 2) (Ville 1939), so the chance that any of them is ever wrong is at most
0.05. If none is wrong, then

- an arm that goes has a lower true rate than the arm by which it goes. So no best arm ever goes: it is eliminated with
  a chance of 5 % at most.
- if one arm remains, it is the only best one. Each arm that went is worse than another, that one may have gone too, and
  such a chain has no circle, so it ends at the arm that remains. Of equal arms none is called the best.
- the interval of each arm against the best one holds, though the data chose which arm is the best one.

All of these hold together with a chance of 95 %, after every start. K − 1 pairs would be enough for the first sentence
alone, because a union over the best arm's own pairs gives it. The other sentences need all pairs, and all are shown.
The price is small: the capital that is needed grows by a factor of K / 2, of which only the log counts.

The arm with the most successes among those that remain never goes: in no pair is its mean difference negative. So one
arm always remains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from strobe.core.measure.statistics import bonferroni
from strobe.evaluate.measure.betting import decisive_log_capital, log_capital
from strobe.evaluate.measure.success_rates import LEVEL, decide
from strobe.evaluate.measure.time_to_task import Ended, judge_times

Outcomes = Mapping[str, Sequence[bool]]  # arm → whether each start succeeded, all on the same starts in the same order


def bonferroni_pairs(arms: int, level: float = LEVEL) -> float:
    """Return the level of each pair of ``arms``, by which all pairs together are as sure as ``level``."""
    return bonferroni(arms * (arms - 1) // 2, level)


def eliminate_arms(outcomes: Outcomes, level: float) -> dict[str, str]:
    """Return each arm that is shown to succeed less than another one, and by which: the one with the most successes.

    Args:
        outcomes: of the arms that remain, on complete rounds, where tasks are played in turn.
        level: of each pair, as `bonferroni_pairs` returns it.

    Raises:
        ValueError: arms with different numbers of starts.
    """
    if len({len(won) for won in outcomes.values()}) > 1:
        raise ValueError("arms are judged on the same starts")
    won = {name: np.asarray(each, bool) for name, each in outcomes.items()}
    best_first = sorted(won, key=lambda name: -int(won[name].sum()))
    gone = {}
    for name in best_first:
        by = next((other for other in best_first if other != name and _worse(won[other], won[name], level)), None)
        if by is not None:
            gone[name] = by
    return gone


def _worse(first: np.ndarray, second: np.ndarray, level: float) -> bool:
    """Whether bets exclude that the second succeeds as often as the first: its sequence lies below 0."""
    lost, gained = int((first & ~second).sum()), int((second & ~first).sum())
    if lost <= gained:  # no bet on a loss has won anything
        return False
    return bool(log_capital(gained, len(first) - lost - gained, lost, 0.5) >= decisive_log_capital(level))


# Ranking settings by success and time, for a search that need not be sure of each step.
#
# Success comes first: no setting leads for its speed that is behind in success. Settings whose success is equal, as far
# as it was seen, are ranked by their mean time to task over all starts, with a failure counted as the limit.

Played = Mapping[str, Sequence[Ended]]  # setting → its episodes, all from the same starts in the same order
MARGIN = 0.03  # difference of success rates below which time decides


def rank_settings(played: Played, margin: float = MARGIN) -> list[str]:
    """Return the settings, the best first.

    First come those whose success rate is within ``margin`` of the highest, by their mean time over all starts; then
    the others, by their success rate and then by that time.

    Raises:
        ValueError: settings with different numbers of episodes, or none.
    """
    if len({len(episodes) for episodes in played.values()}) != 1 or not next(iter(played.values())):
        raise ValueError("settings are ranked on the same starts, one or more")
    rates = {name: sum(each.success for each in ended) / len(ended) for name, ended in played.items()}
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
    first = rank_settings(played)[0]
    widest = max((standard_error(played[first], played[name]) for name in played), default=0.0)
    return rank_settings(played, max(MARGIN, widest))[:count]


def shown_worse(
    leader: Sequence[Ended], other: Sequence[Ended], level: float, every: int = 1
) -> Literal["success", "time"] | None:
    """Return in what ``other`` is shown to be worse than ``leader`` in pairs.

    Each is wrong with a chance of 1 − ``level`` at most, at any number of pairs. Time counts against a setting only
    where its success rate is no higher.
    """
    differences = [int(b.success) - int(a.success) for a, b in zip(leader, other, strict=True)]
    if decide(differences, None, level, every).kind == "worse":
        return "success"
    if sum(differences) <= 0 and judge_times(leader, other, level, every).kind == "later":
        return "time"
    return None


def mean_s(episodes: Sequence[Ended]) -> float:
    """Return the mean seconds to the task over all ``episodes``, a failure counted as its limit."""
    return sum(min(each.seconds, each.limit_s) if each.success else each.limit_s for each in episodes) / len(episodes)
