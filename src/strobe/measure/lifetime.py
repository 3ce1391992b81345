"""Processes: how one ended, how to end it with all that it started, and those that end with their parent."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from multiprocessing import forkserver

import psutil

_ENDS_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def end_with(parent: int) -> None:
    """End when ``parent`` does. On Linux the kernel sees to it; elsewhere a thread looks every second."""
    if not parent:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ENDS_WITH_PARENT, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


def how_it_ended(code: int | None) -> str:
    """Return in words how a process with this exit code ended, such as 'signal SIGKILL' or 'exit code 1'."""
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def with_children(pid: int) -> list[psutil.Process]:
    """Return all processes that ``pid`` has started, theirs too, and itself last; none where it is gone."""
    try:
        parent = psutil.Process(pid)
        return [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []


def kill(family: Iterable[psutil.Process]) -> None:
    """Kill those of ``family`` that still run."""
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def start_fork_server(preloaded: Sequence[str]) -> None:
    """Start the server that processes are forked from; it imports the modules ``preloaded`` in the background.

    It ignores Ctrl-C, which is ours to answer, and what it starts complains about nothing that we ended. Nothing where
    the system does not fork.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return
    multiprocessing.set_forkserver_preload(list(preloaded))
    told = os.environ.get("PYTHONWARNINGS")
    quiet = ",".join(filter(None, [told, "ignore:resource_tracker:UserWarning"]))
    first = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if first else None
    os.environ["PYTHONWARNINGS"] = quiet
    try:
        forkserver.ensure_running()
    finally:
        if first:
            signal.signal(signal.SIGINT, handler)
        if told is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = told


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
