"""The lag of a joint behind its actions, from the correlation of their steps."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.loops.measure.robot import lag_ticks


def motion(seed: int, ticks: int = 300) -> np.ndarray:
    """A smooth random path, sampled ten times a tick."""
    rng = np.random.default_rng(seed)
    times = np.arange(ticks * 10) / 10
    phases, rates = rng.uniform(0, 6, 6), rng.uniform(0.05, 0.4, 6)
    return 10 * np.sin(np.outer(times, rates) + phases).sum(axis=1)


@pytest.mark.parametrize("late", [0, 1, 1.6, 3.3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_a_state_that_follows_late_is_measured_to_a_part_of_a_tick(late: float, seed: int):
    path, shift = motion(seed), round(late * 10)
    action, state = path[100::10], path[100 - shift : len(path) - shift : 10]
    noise = np.random.default_rng(seed).normal(0, 0.05, len(state))
    found = lag_ticks(action, state + noise)
    assert found == pytest.approx(late, abs=0.35)


def test_a_joint_that_rests_and_one_that_goes_its_own_way_are_not_judged():
    action = motion(1)[::10]
    assert lag_ticks(np.full(200, 40.0), np.full(200, 40.0)) is None
    assert lag_ticks(action, np.full_like(action, 3.0)) is None
    assert lag_ticks(action, np.random.default_rng(0).normal(size=len(action))) is None
    assert lag_ticks(action[:20], action[:20]) is None
