"""Worse, better, not worse by more than a margin, or undecided.

While episodes are played, from a confidence sequence: at any number of pairs (`decide`). Of finished results, whose
order may mean anything, at one look (`decide_once`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from strobe.measure.paired_rates import mcnemar_p, rate_interval, tango_interval
from strobe.measure.sequence import difference_sequence
from strobe.results.data import Interval
from strobe.results.evaluation import Decided, Decision, PairedRates, SuccessRate

LEVEL = 0.95  # of each interval and each verdict; a non-inferiority verdict alone has half of the error


def decide(
    differences: Sequence[int] | ArrayLike, margin: float | None = None, level: float = LEVEL, every: int = 1
) -> Decision:
    """Decide from paired differences, in the order they were played; may be asked again after each pair.

    The chance that a verdict is ever wrong is at most 1 − ``level``, however often it is asked.

    Args:
        differences: second − first of each pair: −1, 0 or 1; may be empty.
        margin: loss of success rate, 0 to 1, that counts as not worse. It must be stated before the first pair is seen.
        every: pairs in a round, where tasks are played in turn: it decides only when a round is complete.

    Raises:
        ValueError: another value than −1, 0, 1, or a margin outside (0, 1).
    """
    if margin is not None and not 0 < margin < 1:
        raise ValueError(f"a margin lies between 0 and 1, not at {margin:g}")
    values = np.asarray(differences, int)
    if not len(values):
        widest = Interval(low=-1.0, high=1.0, level=level)
        return Decision(kind="undecided", interval=widest, margin=margin, within_margin=False, pairs=None)
    low, high = difference_sequence(values, level, every).T
    kinds: list[Decided] = [_kind(*ends, margin) for ends in zip(low, high, strict=True)]
    since = len(kinds)
    while since > 1 and kinds[since - 2] == kinds[-1]:
        since -= 1
    return Decision(
        kind=kinds[-1],
        interval=Interval(low=float(low[-1]), high=float(high[-1]), level=level),
        margin=margin,
        within_margin=margin is not None and bool(low[-1] > -margin),
        pairs=None if kinds[-1] == "undecided" else since,
    )


def decide_once(interval: Interval, p: float, margin: float | None, pairs: int) -> Decision:
    """Decide at one look, at results whose number was fixed before they were seen, in whatever order they come.

    The interval of a score test holds its level about, and an exact test holds it surely. Where they disagree about 0,
    the interval is widened up to 0: so a difference is claimed of equals in at most 1 − level of all results.

    Args:
        interval: of the difference, second − first.
        p: of an exact test of no difference, two-sided.
        margin: see `decide`.
    """
    if p > 1 - interval.level:
        interval = Interval(low=min(interval.low, 0.0), high=max(interval.high, 0.0), level=interval.level)
    kind = _kind(interval.low, interval.high, margin)
    within = margin is not None and interval.low > -margin
    decided = None if kind == "undecided" else pairs
    return Decision(kind=kind, interval=interval, margin=margin, within_margin=within, pairs=decided)


def each_of(several: int, level: float = LEVEL) -> float:
    """The level of each of ``several`` verdicts that together are as sure as one at ``level`` (Bonferroni)."""
    return 1 - (1 - level) / max(1, several)


def _kind(low: float, high: float, margin: float | None) -> Decided:
    if low > 0 or high < 0:
        return "better" if low > 0 else "worse"
    return "not worse by more than the margin" if margin is not None and low > -margin else "undecided"


def success_rate(outcomes: Sequence[bool] | ArrayLike, level: float = LEVEL) -> SuccessRate:
    """The share of ``outcomes`` that succeeded, with its exact interval; raises ValueError where there are none."""
    won = np.asarray(outcomes, bool)
    episodes, successes = len(won), int(won.sum())
    interval = rate_interval(successes, episodes, level)
    return SuccessRate(episodes=episodes, successes=successes, rate=successes / episodes, interval=interval)


def paired_rates(
    first: Sequence[bool] | ArrayLike,
    second: Sequence[bool] | ArrayLike,
    margin: float | None = None,
    level: float = LEVEL,
    every: int | None = 1,
) -> PairedRates:
    """Compare two variants on the same starts; ``first[i]`` and ``second[i]`` are one pair, in the order played.

    Pairs of a round that is not complete are not counted, unless it is the first.

    Args:
        margin: see `decide`.
        every: see `decide`; None for finished results, which are judged at one look.

    Raises:
        ValueError: no pairs, or lists of different lengths.
    """
    before, after = np.asarray(first, bool), np.asarray(second, bool)
    if before.shape != after.shape or before.ndim != 1 or not len(before):
        raise ValueError(f"pairs are needed: {len(before)} outcomes against {len(after)}")
    counted = in_whole_rounds(len(before), every or 1)
    before, after = before[:counted], after[:counted]
    lost, won = int((before & ~after).sum()), int((after & ~before).sum())
    interval, p = tango_interval(lost, won, counted, level), mcnemar_p(lost, won)
    if every is None:
        decision = decide_once(interval, p, margin, counted)
    else:
        decision = decide(after.astype(int) - before.astype(int), margin, level, every)
    return PairedRates(
        both=int((before & after).sum()),
        lost=lost,
        won=won,
        neither=int((~before & ~after).sum()),
        difference=(won - lost) / counted,
        interval=interval,
        p=p,
        decision=decision,
    )


def in_whole_rounds(pairs: int, every: int) -> int:
    """How many of ``pairs`` are in complete rounds of ``every``; all of them, where none is complete."""
    return pairs // every * every or pairs
