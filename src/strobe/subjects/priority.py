"""The process's own priority, kept where a video is encoded.

Where it may (as root, so in most containers), the encoder SVT-AV1 makes the thread that opens it real-time, with the
highest priority there is (SCHED_FIFO, 99), and leaves it so. Whatever that thread does or starts from then on starves
all else on the machine: a loop that waits for an answer keeps the one who answers from its core.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def kept_priority() -> Iterator[None]:
    """Give the calling thread its scheduling policy and priority back at the end, on systems that know such a thing."""
    if not hasattr(os, "sched_getscheduler"):
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        if os.sched_getscheduler(0) != policy:
            os.sched_setscheduler(0, policy, parameters)
