"""What simulations of a promised rate share: noise as machines have it, and a claim compared with what it promised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

# A rate counts as missed where so few hits, or so many, would come by chance in this share of simulations. Of forty
# claims one is then called missed wrongly in a third of all runs at 1 %, and in 4 % at this level.
BY_CHANCE = 0.001

Series = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Series]


@dataclass(frozen=True)
class Claim:
    """One promised rate, simulated.

    Args:
        name: what is promised, in a few words.
        noise: what the samples were drawn from, in a few words.
        rate: the promised rate, 0 to 1.
        side: whether the rate is promised at most (of false claims) or at least (of changes that are found).
        hits: simulations in which the claim was made.
        tries: simulations.
    """

    name: str
    noise: str
    rate: float
    side: Literal["at most", "at least"]
    hits: int
    tries: int

    @property
    def holds(self) -> bool:
        """Whether the hits do not contradict the promised rate: the same rule for few tries and for many."""
        beyond = "greater" if self.side == "at most" else "less"
        return bool(stats.binomtest(self.hits, self.tries, self.rate, beyond).pvalue >= BY_CHANCE)

    def figures(self) -> dict[str, Any]:
        """Return the claim as plain data, with the rate that was found."""
        return {**asdict(self), "found": self.hits / self.tries, "holds": self.holds}


def independent(random: np.random.Generator, count: int) -> Series:
    """Return standard normal noise without memory."""
    return random.standard_normal(count)


def autoregressive(random: np.random.Generator, count: int, memory: float = 0.5) -> Series:
    """Return noise of unit variance in which each sample keeps ``memory`` of the one before: AR(1)."""
    fresh = random.standard_normal(count) * np.sqrt(1 - memory**2)
    series = np.empty(count)
    last = random.standard_normal()
    for at in range(count):
        last = memory * last + fresh[at]
        series[at] = last
    return series


def heavy_tailed(random: np.random.Generator, count: int) -> Series:
    """Return noise of unit variance with heavy tails: Student's t with 3 degrees of freedom."""
    return random.standard_t(3, count) / np.sqrt(3)


def bimodal(random: np.random.Generator, count: int) -> Series:
    """Return noise of two states three standard deviations of one state apart, a fifth of the time in the upper one."""
    upper = random.random(count) < 0.2
    return (random.standard_normal(count) + 3 * upper - 0.6) / np.sqrt(1 + 9 * 0.2 * 0.8)


NOISES: dict[str, Noise] = {
    "independent": independent,
    "AR(1) 0.5": autoregressive,
    "heavy tails": heavy_tailed,
    "two states": bimodal,
}


def times(
    noise: Noise, random: np.random.Generator, count: int, *, median: float = 30.0, spread: float = 0.03
) -> Series:
    """Return ``count`` times, ms, about ``median``; their logarithm has the standard deviation ``spread``."""
    return median * np.exp(spread * noise(random, count))
