"""The end of processes: how one ended, how to end it with all that it started, and those that end with their parent.

`leave` ends this one, in which a thread of somebody else's still runs, without the crash that Python's own end may be.
Python ends its daemon threads where they next want the interpreter. A thread inside C++ code (torch, while it compiles)
cannot be ended there: the process aborts ("terminate called without an active exception") or dies of a segmentation
fault, long after everything was printed and written. Its exit code then says that a run failed which did not.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil
from typing_extensions import Self

WAIT_S = 2.0  # time for threads that are about to end; LeRobot has waited 3 s for its own by then
_ENDS_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Ending:
    """How a process ended; as text 'signal SIGKILL' or 'exit code 1'.

    Args:
        code: its exit code; negative, the number of the signal that killed it; None if that is not known.
    """

    code: int | None

    @property
    def signal(self) -> str | None:
        """The name of the signal that killed it."""
        return signal.Signals(-self.code).name if self.code is not None and self.code < 0 else None

    @property
    def is_killed(self) -> bool:
        """Whether SIGKILL ended it, which the kernel sends for want of memory."""
        return self.signal == "SIGKILL"

    def __str__(self) -> str:
        return f"signal {self.signal}" if self.signal else f"exit code {self.code}"


class Closing:
    """A thing that is closed at the end of its ``with``."""

    def close(self) -> None:
        """End what it holds. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bind_to_parent(parent: int) -> None:
    """End this process when ``parent`` ends, its parent's process id; 0: do nothing.

    On Linux the kernel sees to it; elsewhere a thread looks every second.
    """
    if not parent:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ENDS_WITH_PARENT, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def end_first() -> None:
    """Let the kernel end this process before others where memory runs out; Linux only."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


@contextlib.contextmanager
def ctrl_c_ignored() -> Iterator[None]:
    """Ignore Ctrl-C while open, in the main thread, and let processes that are started inside ignore it for good."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def process_tree(pid: int | None) -> list[psutil.Process]:
    """Return all processes that ``pid`` has started, directly or not, and itself last; [] if it is gone."""
    if pid is None:
        return []
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


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def threads_inside(package: str) -> list[threading.Thread]:
    """Return daemon threads, without the calling one, that are inside a function of ``package``.

    Args:
        package: the beginning of its modules' names: "lerobot" is also for LeRobot's plug-ins.
    """
    frames = sys._current_frames()
    here = threading.get_ident()
    return [
        thread
        for thread in threading.enumerate()
        if thread.daemon and (ident := thread.ident) not in (None, here) and _inside(frames.get(ident), package)
    ]


def leave(code: int, package: str) -> None:
    """End the process with exit code ``code`` where a thread inside ``package`` does not end by itself.

    Call it when everything is written: what Python does at its own end (``atexit``) is left out then. Without such a
    thread, and where the thread ends within `WAIT_S`, it returns.
    """
    until = time.monotonic() + WAIT_S
    for thread in threads_inside(package):
        thread.join(max(0.0, until - time.monotonic()))
    if not threads_inside(package):
        return
    with contextlib.suppress(Exception):
        logging.shutdown()
    end_now(code)


def end_now(code: int) -> NoReturn:
    """End the process with exit code ``code``: what was printed is flushed, and nothing else is cleaned up."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _inside(frame: FrameType | None, package: str) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(package):
            return True
        frame = frame.f_back
    return False
