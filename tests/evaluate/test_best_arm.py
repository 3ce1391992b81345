"""Successive elimination: who goes by whom, at which level, and never all."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.evaluate.measure.best_arm import bonferroni_pairs, eliminate_arms
from strobe.evaluate.measure.success_rates import decide


def outcomes(rates: dict[str, float], starts: int, seed: int = 0) -> dict[str, list[bool]]:
    lot = np.random.default_rng(seed).random(starts)
    return {name: (lot < rate).tolist() for name, rate in rates.items()}


def test_all_pairs_share_five_percent() -> None:
    assert bonferroni_pairs(2) == pytest.approx(0.95)
    assert bonferroni_pairs(4) == pytest.approx(1 - 0.05 / 6)


def test_a_worse_arm_goes_by_the_one_with_the_most_successes() -> None:
    assert eliminate_arms(outcomes({"a": 0.2, "b": 0.5, "c": 0.9}, 200), bonferroni_pairs(3)) == {"a": "c", "b": "c"}


def test_equal_arms_and_few_starts_eliminate_none() -> None:
    assert eliminate_arms(outcomes({"a": 0.5, "b": 0.5, "c": 0.5}, 500), bonferroni_pairs(3)) == {}
    assert eliminate_arms(outcomes({"a": 0.0, "b": 1.0}, 3), bonferroni_pairs(2)) == {}
    assert eliminate_arms({"a": [], "b": []}, bonferroni_pairs(2)) == {}


@pytest.mark.parametrize("seed", range(20))
def test_it_says_what_the_confidence_sequence_says(seed: int) -> None:
    random = np.random.default_rng(seed)
    won = {name: (random.random(80) < rate).tolist() for name, rate in (("a", 0.55), ("b", 0.8))}
    differences = np.array(won["a"], int) - np.array(won["b"], int)
    worse = decide(differences, None, bonferroni_pairs(4)).kind == "worse"
    assert (eliminate_arms(won, bonferroni_pairs(4)) == {"a": "b"}) == worse


def test_starts_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="same starts"):
        eliminate_arms({"a": [True], "b": [True, False]}, 0.95)
