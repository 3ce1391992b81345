"""The replaying camera: which frame comes when, what it shows, and LeRobot's interface over it.

The schedule and the stream read no clock, so these tests bring their own. Only the last ones wait, and judge no time.
"""

from __future__ import annotations

import importlib.util
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

if importlib.util.find_spec("lerobot_camera_strobe") is None:
    pytest.skip("the plug-in is not installed: make env", allow_module_level=True)

from lerobot_camera_strobe.camera import ReplayCamera
from lerobot_camera_strobe.config import ReplayCameraConfig
from lerobot_camera_strobe.schedule import Schedule
from lerobot_camera_strobe.stream import StampedFrame, Stream

WIDTH, HEIGHT, FPS, FRAMES = 64, 48, 10, 20


def stream(schedule: Schedule, *, count: int = 100, fps: float = 30.0, start: float = 0.0) -> Stream:
    """Frames whose every pixel is their number."""
    return Stream([np.full((2, 2, 3), k, dtype=np.uint8) for k in range(count)], fps, schedule, start)


def come(schedule: Schedule, seconds: float) -> list[tuple[float, int, int]]:
    """Frames of ``seconds`` as they come: when, their number, and what they show."""
    playing, found = stream(schedule), []
    while (now := playing.next_s) < seconds:
        assert playing.move(now)
        assert playing.latest is not None
        found.append((now, playing.latest.index, int(playing.latest[0, 0, 0])))
    return found


def test_frames_come_at_the_rate_of_the_camera_from_its_phase_on() -> None:
    assert come(Schedule(fps=10, phase=0.25, latency_s=0.01), 0.5) == [
        (pytest.approx(at), k, 30 * (0.25 + k) // 10) for k, at in enumerate((0.035, 0.135, 0.235, 0.335, 0.435))
    ]


def test_each_frame_is_an_array_of_its_own_that_says_when_it_was_captured() -> None:
    playing = stream(Schedule(fps=10, latency_s=0.02), count=1, start=5.0)  # the same picture again and again
    assert playing.move(5.03)
    first = playing.latest
    assert first is not None
    assert (first.captured_s, first.index, playing.came_s) == (pytest.approx(5.0), 0, 5.03)
    assert not playing.move(5.1)
    assert playing.latest is first
    assert playing.move(5.13)
    second = playing.latest
    assert second is not None
    assert (second.captured_s, second.index) == (pytest.approx(5.1), 1)
    assert not np.shares_memory(first, second)
    part: Any = second[:1]
    assert part.captured_s == second.captured_s


def test_one_who_comes_late_gets_the_newest_frame_and_no_burst() -> None:
    playing = stream(Schedule(fps=10))
    assert playing.move(0.0)
    assert playing.move(0.95)
    assert playing.latest is not None
    assert playing.latest.index == 9
    assert playing.next_s == pytest.approx(1.0)  # the deadlines stay where they were


@pytest.mark.parametrize(("fps", "shown"), [(30, [0, 1, 2, 3]), (60, [0, 0, 1, 1]), (15, [0, 2, 4, 6])])
def test_a_recording_plays_at_its_own_rate_whatever_the_cameras(fps: float, shown: list[int]) -> None:
    assert [shows for _, _, shows in come(Schedule(fps=fps), 3.5 / fps)] == shown


def test_a_recording_begins_anew_at_its_end() -> None:
    playing = stream(Schedule(fps=30), count=3)
    shown = []
    for k in range(5):
        playing.move(k / 30)
        assert playing.latest is not None
        shown.append(int(playing.latest[0, 0, 0]))
    assert shown == [0, 1, 2, 0, 1]


def test_no_frame_comes_in_a_gap() -> None:
    times = [now for now, _, _ in come(Schedule(fps=10, gap=(0.3, 0.6)), 1.0)]
    assert times == pytest.approx([0.0, 0.1, 0.2, 0.6, 0.7, 0.8, 0.9])


def test_the_end_of_a_long_gap_is_found_at_once() -> None:
    assert Schedule(fps=50, gap=(0.1, 1e9)).next_s(9) == pytest.approx(1e9)


def test_frozen_frames_come_and_show_the_last_one_before() -> None:
    found = come(Schedule(fps=30, freeze=(0.1, 0.2)), 8.5 / 30)
    assert [k for _, k, _ in found] == list(range(9))
    assert [shows for _, _, shows in found] == [0, 1, 2, 2, 2, 2, 6, 7, 8]


def test_jitter_makes_frames_late_and_never_early() -> None:
    schedule = Schedule(fps=10, jitter_s=0.05, seed=3)
    late = [now - k / 10 for now, k, _ in come(schedule, 5.0)]
    assert all(0 <= each <= 0.05 for each in late)
    assert max(late) - min(late) > 0.03
    assert come(schedule, 5.0) == come(schedule, 5.0)


@given(
    st.builds(
        Schedule,
        fps=st.floats(1, 120),
        phase=st.floats(0, 0.99),
        latency_s=st.floats(0, 0.2),
        jitter_s=st.floats(0, 0.2),
        gap=st.tuples(st.floats(0, 0.5), st.floats(0, 1)),
        freeze=st.tuples(st.floats(0, 0.5), st.floats(0, 1)),
        seed=st.integers(0, 5),
    )
)
def test_time_never_runs_backwards(schedule: Schedule) -> None:
    found = come(schedule, 20 / schedule.fps)
    for (now, k, _), (later, next_k, _) in pairwise(found):
        assert later >= now
        assert next_k > k
        assert schedule.shows_s(next_k) >= schedule.shows_s(k)
    assert all(schedule.captured_s(k) <= now + 1e-9 for now, k, _ in found)


@pytest.mark.parametrize(
    "told",
    [{"fps": 0}, {"phase": 1.0}, {"jitter_ms": -1.0}, {"gap_s": -0.1}, {"seconds": 0.0}],
    ids=lambda told: next(iter(told)),
)
def test_a_value_that_cannot_be_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(told))}` is expected"):
        ReplayCameraConfig(path="x", **told)


def test_cameras_of_one_recording_have_phases_of_their_own() -> None:
    phases = {ReplayCameraConfig(path="x", camera=name).schedule(30).phase for name in ("front", "wrist", "top")}
    assert len(phases) == 3
    assert all(0 <= phase < 1 for phase in phases)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames that become brighter by ten each, of a size that no camera asks for."""
    import av

    path = tmp_path_factory.mktemp("video") / "brighter.mp4"
    with av.open(str(path), "w") as out:
        made: Any = out.add_stream("mpeg4", rate=FPS)
        made.width, made.height, made.pix_fmt = 128, 96, "yuv420p"
        for k in range(FRAMES):
            image = np.full((96, 128, 3), 20 + 10 * k, dtype=np.uint8)
            out.mux(made.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(made.encode())
    return path


def camera(path: Path, **told: Any) -> ReplayCamera:
    fields: dict[str, Any] = {"fps": 50, "width": WIDTH, "height": HEIGHT} | told
    return ReplayCamera(ReplayCameraConfig(path=str(path), **fields))


def test_lerobot_makes_it_from_its_flags_and_reads_it_as_any_camera(video: Path) -> None:
    from lerobot.cameras.utils import make_cameras_from_configs

    config = ReplayCameraConfig(path=str(video), fps=50, width=WIDTH, height=HEIGHT)
    assert config.type == "strobe_replay"
    made = make_cameras_from_configs({"front": config})["front"]
    assert isinstance(made, ReplayCamera)
    assert not made.is_connected
    with made:
        one = made.read_latest(max_age_ms=10_000)
        assert (one.shape, one.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
        assert isinstance(one, StampedFrame)
        two, three = made.read(), made.async_read(timeout_ms=10_000)
        assert one.index < two.index < three.index
        shown = [round((float(each.mean()) - 20) / 10) for each in (one, two, three)]
        assert shown == [
            math.floor(each.index / 5 + made.config.schedule(50).phase / 5) % FRAMES for each in (one, two, three)
        ]
    assert not made.is_connected


def test_a_camera_whose_frames_stopped_says_so(video: Path) -> None:
    with camera(video, gap_at_s=0.1, gap_s=1e6) as made:
        while made.read_latest(max_age_ms=10_000).index < 4:
            pass  # the last before the gap
        made.async_read(timeout_ms=10_000)
        with pytest.raises(TimeoutError, match="no new frame"):
            made.async_read(timeout_ms=100)
        with pytest.raises(TimeoutError, match="too old"):
            made.read_latest(max_age_ms=50)
    from lerobot.utils.errors import DeviceNotConnectedError

    with pytest.raises(DeviceNotConnectedError):
        made.read_latest()


def test_it_can_be_connected_again_but_not_twice(video: Path) -> None:
    from lerobot.utils.errors import DeviceAlreadyConnectedError

    made = camera(video)
    for _ in range(2):
        made.connect()
        with pytest.raises(DeviceAlreadyConnectedError):
            made.connect()
        made.disconnect()


def test_an_episode_of_a_dataset_is_replayed(tmp_path: Path) -> None:
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    root, name = tmp_path / "data", "observation.images.front"
    feature = {"dtype": "video", "shape": (96, 96, 3), "names": ["height", "width", "channels"]}
    dataset = LeRobotDataset.create(
        "local/data", 10, {name: feature}, root=root, rgb_encoder=RGBEncoderConfig(vcodec="h264")
    )
    for episode in range(2):
        for k in range(6):
            dataset.add_frame({name: np.full((96, 96, 3), 100 * episode + 10 * k, dtype=np.uint8), "task": "none"})
        dataset.save_episode(parallel_encoding=False)
    dataset.finalize()
    with camera(root, episode=1, fps=10, width=96, height=96, phase=0.0) as made:
        assert made._stream is not None
        shown = [float(each.mean()) for each in made._stream._frames]
        assert shown == pytest.approx([100, 110, 120, 130, 140, 150], abs=3)
    with pytest.raises(ConnectionError, match="2 episodes, and no episode 2"):
        camera(root, episode=2).connect()
    with pytest.raises(ConnectionError, match=f"no videos of the camera 'top'; known cameras: {name}"):
        camera(root, camera="top").connect()


def test_what_cannot_be_replayed_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="no recording to replay"):
        camera(tmp_path / "missing.mp4").connect()
    with pytest.raises(ConnectionError, match="is not a LeRobotDataset"):
        camera(tmp_path).connect()
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(ConnectionError, match="cannot replay"):
        camera(tmp_path / "text.mp4").connect()
