"""What benchmarks share: how some begin, and how all end."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

ENOUGH = 100  # tries, from which on a rate is held against its bar itself

# glibc's allocator, told to give nothing back to the kernel: as a GPU's allocator does.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36), "MALLOC_TOP_PAD_": str(2**28)}


def keep_memory(**more: str) -> None:
    """On Linux, start this script again with an allocator that keeps its memory; ``more`` goes to its environment."""
    if sys.platform == "linux" and not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY, **more})


def finish_rates(figures: dict[str, Any], count: int, false: tuple[int, float], found: tuple[int, float]) -> NoReturn:
    """Finish with the judgement of two rates: of ``count`` tries at most a share may be false, at least one be found.

    Args:
        false, found: how many there were, and the bar.
    """
    finish(figures, at_most(count, *false) and at_least(count, *found))


def at_most(count: int, seen: int, bar: float) -> bool:
    """Return whether a rate of ``seen`` in ``count`` tries keeps to its bar; few tries, does not contradict it."""
    return seen / count <= bar if count >= ENOUGH else not _contradicts(count, seen, bar, "greater")


def at_least(count: int, seen: int, bar: float) -> bool:
    """Return whether a rate of ``seen`` in ``count`` tries reaches its bar; few tries, does not contradict it."""
    return seen / count >= bar if count >= ENOUGH else not _contradicts(count, seen, bar, "less")


def _contradicts(count: int, seen: int, bar: float, side: str) -> bool:
    from scipy import stats

    return bool(stats.binomtest(seen, count, bar, side).pvalue < 0.05)


def finish(figures: dict[str, Any], holds: bool) -> NoReturn:
    """Print the figures with the judgement as one JSON line, the last one; exit with 0 if it holds, else 1."""
    print(json.dumps({**figures, "holds": holds}, default=lambda number: number.item()))
    sys.exit(0 if holds else 1)
