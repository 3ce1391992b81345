"""Time to task: survival curves, the two ratios with their intervals, and the verdict in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.evaluate.measure.betting import decisive_log_capital, log_capital
from strobe.evaluate.measure.time_to_task import (
    Ended,
    judge_times,
    mean_interval,
    middle_interval,
    survival,
    time_to_task,
)
from strobe.evaluate.pairs import mean_in_words, time_in_words

LIMIT = 40.0
NEVER = float("inf")
seconds = st.sampled_from([2.0, 3.0, 5.0, 8.0, 13.0, 21.0, NEVER])
pairs_of_times = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=40)


def make_ends(*times: float, limit: float = LIMIT) -> list[Ended]:
    return [Ended(min(each, limit), each <= limit, limit) for each in times]


@given(pairs_of_times)
def test_every_ratio_outside_the_middle_interval_was_shown_wrong_and_none_inside(pairs):
    before, after = np.array(pairs).T
    low, high = middle_interval(before, after)

    def is_shown_wrong(ratio: float) -> bool:
        scaled = np.where(np.isfinite(after), after * ratio, NEVER)
        won, lost = int((scaled < before).sum()), int((before < scaled).sum())
        alike = len(pairs) - won - lost
        sides = ((lost, alike, won), (won, alike, lost))
        return any(log_capital(*side, 0.5) >= decisive_log_capital(0.95) for side in sides)

    assert all(is_shown_wrong(low * share) for share in (0.5, 0.999) if 0 < low < NEVER)
    assert all(is_shown_wrong(high * times) for times in (1.001, 2) if 0 < high < NEVER)
    if low < high and low < NEVER and high > 0:
        inside = np.sqrt(max(low, 1e-3) * min(high, 1e3))
        assert not is_shown_wrong(float(inside))


@given(pairs_of_times)
def test_both_intervals_turn_with_the_sides_and_the_mean_holds_what_was_seen(pairs):
    before, after = np.array(pairs).T
    limit = np.full(len(pairs), LIMIT)
    for interval in (middle_interval, lambda a, b: mean_interval(a, b, limit)):
        low, high = interval(before, after)
        assert interval(after, before) == (
            pytest.approx(0 if high == NEVER else NEVER if high == 0 else 1 / high),
            pytest.approx(NEVER if low == 0 else 0 if low == NEVER else 1 / low),
        )
    low, high = mean_interval(before, after, limit)
    seen = np.minimum(before, LIMIT).mean() / np.minimum(after, LIMIT).mean()
    assert low <= seen * (1 + 1e-9)
    assert seen * (1 - 1e-9) <= high


def test_a_gain_is_shown_after_eight_pairs_and_not_after_seven():
    before, after = make_ends(*[14.0] * 8), make_ends(*[10.0] * 8)
    judged = judge_times(before, after)
    assert (judged.kind, judged.ratio, judged.sooner) == ("sooner", pytest.approx(1.4), 8)
    assert time_in_words(judged) == "finishes 1.4 × sooner [1.4, 1.4]"
    assert judge_times(before[:7], after[:7]).kind == "not shown"
    turned = judge_times(after, before)
    assert turned.kind == "later"
    assert time_in_words(turned) == "takes 1.4 × as long [1.4, 1.4]"


def test_the_same_times_are_not_sooner_which_is_not_the_same_as_not_shown():
    alike = make_ends(*[6.6, 7.0, 6.4, 6.8] * 3)
    judged = judge_times(alike, alike)
    assert (judged.kind, judged.together, judged.same) == ("not sooner", 12, True)
    assert "a gain of 5 % is excluded" in time_in_words(judged)
    assert judge_times(alike[:3], alike[:3]).kind == "not shown"
    # A gain of 6 % in every pair is no 5 % that could be excluded.
    assert judge_times(alike, make_ends(*[each.seconds / 1.06 for each in alike])).kind == "sooner"


def test_an_episode_that_fails_never_does_the_task_however_early_it_ended():
    first = [Ended(2.0, False, LIMIT)] * 10  # fell over at 2 s
    judged = judge_times(first, make_ends(*[30.0] * 10))
    assert (judged.kind, judged.sooner, judged.ratio) == ("sooner", 10, None)
    assert time_in_words(judged) == "finishes sooner"
    assert judged.mean_ratio == pytest.approx(LIMIT / 30)


def test_pairs_in_which_both_fail_say_nothing():
    both = make_ends(*[NEVER] * 30)
    assert judge_times(both, both).kind == "not shown"
    judged = judge_times([*both, *make_ends(*[14.0] * 8)], [*both, *make_ends(*[10.0] * 8)])
    assert (judged.kind, judged.neither, judged.ratio) == ("sooner", 30, pytest.approx(1.4))
    assert judged.mean_ratio < 1.1, "over all starts the shared failures count"


def test_sooner_in_most_pairs_and_later_on_average_is_not_claimed():
    """Nine of ten are a little sooner, and one of ten fails: the mean over all starts says the opposite."""
    before, after = make_ends(*[2.0] * 200), make_ends(*([1.9] * 9 + [NEVER]) * 20)
    judged = judge_times(before, after)
    assert judged.low is not None
    assert judged.low > 1
    assert judged.mean_high is not None
    assert judged.mean_high < 1
    assert judged.kind == "not shown"
    assert mean_in_words(judged).startswith("0.35 ×")
    assert "opposite" in time_in_words(judged)


def test_only_complete_rounds_of_tasks_are_judged():
    before, after = make_ends(*[14.0] * 9), make_ends(*[10.0] * 9)
    assert judge_times(before, after, every=4).pairs == 8
    first_round = judge_times(before[:3], after[:3], every=4)
    assert (first_round.pairs, first_round.low, first_round.high) == (3, 0.0, None)


def test_a_lower_level_asks_for_less_and_no_pairs_are_an_error():
    before, after = make_ends(*[14.0] * 6), make_ends(*[10.0] * 6)
    assert judge_times(before, after, level=0.8).kind == "sooner"
    with pytest.raises(ValueError, match="pairs are needed"):
        judge_times([], [])


def test_the_curve_of_one_limit_is_the_plain_share():
    done = np.array([3.0, 5.0, 5.0, NEVER])
    at, share = survival(done, np.full(4, LIMIT))
    assert at.tolist() == [0, 3, 5, LIMIT]
    assert share.tolist() == pytest.approx([1, 0.75, 0.25, 0.25])


def test_a_failure_is_censored_at_its_own_limit():
    """Two tasks: after the shorter one's limit only the other one's episodes are at risk."""
    done, limit = np.array([NEVER, NEVER, 30.0, NEVER]), np.array([10.0, 10.0, 40.0, 40.0])
    at, share = survival(done, limit)
    assert at.tolist() == [0, 30, 40]
    assert share.tolist() == pytest.approx([1, 0.5, 0.5])


def test_the_figures_of_a_variant_count_a_failure_as_the_limit():
    times = time_to_task(make_ends(4.0, 6.0, NEVER, NEVER))
    assert (times.done, times.episodes) == (2, 4)
    assert (times.mean_done_s, times.mean_s, times.middle_s) == (5.0, 22.5, 6.0)
    assert time_to_task(make_ends(4.0, NEVER, NEVER)).middle_s is None
    with pytest.raises(ValueError, match="no episode succeeded"):
        time_to_task(make_ends(NEVER))


def test_a_success_after_the_limit_is_none():
    """True to time the simulator may stand still at first: what ends after the limit was not done within it."""
    late = Ended(LIMIT + 1, True, LIMIT)
    assert judge_times([late], make_ends(5.0)).sooner == 1
