"""How many pairs of episodes would decide, before the first is played."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from strobe.evaluate.measure.betting import decisive_log_capital, log_capital, log_capital_of_gains

_QUANTILES = (np.arange(200) + 0.5) / 200


def fewest_pairs(margin: float, level: float = 0.95) -> int:
    """The fewest pairs that can show a loss of no more than ``margin``: if none of them disagrees.

    Raises:
        ValueError: a margin outside (0, 1).
    """
    if not 0 < margin < 1:
        raise ValueError(f"a margin lies between 0 and 1, not at {margin:g}")
    return _first(lambda pairs: float(log_capital(0, pairs, 0, (1 - margin) / 2)) >= decisive_log_capital(level))


def fewest_pairs_apart(level: float = 0.95) -> int:
    """The fewest pairs that can show any difference: if all of them are lost, or all are won."""
    return _first(lambda pairs: float(log_capital(0, 0, pairs, 0.5)) >= decisive_log_capital(level))


def chance_disagreement(first: float, second: float) -> float:
    """Share of pairs that disagree where outcomes in a pair have nothing to do with each other.

    Pairs that share start and noise mostly disagree less often, and decide sooner: this is the careful assumption.
    """
    return first * (1 - second) + second * (1 - first)


def typical_pairs(difference: float, disagreement: float, level: float = 0.95) -> int:
    """The number of pairs after which a difference of success shows, if they come as often as their chances say.

    Half of all evaluations need about as many or fewer; some need twice as many.

    Args:
        difference: true second − first, not 0.
        disagreement: share of pairs that disagree, at least |difference|.

    Raises:
        ValueError: no difference, or one above the disagreement.
    """
    lesser, greater = _shares(-abs(difference), disagreement)[::-1]
    if not difference:
        raise ValueError("a difference of 0 is never shown")
    same, enough = 1 - disagreement, decisive_log_capital(level)
    return _first(lambda pairs: float(log_capital(pairs * lesser, pairs * same, pairs * greater, 0.5)) >= enough)


def typical_progress_pairs(difference: float, level: float = 0.95) -> int:
    """The same for a difference of mean progress, above 0 and below 1, where pairs share nothing.

    Episodes are taken to end anywhere between nothing and the whole task: progress has a beta distribution with the
    mean 1/2 ± half of the difference, and an even one without a difference.
    """
    first, second = (
        stats.beta.ppf(_QUANTILES, 2 * mean, 2 - 2 * mean) for mean in (0.5 - difference / 2, 0.5 + difference / 2)
    )
    gains, counts = np.unique((second[:, None] - first).round(2), return_counts=True)
    enough = decisive_log_capital(level)
    return _first(lambda pairs: float(log_capital_of_gains(gains, counts * (pairs / counts.sum()))) >= enough)


def foresight(planned: int, margin: float, rate: float = 0.8, level: float = 0.95, score: str = "success") -> str:
    """Say in a few sentences whether ``planned`` pairs can decide a margin, and about how many would.

    Args:
        rate: success rate of the first variant, as far as known; the second is taken to lose the margin.
        score: what is judged; for progress it is said what success would need.

    Raises:
        ValueError: a margin outside (0, 1), or a rate outside [0, 1].
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"a success rate lies between 0 and 1, not at {rate:g}")
    enough, points = fewest_pairs(margin, level), f"{100 * margin:.3g} points"
    pairs = "1 pair" if planned == 1 else f"{planned} pairs"
    if planned < enough:
        sentence = f"{pairs} cannot exclude a loss of {points}, even if every pair ends alike: that takes {enough}."
    else:
        sentence = f"{pairs} exclude a loss of {points} if nearly all pairs end alike ({enough} or more)."
    if score == "progress":
        about = _round_pairs(typical_progress_pairs(margin, level))
        sentence += (
            f" Separating {points} of progress takes about {about} pairs where it spreads evenly from nothing to the "
            "whole task, and as many as success where each try does nothing or all of it."
        )
    if rate < margin:  # nothing to separate: no variant can lose that much
        return sentence
    other = rate - margin
    about = _round_pairs(typical_pairs(other - rate, chance_disagreement(rate, other), level))
    of = " of success" if score == "progress" else ""
    return (
        f"{sentence} Separating {points}{of} near {100 * rate:.3g} % takes about {about} pairs, fewer where the two "
        "mostly succeed from the same starts."
    )


def _shares(difference: float, disagreement: float) -> tuple[float, float]:
    if not abs(difference) <= disagreement <= 1 or disagreement <= 0:
        raise ValueError(f"a difference of {difference:g} needs pairs that disagree, in more than {disagreement:g}")
    return (disagreement - difference) / 2, (disagreement + difference) / 2


def _first(holds: Callable[[int], bool]) -> int:
    pairs = 1
    while not holds(pairs):
        pairs *= 2
    low, high = pairs // 2, pairs
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _round_pairs(pairs: float) -> int:
    digits = max(0, math.floor(math.log10(max(pairs, 1))) - 1)
    return int(round(pairs, -digits))
