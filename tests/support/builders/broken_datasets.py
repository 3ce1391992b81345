"""Data sets of LeRobot's own writer, and hands that break a copy of one in the ways that users report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

CAMERAS = ("observation.images.front", "observation.images.wrist")
EPISODES, FRAMES, FPS = 4, 12, 10


def write_dataset(
    root: Path, *, episodes: int = EPISODES, frames: int = FRAMES, side: int = 64, joints: Sequence[str] = ("x", "y")
) -> Path:
    """A data set of two cameras and ``joints`` at ``root``, as lerobot-record writes it. Returns ``root``."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from strobe.lerobot.quiet import muted_stderr, priority_restored, quiet

    features: dict[str, Any] = {
        name: {"dtype": "video", "shape": (side, side, 3), "names": ["height", "width", "channels"]} for name in CAMERAS
    }
    for name in ("observation.state", "action"):
        features[name] = {"dtype": "float32", "shape": (len(joints),), "names": list(joints)}
    random = np.random.default_rng(0)
    with quiet(), muted_stderr(), priority_restored():
        made = LeRobotDataset.create(f"local/{root.name}", FPS, features, root=root, use_videos=True)
        for _ in range(episodes):
            for frame in range(frames):
                shown = np.full((side, side, 3), 20 * (frame % FRAMES), np.uint8)
                vectors = random.normal(size=(2, len(joints))).astype(np.float32)
                numbers = dict(zip(("observation.state", "action"), vectors, strict=True))
                made.add_frame({**dict.fromkeys(CAMERAS, shown), **numbers, "task": "move"})
            made.save_episode()
        made.finalize()
    return root


def copy_dataset(root: Path, to: Path) -> Path:
    """A copy at ``to``, to be broken."""
    return Path(shutil.copytree(root, to))


def table(root: Path, folder: str, change: Callable[[dict[str, list[Any]]], object]) -> None:
    """Rewrite the one parquet file below ``root/folder``; ``change`` is given its columns as lists."""
    (file,) = (root / folder).rglob("*.parquet")
    before = parquet.read_table(file)
    columns = before.to_pydict()
    change(columns)
    kept = [field for field in before.schema if field.name in columns]
    parquet.write_table(pa.table(columns, schema=pa.schema(kept, metadata=before.schema.metadata)), file)


def info(root: Path, **changes: Any) -> None:
    """Rewrite keys of meta/info.json; None takes one out."""
    file = root / "meta" / "info.json"
    found = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def late(root: Path, episode: int, frames: float, camera: str = CAMERAS[0]) -> None:
    """The episode begins ``frames`` later in the camera's video than it does (lerobot #3177)."""

    def change(columns: dict[str, list[Any]]) -> None:
        columns[f"videos/{camera}/from_timestamp"][episode] += frames / FPS

    table(root, "meta/episodes", change)


def lose_frames(root: Path, episode: int, frames: int, camera: str = CAMERAS[0]) -> None:
    """The encoder lost ``frames`` of an episode, so that the later ones begin sooner in the video (lerobot #4462)."""

    def change(columns: dict[str, list[Any]]) -> None:
        for end in ("from", "to"):
            times = columns[f"videos/{camera}/{end}_timestamp"]
            for later in range(episode + (end == "from"), len(times)):
                times[later] -= frames / FPS

    table(root, "meta/episodes", change)


def shorten_video(root: Path, frames: int, camera: str = CAMERAS[0]) -> None:
    """The camera's video ends after ``frames`` frames."""
    (file,) = (root / "videos" / camera).rglob("*.mp4")
    rewritten(file, frames=frames)


def rewritten(file: Path, *, frames: int | None = None, rate: int = FPS, size: int | None = None) -> None:
    """Encode a video again, of as many frames, at another rate, or with sides of ``size`` pixels."""
    pictures: list[Any] = []
    with av.open(str(file)) as given:
        pictures += [frame.to_ndarray(format="rgb24") for frame in given.decode(video=0)][:frames]
    with av.open(str(file), "w") as out:
        stream: Any = out.add_stream("mpeg4", rate=rate)
        stream.height, stream.width = (size, size) if size else pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for picture in pictures:
            shown = picture if size is None else np.zeros((size, size, 3), np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")))
        out.mux(stream.encode())


def number(root: Path, name: str, row: int, value: float, dimension: int = 0) -> None:
    """Put ``value`` into a row of a vector."""

    def change(columns: dict[str, list[Any]]) -> None:
        columns[name][row] = [value if at == dimension else old for at, old in enumerate(columns[name][row])]

    table(root, "data", change)


def empty_episode(root: Path, episode: int) -> None:
    """The episode has no rows, as where recording broke off."""

    def change(columns: dict[str, list[Any]]) -> None:
        kept = [at for at, one in enumerate(columns["episode_index"]) if one != episode]
        for name, values in columns.items():
            columns[name] = [values[at] for at in kept]

    table(root, "data", change)
