"""A trend of runs: judged against where it began, and a slow-down stands until it is fixed or accepted."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest
from support.checks.presence import require_value

from strobe.core.measure.statistics import run_level
from strobe.history.trend import Judged, Level, judge, runs_needed

ERROR = 0.003


def judge_logs(logs: list[float], accepted: int | None = None) -> list[Judged]:
    """Judge runs whose medians differ from 30 ms by these logarithms; all but the first."""
    levels = [Level(log_ms=math.log(30.0) + log, error=ERROR) for log in logs]
    return [one for one in judge(levels, accepted) if one is not None]


def scattered_logs(runs: int, between: float, seed: int = 4) -> list[float]:
    return (between * np.random.default_rng(seed).standard_normal(runs)).tolist()


@pytest.mark.parametrize("between", [0.0, 0.01, 0.05])
def test_runs_that_scatter_show_no_change_and_their_spread_is_seen(between):
    found = judge_logs(scattered_logs(40, between))
    assert not [one for one in found if one.change]
    assert found[-1].spread == pytest.approx(between, rel=0.4, abs=0.006)


def levels_logs(memory: float, length: int, seed: int) -> list[float]:
    """Runs on levels 2 % apart: each stays for ``length`` runs, and keeps ``memory`` of the one before."""
    random = np.random.default_rng(seed)
    fresh = random.standard_normal(40)
    levels = list(accumulate(fresh, lambda last, new: memory * last + math.sqrt(1 - memory**2) * new))
    return [0.02 * levels[run // length] + 0.004 * random.standard_normal() for run in range(40)]


@pytest.mark.parametrize(("memory", "length"), [(0.9, 1), (0.0, 6), (0.0, 12)])
def test_levels_that_stay_for_a_while_are_no_slow_down(memory, length):
    """`benchmarks/trends.py` shows it of a thousand histories of each kind."""
    courses = [judge_logs(levels_logs(memory, length, seed)) for seed in range(40)]
    assert sum(any(one.change == "slower" for one in course) for course in courses) <= 4


def test_a_slow_down_that_another_level_explains_is_shown_once_it_has_stayed():
    found = judge_logs([log + 0.04 * (run >= 12) for run, log in enumerate(scattered_logs(60, 0.003))])
    doubted = next(place for place, one in enumerate(found) if one.stay is not None)
    (shown,) = (place for place, one in enumerate(found) if one.change)
    assert 12 <= doubted < 16
    assert doubted + 8 < shown <= doubted + require_value(found[doubted].stay) + 4
    assert found[-1].standing == pytest.approx(0.04, abs=0.01)


def test_a_creep_is_held_against_where_it_began():
    found = judge_logs([log + 0.008 * run for run, log in enumerate(scattered_logs(40, 0.005))])
    shown = [one.change for one in found]
    assert shown.index("slower") + 1 < 15
    assert found[-1].standing == pytest.approx(0.008 * 37, abs=0.06)


def test_a_slow_down_stands_until_it_is_fixed():
    logs = scattered_logs(40, 0.01)
    slow = [log + (0.1 if 12 <= run < 30 else 0.0) for run, log in enumerate(logs)]
    found = judge_logs(slow)
    stands = [one.standing is not None for one in found]
    first = stands.index(True) + 1
    assert 12 <= first < 16
    assert all(stands[first - 1 : 29])
    assert not any(stands[33:])
    assert [one.change for one in found if one.change] == ["slower", "fixed"]


@pytest.mark.parametrize(
    ("shifts", "changes", "standing"), [((0.1, 0.2), "slower slower", 0.2), ((-0.1, 0.0), "faster slower", 0.1)]
)
def test_a_second_change_is_shown_against_the_state_that_the_first_one_left(shifts, changes, standing):
    logs = [log + (0.0, *shifts)[run // 10] for run, log in enumerate(scattered_logs(30, 0.005))]
    found = judge_logs(logs)
    assert [one.change for one in found if one.change] == changes.split()
    assert found[-1].standing == pytest.approx(standing, abs=0.02)


def test_one_run_that_is_far_off_is_no_change_and_the_next_runs_tell():
    off = scattered_logs(30, 0.01)
    off[14] += 0.08
    assert not [one for one in judge_logs(off) if one.change]
    found = judge_logs([*off[:14], *(log + 0.08 for log in off[15:])])
    assert [one.change for one in found if one.change] == ["slower"]


@pytest.mark.parametrize("good", [1, 2, 3, 4])
def test_a_slow_down_while_the_reference_is_made_never_becomes_the_reference(good):
    """Whatever was judged by then: none of the slow runs passes for as fast as the first ones."""
    found = judge_logs([log + 0.11 * (run >= good) for run, log in enumerate(scattered_logs(30, 0.004))])
    changes = [one.change for one in found if one.change]
    assert changes == ["slower"]
    assert found[-1].standing == pytest.approx(0.11, abs=0.02)
    assert max(found[-1].reference) < good


def test_what_is_accepted_is_the_reference():
    slow = [log + 0.1 * (run >= 10) for run, log in enumerate(scattered_logs(20, 0.005))]
    assert judge_logs(slow)[-1].standing is not None
    assert judge_logs(slow, accepted=10)[-1].standing is None
    assert judge_logs(slow, accepted=10)[-1].reference == (10, 11, 12, 13, 14)


def test_a_judgement_does_not_change_when_runs_follow():
    logs = [log + 0.1 * (run >= 10) for run, log in enumerate(scattered_logs(24, 0.02))]
    assert judge_logs(logs)[:14] == judge_logs(logs[:15])


def test_a_run_of_few_samples_reaches_further_than_its_neighbours():
    levels = [Level(log_ms=math.log(30.0) + log, error=ERROR) for log in scattered_logs(12, 0.005)]
    steady, noisy = judge(levels)[-1], judge([*levels[:-1], Level(log_ms=levels[-1].log_ms, error=0.1)])[-1]
    assert steady is not None
    assert noisy is not None
    assert noisy.alone[1] > 3 * steady.alone[1]


def test_few_samples_and_times_of_zero_have_no_level():
    assert run_level([30.0] * 5) is None
    assert run_level([30.0] * 9 + [0.0]) is None
    assert run_level([30.0] * 6) == Level(log_ms=math.log(30.0), error=0.0)


def test_more_runs_exclude_smaller_slow_downs_until_what_differs_between_them_is_all_that_is_left():
    few, more, most = (require_value(runs_needed(noise, 0.10)) for noise in (0.01, 0.02, 0.03))
    assert few < more < most
    assert runs_needed(0.05, 0.05) is None
