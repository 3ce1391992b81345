"""Can this process be forked? A thread would be missing in the child, and a device's driver does not outlive a fork."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

TASKS = Path("/proc/self/task")  # one entry a thread, proc(5); Linux only
FORK_SAFE = ("jemalloc_bg_thd",)  # Arrow's allocator gives memory back with it; in a child it does so without


def unfit() -> str:
    """Return in words why a child of this process would not be as good as a fresh process; '' where it would.

    A child is forked to try. OpenBLAS (NumPy's) has threads from its import on and ends them before a fork, so threads
    are counted after it. torch knows in the child whether a device's driver had been started.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = int(bool(_lost()))
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    # Some imports ask how many devices there are, which starts the driver. Where there is none, nothing is lost.
    if status and any(backend.device_count() for backend in _backends()):
        return "an import started a device"
    threads = [(task / "comm").read_text().strip() for task in TASKS.iterdir() if task.name != str(os.getpid())]
    threads = [name for name in threads if name not in FORK_SAFE]
    return f"imports started threads: {', '.join(threads)}" if threads else ""


def _backends() -> list[Any]:
    torch = sys.modules.get("torch")
    return [getattr(torch, name) for name in ("cuda", "xpu") if hasattr(torch, name)]


def _lost() -> list[Any]:
    """The accelerators whose driver, as torch says in a child, its parent had started."""
    return [backend for backend in _backends() if backend._is_in_bad_fork() or backend.is_initialized()]
