"""The end of processes: how one ended, how to end it with all that it started, and those that end with their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from typing_extensions import Self

_ENDS_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Ending:
    """How a process ended; as text 'signal SIGKILL' or 'exit code 1'.

    Args:
        code: its exit code; negative, the number of the signal that killed it; None if that is not known.
    """

    code: int | None

    @property
    def signal(self) -> str:
        """The name of the signal that killed it; '' if it ended by itself."""
        return signal.Signals(-self.code).name if self.code is not None and self.code < 0 else ""

    @property
    def killed(self) -> bool:
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


def end_with(parent: int) -> None:
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


def with_children(pid: int | None) -> list[psutil.Process]:
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
