"""How well joints follow their commands: shifted, limited, resting, and with pauses between."""

from __future__ import annotations

import math

import numpy as np
import pytest

from strobe.loops.measure.robot import MOST_LAG, mean_motion, motion, tracking
from strobe.loops.measure.rollout import Tick


def path(tick: int) -> float:
    return 30 * math.sin(tick / 7)


def make_tick(at: list[float] | None, commanded: list[float] | None, follows: bool = True) -> Tick:
    return Tick(0, 0, True, follows, at=at, commanded=commanded)


def trailing(lag: int, off: float = 0.0, ticks: int = 120) -> list[Tick]:
    """A joint that is where its command of ``lag`` ticks ago was, ``off`` beside it; and one that rests at 5."""
    return [make_tick([path(tick - lag) + off, 5.0], [path(tick), 5.0]) for tick in range(ticks)]


@pytest.mark.parametrize("lag", [1, 4, MOST_LAG])
def test_the_lag_is_found_and_what_is_left_is_told(lag: int) -> None:
    moving, resting = tracking(trailing(lag, off=0.25), ["pan", "grip"])
    assert moving.lag_ticks == lag
    assert moving.left is not None
    assert moving.left.median == pytest.approx(0.25)
    if lag > 1:
        assert moving.error.median > 1
    assert resting.lag_ticks is None
    assert resting.left is None
    assert resting.error.max == 0


def test_positions_after_a_pause_are_not_held_against_commands_before_it() -> None:
    def moves(follows: bool) -> list[Tick]:
        here = [make_tick([0.0], [0.0])] * 30
        return [*here, make_tick([100.0], [100.0], follows), *[make_tick([100.0], [100.0])] * 30]

    assert tracking(moves(follows=False), ["pan"])[0].error.max == 0
    assert tracking(moves(follows=True), ["pan"])[0].error.max == 100


def test_ticks_without_a_command_or_a_position_count_for_nothing() -> None:
    moves = [
        make_tick(None if tick % 5 == 0 else [path(tick - 2)], None if tick % 3 == 0 else [path(tick)])
        for tick in range(200)
    ]
    (joint,) = tracking(moves, ["pan"])
    assert joint.lag_ticks == 2
    assert joint.left is not None
    assert joint.left.max == pytest.approx(0)


def test_a_robot_that_tells_no_positions_has_no_figures() -> None:
    assert tracking([make_tick(None, [1.0])] * 50, ["pan"]) == []
    assert tracking([], ["pan"]) == []
    assert tracking([make_tick([], [])] * 50, []) == []
    assert tracking(trailing(1, ticks=5), ["pan", "grip"]) == [], "too few"


def test_a_straight_line_has_a_path_and_no_jerk_and_a_cubic_has_a_constant_one():
    ticks = np.arange(20.0)
    straight = motion(np.stack([3 * ticks, 4 * ticks], axis=1), [0])
    assert straight.path == pytest.approx(5)
    assert straight.jerk == pytest.approx(0)
    assert straight.within is straight.seam is None, "one chunk has no seam"
    assert motion((ticks**3)[:, None], []).jerk == pytest.approx(6)


def test_jumps_are_told_where_chunks_meet():
    actions = np.repeat([[0.0], [7.0], [14.0]], 4, axis=0)  # rests within a chunk of 4, jumps by 7 between them
    found = motion(actions, [0, 4, 8])
    assert (found.within, found.seam) == (0, 7)
    assert found.path == pytest.approx(14 / 11)
    each = motion(actions, range(12))
    assert each.seam is None, "where each tick begins a chunk there is nothing to tell apart"


def test_episodes_without_figures_are_left_out():
    assert motion(np.zeros((1, 2)), [0]) is None
    assert motion([[0.0], [np.nan]], [0]) is None
    short, long = motion([[0.0], [1.0]], [0]), motion(np.arange(8.0)[:, None] ** 3, [0])
    assert short is not None
    assert long is not None
    assert short.jerk is None
    both = mean_motion([short, long])
    assert both.jerk == pytest.approx(6)
    assert both.path == pytest.approx((1 + long.path) / 2)
    assert mean_motion([]) is None
