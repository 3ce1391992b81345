"""Huge pages for weights: do linear layers read them sooner from pages of 2 MiB than of 4 KiB?

Why Strobe has no treatment for it. Two sets of the same layers, some 0.7 GB of weights each, take turns: one as torch
allocated it, one collapsed to huge pages by ``madvise`` (Linux 6.1 and later; ``transparent_hugepage`` must not be
'never'). A batch of few rows, as in a denoising step, makes reading the weights the work.

Bar: no case is shown to gain 5 % or more. Where one is, a treatment would pay on that machine.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Sequence

import torch
from common.shared import could_not_run, finish
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import linear

from strobe.core.measure.verdicts import paired_verdict

HUGE = 2**21
ADVISE_HUGE, COLLAPSE = 14, 25  # MADV_HUGEPAGE, MADV_COLLAPSE of <linux/mman.h>
OUT, IN, LAYERS = 4096, 1024, 40
ROWS = (1, 8, 50)
MATTERS = 0.05


def collapse(weights: Sequence[Tensor]) -> bool:
    """Move ``weights`` to huge pages where they are. Return whether the kernel did it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    done = True
    for weight in weights:
        begin = -(-weight.data_ptr() // HUGE) * HUGE
        length = (weight.data_ptr() + weight.nbytes) // HUGE * HUGE - begin
        for advice in (ADVISE_HUGE, COLLAPSE):
            done &= libc.madvise(begin, length, advice) == 0
    return done


def took_ms(x: Tensor, weights: Sequence[Tensor]) -> float:
    begun = time.perf_counter()
    for weight in weights:
        linear(x, weight)
    return 1e3 * (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pairs: half a minute")
    pairs = 12 if parser.parse_args().quick else 60
    if sys.platform != "linux":
        could_not_run(f"{sys.platform} has no MADV_COLLAPSE")
    table = Table("weights", "rows", "4 KiB (ms)", "2 MiB (ms)", "change", "99 % interval")
    found: dict[str, dict[str, float]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        small, huge = ([torch.randn(OUT, IN).to(dtype) for _ in range(LAYERS)] for _ in range(2))
        if not collapse(huge):
            could_not_run(f"the kernel {os.uname().release} collapsed no pages")
        for rows in ROWS:
            x = torch.randn(rows, IN).to(dtype)
            taken: dict[bool, list[float]] = {False: [], True: []}
            for pair in range(pairs + 1):
                for collapsed in (False, True) if pair % 2 else (True, False):
                    ms = took_ms(x, huge if collapsed else small)
                    if pair:  # the first warms up
                        taken[collapsed].append(ms)
            verdict = paired_verdict(taken[False], taken[True])
            low, high = verdict.interval.low - 1, verdict.interval.high - 1
            name = str(dtype).removeprefix("torch.")
            before, after = (sorted(taken[one])[pairs // 2] for one in (False, True))
            change = f"{verdict.ratio - 1:+.1%}", f"{low:+.1%} to {high:+.1%}"
            table.add_row(name, str(rows), f"{before:.2f}", f"{after:.2f}", *change)
            found[f"{name}, {rows} rows"] = {"small_ms": before, "huge_ms": after, "low": low, "high": high}
    Console().print(table)
    finish({"pairs": pairs, "cases": found}, all(one["high"] > -MATTERS for one in found.values()))


if __name__ == "__main__":
    main()
