"""Worse, better, not worse by more than a margin, or undecided: from a confidence sequence, at any number of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strobe.measure.paired_rates import mcnemar_p, rate_interval, tango_interval
from strobe.measure.sequence import difference_sequence
from strobe.results.data import Interval
from strobe.results.evaluation import Decided, Decision, PairedRates, SuccessRate

LEVEL = 0.95  # of each interval and each verdict; a non-inferiority verdict alone has half of the error


def decide(
    differences: Sequence[int] | ArrayLike, margin: float | None = None, level: float = LEVEL, every: int = 1
) -> Decision:
    """Decide from paired differences, in the order they were played; may be asked again after each pair.

    The chance that a verdict is ever wrong is at most 1 − ``level``, however often it is asked. A verdict may only be
    replaced by a stronger one: not worse by more than the margin, then worse or better.

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
    within = np.zeros(len(low), bool) if margin is None else low > -margin
    # The intervals only narrow: what the last one shows has held since the first that showed it.
    shown: dict[Decided, NDArray[np.bool]] = {
        "not worse by more than the margin": within,
        "worse": high < 0,
        "better": low > 0,
    }
    kind: Decided = "undecided"
    for name, holds in shown.items():  # the stronger ones come last
        if holds[-1]:
            kind = name
    return Decision(
        kind=kind,
        interval=Interval(low=float(low[-1]), high=float(high[-1]), level=level),
        margin=margin,
        within_margin=bool(within[-1]),
        pairs=int(np.argmax(shown[kind])) + 1 if kind in shown else None,
    )


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
    every: int = 1,
) -> PairedRates:
    """Compare two variants on the same starts; ``first[i]`` and ``second[i]`` are one pair, in the order played.

    Args:
        margin, every: see `decide`.

    Raises:
        ValueError: no pairs, or lists of different lengths.
    """
    before, after = np.asarray(first, bool), np.asarray(second, bool)
    if before.shape != after.shape or before.ndim != 1 or not len(before):
        raise ValueError(f"pairs are needed: {len(before)} outcomes against {len(after)}")
    lost, won = int((before & ~after).sum()), int((after & ~before).sum())
    return PairedRates(
        both=int((before & after).sum()),
        lost=lost,
        won=won,
        neither=int((~before & ~after).sum()),
        difference=(won - lost) / len(before),
        interval=tango_interval(lost, won, len(before), level),
        p=mcnemar_p(lost, won),
        decision=decide(after.astype(int) - before.astype(int), margin, level, every),
    )
