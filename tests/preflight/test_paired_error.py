"""How often an open-loop comparison claims a difference that is not there: its promised rates, simulated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from strobe.core.measure.statistics import bonferroni
from strobe.open_loop.errors import LEVEL, paired_error

FRAMES = 5  # of an episode
TRIES = 400


def squares(rng: np.random.Generator, episodes: int, scale: float = 1.0) -> np.ndarray:
    """Squared errors, (frames, 4, 2), of which each episode has a size of its own, as hard ones have."""
    size = np.repeat(rng.lognormal(0.0, 0.5, episodes), FRAMES)[:, None, None]
    return scale * size * rng.chisquare(1, (episodes * FRAMES, 4, 2))


def differs(rng: np.random.Generator, episodes: int, level: float, scale: float = 1.0) -> bool:
    of = np.repeat(np.arange(episodes), FRAMES)
    paired = paired_error(squares(rng, episodes, scale), squares(rng, episodes), of, level)
    assert paired is not None
    assert paired.interval is not None
    return not paired.interval.low <= 1 <= paired.interval.high


@pytest.mark.long
@pytest.mark.parametrize("episodes", [4, 8, 20])
def test_an_interval_leaves_out_a_ratio_of_one_as_seldom_as_it_says(episodes: int) -> None:
    rng = np.random.default_rng(episodes)
    claims = sum(differs(rng, episodes, LEVEL) for _ in range(TRIES))
    assert binomtest(claims, TRIES, 1 - LEVEL, alternative="greater").pvalue > 0.001, claims


@pytest.mark.long
def test_of_many_hypotheses_together_few_are_claimed() -> None:
    rng = np.random.default_rng(1)
    several = 30
    level = bonferroni(several, LEVEL)
    claims = sum(any(differs(rng, 8, level) for _ in range(several)) for _ in range(TRIES // 4))
    assert binomtest(claims, TRIES // 4, 1 - LEVEL, alternative="greater").pvalue > 0.001, claims


def test_an_error_that_is_half_is_found_in_twenty_episodes() -> None:
    rng = np.random.default_rng(2)
    assert sum(differs(rng, 20, bonferroni(30, LEVEL), scale=0.1) for _ in range(20)) >= 18
