"""Leave a process in which a thread of somebody else's still runs, without the crash that Python's own end may be.

Python ends its daemon threads where they next want the interpreter. A thread inside C++ code (torch, while it compiles)
cannot be ended there: the process aborts ("terminate called without an active exception") or dies of a segmentation
fault, long after everything was printed and written. Its exit code then says that a run failed which did not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

WAIT_S = 2.0  # time for threads that are about to end; LeRobot has waited 3 s for its own by then


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
