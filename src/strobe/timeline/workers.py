"""Sections recorded in worker processes (a DataLoader's, forked or spawned), brought home through a spool folder.

A worker writes its sections to a file of its own every half second and when it ends. ``perf_counter_ns`` counts from
the same origin in every process of a machine (Linux, macOS), so the times need no adjusting.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import multiprocessing.util
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLUSH_S = 0.5
_ENVIRONMENT = "STROBE_SPOOL"  # tells a spawned worker, which inherits no memory, where to write

_spool: Spool | None = None  # the spool of the timeline in force, for a fork to find

Foreign = tuple[str, str, int, int]  # thread, name, start_ns, end_ns


class Spool:
    """A folder where the worker processes started from now on leave what they record."""

    def __init__(self, records: list[tuple[Any, ...]]) -> None:
        global _spool
        self.records = records
        self.owner = os.getpid()
        self.folder = Path(tempfile.mkdtemp(prefix="strobe-spool-"))
        self._outer = _spool
        self._outer_folder = os.environ.get(_ENVIRONMENT)
        _spool = self
        os.environ[_ENVIRONMENT] = str(self.folder)

    def gather(self) -> tuple[list[Foreign], dict[str, str]]:
        """What the workers recorded, and the workers of which the end is missing → why. Removes the folder."""
        global _spool
        _spool = self._outer
        if self._outer_folder is None:
            os.environ.pop(_ENVIRONMENT, None)
        else:
            os.environ[_ENVIRONMENT] = self._outer_folder
        found: list[Foreign] = []
        lost: dict[str, str] = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            worker, ended = f"worker {file.stem}", False
            for line in file.read_text().splitlines():
                with contextlib.suppress(ValueError):  # a line cut short by a kill
                    row = json.loads(line)
                    if row == "end":
                        ended = True
                    else:
                        found.append(
                            (worker if row[3] else f"{worker}, thread {row[4]}", row[0], row[1], row[2])
                        )
            if not ended:
                lost[worker] = f"had not ended when recording stopped; up to its last {FLUSH_S} s are missing"
        shutil.rmtree(self.folder, ignore_errors=True)
        return found, lost


def adopt(pid: int) -> None:
    """In a forked child: empty the inherited list of records and write what comes to the spool."""
    if _spool is not None and pid != _spool.owner:
        _spool.records.clear()
        _write_out(_spool.records, _spool.folder / f"{pid}.jsonl")


def adopt_spawned(
    make_opener: Callable[[list[tuple[Any, ...]]], Callable[[str], Any]],
) -> Callable[[str], Any] | None:
    """In a spawned worker of a process that is recording: an opener that writes to the spool, else None."""
    folder = os.environ.get(_ENVIRONMENT)
    if folder is None or multiprocessing.parent_process() is None or not Path(folder).is_dir():
        return None
    records: list[tuple[Any, ...]] = []
    _write_out(records, Path(folder) / f"{os.getpid()}.jsonl")
    return make_opener(records)


def _write_out(records: list[tuple[Any, ...]], file: Path) -> None:
    lock = threading.Lock()
    main = threading.main_thread().ident
    written_any = False

    def flush() -> None:
        nonlocal written_any
        with lock, contextlib.suppress(OSError):  # the folder is gone once the timeline has stopped
            count = len(records)
            if count == 0:
                return
            done, records[:count] = records[:count], []
            written_any = True
            with file.open("a") as out:
                for name, start, end, ident, *_ in done:
                    out.write(json.dumps([name, start, end, ident == main, ident]) + "\n")

    def flush_last() -> None:
        flush()
        if written_any:
            with contextlib.suppress(OSError), file.open("a") as out:
                out.write('"end"\n')

    def keep_flushing() -> None:
        while not stop.wait(FLUSH_S):
            flush()

    stop = threading.Event()
    threading.Thread(target=keep_flushing, name="strobe spool", daemon=True).start()
    multiprocessing.util.Finalize(None, flush_last, exitpriority=100)
