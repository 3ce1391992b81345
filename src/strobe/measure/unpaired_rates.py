"""The difference of two success rates from episodes that are not in pairs."""

from __future__ import annotations

import math

from strobe.results.data import Interval
from strobe.results.evaluation import Decided
from strobe.results.judged import UnpairedRates


def newcombe_interval(first: tuple[int, int], second: tuple[int, int], level: float = 0.95) -> Interval:
    """Newcombe's hybrid score interval of the difference of two rates, second − first.

    From Wilson's interval of each rate ("Interval estimation for the difference between independent proportions",
    Statistics in Medicine 17, 1998, method 10). It stays within −1 and 1, and is sound where a rate is 0 or 1.

    Args:
        first, second: successes and episodes.

    Raises:
        ValueError: no episodes, or more successes than episodes.
    """
    (before, low1, high1), (after, low2, high2) = (_wilson(*one, level) for one in (first, second))
    seen = after - before
    low = seen - math.hypot(after - low2, high1 - before)
    high = seen + math.hypot(high2 - after, before - low1)
    return Interval(low=max(-1.0, low), high=min(1.0, high), level=level)


def unpaired_rates(
    first: tuple[int, int], second: tuple[int, int], margin: float, level: float = 0.95
) -> UnpairedRates:
    """Judge the second of two runs by `newcombe_interval`, at one look; arguments as there.

    Args:
        margin: loss of success rate, 0 to 1, that counts as not worse.
    """
    interval = newcombe_interval(first, second, level)
    kind: Decided = "undecided"
    if interval.low > -margin:
        kind = "not worse by more than the margin"
    if interval.low > 0 or interval.high < 0:
        kind = "better" if interval.low > 0 else "worse"
    return UnpairedRates(difference=second[0] / second[1] - first[0] / first[1], interval=interval, kind=kind)


def _wilson(successes: int, episodes: int, level: float) -> tuple[float, float, float]:
    """The rate, and the ends of Wilson's score interval of it."""
    from scipy import stats

    if not 0 <= successes <= episodes or not episodes:
        raise ValueError(f"{successes} successes in {episodes} episodes")
    low, high = stats.binomtest(successes, episodes).proportion_ci(level, method="wilson")
    return successes / episodes, float(low), float(high)
