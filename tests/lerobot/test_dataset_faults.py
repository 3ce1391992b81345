"""A fault of a dataset is found where it is, told with its size and what fixes it, and what LeRobot reads is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.builders import broken_datasets as broken
from support.builders.broken_datasets import CAMERAS, EPISODES, FPS, FRAMES

from strobe.core.errors import UserError
from strobe.core.kinds import advise
from strobe.lerobot.datasets import finder
from strobe.lerobot.policies import inputs
from strobe.preflight.run import preflight_of_data
from strobe.vision import clips

FRONT = CAMERAS[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken.write_dataset(tmp_path_factory.mktemp("dataset") / "whole")


def _file(root: Path, pattern: str) -> Path:
    (found,) = root.glob(pattern)
    return found


def _cut(root: Path, pattern: str) -> None:
    file = _file(root, pattern)
    file.write_bytes(file.read_bytes()[:700])


def _shape(root: Path, name: str, shape: list[int]) -> None:
    features = json.loads((root / "meta/info.json").read_text())["features"]
    features[name]["shape"] = shape
    broken.info(root, features=features)


def _statistics(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = root / "meta/stats.json"
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))


def _noise(root: Path) -> None:
    """A front video whose middle is overwritten, so that its frames are listed and cannot be decoded."""
    file, random = _file(root, f"videos/{FRONT}/*/*.mp4"), np.random.default_rng(0)
    with av.open(str(file), "w") as out:
        stream: Any = out.add_stream("mpeg4", rate=FPS)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for _ in range(EPISODES * FRAMES):
            picture = random.integers(0, 255, (64, 64, 3), dtype=np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode())
    data = bytearray(file.read_bytes())
    start, end = len(data) * 4 // 10, len(data) * 5 // 10
    data[start:end] = b"\xff" * (end - start)
    file.write_bytes(data)


def _column(folder: str, name: str, row: int, value: Any) -> Callable[[Path], None]:
    return lambda root: broken.table(root, folder, lambda columns: columns[name].__setitem__(row, value))


def _lose_at_end(root: Path) -> None:
    broken.lose_frames(root, 3, 2)
    broken.shorten_video(root, 46)


VIDEO = f"videos/{FRONT}/chunk-000/file-000.mp4"
DATA = "data/chunk-000/file-000.parquet"
STOPS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "a frame late": (
        lambda root: broken.late(root, 3, 1),
        ["episode 3, frame 11 of", FRONT, "1 frame (100 ms) too late", "3.7 s", VIDEO, "from_timestamp", "to 3.6"],
    ),
    "a third of a frame late": (
        lambda root: broken.late(root, 1, 0.3),
        ["episode 1, frame 0 of", "0.3 frames (30 ms) too late", VIDEO, "--tolerance_s=0.03", "to 1.2"],
    ),
    "a frame early": (
        lambda root: broken.late(root, 0, -1, CAMERAS[1]),
        ["episode 0, frame 0 of", CAMERAS[1], "1 frame (100 ms) too early"],
    ),
    "a short video": (
        lambda root: broken.shorten_video(root, 40),
        ["episode 3, frame 4 of", VIDEO, "8 frames (800 ms)", "after 40 frames of 48"],
    ),
    "frames that the encoder lost at the end of a file": (
        _lose_at_end,
        ["episode 3 has 10 frames of", FRONT, "and 12 rows", "record it again"],
    ),
    "another rate": (
        lambda root: broken.rewritten(_file(root, f"videos/{FRONT}/*/*.mp4"), rate=30),
        [VIDEO, "30 frames per second", "meta/info.json says 10"],
    ),
    "no video": (lambda root: _file(root, f"videos/{FRONT}/*/*.mp4").unlink(), [VIDEO, "is missing"]),
    "a cut video": (lambda root: _cut(root, f"videos/{FRONT}/*/*.mp4"), [VIDEO, "is cut off: it has 700 bytes of"]),
    "an empty episode": (lambda root: broken.empty_episode(root, 2), ["episode 2 has no frames in", DATA, "says 12"]),
    "a frame's time": (
        _column("data", "timestamp", 20, 0.83),
        ["episode 1, frame 8", DATA, "0.83 s", "0.3 frames (30 ms) off 0.8 s"],
    ),
    "a task that is not there": (_column("data", "task_index", 20, 7), ["episode 1", "task 7", "meta/tasks.parquet"]),
    "another shape": (
        lambda root: _shape(root, "observation.state", [3]),
        ["observation.state has 2 numbers in", DATA, "says 3", "correct its 'shape'"],
    ),
    "a cut table": (lambda root: _cut(root, "data/*/*.parquet"), [f"{DATA} (episodes 0 to 3) cannot be read"]),
    "no table": (lambda root: _file(root, "data/*/*.parquet").unlink(), [f"{DATA} (episodes 0 to 3) is missing"]),
    "a cut list of episodes": (lambda root: _cut(root, "meta/episodes/*/*.parquet"), ["meta/episodes/", "cannot be"]),
    "no tasks": (lambda root: (root / "meta/tasks.parquet").unlink(), ["meta/tasks.parquet is missing"]),
    "no rate": (lambda root: broken.info(root, fps=None), ["meta/info.json has no 'fps'"]),
    "an older format": (lambda root: broken.info(root, codebase_version="v2.1"), ["v2.1", "convert_dataset_v21"]),
    "another count": (lambda root: broken.info(root, total_episodes=9), ["counts 9 episodes", "lists 4"]),
}  # fmt: skip
READ_ALL_THE_SAME: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "frames that the encoder lost": (
        lambda root: broken.lose_frames(root, 1, 2),
        ["episode 1 has 10 frames of", FRONT, "and 12 rows", "--dataset.episodes=[0,2,3]"],
    ),
    "a frame that the encoder lost": (lambda root: broken.lose_frames(root, 2, 1),
                                      ["episode 2 has 11 frames of", "12 rows"]),
    "frames of a discarded take": (lambda root: broken.lose_frames(root, 3, -2),
                                   ["episode 3 has 14 frames of", "12 rows", "--decode"]),
    "numbers of another episode": (
        _column("meta/episodes", "dataset_to_index", 1, 15),
        ["episode 1 is frames 12 to 23", "75 % of its actions count as padding"],
    ),
    "another episode's frame": (
        lambda root: broken.late(root, 1, -1),
        ["episode 1, frame 0 of", "1 frame (100 ms) too early", "to 1.2"],
    ),
    "NaN in a state": (
        lambda root: broken.number(root, "observation.state", 20, np.nan, 1),
        ["episode 1, frame 8", "number 1 of observation.state", "nan", "--dataset.episodes=[0,2,3]"],
    ),
    "infinite statistics": (
        lambda root: _statistics(root, lambda found: found["action"].update(std=[np.inf, 1.0])),
        ["meta/stats.json", "'std' of action is inf", "--fix_data=FOLDER"],
    ),
    "another rate of the whole": (
        lambda root: broken.info(root, fps=30),
        ["says 30 frames per second", "10 per second", "correct 'fps'"],
    ),
    "images of another size": (
        lambda root: broken.rewritten(_file(root, f"videos/{FRONT}/*/*.mp4"), size=32),
        [VIDEO, "32×32 pixels", "64×64×3"],
    ),
}  # fmt: skip


def _read(root: Path, episodes: list[int] | None = None) -> int:
    """Every frame, as LeRobot reads them. Returns how many."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset("local/whole", root=root, episodes=episodes)
    return len([dataset[index] for index in range(len(dataset))])


def test_a_whole_dataset_has_no_fault(whole: Path) -> None:
    assert finder.search(whole).sentences == []
    assert finder.stopping(whole) is None


@pytest.mark.parametrize("name", STOPS)
def test_what_lerobot_cannot_read_is_told_in_a_line_and_left_out_by_the_flag(name: str, whole: Path, tmp_path: Path):
    change, words = STOPS[name]
    root = broken.copy_dataset(whole, tmp_path / "data set")
    change(root)
    (fault, told), *_ = finder.search(root).sentences
    assert fault.stops
    assert [word for word in words if word not in told] == []
    assert "\n" not in told
    with pytest.raises(Exception, match=r".+"):
        _read(root)
    if (flag := re.search(r"--dataset\.episodes=\[([\d,]+)\]", told)) is not None:
        others = [int(episode) for episode in flag[1].split(",")]
        assert _read(root, others) == len(others) * FRAMES
        assert finder.search(root, episodes=others).sentences == []


@pytest.mark.parametrize("name", READ_ALL_THE_SAME)
def test_what_lerobot_reads_all_the_same_is_a_note(name: str, whole: Path, tmp_path: Path) -> None:
    change, words = READ_ALL_THE_SAME[name]
    root = broken.copy_dataset(whole, tmp_path / "data")
    change(root)
    (told,) = finder.note_dataset_faults(root)
    assert [word for word in words if word not in told] == []
    assert _read(root) == EPISODES * FRAMES
    assert finder.stopping(root) is None


def test_statistics_that_normalisation_lacks_stop(whole: Path, tmp_path: Path) -> None:
    root = broken.copy_dataset(whole, tmp_path / "data")
    _statistics(root, lambda found: found.pop("observation.state"))
    with pytest.raises(UserError, match=r"stats\.json has no 'observation\.state'.+--fix_data=FOLDER"):
        finder.note_dataset_faults(root)
    (root / "meta/stats.json").unlink()
    with pytest.raises(UserError, match=r"meta/stats\.json is missing.+lerobot-edit-dataset"):
        finder.note_dataset_faults(root)


def test_a_column_that_policies_read_must_be_there(whole: Path, tmp_path: Path) -> None:
    root = broken.copy_dataset(whole, tmp_path / "data")
    broken.table(root, "data", lambda columns: columns.pop("observation.state"))
    with pytest.raises(UserError, match=rf"{DATA} has no column 'observation\.state'"):
        inputs.from_dataset(_act(), root)


def test_images_whose_axes_have_no_names_are_told_in_a_line(whole: Path, tmp_path: Path) -> None:
    root = broken.copy_dataset(whole, tmp_path / "data")
    features = json.loads((root / "meta/info.json").read_text())["features"]
    broken.info(root, features={name: feature | {"names": None} for name, feature in features.items()})
    with pytest.raises(UserError, match=rf"does not name the axes of {re.escape(FRONT)}: LeRobot needs"):
        inputs.from_dataset(_act(), root)


def test_what_nobody_foresaw_in_a_dataset_is_no_traceback(whole: Path, tmp_path: Path) -> None:
    root = broken.copy_dataset(whole, tmp_path / "data")
    broken.info(root, features={"observation.state": 3, "action": {"dtype": "float32", "shape": "two"}})
    with pytest.raises(UserError, match=r"the dataset at .+ cannot be read"):
        inputs.from_dataset(_act(), root)


def test_frames_that_are_listed_and_cannot_be_decoded_are_found_once_reading_fails(whole: Path, tmp_path: Path) -> None:
    root = broken.copy_dataset(whole, tmp_path / "data")
    _noise(root)
    assert finder.search(root).sentences == []
    assert re.search(
        rf"{VIDEO} is damaged after \d+ frames, in episode \d .+--dataset\.episodes=\[0", str(finder.stopping(root))
    )


def test_faults_of_one_kind_are_told_together_and_a_file_of_the_hub_s_is_fetched_again(whole: Path, tmp_path: Path):
    root = broken.copy_dataset(whole, tmp_path / "data")
    for row in (20, 40):
        broken.number(root, "action", row, np.nan)
    broken.shorten_video(root, 40)
    (stop, short), (note, numbers) = finder.search(root, "me/arm").sentences
    assert stop.stops
    assert not note.stops
    assert f"hf download me/arm {VIDEO} --repo-type=dataset --local-dir={root}" in short
    assert "the same in episode 3; leave episodes 1 and 3 out (--dataset.episodes=[0,2])" in numbers


def test_a_look_ends_in_time(whole: Path) -> None:
    assert finder.search(whole, seconds=0).sentences == []


def _act() -> Any:
    from strobe.lerobot.policies.lerobot_policies import config_from_type

    return config_from_type("act", ["--device=cpu"])


def test_a_policy_s_inputs_end_in_the_fault_s_sentence_or_carry_it_as_a_note(whole: Path, tmp_path: Path) -> None:
    root = broken.copy_dataset(whole, tmp_path / "data")
    broken.late(root, 1, 1 / 3)
    with pytest.raises(
        UserError, match=r"is broken: episode 1, frame 0 of .+ms\) too late.+episodes=\[0,2,3\]"
    ) as caught:
        inputs.from_dataset(_act(), root)
    assert "\n" not in str(caught.value)
    fed = inputs.from_dataset(_act(), root, episodes=[0, 2, 3])
    assert not fed.notes
    assert fed.batch(2)
    broken.number(root, "observation.state", 3 * FRAMES, np.nan)
    (note,) = inputs.from_dataset(_act(), root, episodes=[0, 2, 3], count=2).notes
    assert "episode 3, frame 0" in note
    with pytest.raises(UserError, match=r"episode 3 of the dataset at .+ has NaN or infinite values"):
        inputs.from_dataset(_act(), root, episodes=[3], count=FRAMES)


def test_clips_of_a_broken_dataset_end_in_a_sentence(whole: Path, tmp_path: Path) -> None:
    root = broken.copy_dataset(whole, tmp_path / "data")
    broken.shorten_video(root, 5)
    with pytest.raises(UserError, match=r"is broken: episode 0, frame 5 of .+ends"):
        clips.from_dataset(root, None, 2)


@pytest.mark.parametrize(("frames", "apart"), [(2, "2 ticks"), (1, "1 tick")])
def test_preflight_names_the_frames_that_a_video_lost(frames: int, apart: str, whole: Path, tmp_path: Path):
    root = broken.copy_dataset(whole, tmp_path / "lost")
    broken.lose_frames(root, 1, frames)
    (finding,) = [each for each in advise(preflight_of_data(root)) if each.level == "warning"]
    assert finding.rule == "data-lost"
    assert finding.title == f"Episode 1 has {12 - frames} frames of front for 12 rows"
    assert apart in finding.why
    assert "1 of 4 episodes" in finding.found
    assert "--dataset.episodes=[0,2,3]" in finding.do
    assert [each for each in advise(preflight_of_data(root, episodes=[0, 2, 3])) if each.level == "warning"] == []


def test_preflight_has_no_serious_word_on_what_lerobot_recorded(whole: Path):
    assert [each for each in advise(preflight_of_data(whole)) if each.level == "warning"] == []
