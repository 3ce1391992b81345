"""Rates of work with their intervals, and a search for the best of several arms by successive halving.

In the search every arm is measured shortly, the best third of them for three times as long, and so on (Jamieson and
Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016; the inner loop of
Hyperband, Li et al., JMLR 18, 2018). Here an arm also goes when its interval lies below the best one's, and the search
ends once one arm is good enough, or only arms are left that are practically equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from strobe.core.measure.statistics import inflation
from strobe.core.results.data import Interval
from strobe.dataloader.results import Rate

Arm = TypeVar("Arm", bound="Hashable")
E = TypeVar("E", bound="Estimate")

_LEVEL = 0.95
_FEWEST = 3
_WIDEST = math.log(1000)


def block_rate(block_samples: int, blocks_s: Sequence[float]) -> Rate:
    """Samples per second over ``blocks_s``, the seconds that successive blocks of ``block_samples`` took.

    The interval is Student's on the mean of the blocks, wider by what neighbours share (see `statistics.inflation`).
    None for fewer than three blocks.

    Raises:
        ValueError: no blocks, or one that took no time.
    """
    from scipy import stats

    array = np.asarray(blocks_s, dtype=float)
    if not len(array) or not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError("a rate needs blocks that took some time")
    mean, count = float(array.mean()), len(array)
    interval = None
    if count >= _FEWEST:
        error = float(array.std(ddof=1)) * math.sqrt(inflation(array) / count) / mean
        half = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1)) * error
        # Symmetric in the logarithm: a rate is positive, however little is known of it.
        factor = math.exp(min(half, _WIDEST))
        interval = Interval(low=block_samples / mean / factor, high=block_samples / mean * factor, level=_LEVEL)
    return Rate(
        samples_per_s=block_samples / mean, interval=interval, block_samples=block_samples, blocks_s=array.tolist()
    )


def merge_rates(first: Rate | None, second: Rate) -> Rate:
    """Both looks at one loader as one."""
    if first is None:
        return second
    if first.block_samples != second.block_samples:
        raise ValueError(f"blocks of {first.block_samples} and of {second.block_samples} samples are not alike")
    return block_rate(first.block_samples, [*first.blocks_s, *second.blocks_s])


_FACTOR = 3  # Hyperband's authors advise it; with 2 there are more rungs, each of which costs as much as the first


class Estimate(Protocol):
    """The estimate of an arm by now; larger is better. ``low`` and ``high`` are the ends of its interval."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass
class Halved(Generic[Arm]):
    """How the search went.

    ``remaining``: the arms still in it, best first; empty where every arm failed. ``good_enough``: the first of them
    was good enough, which ended the search; ``reason`` says in words why it ended.
    """

    remaining: list[Arm] = field(default_factory=list)
    reason: str | None = None
    good_enough: bool = False


def halve(
    arms: Sequence[Arm],
    measure: Callable[[Arm, float], E | None],
    *,
    first: float,
    last: float,
    tie: float = 0.02,
    enough: Callable[[Arm, E], bool] = lambda arm, estimate: False,
    dropped: Callable[[Arm], None] = lambda arm: None,
) -> Halved[Arm]:
    """Search ``arms``, each distinct.

    Args:
        measure: measures an arm until it has had ``budget`` in all, counting what it had before, and returns what is
            known of it by then; None if it failed, which ends it.
        first, last: an arm's budget in the first rung, and the most that one gets; it triples from rung to rung.
        tie: arms whose values and intervals lie within this fraction of the best are practically equal.
        enough: an arm for which this holds ends the search at once.
        dropped: called with every arm that leaves the search, to free what it holds.

    Raises:
        ValueError: budgets that are not above 0, or ``last`` below ``first``.
    """
    if not 0 < first <= last:
        raise ValueError(f"budgets must be above 0 and rise, got {first} and {last}")
    search, budget, known = Halved[Arm](remaining=list(arms)), first, dict[Arm, E]()
    if not search.remaining:
        search.reason = "there was nothing to search"
    while not search.reason:
        alive = list(search.remaining)
        for arm in search.remaining:
            estimate = measure(arm, budget)
            if estimate is None:
                alive.remove(arm)
                known.pop(arm, None)
                dropped(arm)
                continue
            known[arm] = estimate
            if enough(arm, estimate):
                others = [other for other in _rank_arms(alive, known) if other != arm]
                search.remaining, search.reason, search.good_enough = [arm, *others], "one is good enough", True
                return search
        ranked = _rank_arms(alive, known)
        # The budget grows as the arms get fewer, so that every rung costs about as much as the first.
        better = _better(ranked, known)
        for arm in ranked:
            if arm not in better:
                dropped(arm)
        # The next rung goes the other way, so that a drift of the machine favours nobody.
        search.remaining = [arm for arm in reversed(alive) if arm in better]
        search.reason = _search_end_reason(search.remaining, known, tie, last_rung=budget >= last)
        budget = min(_FACTOR * budget, last)
    search.remaining = _rank_arms(search.remaining, known)
    return search


def _search_end_reason(arms: Sequence[Arm], known: Mapping[Arm, E], tie: float, *, last_rung: bool) -> str | None:
    """Return why the search is over with ``arms`` left, in words."""
    if not arms:
        return "every one failed"
    if len(arms) == 1:
        return "one is left"
    if last_rung:
        return "the budget of the last rung was spent"
    return f"those left are within {100 * tie:g} % of each other" if _are_tied(arms, known, tie) else None


def _rank_arms(arms: Sequence[Arm], known: Mapping[Arm, E]) -> list[Arm]:
    return sorted((arm for arm in arms if arm in known), key=lambda arm: -known[arm].value)


def _better(ranked: Sequence[Arm], known: Mapping[Arm, E]) -> list[Arm]:
    if not ranked:
        return []
    best = known[ranked[0]]
    return [arm for arm in ranked[: math.ceil(len(ranked) / _FACTOR)] if known[arm].high >= best.low]


def _are_tied(arms: Sequence[Arm], known: Mapping[Arm, E], tie: float) -> bool:
    best = max(known[arm].value for arm in arms)
    return all(known[arm].low >= (1 - tie) * best and known[arm].high <= (1 + tie) * best for arm in arms)
