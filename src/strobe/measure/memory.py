"""Memory of this process at its highest over a piece of work, and what the machine has left."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_SAMPLED_S = 0.01


@dataclass
class Peak:
    """Filled when the block ends: the highest resident set of the process, in bytes."""

    bytes: int = 0


@contextlib.contextmanager
def peak_process() -> Iterator[Peak]:
    """The process's highest resident set inside the block.

    On Linux the kernel keeps it: writing 5 to ``/proc/self/clear_refs`` starts its high-water mark anew (proc(5)).
    Where that is not to be had, the resident set is sampled every 10 ms, and a shorter peak may be missed.
    """
    peak = Peak()
    try:
        _CLEAR.write_text("5")
    except OSError:
        with _sampled(peak):
            yield peak
        return
    try:
        yield peak
    finally:
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        peak.bytes = int(line.split()[1]) * 1024


def available_bytes() -> int:
    """Memory that can be had without swapping, in bytes."""
    return psutil.virtual_memory().available


@contextlib.contextmanager
def _sampled(peak: Peak) -> Iterator[None]:
    process, stop = psutil.Process(), threading.Event()

    def look() -> None:
        while True:
            peak.bytes = max(peak.bytes, process.memory_info().rss)
            if stop.wait(_SAMPLED_S):
                return

    thread = threading.Thread(target=look, name="strobe memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
