"""The heap of glibc, switched while the process runs between its defaults and one that gives nothing back.

glibc maps a large buffer for itself, and hands it back to the kernel when it is freed: the next one is fetched again,
page by page. mallopt(3) turns that off, for the whole process and from then on. Three things make it a switch that can
be compared with the defaults in one process, in alternation:

* glibc's threshold for mapping rises by itself, up to 32 MiB, until any of its parameters is set: then it stands still
  (mallopt(3), M_MMAP_THRESHOLD). So it is found out before the first switch, and put back with the defaults.
* Free memory that the kept heap held is given back with its end (malloc_trim(3)). Holes between buffers in use stay,
  and would serve the defaults without a page fault once they were touched. So each side has its own holes: those of
  the other are filled with buffers that nobody touches, which cost address space and no memory.
* What a side held when it was left is fetched again when it is taken up, before the call that is timed: otherwise every
  call would be that side's first one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4  # malloc.h
KIB, MIB = 2**10, 2**20
LEAST, MOST = 128 * KIB, 32 * MIB  # of the threshold that rises by itself
BLOCK = 64 * KIB  # size below any threshold: comes from the heap
PADDING = 256 * MIB  # address space that the heap grows by at a time; no memory before it is used
OTHERS = ("jemalloc", "tcmalloc", "mimalloc")
_MAPS = Path("/proc/self/maps")


_FIGURES = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Info(ctypes.Structure):
    """``struct mallinfo2``; ``mallinfo``, which glibc before 2.33 has, is the same in ints."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIGURES]


class _OldInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in _FIGURES]


def unsupported_reason() -> str | None:
    """Return why this process's heap cannot be switched, in words."""
    if not sys.platform.startswith("linux") or not _is_glibc():
        return "the C library is not glibc, and only glibc's heap can keep freed memory"
    loaded = _MAPS.read_text()
    for name in OTHERS:
        if name in loaded:
            return f"{name} is loaded and replaces glibc's heap"
    names = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
    for name in names:
        if name in os.environ:
            return f"{name} is set in the environment, so glibc's heap is already configured"
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return "GLIBC_TUNABLES is set in the environment, so glibc's heap is already configured"
    return None


class Heap:
    """The process's one heap: plain, or kept while anybody wants it so.

    Attributes:
        threshold: bytes from which a buffer was mapped for itself, as found before the first switch; 0 until then.
    """

    def __init__(self) -> None:
        self.threshold = 0
        self._holders = 0
        self._plain_bytes = 0
        self._plugs: list[int] = []

    def keep(self, held: int = 0) -> None:
        """Give nothing back from now on, until `plain` was called as often. ``held``: bytes to have for a start."""
        self._holders += 1
        if self._holders > 1:
            return
        if not self.threshold:
            blocks: list[int] = []
            self.threshold = _threshold(blocks)
            self._set_plain()
            _free(blocks)  # freed now, so that they do not raise the threshold
        self._plain_bytes = _give_back()
        own = _fill_heap_holes()
        self._set(M_MMAP_MAX, 0)
        self._set(M_TRIM_THRESHOLD, -1)  # none
        self._set(M_TOP_PAD, PADDING)
        self._free_holes(own)
        _fetch(held)

    def plain(self) -> int:
        """Go back to what it was before `keep`, once for each.

        Return the bytes that were held and free; 0 where others want it kept.
        """
        self._holders -= 1
        if self._holders:
            return 0
        self._set_plain()
        held = _give_back()
        self._free_holes(_fill_heap_holes())
        _fetch(self._plain_bytes)
        return held

    def _free_holes(self, taken: list[int]) -> None:
        _free(self._plugs)
        self._plugs = taken

    def _set_plain(self) -> None:
        self._set(M_MMAP_MAX, 65536)  # DEFAULT_MMAP_MAX in glibc's malloc.c; the padding's default is LEAST there too
        self._set(M_MMAP_THRESHOLD, self.threshold)
        self._set(M_TRIM_THRESHOLD, 2 * self.threshold)
        self._set(M_TOP_PAD, LEAST)

    @staticmethod
    def _set(parameter: int, value: int) -> None:
        if not _libc().mallopt(parameter, value):
            raise RuntimeError(f"mallopt({parameter}, {value}) was refused")


HEAP = Heap()


@cache
def _libc() -> Any:
    libc: Any = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes, libc.free.restype = [ctypes.c_void_p], None
    libc.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    libc.malloc_trim.argtypes = [ctypes.c_size_t]
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    info = "mallinfo2" if hasattr(libc, "mallinfo2") else "mallinfo"
    libc.info = getattr(libc, info)
    libc.info.argtypes, libc.info.restype = [], _Info if info == "mallinfo2" else _OldInfo
    return libc


def _is_glibc() -> bool:
    return hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _give_back() -> int:
    """Give all free memory back to the kernel. Return how many bytes that was."""
    before = _resident()
    _libc().malloc_trim(0)
    return max(before - _resident(), 0)


def _fetch(size: int) -> None:
    """Make the heap hold ``size`` bytes that are free, as far as its rules let it."""
    libc, blocks = _libc(), []
    for _ in range(size // BLOCK):
        if not (block := libc.malloc(BLOCK - 16)):  # 16 bytes are the heap's own
            break
        ctypes.memset(block, 0, BLOCK - 16)
        blocks.append(block)
    _free(reversed(blocks))


def _fill_heap_holes() -> list[int]:
    """Return the addresses of new buffers in holes of the heap; of a thread with a heap of its own, none.

    Its end is looked at and not `mallinfo`, which walks through all holes: 34 ms each once a large engine was built.
    """
    libc, plugs, size = _libc(), list[int](), 1024 * MIB
    starts = (int(line.partition("-")[0], 16) for line in _MAPS.read_text().splitlines() if line.endswith("[heap]"))
    start = next(starts, sys.maxsize)
    while size >= BLOCK:
        end, block = libc.sbrk(0), libc.malloc(size) or 0
        if start <= block < end == libc.sbrk(0):
            plugs.append(block)
        else:  # no hole of this size is left
            _free([block])
            size //= 2
    return plugs


def _threshold(taken: list[int]) -> int:
    """Return the bytes from which glibc maps a buffer for itself now, between LEAST and MOST, 1/16 too much at most.

    Args:
        taken: gets the addresses of what was allocated, to be freed once the threshold stands still.
    """
    low, high = LEAST, MOST  # it maps ``high`` at the latest, and nothing below ``low``
    while high > low + low // 16:
        middle = (low + high) // 2
        if _is_mapped(middle, taken):
            high = middle
        else:
            low = middle
    return high


def _is_mapped(size: int, taken: list[int]) -> bool:
    """Return whether a buffer of ``size`` bytes is mapped for itself. Holes of that size in the heap come first."""
    while True:
        block, source = _allocate_buffer(size)
        taken.append(block)
        if source or not block:
            return source != "heap"


def _allocate_buffer(size: int) -> tuple[int, str | None]:
    """Return the address of a new buffer, and where it comes from: 'map', 'heap' that grew, None for a hole in it."""
    libc = _libc()
    before = libc.info()
    block = libc.malloc(size) or 0
    after = libc.info()
    if after.hblks > before.hblks:
        return block, "map"
    return block, "heap" if after.arena != before.arena else None


def _free(blocks: Any) -> None:
    libc = _libc()
    for block in blocks:
        libc.free(block)
