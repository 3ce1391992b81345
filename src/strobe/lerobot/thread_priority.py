"""Read the priority of a thread, and restore it after a video was encoded.

If it may (as root, or in a container with SYS_NICE), the encoder SVT-AV1 makes the thread that opens it real-time, with
the highest priority there is (SCHED_FIFO, 99), and leaves it so. From then on whatever that thread does or starts
starves all else on the machine: a loop that waits for an answer keeps the answering thread off its core.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_NAMES = {
    getattr(os, name): name
    for name in ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE")
    if hasattr(os, name)
}
REAL_TIME = ("SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE")


def scheduling() -> tuple[str, int] | None:
    """Return the calling thread's scheduling policy and real-time priority; None on systems that do not report them."""
    if not hasattr(os, "sched_getscheduler"):
        return None
    number = os.sched_getscheduler(0) & ~getattr(os, "SCHED_RESET_ON_FORK", 0)
    return _NAMES.get(number, f"SCHED_{number}"), os.sched_getparam(0).sched_priority


@contextlib.contextmanager
def kept_priority() -> Iterator[None]:
    """Restore the calling thread's scheduling policy and priority at the end, on systems that have them."""
    if not hasattr(os, "sched_getscheduler"):
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        if os.sched_getscheduler(0) != policy:
            os.sched_setscheduler(0, policy, parameters)
