"""The best arm: who goes by whom, at which level; success before time, and worse only by what was seen in pairs."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.evaluate.measure.best_arm import (
    best,
    bonferroni_pairs,
    eliminate_arms,
    mean_s,
    rank_settings,
    shown_worse,
)
from strobe.evaluate.measure.success_rates import decide
from strobe.evaluate.measure.time_to_task import Ended

LIMIT = 10.0


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


def episodes(*outcomes: float) -> list[Ended]:
    """Episodes that end after so many seconds; 0 stands for a failure."""
    return [Ended(seconds or LIMIT, bool(seconds), LIMIT) for seconds in outcomes]


def test_success_ranks_before_time() -> None:
    played = {"quick": episodes(1, 1, 0, 0), "sure": episodes(9, 9, 9, 9)}
    assert rank_settings(played) == ["sure", "quick"]


def test_time_ranks_where_success_is_equal() -> None:
    assert rank_settings({"late": episodes(5, 5, 0), "soon": episodes(2, 2, 0)}) == ["soon", "late"]


def test_a_failure_counts_as_the_limit() -> None:
    assert mean_s(episodes(2, 0)) == pytest.approx(6.0)


def test_no_setting_goes_for_a_success_rate_within_its_standard_error() -> None:
    # Of 16 starts, one more in all: three that only it does, and two that only the other does.
    played = {"sure": episodes(*[9] * 13, 0, 0, 9), "quick": episodes(*[0] * 3, *[1] * 12, 0)}
    played["never"] = episodes(*[0] * 16)
    assert best(played, 1) == ["quick"]
    assert rank_settings(played)[0] == "sure", "but the last choice is by success"


def test_settings_on_unlike_starts_are_not_ranked() -> None:
    with pytest.raises(ValueError, match="same starts"):
        rank_settings({"a": episodes(1), "b": episodes(1, 2)})


def test_a_setting_is_shown_to_be_worse_in_success_or_in_time() -> None:
    leader = episodes(*[2] * 40)
    assert shown_worse(leader, episodes(*[0] * 40), 0.95) == "success"
    assert shown_worse(leader, episodes(*[6] * 40), 0.95) == "time"
    assert not shown_worse(leader, episodes(*[2] * 40), 0.95)
    assert not shown_worse(leader[:2], episodes(0, 0), 0.95), "two pairs show nothing"


def test_time_does_not_count_against_a_setting_that_succeeds_more() -> None:
    leader = episodes(*[2] * 30, *[0] * 10)
    assert not shown_worse(leader, episodes(*[6] * 31, *[0] * 9), 0.95)
