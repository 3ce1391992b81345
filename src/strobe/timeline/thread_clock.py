"""A thread's own clocks: the time that it ran on a CPU, and the time that it was ready to and had to wait for one.

Reading them keeps the interpreter: a thread that gives it away to read a file may wait milliseconds to get it back
where another Python thread is busy, and would be slowed by being watched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from typing import NamedTuple

cpu_ns = time.thread_time_ns


class ThreadUse(NamedTuple):
    """One stretch of a thread's life, in nanoseconds; ``waited`` is None where the system does not tell it."""

    wall: int
    cpu: int
    waited: int | None


class _Statistics:
    """Linux's scheduler statistics of the thread that makes it: CPU time, time in the run queue, turns."""

    def __init__(self) -> None:
        self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._buffer = ctypes.create_string_buffer(96)
        read = ctypes.PyDLL(None).pread  # PyDLL, unlike os.pread, keeps the interpreter
        read.argtypes, read.restype = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64), ctypes.c_ssize_t
        self._read = read

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._file)

    def waited_ns(self) -> int:
        count = self._read(self._file, self._buffer, len(self._buffer), 0)
        return int(self._buffer.raw[:count].split()[1])


_own = threading.local()


def waited_ns() -> int | None:
    """Nanoseconds that the calling thread has been ready to run without a CPU; None where the system does not tell."""
    try:
        return _own.statistics.waited_ns()
    except AttributeError:
        pass
    except (ValueError, IndexError):
        return None
    if not sys.platform.startswith("linux"):
        return None
    try:
        _own.statistics = _Statistics()
        return _own.statistics.waited_ns()
    except (OSError, AttributeError, ValueError, IndexError):
        return None
