"""Observations that a rollout keeps are those that the robot gave, also where the run was cut off."""

from __future__ import annotations

import json

import numpy as np
import pytest

from strobe.core.errors import UserError
from strobe.loops.observations import INDEX, MOST_HELD, Keeper, Observations


def picture(seed: int) -> np.ndarray:
    """Smooth colours, as a camera sees them."""
    across, down = np.meshgrid(np.arange(64), np.arange(48))
    return np.stack([across * 3 + seed, down * 4, across + down + 5 * seed], axis=-1).astype(np.uint8)


def make_observation(tick: int) -> dict:
    return {
        "pan.pos": tick / 2,
        "task": "push",
        "wrist cam": picture(tick),
        "depth": np.full((4, 6), 900 + tick, np.uint16),
    }


def keep_observations(folder, observations) -> Keeper:
    keeper = Keeper(folder)
    for number, observation in enumerate(observations):
        keeper.append((1000 * number, observation))
    keeper.start()
    keeper.stop()
    return keeper


def test_the_latest_observation_at_or_before_a_moment_comes_back(tmp_path):
    keeper = keep_observations(tmp_path / "seen", [make_observation(tick) for tick in range(3)])
    assert (keeper.kept, keeper.failed) == (3, None)
    found = Observations(tmp_path / "seen")
    for moment, tick in ((-5, 0), (0, 0), (999, 0), (1000, 1), (9999, 2)):
        observation, at = found.latest_observation(moment)
        assert at == 1000 * tick
        assert (observation["pan.pos"], observation["task"]) == (tick / 2, "push")
        assert np.abs(observation["wrist cam"].astype(int) - picture(tick)).mean() < 2, "a JPEG of quality 95"
        assert (observation["depth"] == 900 + tick).all(), "no JPEG: depths are exact"
        assert observation["depth"].dtype == np.uint16


def test_a_frame_that_is_read_again_is_stored_once(tmp_path):
    frame = picture(1)
    keep_observations(tmp_path / "seen", [{"front": frame}, {"front": frame}, {"front": picture(1)}])
    lines = [json.loads(line) for line in (tmp_path / "seen" / INDEX).read_text().splitlines()]
    first, again, other = (line["frames"]["front"] for line in lines)
    assert first == again
    assert other[0] == sum(first)
    assert (tmp_path / "seen" / "front.mjpeg").stat().st_size == sum(other)


def test_a_loop_that_is_faster_than_the_disk_never_waits(tmp_path):
    keeper = keep_observations(tmp_path / "seen", [{"pan.pos": float(tick)} for tick in range(3 * MOST_HELD)])
    assert keeper.kept == MOST_HELD
    assert Observations(tmp_path / "seen").latest_observation(0)[0]["pan.pos"] == 2 * MOST_HELD, "the latest are kept"


def test_what_a_crash_left_can_be_read(tmp_path):
    keep_observations(tmp_path / "seen", [make_observation(tick) for tick in range(3)])
    index = tmp_path / "seen" / INDEX
    index.write_text(index.read_text()[:-40])
    assert Observations(tmp_path / "seen").times == [0, 1000]
    (tmp_path / "seen" / "wrist_cam.mjpeg").write_bytes(b"")
    with pytest.raises(UserError, match=r"wrist_cam.mjpeg is damaged at byte 0: no picture of wrist cam"):
        Observations(tmp_path / "seen").latest_observation(0)


def test_what_is_no_picture_is_named_and_the_rest_is_kept(tmp_path):
    keeper = keep_observations(tmp_path / "seen", [{"points": np.zeros((5, 3)), "pan.pos": 1.0}])
    assert keeper.kept == 1
    assert "no picture: float64" in (tmp_path / "seen" / INDEX).read_text()
    assert Observations(tmp_path / "seen").latest_observation(0)[0] == {"pan.pos": 1.0}


def test_a_folder_that_cannot_be_written_costs_the_observations_alone(tmp_path):
    (tmp_path / "seen").write_text("in the way")
    keeper = keep_observations(tmp_path / "seen", [make_observation(0)])
    assert (keeper.kept, keeper.failed) == (0, "file exists")
    with pytest.raises(UserError, match="no observations in"):
        Observations(tmp_path / "seen")
