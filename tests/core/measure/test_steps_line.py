"""The line a + b × steps: what it finds, and how often its intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.core.measure.statistics import steps_line

STEPS = (1, 2, 5, 10)


def test_it_finds_the_line_that_the_medians_lie_on():
    found = steps_line("chunk", {count: [20 + 3.0 * count, 20 + 3.0 * count, 500.0] for count in STEPS})
    assert found.fixed_ms == pytest.approx(20)
    assert found.per_step_ms == pytest.approx(3)
    assert found.one_step_ms == pytest.approx(23)
    assert found.predicted[5] == pytest.approx(35)
    assert found.fixed_interval is None, "three rounds show no spread"
    assert steps_line("chunk", {4: [1.0] * 9}) is None
    with pytest.raises(ValueError, match="as many samples"):
        steps_line("chunk", {1: [], 2: []})


def test_its_intervals_hold_the_truth_and_what_slows_a_round_alike_is_no_slope():
    random, held = np.random.default_rng(3), []
    for _ in range(100):
        shared = random.exponential(2.0, size=15) - 2.0 * np.log(2)  # median 0, the same for all in a round
        made = {count: 20 + 3 * count + shared + random.normal(0, 0.2, 15) for count in STEPS}
        found = steps_line("chunk", made, resamples=400)
        fixed, each = found.fixed_interval, found.per_step_interval
        held.append((fixed.low <= 20 <= fixed.high, each.low <= 3 <= each.high, each.high - each.low))
    assert np.mean([one[0] for one in held]) > 0.88
    assert np.mean([one[1] for one in held]) > 0.88
    assert np.median([one[2] for one in held]) < 0.25, "rounds drawn apart from each other would make it 0.6 wide"
