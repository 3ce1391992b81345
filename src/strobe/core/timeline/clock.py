"""Clocks: what a section reads when it opens and when it closes.

The host clock is always read. A device clock reads an event as well, which the accelerator stamps when it gets there;
the stamps are fetched after the run, so that nothing waits in the middle of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

host_ns = time.perf_counter_ns


class EventClock:
    """Timing events of CUDA, MPS or XPU.

    The device's scale is tied to the host's once, at a moment when the device is idle. Two events tell the time between
    them as a float32 of milliseconds: of an hour that is steps of 250 µs. So each mark is read against the one before
    it, which is near, and nanoseconds are added up as integers.
    """

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._module: Any = torch.get_device_module(device)
        self._event: Callable[[], Any]
        if device.type == "mps":
            self._event = lambda: torch.mps.Event(enable_timing=True)
        else:
            self._event = lambda: self._module.Event(enable_timing=True)
        self._capturing: Callable[[], bool] = getattr(self._module, "is_current_stream_capturing", lambda: False)
        self._made = 0
        synchronise(device)
        self._base_ns = host_ns()
        self._base = self._record_event()
        synchronise(device)

    def read(self) -> Any:
        """A mark on the current stream, resolved later; None if the stream cannot be marked (graph capture)."""
        if self._capturing():
            return None
        self._made += 1
        return self._made, self._record_event()

    def resolve(self, marks: Sequence[Any]) -> list[int | None]:
        """Nanoseconds of each mark on the host clock's scale; waits until the device is done."""
        synchronise(self._device)
        times: dict[int, int] = {}
        before, total = self._base, self._base_ns
        for number, event in sorted((mark for mark in marks if mark is not None), key=lambda mark: mark[0]):
            total += round(before.elapsed_time(event) * 1e6)
            before, times[number] = event, total
        return [None if mark is None else times[mark[0]] for mark in marks]

    def _record_event(self) -> Any:
        event = self._event()
        stream = getattr(self._module, "current_stream", None)
        if stream is None:
            event.record()
        else:
            event.record(stream(self._device))
        return event


def device_clock(device: torch.device | str | None) -> EventClock | None:
    """The device clock for ``device``: None for the CPU, whose work is done when the host says so."""
    if device is None or str(device) == "cpu":
        return None
    import torch

    device = torch.device(device)
    return None if device.type == "cpu" else EventClock(device)


def synchronise(device: torch.device | str | None) -> None:
    """Wait until ``device`` has done all it was given; nothing to wait for on the CPU."""
    if device is None or str(device) == "cpu":
        return
    import torch

    device = torch.device(device)
    if device.type == "cpu":
        return
    module: Any = torch.get_device_module(device)
    # MPS has one device. Of others the current one would be waited for, which need not be this one.
    module.synchronize() if device.type == "mps" else module.synchronize(device)


# A thread's own clocks: the time that it ran on a CPU, and the time that it was ready to and had to wait for one.
#
# Reading them keeps the interpreter: a thread that gives it away to read a file may wait milliseconds to get it back
# where another Python thread is busy, and would be slowed by being watched.

cpu_ns = time.thread_time_ns


class ThreadUse(NamedTuple):
    """One stretch of a thread's life, in nanoseconds; ``waited`` is None if the system does not tell it."""

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
    """Nanoseconds that the calling thread has been ready to run without a CPU; None if the system does not tell."""
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
