"""The longest of other calls: a chance that holds for times that fall off fast and slowly."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.replay.run import FEWEST, chance_of_longer

LAWS = {
    "light": lambda random, count: 300 * np.exp(0.1 * random.standard_normal(count)),
    "heavy": lambda random, count: 300 * (1 + random.pareto(2, count)),
    "one long": lambda _, count: np.full(count, 300.0),
}


def compute_chance(times: np.ndarray, limit: float, calls: int = 40) -> float:
    chance = chance_of_longer(times, limit, calls)
    assert chance is not None
    return chance


@pytest.mark.parametrize("law", LAWS)
def test_a_chance_is_kept_by_fresh_calls(law):
    random = np.random.default_rng(0)
    said, seen = 0.0, 0
    for _ in range(300):
        times = LAWS[law](random, 40)
        limit = 1.5 * times.max()
        said += compute_chance(times, limit)
        seen += LAWS[law](random, 40).max() > limit
    assert seen <= said + 3 * np.sqrt(said)


def test_the_longest_of_few_calls_is_no_bound():
    random = np.random.default_rng(0)
    times = 300 * np.exp(0.1 * random.standard_normal(40))
    chances = [compute_chance(times, limit) for limit in np.linspace(200, 2000, 50)]
    assert chances == sorted(chances, reverse=True)
    assert compute_chance(times, times.max()) > 0.25
    assert compute_chance(times, times.max(), 400) > compute_chance(times, times.max())
    assert chance_of_longer(times[: FEWEST - 1], 1e6, 40) is None
    assert chance_of_longer(np.zeros(40), 1.0, 40) == 0.0
