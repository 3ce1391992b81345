"""Shared memory, through which a loader's workers hand over batches: is there enough of it?"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from strobe.errors import UserError

SHARED = Path("/dev/shm")  # where torch hands batches over on Linux


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
