"""What benchmarks share: how some begin, and how all end."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

# glibc's allocator, told to give nothing back to the kernel: as a GPU's allocator does.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**36), "MALLOC_TOP_PAD_": str(2**28)}


def keep_memory(**more: str) -> None:
    """On Linux, start this script again with an allocator that keeps its memory; ``more`` goes to its environment."""
    if sys.platform == "linux" and not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY, **more})


def finish_rates(figures: dict[str, Any], count: int, false: tuple[int, float], found: tuple[int, float]) -> NoReturn:
    """Finish with the judgement of two rates: of ``count`` tries at most a share may be false, at least one be found.

    Fewer than 100 tries are too few for rates: they hold where they do not contradict the bars at 5 %.

    Args:
        false, found: how many there were, and the bar.
    """
    from scipy import stats

    if count < 100:
        contradicted = min(
            stats.binomtest(false[0], count, false[1], "greater").pvalue,
            stats.binomtest(found[0], count, found[1], "less").pvalue,
        )
        finish(figures, contradicted >= 0.05)
    finish(figures, false[0] / count <= false[1] and found[0] / count >= found[1])


def finish(figures: dict[str, Any], holds: bool) -> NoReturn:
    """Print the figures with the judgement as one JSON line, the last one; exit with 0 if it holds, else 1."""
    print(json.dumps({**figures, "holds": holds}, default=lambda number: number.item()))
    sys.exit(0 if holds else 1)
