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
from pathlib import Path
from typing import Any

FLUSH_S = 0.5
_ENVIRONMENT = "STROBE_SPOOL"  # tells a spawned worker, which inherits no memory, where to write

Foreign = tuple[str, str, int, int]  # thread, name, start_ns, end_ns


class Spool:
    """A folder where the worker processes started from now on leave what they record."""

    def __init__(self, records: list[tuple[Any, ...]]) -> None:
        self.records = records
        self.folder = Path(tempfile.mkdtemp(prefix="strobe-spool-"))
        self._open = True
        self._outer_folder = os.environ.get(_ENVIRONMENT)
        os.environ[_ENVIRONMENT] = str(self.folder)
        # Not os.register_at_fork: multiprocessing throws away what a fork inherits of exit functions after that.
        multiprocessing.util.register_after_fork(self, Spool._adopt)

    def _adopt(self) -> None:
        # In a forked worker: the inherited recorder goes on, on an emptied list that is written out.
        if self._open:
            self.records.clear()
            _write_out(self.records, self.folder / f"{os.getpid()}.jsonl")

    def gather(self) -> tuple[list[Foreign], dict[str, str]]:
        """What the workers recorded, and the workers of which the end is missing → why. Removes the folder."""
        self._open = False
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
                        found.append((worker if row[3] else f"{worker}, thread {row[4]}", row[0], row[1], row[2]))
            if not ended:
                lost[worker] = f"had not ended when recording stopped; up to its last {FLUSH_S} s are missing"
        shutil.rmtree(self.folder, ignore_errors=True)
        return found, lost


def spawned() -> list[tuple[Any, ...]] | None:
    """In a worker spawned while its parent records: the list to record on, which is written out. Else None."""
    folder = os.environ.get(_ENVIRONMENT)
    # A worker's dataset is unpickled, and so this module imported, before multiprocessing names its parent.
    inside = multiprocessing.parent_process() is not None or hasattr(multiprocessing.current_process(), "_inheriting")
    if folder is None or not inside or not Path(folder).is_dir():
        return None
    records: list[tuple[Any, ...]] = []
    _write_out(records, Path(folder) / f"{os.getpid()}.jsonl")
    return records


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
