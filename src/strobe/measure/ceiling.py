"""Ceilings of the roofline: the speeds that this machine reaches, measured in the same run as the policy.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009. The arithmetic ceiling
is a large matrix product's, through the same library that the policy uses; the memory ceiling is a large copy's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch

from strobe.results.machine import Ceiling
from strobe.timeline.clock import synchronise

_SECONDS = 0.6  # for each figure


def measure(device: torch.device, dtypes: Iterable[str]) -> Ceiling:
    """GFLOP/s of a square matrix product per dtype, and GB/s of a copy (read and written); the best of several runs.

    Args:
        dtypes: torch's names, such as 'float32'; one that this device cannot multiply is left out.
    """
    gflops: dict[str, float] = {}
    for name in dtypes:
        rate = _product(device, getattr(torch, name))
        if rate is not None:
            gflops[name] = rate
    return Ceiling(gflops=gflops, memory_gbps=_copy(device))


def _product(device: torch.device, dtype: torch.dtype) -> float | None:
    side = 1024 if device.type == "cpu" else 8192
    try:
        a = torch.randn(side, side, device=device).to(dtype)
        out = torch.empty_like(a)
        torch.mm(a, a, out=out)
    except (RuntimeError, TypeError, NotImplementedError):  # not on this device, or not enough memory
        return None
    return 2 * side**3 / 1e9 / _best(device, lambda: torch.mm(a, a, out=out))


def _copy(device: torch.device) -> float | None:
    # Far larger than any cache, so that memory is measured and no cache.
    try:
        source = torch.zeros((64 if device.type == "cpu" else 512) * 2**20, device=device)
        target = torch.empty_like(source)
    except RuntimeError:  # no room beside the policy
        return None
    return 2 * source.nbytes / 1e9 / _best(device, lambda: target.copy_(source))


def _best(device: torch.device, work: Callable[[], object]) -> float:
    work()
    synchronise(device)
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return best
