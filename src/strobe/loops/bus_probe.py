"""A probe on a motor bus: how often it asked, what it found left over, and how long the reading thread had a CPU.

A driver that waits for answers in a loop is on a CPU all the time, unless other threads or processes take that away:
so the CPU time of a read tells a slow bus from a busy machine.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from strobe.loops.event_log import Event
from strobe.timeline.clock import host_ns, waited_ns

# COMM_RX_TIMEOUT and COMM_RX_CORRUPT of Feetech's SDK (1.0.0) and of Dynamixel's (3.8.4).
TIMEOUT, CORRUPT = (-6, -3001), (-7, -3002)
UNKNOWN = -1

_Call = Callable[..., Any]


class BusProbe:
    """Reports each `sync_read` of a bus to ``append``: its section, and the event bus, start, end, lost, damaged,
    waiting, cpu, waited, arm.

    lost, damaged: tries that ended without an answer, and with one that could not be read. waiting: bytes that lay in
    the port's input before the question, -1 where the port does not tell. cpu, waited: nanoseconds that the thread ran,
    and that it waited for a CPU, -1 unknown. arm: its name, where the robot has several; '' else.
    """

    def __init__(self, bus: Any, append: Callable[[Any], None], section: str, arm: str = "") -> None:
        self._section, self._arm = section, arm
        self._port = getattr(getattr(bus, "port_handler", None), "ser", None)
        self._append = append
        self._lost = self._damaged = 0

    def reading(self, inner: _Call) -> _Call:
        """Around the bus's ``sync_read``."""
        append, cpu, ident, section = self._append, time.thread_time_ns, threading.get_ident, self._section

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            waiting = self._waiting()
            self._lost = self._damaged = 0
            begun = waited_ns()
            start, ran = host_ns(), cpu()
            try:
                return inner(*args, **kwargs)
            finally:
                ran, end = cpu() - ran, host_ns()
                ended = waited_ns()
                waited = UNKNOWN if begun is None or ended is None else ended - begun
                tries = self._lost, self._damaged
                append((_asked, section, start, end, ident(), *tries, waiting, ran, waited, self._arm))

        return call

    def trying(self, inner: _Call) -> _Call:
        """Around the SDK's ``txRxPacket``, which the bus calls for each try."""

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            found = inner(*args, **kwargs)
            self._lost += found in TIMEOUT
            self._damaged += found in CORRUPT
            return found

        return call

    def _waiting(self) -> int:
        try:
            return self._port.in_waiting  # type: ignore[union-attr]
        except Exception:  # another kind of port, or one that is gone: the read itself will say so
            return UNKNOWN


def _asked(section: str, start: int, end: int, thread: int, *told: Any) -> list[Event]:
    return [("s", section, start, end, thread), ("bus", start, end, *told)]


def spent() -> tuple[int, int, int]:
    """Nanoseconds so far: this thread waited for a CPU (-1 unknown); CPU time of this process, and of the machine."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    inside = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user time already
    waited = waited_ns()
    everyone = round((sum(times) - idle - inside) * 1e9)
    return UNKNOWN if waited is None else waited, time.process_time_ns(), everyone
