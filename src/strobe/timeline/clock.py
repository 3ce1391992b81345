"""Clocks: what a section reads when it opens and when it closes.

The host clock is always read. A device clock reads an event as well, which the accelerator stamps when it gets there;
the stamps are fetched after the run, so that nothing waits in the middle of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

host_ns = time.perf_counter_ns


class DeviceClock(Protocol):
    """Stamps points on an accelerator's stream."""

    def read(self) -> Any:
        """A mark on the current stream, resolved later; None where the stream cannot be marked (graph capture)."""
        ...

    def resolve(self, marks: Sequence[Any]) -> list[int | None]:
        """Nanoseconds of each mark on the host clock's scale; waits until the device is done."""
        ...


class EventClock:
    """Timing events of CUDA, MPS or XPU.

    The device's scale is tied to the host's once, at a moment when the device is idle.
    """

    def __init__(self, device: torch.device) -> None:
        self._module: Any = torch.get_device_module(device)
        self._event: Callable[[], Any]
        if device.type == "mps":
            self._event = lambda: torch.mps.Event(enable_timing=True)
        else:
            self._event = lambda: self._module.Event(enable_timing=True)
        self._capturing: Callable[[], bool] = getattr(self._module, "is_current_stream_capturing", lambda: False)
        self._module.synchronize()
        self._base = self._event()
        self._base_ns = host_ns()
        self._base.record()
        self._module.synchronize()

    def read(self) -> Any:
        if self._capturing():
            return None
        mark = self._event()
        mark.record()
        return mark

    def resolve(self, marks: Sequence[Any]) -> list[int | None]:
        self._module.synchronize()
        return [None if mark is None else self._base_ns + round(self._base.elapsed_time(mark) * 1e6) for mark in marks]


def device_clock(device: torch.device | str | None) -> DeviceClock | None:
    """The device clock for ``device``: None for the CPU, whose work is done when the host says so."""
    if device is None:
        return None
    device = torch.device(device)
    return None if device.type == "cpu" else EventClock(device)


def synchronise(device: torch.device | str | None) -> None:
    """Wait until ``device`` has done all it was given; nothing to wait for on the CPU."""
    if device is not None and torch.device(device).type != "cpu":
        torch.get_device_module(torch.device(device)).synchronize()
