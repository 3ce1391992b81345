"""Loaders: shared memory between workers, open files, and the decoders that LeRobot reads videos with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from strobe.datasets.train_loader import VIDEO_BACKENDS
from strobe.errors import UserError
from strobe.measure.memory import SHARED, shared_free
from strobe.processes import isolate
from strobe.results.doctor import SelfCheck
from strobe.studies.doctor import supplies

FEW_SHARED = 1 << 30  # bytes; four workers with two batches each of two cameras take more at once
FEW_FILES = 4096  # open files; workers pass tensors as files, one for each
LARGER = "docker run --shm-size=8g (or --ipc=host); on Kubernetes an emptyDir of medium Memory at /dev/shm"


def examine(run: isolate.Runner = isolate.run, shared: Path = SHARED) -> Iterator[SelfCheck]:
    """Look at what a data loader needs, and try it with two workers and with each decoder."""
    yield from _shared_memory(run, shared)
    yield from _open_files()
    for backend in VIDEO_BACKENDS:
        yield _decoder(backend, run)


def _shared_memory(run: isolate.Runner, shared: Path) -> Iterator[SelfCheck]:
    free = shared_free(shared)
    room = f"{free / 2**20:,.0f} MiB free in {shared}; " if free is not None else ""
    name = "shared memory of loader workers"
    asked = f"{supplies.BATCHES} batches of {supplies.BATCH_BYTES / 2**20:.0f} MiB from {supplies.WORKERS} workers"
    try:
        rate = run(supplies.batches)
    except (isolate.IsolatedCallError, UserError) as error:
        yield SelfCheck(
            area="loaders",
            name=name,
            outcome="fails",
            seen=f"{room}{asked}: {error}",
            means="Training with workers stops with a bus error, or hangs.",
            do=LARGER if free is not None else "num_workers=0 loads in the training's own process",
        )
        return
    yield SelfCheck.judged(
        "loaders",
        name,
        free is None or free >= FEW_SHARED,
        f"{room}{asked} at {rate:,.0f} MB/s",
        "Larger batches or more workers will not fit.",
        LARGER,
        evidence={"free_bytes": None if free is None else float(free), "mb_per_s": rate},
    )


def _open_files() -> Iterator[SelfCheck]:
    if sys.platform == "win32":
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield SelfCheck.judged(
        "loaders",
        "open files",
        not 0 <= limit < FEW_FILES,
        f"up to {limit:,}" if 0 <= limit < 1 << 40 else "no limit",
        "Workers pass tensors as open files: many workers end in 'too many open files'.",
        "ulimit -n 65536",
    )


def _decoder(backend: str, run: isolate.Runner) -> SelfCheck:
    name = f"video decoder {backend}"
    try:
        ms = run(supplies.decoded, backend)
    except (isolate.IsolatedCallError, UserError) as error:
        return SelfCheck(
            area="loaders",
            name=name,
            outcome="missing",
            seen=str(error),
            means="LeRobot takes the other decoder where it is asked for this one, or stops.",
            do={
                "torchcodec": "pip install torchcodec (it needs FFmpeg's libraries: apt-get install ffmpeg), or "
                "--dataset.video_backend=pyav",
                "pyav": "pip install av",
            }.get(backend, ""),
        )
    return SelfCheck(
        area="loaders",
        name=name,
        outcome="holds",
        seen=f"{ms:.2f} ms a frame of {supplies.SIDE}×{supplies.SIDE}, in order and with their content",
        evidence={"ms_per_frame": ms},
    )
