"""Settings are ranked by success before time, and one is shown to be worse only by what was seen in pairs."""

from __future__ import annotations

import pytest

from strobe.evaluate.measure.best_arm import best, mean_s, rank_settings, shown_worse
from strobe.evaluate.measure.time_to_task import Ended

LIMIT = 10.0


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
