"""Faults of a dataset, and shared memory too small for a loader, in a sentence that names the place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
import pyarrow.parquet as parquet

from strobe.errors import UserError, in_a_line

SHARED = Path("/dev/shm")  # where torch hands batches over on Linux


def broken_table(root: Path) -> str | None:
    """The first parquet file below ``root/data`` or ``root/meta`` that cannot be read, with its episodes; or None."""
    for file in sorted([*root.glob("meta/**/*.parquet"), *root.glob("data/**/*.parquet")]):
        try:
            parquet.read_table(file)
        except (OSError, pyarrow.ArrowException) as error:
            reason = in_a_line(error, 200)
            return f"{file.relative_to(root)} cannot be read{_holding(root, file)}: {reason}"
    return None


def broken_video(broken: dict[str, Any], root: Path) -> str:
    """A sentence on a video that a loader could not decode; ``broken`` is what `loader.attach_loader` reports of it."""
    file = Path(str(broken["file"]))
    shown = file.relative_to(root) if file.is_relative_to(root) else file
    left_out = "leave the episode out (--dataset.episodes) or record it again"
    return f"episode {broken['episode']} cannot be read: {shown}: {broken['reason']}; {left_out}"


def shared_free(where: Path = SHARED) -> int | None:
    """Free bytes of shared memory; None where batches go another way."""
    return shutil.disk_usage(where).free if where.is_dir() else None


def batch_bytes(dataset: Any, batch_size: int) -> int:
    """Bytes of one batch of a LeRobotDataset as its workers hand it over, from the shapes of its features."""
    deltas = dataset.reader.delta_indices or {}
    one = 0
    for name, feature in dataset.meta.features.items():
        numbers = 1
        for length in feature["shape"]:
            numbers *= int(length)
        width = 1 if feature["dtype"] == "video" else 4  # videos come as bytes, images and numbers as float32
        one += numbers * width * len(deltas.get(name, (0,)))
    return one * batch_size


def require_shared_memory(dataset: Any, batch_size: int, workers: int, prefetch: int, where: Path = SHARED) -> None:
    """Raises UserError where the batches that workers prefetch do not fit into shared memory: they would be killed."""
    each, free = batch_bytes(dataset, batch_size), shared_free(where)
    needed = workers * prefetch * each
    if free is not None and needed > free:
        raise UserError(
            f"{workers} workers × {prefetch} batches of {each / 2**20:,.0f} MiB need {needed / 2**30:,.1f} GiB of "
            f"shared memory, and {where} has {free / 2**30:,.1f} GiB: lower --num_workers, --prefetch_factor or "
            "--batch_size, or give the container more (docker run --shm-size)"
        )


def _holding(root: Path, file: Path) -> str:
    episodes = list(_episodes_in(root, file))
    if not episodes:
        return ""
    shown = str(episodes[0]) if len(episodes) == 1 else f"{episodes[0]} to {episodes[-1]}"
    return f" (episode{'s' * (len(episodes) > 1)} {shown})"


def _episodes_in(root: Path, file: Path) -> Iterator[int]:
    # data/chunk-000/file-002.parquet holds the episodes whose row in meta/episodes says so.
    chunk, number = file.parent.name.rpartition("-")[2], file.stem.rpartition("-")[2]
    if file.parts[len(root.parts)] != "data" or not (chunk.isdecimal() and number.isdecimal()):
        return
    for table in sorted(root.glob("meta/episodes/**/*.parquet")):
        try:
            rows = pd.read_parquet(table, columns=["episode_index", "data/chunk_index", "data/file_index"])
        except (OSError, ValueError, KeyError, pyarrow.ArrowException):
            return
        inside = (rows["data/chunk_index"] == int(chunk)) & (rows["data/file_index"] == int(number))
        yield from sorted(int(episode) for episode in rows.loc[inside, "episode_index"])
