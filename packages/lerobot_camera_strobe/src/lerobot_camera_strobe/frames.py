"""Frames of a recording: a video file, or one camera of one episode of a LeRobotDataset."""

from __future__ import annotations

from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

_EPSILON_S = 1e-4  # timestamps of a video are rounded


def read(
    path: Path, camera: str | None, episode: int, seconds: float, width: int | None, height: int | None
) -> tuple[list[NDArray[np.uint8]], float]:
    """The first ``seconds`` of a recording, (height, width, 3) RGB each, and its frames/s.

    Raise ConnectionError, as a camera that is not there does.
    """
    if not path.exists():
        raise ConnectionError(f"no recording to replay at {path}")
    begin, end = 0.0, seconds
    if path.is_dir():
        path, begin, length = _dataset_video(path, camera, episode)
        end = begin + min(seconds, length)
    frames, fps = list[NDArray[np.uint8]](), 0.0
    try:
        with av.open(str(path)) as video:
            stream = video.streams.video[0]
            stream.thread_type = "AUTO"
            fps = float(stream.average_rate or 30)
            if begin and stream.time_base:
                video.seek(int(begin / stream.time_base), stream=stream)
            for frame in video.decode(stream):
                if frame.time is None or frame.time < begin - _EPSILON_S:
                    continue
                if frame.time >= end - _EPSILON_S:
                    break
                image = frame.to_ndarray(format="rgb24")
                if width and height and image.shape[:2] != (height, width):
                    image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
                frames.append(np.asarray(image, dtype=np.uint8))
    except (av.FFmpegError, IndexError) as error:
        raise ConnectionError(f"cannot replay {path}: {error}") from error
    if not frames:
        raise ConnectionError(f"{path} has no frames to replay")
    return frames, fps


def _dataset_video(root: Path, camera: str | None, episode: int) -> tuple[Path, float, float]:
    """The video file of an episode, where in it the episode begins (s), and how long it is (s)."""
    from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata

    if not (root / "meta" / "info.json").is_file():
        raise ConnectionError(f"{root} is not a LeRobotDataset: it has no meta/info.json")
    about = LeRobotDatasetMetadata(repo_id=root.name, root=root)
    keys = list(about.video_keys)
    if camera is None and len(keys) == 1:
        camera = keys[0]
    if camera not in keys:
        known = ", ".join(keys) or "none: its images are not videos"
        raise ConnectionError(f"{root} has no videos of the camera '{camera}'; known cameras: {known}")
    if not 0 <= episode < about.total_episodes:
        raise ConnectionError(f"{root} has {about.total_episodes} episodes, and no episode {episode}")
    assert about.episodes is not None
    told = about.episodes[episode]
    begin, end = (float(told[f"videos/{camera}/{which}_timestamp"]) for which in ("from", "to"))
    return root / about.get_video_file_path(episode, camera), begin, end - begin
