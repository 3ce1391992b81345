"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

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


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
