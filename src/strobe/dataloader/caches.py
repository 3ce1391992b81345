"""What would a cache buy? The chosen loader on samples that are decoded already, and on a copy of the files in memory.

Both are bounds: no cache of frames delivers more than a loader that neither reads nor decodes, and no place of the
files is faster than memory. What is written for them is removed, whatever happens.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from strobe.core.measure import memory
from strobe.core.results.units import size as in_words
from strobe.core.studies.shared.progress import Reporter, Steps
from strobe.dataloader.bench import Bench
from strobe.dataloader.process import LoaderError, LoaderProcess
from strobe.dataloader.results import LoaderSettings, WhatIf

DECODED = "samples decoded beforehand, in memory"
COPIED = "the data set in /dev/shm"
SHARE = 0.25  # share of what is free that samples or a copy may take: batches and workers need the rest
MOST_BYTES = 2 << 30  # decoded samples in memory: far more than a processor's caches hold
COPIED_AT_ONCE = 16 << 20  # bytes


class NoRoomError(Exception):
    """A bound that this machine cannot measure, with the reason in a line."""


def caches(
    bench: Bench,
    chosen: LoaderSettings,
    root: Path,
    seconds: float,
    live: Reporter,
    shared: Path = memory.SHARED,
) -> Iterator[WhatIf]:
    """Yield a row for each bound, measured in alternation with the chosen loader.

    Args:
        root: the data set's folder.
        seconds: for which each is measured, and for which samples are decoded.
        shared: a folder that lies in memory.
    """
    with tempfile.TemporaryDirectory(prefix="strobe-samples-") as folder:
        try:
            settings, note = _decode_samples_to_file(bench, chosen, Path(folder), seconds, live)
            live.stage(f"what if: {DECODED}")
            row = bench.measure_alternative(DECODED, settings, chosen, seconds, note)
        except (LoaderError, NoRoomError, OSError) as error:
            row = _refused_what_if(DECODED, error)
    yield row
    try:
        size = _size_to_copy(root, shared)
        with tempfile.TemporaryDirectory(prefix="strobe-data-", dir=shared) as folder:
            live.stage(f"copying the data set into {shared}, {in_words(size)}")
            _copy(root, Path(folder), size, live)
            live.stage(f"what if: {COPIED}")
            note = f"{in_words(size)} of files; the baseline reads them from the page cache where they fit"
            row = bench.measure_alternative(COPIED, chosen.model_copy(update={"root": folder}), chosen, seconds, note)
    except (NoRoomError, OSError) as error:
        row = _refused_what_if(COPIED, error)
    yield row


def _refused_what_if(name: str, error: Exception) -> WhatIf:
    return WhatIf(name=name, status="refused", reason=f"not judged: {error}")


def _decode_samples_to_file(
    bench: Bench, chosen: LoaderSettings, folder: Path, seconds: float, live: Reporter
) -> tuple[LoaderSettings, str]:
    """Decode samples into a file in ``folder``. Returns settings that read it, and a note on how many samples it has.

    A process that decodes must not fork workers, so another one reads the file, which stays in the page cache.

    Raises:
        LoaderError: they cannot be decoded.
        NoRoomError: the batch of a loader does not fit into the memory or the folder.
    """
    room = min(MOST_BYTES, int(SHARE * min(memory.available_bytes(), shutil.disk_usage(folder).free)))
    least = chosen.batch_size * bench.facts.sample_bytes
    if least > room:
        raise NoRoomError(f"a batch of {in_words(least)} is more than the {in_words(room)} of memory that it may take")
    live.stage(f"decoding samples into memory, for up to {seconds:.3g} s")
    file = folder / "samples.pt"
    with LoaderProcess(bench.config, chosen.model_copy(update={"num_workers": 0, "transforms": False})) as process:
        count, whole = process.keep(file, room, seconds)
    note = f"a bound for each cache: nothing is read or decoded; {count:,} of {whole:,} samples, again and again"
    return chosen.model_copy(update={"samples": str(file)}), note


def _size_to_copy(root: Path, shared: Path) -> int:
    """Return the bytes of the files below ``root``. Raises NoRoomError where no copy can be in ``shared``."""
    free = memory.shared_free(shared)
    if free is None:
        raise NoRoomError(f"this machine has no {shared}")
    if not root.is_dir():
        raise NoRoomError("the data set's folder is not on this machine")
    if root.resolve().is_relative_to(shared.resolve()):
        raise NoRoomError(f"the data set lies in {shared} already")
    size, room = sum(file.stat().st_size for file in _files(root)), int(SHARE * min(free, memory.available_bytes()))
    if size > room:
        raise NoRoomError(
            f"its {in_words(size)} are more than {in_words(room)}, a quarter of what is free in {shared} and in memory"
        )
    return size


def _copy(root: Path, folder: Path, size: int, live: Reporter) -> None:
    """Copy the files below ``root``, ``size`` bytes, into ``folder``. Links are followed: a hub's cache has them."""
    steps, done = Steps(live, "MiB"), 0
    for file in _files(root):
        target = folder / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as read, target.open("wb") as written:
            while block := read.read(COPIED_AT_ONCE):
                written.write(block)
                done += len(block)
                steps(done >> 20, max(size, done) >> 20)


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]
