"""Sections recorded in worker processes (a DataLoader's, forked or spawned), brought home through a spool folder.

A worker writes its sections to a file of its own every half second and when it ends. ``perf_counter_ns`` counts from
the same origin in every process of a machine (Linux, macOS), so the times need no adjusting. A worker does one thing at
a time, so its sections also take the CPU time of its process: what is left of the time is waiting.
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
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.core.timeline import sections
from strobe.core.untrusted import parse_json

FLUSH_S = 0.5
_ENVIRONMENT = "STROBE_SPOOL"  # tells a spawned worker, which inherits no memory, where to write
_CLOSED = "closed"  # a file of this name in the folder tells workers that nobody records any more

Foreign = tuple[str, str, int, int, int]  # thread, name, start_ns, end_ns, cpu_ns


@dataclass
class Gathered:
    """Sections and facts gathered from workers, and the workers of which the end is missing."""

    sections: list[Foreign] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)  # worker of which the end is missing → why
    facts: list[dict[str, Any]] = field(default_factory=list)  # what `tell` was given


_file: Path | None = None  # of this process, if it is a worker


def tell(**facts: object) -> None:
    """Hand ``facts`` (JSON data) from a worker to the process that records, at once. Without effect elsewhere."""
    if _file is not None:
        with contextlib.suppress(OSError), _file.open("a") as out:
            out.write(json.dumps({"worker": os.getpid(), **facts}) + "\n")


def opener(records: list[tuple[object, ...]]) -> Callable[[str], Any]:
    """Return an opener of sections whose fifth field is the process's CPU time (nanoseconds, over all threads)."""
    append, now, ident, cpu = records.append, time.perf_counter_ns, threading.get_ident, time.process_time_ns

    class WorkerSection:
        __slots__ = ("cpu", "name", "start")

        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            self.cpu = cpu()
            self.start = now()

        def __exit__(self, kind: object, error: object, traceback: object) -> None:
            append((self.name, self.start, now(), ident(), cpu() - self.cpu))

    return WorkerSection


_INHERITED: list[list[tuple[Any, ...]]] = []  # what the parent of a forked worker had recorded
_spools: list[Spool] = []  # those that are open, the one that spawned workers write to last
_outer_folder = os.environ.get(_ENVIRONMENT)  # of a process that is itself a worker


def _name_folder() -> None:
    folder = str(_spools[-1].folder) if _spools else _outer_folder
    if folder is None:
        os.environ.pop(_ENVIRONMENT, None)
    else:
        os.environ[_ENVIRONMENT] = folder


class Spool:
    """A folder where the worker processes started from now on leave what they record."""

    def __init__(self, records: list[tuple[object, ...]]) -> None:
        self.records = records
        self.folder = Path(tempfile.mkdtemp(prefix="strobe-spool-"))
        self._open = True
        _spools.append(self)
        _name_folder()
        # Not os.register_at_fork: after that multiprocessing drops the exit functions that a fork inherits.
        multiprocessing.util.register_after_fork(self, Spool._adopt)

    def _adopt(self) -> None:
        # In a forked worker: it records for itself, without the parent's device clock, which a fork cannot use.
        if self._open:
            # Kept alive: among them are the parent's device events, and destroying those in a fork may abort it.
            _INHERITED.append(list(self.records))
            self.records.clear()
            sections.replace_openers(opener(self.records))
            _write_out(self.records, self.folder / f"{os.getpid()}.jsonl")

    def close(self) -> None:
        """Tell the workers to stop recording; they go on working."""
        (self.folder / _CLOSED).touch()

    def gather(self) -> Gathered:
        """Return what the workers recorded, and remove the folder."""
        self._open = False
        _spools.remove(self)
        _name_folder()
        gathered = Gathered()
        for file in sorted(self.folder.glob("*.jsonl")):
            worker, ended = f"worker {file.stem}", False
            for line in file.read_text().splitlines():
                with contextlib.suppress(ValueError):  # a line cut short by a kill
                    row = parse_json(line)
                    if row == "end":
                        ended = True
                    elif isinstance(row, dict):
                        gathered.facts.append(row)
                    else:
                        name, start, end, cpu, is_main, ident = row
                        thread = worker if is_main else f"{worker}, thread {ident}"
                        gathered.sections.append((thread, name, start, end, cpu))
            if not ended:
                gathered.lost[worker] = f"had not ended when recording stopped; up to its last {FLUSH_S} s are missing"
        shutil.rmtree(self.folder, ignore_errors=True)
        return gathered


def spawned_worker_record() -> list[tuple[Any, ...]] | None:
    """Return the list to record on, which is written out, in a worker spawned while its parent records. Else None."""
    folder = os.environ.get(_ENVIRONMENT)
    # A worker's dataset is unpickled, and so this module imported, before multiprocessing names its parent.
    inside = multiprocessing.parent_process() is not None or hasattr(multiprocessing.current_process(), "_inheriting")
    if folder is None or not inside or not Path(folder).is_dir():
        return None
    records: list[tuple[Any, ...]] = []
    _write_out(records, Path(folder) / f"{os.getpid()}.jsonl")
    return records


def _write_out(records: list[tuple[object, ...]], file: Path) -> None:
    global _file
    _file = file
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
                for name, start, end, ident, cpu in done:
                    out.write(json.dumps([name, start, end, cpu, ident == main, ident]) + "\n")

    def flush_last() -> None:
        flush()
        if written_any:
            with contextlib.suppress(OSError), file.open("a") as out:
                out.write('"end"\n')

    def keep_flushing() -> None:
        while not stop.wait(FLUSH_S):
            if (file.parent / _CLOSED).exists():
                sections.replace_openers(None)
            flush()

    stop = threading.Event()
    threading.Thread(target=keep_flushing, name="strobe spool", daemon=True).start()
    multiprocessing.util.Finalize(None, flush_last, exitpriority=100)
