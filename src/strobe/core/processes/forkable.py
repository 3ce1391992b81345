"""Things that a fork loses: threads, a device's driver, and pages of files.

A thread of the parent is missing in the child, and a device's driver does not outlive a fork (`unfit`). Pages that only
mirror a file, such as those of torch's libraries, come back one by one when they are touched. Until then they are
missing in the child's resident memory, by a third for torch on a CPU, and a fresh process that has done the same
imports seems to take more. So the child maps what its parent had mapped (`file_pages`, `map_pages`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path
from typing import Any

TASKS = Path("/proc/self/task")  # one entry per thread, proc(5); Linux only
FORK_SAFE = ("jemalloc_bg_thd",)  # Arrow's allocator gives memory back with it; in a child it does so without
_POPULATE_READ = 22  # MADV_POPULATE_READ, since Linux 5.14, madvise(2)
_PRESENT = 63  # the bit of an entry of /proc/self/pagemap, proc(5)
_ENTRY = 8  # bytes

Ranges = list[tuple[int, int]]  # address and length, in bytes


def unfit() -> str | None:
    """Return in words why a child of this process would not be as good as a fresh process.

    A child is forked to try. OpenBLAS (NumPy's) has threads from its import on and ends them before a fork, so threads
    are counted after it. torch knows in the child whether a device's driver had been started.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = int(any(backend._is_in_bad_fork() or backend.is_initialized() for backend in _backends()))
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    # Some imports ask how many devices there are, which starts the driver. Where there is none, nothing is lost.
    if status and any(backend.device_count() for backend in _backends()):
        return "an import started a device"
    threads = [(task / "comm").read_text().strip() for task in TASKS.iterdir() if task.name != str(os.getpid())]
    threads = [name for name in threads if name not in FORK_SAFE]
    return f"imports started threads: {', '.join(threads)}" if threads else None


def _backends() -> list[Any]:
    torch = sys.modules.get("torch")
    return [getattr(torch, name) for name in ("cuda", "xpu") if hasattr(torch, name)]


def file_pages() -> Ranges:
    """Return the ranges of this process's resident pages that mirror files; [] if NumPy is not loaded."""
    numpy = sys.modules.get("numpy")
    if numpy is None:  # then there is no framework either, and little is missing
        return []
    ranges: Ranges = []
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    try:
        for line in Path("/proc/self/maps").read_text().splitlines():
            addresses, _, _, _, inode, *_ = line.split()
            if inode == "0":
                continue
            begin, end = (int(address, 16) for address in addresses.split("-"))
            entries = os.pread(pagemap, (end - begin) // mmap.PAGESIZE * _ENTRY, begin // mmap.PAGESIZE * _ENTRY)
            present = (numpy.frombuffer(entries, numpy.uint64) >> numpy.uint64(_PRESENT)).astype(numpy.int8)
            edges = numpy.flatnonzero(numpy.diff(present, prepend=0, append=0)).tolist()
            for first, beyond in zip(edges[::2], edges[1::2], strict=True):
                ranges.append((begin + first * mmap.PAGESIZE, (beyond - first) * mmap.PAGESIZE))
    finally:
        os.close(pagemap)
    return ranges


def map_pages(ranges: Ranges) -> None:
    """Map ``ranges``; nothing happens where the kernel is too old for it."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for address, length in ranges:
        madvise(address, length, _POPULATE_READ)
