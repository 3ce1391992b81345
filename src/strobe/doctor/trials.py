"""Trials for a process of its own: batches through shared memory, video decoders, simulators.

It imports little: a loader's worker that is not forked imports it, and what a worker imports counts as loading.
"""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from strobe.core.errors import UserError
from strobe.lerobot.envs import environments
from strobe.lerobot.quiet import muted_stderr

WORKERS, BATCHES = 2, 4
BATCH_BYTES = 48 << 20  # about the size of ten frames of 480×640 from two cameras in float32
PATIENCE_S = 20  # time for a batch, after which the workers hang
FRAMES, SIDE, FPS = 30, 128, 30
# Environments whose own default is no task that their simulator still has.
FIELDS: dict[str, dict[str, str]] = {"metaworld": {"task": "push-v3"}}


class _Frames(Dataset[Tensor]):
    """Batches of `BATCH_BYTES`, filled with their number."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((BATCH_BYTES // 4,), float(index))


def batches() -> float:
    """Deliver batches from workers as a training does; megabytes per second.

    Raises RuntimeError where shared memory runs out; a worker that the system kills for it does the same.
    """
    began = time.perf_counter()
    loader = DataLoader(_Frames(), batch_size=None, num_workers=WORKERS, prefetch_factor=2, timeout=PATIENCE_S)
    # Held together, as batches in a queue are.
    held = list(loader)
    seen = sorted(float(batch[0]) for batch in held)
    if seen != [float(index) for index in range(BATCHES)]:
        raise RuntimeError(f"batches came out wrong: {seen}")
    return BATCHES * BATCH_BYTES / 1e6 / (time.perf_counter() - began)


def time_decoding(backend: str) -> float:
    """Decode a small clip as LeRobot does; milliseconds per frame. Raises whatever the decoder does."""
    from lerobot.datasets.video_utils import decode_video_frames

    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.mp4"
        _encode(clip)
        wanted = [index / FPS for index in range(0, FRAMES, 5)]
        decode_video_frames(clip, wanted[:1], 0.5 / FPS, backend=backend)
        began = time.perf_counter()
        frames = decode_video_frames(clip, wanted, 0.5 / FPS, backend=backend)
        took = time.perf_counter() - began
    means = [float(frame.mean()) for frame in frames]
    if len(means) != len(wanted) or any(later <= earlier for earlier, later in pairwise(means)):
        raise RuntimeError("the frames came out in another order or with other content than they went in")
    return 1e3 * took / len(wanted)


def time_rendering(kind: str) -> float:
    """Start the environment ``kind`` of LeRobot and render it; milliseconds per reset. Raises UserError."""
    from lerobot.envs.configs import EnvConfig

    try:
        config = EnvConfig.get_choice_class(kind)(**FIELDS.get(kind, {}))
    except KeyError:
        raise UserError(f"this LeRobot has no environment '{kind}'") from None
    with environments.errors_in_a_line(kind):
        made = environments.make(config)
        try:
            vector = next(iter(made.values()))
            vector.reset(seed=0)
            began = time.perf_counter()
            vector.reset(seed=1)
            return 1e3 * (time.perf_counter() - began)
        finally:
            for vector in made.values():
                vector.close()


def _encode(path: Path) -> None:
    import av
    import numpy as np

    with muted_stderr(), av.open(str(path), "w") as container:
        stream = container.add_stream("libx264" if "libx264" in av.codecs_available else "mpeg4", rate=FPS)
        stream.width = stream.height = SIDE  # type: ignore[union-attr]
        stream.pix_fmt = "yuv420p"  # type: ignore[union-attr]
        for index in range(FRAMES):
            image = np.full((SIDE, SIDE, 3), 8 * index, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))  # type: ignore[union-attr]
        container.mux(stream.encode())  # type: ignore[union-attr]
