"""Pages of files, such as those of torch's libraries, that a fork leaves behind.

A fork copies the map of a process's own pages, and none of the pages that only mirror a file: they come back one by one
when they are touched. Until then they are missing in the child's resident memory, by a third for torch on a CPU, and a
fresh process that has done the same imports seems to take more. So the child maps what its parent had mapped.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

_POPULATE_READ = 22  # MADV_POPULATE_READ, since Linux 5.14, madvise(2)
_PRESENT = 63  # the bit of an entry of /proc/self/pagemap, proc(5)
_ENTRY = 8  # bytes

Ranges = list[tuple[int, int]]  # address and length, in bytes


def file_pages() -> Ranges:
    """Return the ranges of this process's resident pages that mirror files; none where NumPy is not loaded."""
    numpy = sys.modules.get("numpy")
    if numpy is None:  # then there is no framework either, and little is missing
        return []
    found: Ranges = []
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
                found.append((begin + first * mmap.PAGESIZE, (beyond - first) * mmap.PAGESIZE))
    finally:
        os.close(pagemap)
    return found


def bring(ranges: Ranges) -> None:
    """Map ``ranges``; nothing where the kernel is too old to be asked."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for address, length in ranges:
        madvise(address, length, _POPULATE_READ)
