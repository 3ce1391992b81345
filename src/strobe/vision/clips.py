"""Inputs of a video or image backbone: clips of a video file, of a LeRobotDataset's camera, or made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.timeline.layers import Call
from strobe.lerobot.datasets import finder
from strobe.lerobot.policies.dataset_frames import locate_dataset
from strobe.lerobot.policies.synthesis import smooth_noise
from strobe.lerobot.quiet import quiet

FRAME = (480, 640)  # height and width of synthetic clips, as of a camera
TINY_FRAME = (96, 128)


@dataclass
class Clips:
    """Clips of equally many frames; the indices wrap around.

    Args:
        read: index → a clip, ``(frames, 3, height, width)`` uint8.
        decoding: reading decodes a video, which a robot would wait for, so it is measured too.
        pick: index, positions → these frames of a clip alone, if that is less work; else None.
        chosen: positions of the frames taken from each clip; None for all.
        recorded: they are of a dataset or a video, not made up.
    """

    description: str
    read: Callable[[int], Tensor]
    decoding: bool = False
    pick: Callable[[int, Sequence[int]], Tensor] | None = None
    chosen: tuple[int, ...] | None = None
    recorded: bool = False

    def batch(self, index: int, size: int) -> Tensor:
        """Return the ``size`` clips of iteration ``index``, ``(size, frames, 3, height, width)``."""
        return torch.stack([self._clip(index * size + offset) for offset in range(size)])

    def _clip(self, index: int) -> Tensor:
        if self.chosen is None:
            return self.read(index)
        if self.pick is not None:
            return self.pick(index, self.chosen)
        return self.read(index)[list(self.chosen)]


def synthetic(frames: int, image_size: tuple[int, int] = FRAME, *, count: int = 4, seed: int = 0) -> Clips:
    """Return clips of smooth noise. They are windows of one longer clip, to save memory."""
    height, width = image_size
    generator = torch.Generator().manual_seed(seed)
    film = (smooth_noise((frames + count - 1, 3, *image_size), generator) * 255).to(torch.uint8)
    what = "synthetic images" if frames == 1 else f"synthetic clips of {frames} frames"
    description = f"{count} {what}, {height}×{width}"
    return Clips(description, lambda index: film[index % count : index % count + frames])


def from_dataset(
    root: str | Path | None, repo_id: str | None, frames: int, *, episodes: list[int] | None = None, count: int = 4
) -> Clips:
    """Read ``count`` clips of successive frames, spread over the first camera of a LeRobotDataset.

    Args:
        episodes: those to read; all by default.

    Raises:
        UserError: the dataset is missing or broken, or has no camera, or no episode that is long enough.
    """
    from lerobot.datasets.lerobot_dataset import LeRobotDataset, LeRobotDatasetMetadata

    where = locate_dataset(root, repo_id)
    name = repo_id or f"local/{where.name}"
    reading = partial(finder.reading, where, repo_id, episodes)
    with reading(), quiet():
        meta: Any = LeRobotDatasetMetadata(name, root=where)
        cameras = list(meta.camera_keys)
        deltas = {cameras[0]: [step / meta.fps for step in range(frames)]} if cameras else None
        dataset: Any = LeRobotDataset(name, root=where, episodes=episodes, delta_timestamps=deltas, return_uint8=True)
        every = list(meta.episodes["length"])
        lengths = [every[episode] for episode in episodes] if episodes is not None else every
    if not cameras:
        raise UserError(f"the dataset at {where} has no camera, and clips need one")
    starts, begin = [], 0
    for length in lengths:  # a clip does not go over the end of an episode
        starts += range(begin, begin + max(length - frames + 1, 0))
        begin += length
    if not starts:
        raise UserError(f"no episode at {where} has {frames} frames, the longest has {max(lengths, default=0)}")
    chosen = torch.linspace(0, len(starts) - 1, min(count, len(starts))).long().tolist()
    with reading():
        clips = [_bytes(dataset[starts[index]][cameras[0]]) for index in chosen]
    description = f"{len(clips)} clips of {frames} frames of {cameras[0]} in the dataset {repo_id or where}"
    return Clips(description, lambda index: clips[index % len(clips)], recorded=True)


def from_video(path: Path, frames: int) -> Clips:
    """Successive frames of a video file, one clip after the other, decoded when they are read, as LeRobot does.

    Raises:
        UserError: no such file, no video in it, or fewer frames than a clip has.
    """
    from lerobot.datasets.video_utils import decode_video_frames
    from lerobot.utils.import_utils import get_safe_default_video_backend

    times = _timestamps(path)
    if len(times) < frames:
        raise UserError(f"{path} has {len(times)} frames, a clip needs {frames}: use a longer video or fewer frames")
    rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 30.0
    clips = len(times) // frames

    def reader(backend: str) -> Call:
        def pick(index: int, chosen: Sequence[int] = range(frames)) -> Tensor:
            start = index % clips * frames
            moments = [times[start + frame] for frame in chosen]
            return decode_video_frames(path, moments, 0.5 / rate, backend=backend, return_uint8=True)

        return pick

    # torchcodec finds a frame by its time at a constant rate from zero; where that fails, LeRobot's other decoder reads
    # on from the nearest key frame.
    failures: list[str] = []
    with quiet():
        # Chosen once, as a LeRobotDataset does: every such call tries all FFmpeg libraries again.
        preferred = get_safe_default_video_backend()
    for backend in dict.fromkeys((preferred, "pyav")):
        pick = reader(backend)
        try:
            with quiet():
                first = pick(0)
        except Exception as error:  # each decoder has exceptions of its own
            failures.append(_reason(error))
            continue
        height, width = first.shape[-2:]
        description = (
            f"{path.name}: {clips} clips of {frames} successive frames, {height}×{width}, {rate:.4g} frames/s, "
            f"decoded by {backend}"
        )
        return Clips(description, pick, decoding=True, pick=pick, recorded=True)
    raise UserError(f"{path} cannot be decoded: {failures[0]}")


def _timestamps(path: Path) -> list[float]:
    """Return the frames' times in seconds, from the file's index: nothing is decoded."""
    import av

    if not path.is_file():
        raise UserError(f"no video file {path}")
    times: list[float] = []
    try:
        with av.open(str(path)) as container:
            for packet in container.demux(container.streams.video[0]):
                if packet.pts is not None and packet.time_base is not None:
                    times.append(float(packet.pts * packet.time_base))
    except (av.FFmpegError, IndexError) as error:
        raise UserError(f"{path} is not a readable video: {_reason(error)}") from error
    return sorted(times)


def _bytes(frames: Tensor) -> Tensor:
    return frames if frames.dtype == torch.uint8 else (frames * 255).round().to(torch.uint8)


def _reason(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
