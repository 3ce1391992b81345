"""Chunks in time: a share is reached where it is shown, missed where the reverse is, and else not judged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.ladder.in_time import InTimeLooks, best_rung, fewest_chunks, judge_in_time
from strobe.ladder.in_time_words import describe_share


def test_the_median_does_not_decide():
    times = np.random.default_rng(0).permutation([62.0] * 125 + [42.0] * 144)
    assert np.median(times) < 50
    found = judge_in_time(times, 50.0)
    assert (found.outcome, found.on_time, found.chunks) == ("missed", 144, 269)


def test_as_many_chunks_as_it_takes_are_enough_and_one_fewer_is_not():
    for asked in (0.5, 0.9, 0.95, 0.99):
        count = fewest_chunks(asked)
        found = judge_in_time([40.0] * count, 50.0, asked)
        assert found.outcome == "reached"
        found = judge_in_time([40.0] * (count - 1), 50.0, asked)
        assert (found.outcome, found.needed) == ("not judged", count)


def test_late_chunks_that_come_together_count_for_fewer():
    apart = np.full(400, 40.0)
    apart[::50] = 60.0
    together = np.sort(apart)
    assert judge_in_time(apart, 50.0).outcome == "reached"
    assert judge_in_time(together, 50.0).low < judge_in_time(apart, 50.0).low
    assert judge_in_time(together, 50.0).outcome == "not judged"


def test_a_run_says_how_long_a_burst_of_late_chunks_it_can_show():
    few = judge_in_time([40.0] * 118, 50.0)
    assert (few.outcome, few.burst, judge_in_time([40.0] * 2000, 50.0).burst) == ("reached", 2, 34)
    assert "if no more than 2 in a row are late" in describe_share(few)


def test_bursts_that_were_seen_count_for_what_they_are():
    times = np.full(1500, 40.0)
    times[700:730] = 60.0  # 2 % late, in one burst: the next run may have three of them
    assert judge_in_time(times, 50.0).outcome == "not judged"
    apart = np.full(1500, 40.0)
    apart[25::50] = 60.0
    assert judge_in_time(apart, 50.0).outcome == "reached"
    apart[700:720] = 60.0  # the mean of all bursts is short still
    assert judge_in_time(apart, 50.0).outcome == "not judged"


@given(st.lists(st.floats(1, 100), min_size=1, max_size=80), st.floats(1, 100), st.floats(0.05, 0.99))
def test_bounds_hold_the_share_and_the_outcome_follows_from_them(times, within, asked):
    found = judge_in_time(times, within, asked)
    assert 0 <= found.low <= found.share <= found.high <= 1
    assert found.outcome == ("reached" if found.low >= asked else "missed" if found.high < asked else "not judged")
    assert found.needed is None or found.needed > found.chunks or found.share > asked


@pytest.mark.parametrize("wrong", [([], 50.0, 0.95), ([1.0], 50.0, 0.0), ([1.0], 50.0, 1.0), ([-1.0], 50.0, 0.95)])
def test_what_cannot_be_judged_is_refused(wrong):
    with pytest.raises(ValueError, match=r"share|milliseconds|negative"):
        judge_in_time(*wrong)


def test_a_run_ends_at_the_look_that_shows_it():
    looks = InTimeLooks("rung", 50.0)
    times = np.random.default_rng(1).normal(40, 1, 500)
    count = next(n for n in range(1, 501) if looks.due(n) and looks.look({"rung": times[:n]}))
    assert count <= 160
    found = looks.judge_run(times[:count])
    assert found.outcome == "reached"
    assert found.level > 0.95, "an early look has a part of the error"


def rungs(*medians: float, noise: float = 0.01, pairs: int = 20) -> list[np.ndarray]:
    random = np.random.default_rng(2)
    return [median * np.exp(random.normal(0, noise, pairs)) for median in medians]


def test_the_best_rung_is_one_that_the_run_shows():
    fine = [True] * 3
    assert best_rung(rungs(100, 80, 60), fine, fine) == 2
    assert best_rung(rungs(100, 80, 90), fine, fine) == 1, "slower than the one below"
    assert best_rung(rungs(100, 80, 80), fine, fine) == 1, "no gain above it"
    assert best_rung(rungs(100, 80, 60), fine, [True, True, False]) == 1, "its guard did not hold"
    assert best_rung(rungs(100, 120, 110), fine, fine) == 0
    assert best_rung(rungs(100, 120, 110), fine, fine, first=1) == 2, "what was asked for needs no gain"
    assert best_rung(rungs(100, 110, 80), fine, fine) == 2


def test_a_rung_that_nothing_showed_faster_than_the_one_below_is_not_the_best():
    times = [*rungs(100, 100, noise=0.005, pairs=8), 95 * rungs(1.0, noise=0.001, pairs=8)[0]]
    times[1] = times[2] * np.where(np.arange(8) % 2, 0.9, 1.1)  # may be slower, may be faster
    assert best_rung(times, [True, False, True], [True] * 3) == 2, "a try has shown it"
    assert best_rung(times, [True, False, False], [True] * 3) == 0
