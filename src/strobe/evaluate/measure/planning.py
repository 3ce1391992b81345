"""How many pairs of episodes would decide, before the first is played."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strobe.evaluate.measure.betting import decisive_log_capital, log_capital

_LOOKS = 400  # most looks of one simulated evaluation


@dataclass(frozen=True)
class Expected:
    """Outcomes of simulated evaluations that stop at the first verdict.

    Attributes:
        pairs: mean number at which they stopped, those that never decided counted with the most that were allowed.
        decided: share of them that decided.
        kinds: share by the verdict at which they stopped: "worse", "better", "not worse by more than the margin".
    """

    pairs: float
    decided: float
    kinds: dict[str, float]


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


def mcnemar_power(pairs: int, difference: float, disagreement: float, level: float = 0.95) -> float:
    """Chance that McNemar's exact test after ``pairs`` pairs shows a difference, in the direction that is true.

    Args:
        difference: true second − first, not 0.
        disagreement: share of pairs that disagree, at least |difference|.
    """
    from scipy import stats

    won = _shares(difference, disagreement)[1 if difference > 0 else 0]
    discordant = np.arange(pairs + 1)
    # The largest number on the lesser side that is still significant, two-sided, with that many in disagreement.
    most = stats.binom.ppf((1 - level) / 2, discordant, 0.5)
    most -= stats.binom.cdf(most, discordant, 0.5) > (1 - level) / 2
    shown = stats.binom.cdf(most, discordant, 1 - won / disagreement)
    return float(stats.binom.pmf(discordant, pairs, disagreement) @ np.where(most >= 0, shown, 0.0))


def fixed_pairs(difference: float, disagreement: float, power: float = 0.8, level: float = 0.95) -> int:
    """The fewest pairs with which McNemar's exact test, done once at the end, has ``power``.

    Found by exact power from below the normal approximation upwards (Connor, "Sample size for testing differences in
    proportions for the paired-sample design", Biometrics 43, 1987).

    Raises:
        ValueError: no difference, one above the disagreement, or a power outside (0, 1).
    """
    from scipy import stats

    _shares(difference, disagreement)
    if not difference or not 0 < power < 1:
        raise ValueError(f"a difference of {difference:g} and a power of {power:g}")
    tails = stats.norm.ppf((1 + level) / 2), stats.norm.ppf(power)
    deviation = tails[0] * math.sqrt(disagreement) + tails[1] * math.sqrt(max(0.0, disagreement - difference**2))
    pairs = max(1, math.floor(0.8 * (max(0.0, deviation) / difference) ** 2))
    while mcnemar_power(pairs, difference, disagreement, level) < power:
        pairs += 1
    return pairs


def expected_pairs(
    difference: float,
    disagreement: float,
    margin: float | None = None,
    most: int = 200,
    level: float = 0.95,
    runs: int = 400,
    seed: int = 0,
) -> Expected:
    """Simulate evaluations that stop at the first verdict of `success_rates.decide`, ``most`` pairs long.

    Args:
        difference: true second − first.
        disagreement: share of pairs that disagree, at least |difference|.
        most: above 400 pairs it looks at 400 of them, evenly apart, which makes it stop a little late.

    Raises:
        ValueError: a difference above the disagreement.
    """
    lost_share, won_share = _shares(difference, disagreement)
    random = np.random.default_rng(seed)
    step = math.ceil(most / _LOOKS)
    at = np.minimum(np.arange(step, most + step, step), most)
    lengths = np.diff(at, prepend=0)
    counts = random.multinomial(np.tile(lengths, (runs, 1)), [lost_share, won_share, 1 - lost_share - won_share])
    lost, won, same = np.moveaxis(np.cumsum(counts, axis=1), 2, 0)
    kinds, stops = _verdicts(lost, won, same, margin, level)
    names = ("worse", "better", "not worse by more than the margin")
    return Expected(
        pairs=float(np.where(kinds >= 0, at[stops], most).mean()),
        decided=float((kinds >= 0).mean()),
        kinds={name: float((kinds == number).mean()) for number, name in enumerate(names)},
    )


def foresight(planned: int, margin: float, rate: float = 0.8, level: float = 0.95) -> str:
    """Say in a sentence or two whether ``planned`` pairs can decide a margin, and about how many would.

    Args:
        rate: success rate of the first variant, as far as known; the second is taken to lose the margin.

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
    if rate < margin:  # nothing to separate: no variant can lose that much
        return sentence
    other = rate - margin
    disagreement = chance_disagreement(rate, other)
    most = 4 * fixed_pairs(other - rate, disagreement, level=level)
    about = _round_pairs(expected_pairs(other - rate, disagreement, most=most, level=level, runs=200).pairs)
    return (
        f"{sentence} Separating {points} near {100 * rate:.3g} % takes about {about} pairs, fewer where the two mostly "
        "succeed from the same starts."
    )


def _verdicts(
    lost: NDArray[np.int64], won: NDArray[np.int64], same: NDArray[np.int64], margin: float | None, level: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each simulated evaluation, (runs, looks) counts: 0 worse, 1 better, 2 within the margin, −1 none; and when.

    An interval excludes a mean from the look on at which the bets against that mean have won: no interval is needed.
    """
    enough = decisive_log_capital(level)
    hits = [log_capital(won, same, lost, 0.5) >= enough, log_capital(lost, same, won, 0.5) >= enough]
    if margin is not None:
        hits.append(log_capital(lost, same, won, (1 - margin) / 2) >= enough)
    looks = lost.shape[1]
    first = np.stack([np.where(hit.any(1), hit.argmax(1), looks) for hit in hits])
    stops = first.min(0)
    # Better implies within the margin: at a tie the stronger verdict, which comes first, is the one.
    return np.where(stops < looks, first.argmin(0), -1), np.minimum(stops, looks - 1)


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
