"""Frames read from a data set's files are those that LeRobot reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builders.broken_datasets import (
    CAMERAS,
    EPISODES,
    FRAMES,
    copy_dataset,
    empty_episode,
    shorten_video,
    write_dataset,
)
from support.servers.openpi_server import Policy, serving

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.lerobot.datasets.frames import frames


@pytest.fixture(scope="module")
def recorded_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("frames") / "sound")


def test_each_frame_is_the_one_that_lerobot_reads(recorded_dataset: Path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    read = frames(recorded_dataset, 1000)
    theirs = LeRobotDataset("local/sound", root=recorded_dataset)
    assert len(read) == len(theirs) == EPISODES * FRAMES
    for index, ours in enumerate(read):
        frame: Any = theirs[index]
        assert ours["task"] == frame["task"] == "move"
        assert ours["observation.state"].dtype == np.float32
        assert np.array_equal(ours["observation.state"], frame["observation.state"].numpy())
        for camera in CAMERAS:
            pixels = np.moveaxis(frame[camera].numpy(), 0, 2) * 255
            assert (ours[camera].shape, ours[camera].dtype) == ((64, 64, 3), np.uint8)
            # Two decoders round differently; neighbouring frames are 20 apart.
            assert np.abs(ours[camera].astype(float) - pixels).max() < 6


def test_images_in_the_table_are_those_that_lerobot_reads(tmp_path: Path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from strobe.lerobot.quiet import quiet

    camera, random = "observation.images.front", np.random.default_rng(0)
    features: dict[str, Any] = {
        camera: {"dtype": "image", "shape": (20, 24, 3), "names": ["height", "width", "channels"]},
        "observation.state": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    with quiet():
        made = LeRobotDataset.create("local/images", 10, features, root=tmp_path / "images", use_videos=False)
        for task in ("move", "stop"):
            for _ in range(3):
                image = random.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                made.add_frame({camera: image, "observation.state": random.random(2, np.float32), "task": task})
            made.save_episode()
        made.finalize()
        theirs = LeRobotDataset("local/images", root=tmp_path / "images")
    read = frames(tmp_path / "images", 100)
    assert [seen["task"] for seen in read] == ["move"] * 3 + ["stop"] * 3
    for index, ours in enumerate(read):
        frame: Any = theirs[index]
        assert np.array_equal(ours[camera], np.rint(np.moveaxis(frame[camera].numpy(), 0, 2) * 255).astype(np.uint8))
        assert np.array_equal(ours["observation.state"], frame["observation.state"].numpy())


def test_few_frames_lie_in_all_of_the_data_set(recorded_dataset: Path):
    read = frames(recorded_dataset, 4)
    values = [int(np.median(seen[CAMERAS[0]])) for seen in read]
    assert len(read) == 4
    assert values == pytest.approx([20 * 6] * 4, abs=6)  # the middle of each of four episodes


def test_a_missing_frame_is_a_line(recorded_dataset: Path, tmp_path: Path):
    broken = copy_dataset(recorded_dataset, tmp_path / "short")
    shorten_video(broken, FRAMES)
    with pytest.raises(UserError, match=r"frame \d+ of episode \d is not in|cannot be read"):
        frames(broken, 1000)


def test_a_data_set_without_an_episode_is_a_line(recorded_dataset: Path, tmp_path: Path):
    broken = copy_dataset(recorded_dataset, tmp_path / "less")
    empty_episode(broken, 1)
    with pytest.raises(UserError, match=f"the dataset at {broken}"):
        frames(broken, 1000)


def run(url: str, recorded: Path, tmp_path: Path, *flags: str) -> int:
    argv = ["breakdown", f"--policy.server={url}", f"--dataset.root={recorded}", "--iterations=17"]
    return main([*argv, f"--output_dir={tmp_path}", *flags])


def test_frames_are_sent_under_openpis_names(recorded_dataset: Path, tmp_path: Path):
    policy = Policy()
    names = {CAMERAS[0]: "images.cam_high", CAMERAS[1]: "observation/wrist", "observation.state": "state"}
    with serving(policy) as url:
        assert run(url, recorded_dataset, tmp_path, f"--rename_map={json.dumps(names)}") == 0
    seen = policy.seen
    assert set(seen[0]) == {"images", "observation/wrist", "state", "prompt"}
    assert seen[0]["images"]["cam_high"][b"shape"] == [64, 64, 3]
    assert seen[0]["prompt"] == "move"
    assert seen[0] != seen[1]
    assert seen[0] == seen[16]  # sixteen frames in turn
    (kept,) = tmp_path.glob("*/result.json")
    result = json.loads(kept.read_text())
    assert result["inputs"] == "16 frames of the dataset sound"
    assert [each["kind"] for each in result["encodings"]] == ["as sent", "JPEG"]


def test_without_a_map_the_names_are_liberos(recorded_dataset: Path, tmp_path: Path):
    policy = Policy()
    with serving(policy) as url:
        assert run(url, recorded_dataset, tmp_path, "--prompt=fold") == 0
    assert set(policy.seen[0]) == {"observation/image", "observation/wrist_image", "observation/state", "prompt"}
    assert policy.seen[0]["prompt"] == "fold"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({"observation.images.top": "x"}, "the dataset has no 'observation.images.top'"),
        ({CAMERAS[0]: "x", CAMERAS[1]: "x"}, "two features are renamed 'x'"),
        ({CAMERAS[0]: "x", CAMERAS[1]: "x.y"}, "an array and a map of arrays at once"),
    ],
)
def test_a_map_that_does_not_fit_is_a_line(
    names: dict[str, str], why: str, recorded_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run("ws://127.0.0.1:9", recorded_dataset, tmp_path, f"--rename_map={json.dumps(names)}") == 2
    assert why in capsys.readouterr().err
