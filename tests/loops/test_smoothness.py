"""Smoothness of actions: known curves, seams, and episodes without figures."""

from __future__ import annotations

import numpy as np
import pytest

from strobe.loops.measure.robot import mean_motion, motion


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
