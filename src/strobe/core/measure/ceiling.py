"""Ceilings of the roofline: the speeds that this machine reaches, measured in the same run as the policy.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009. The ceilings of
arithmetic are those of large matrix products, through the same library that the policy uses, and of an elementwise
multiply-add on data in the cache; that of memory is the faster of two of McCalpin's streams (STREAM, 1995), a copy and
a triad. They are not kept from run to run: a virtual machine's neighbours, clocks and heat change them. So they are
measured once more where a part runs above them. All together take 2 to 3 seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

import torch

from strobe.core.measure.memory import available_bytes
from strobe.core.measure.time_limit import TimeLimit
from strobe.core.results.subject import Ceiling
from strobe.core.timeline.clock import synchronise

Progress = Callable[[int, int], None]  # done, of
EVERYWHERE = ("float32", "bfloat16", "int8")  # rungs that a ladder may come to, whatever the policy's own dtype
_SECONDS = 0.25  # time for each figure
_PASSES = 2  # passes over the dtypes: what holds the machine up for a moment must not lower the ceiling of one of them
_SIDES = (256, 512, 1024, 2048, 4096, 8192)  # sides of matrices; small ones fit a small machine, large ones fill a card
_ENOUGH, _LARGE = 2e-3, 1024  # seconds and side of a product whose start no longer counts
_TRIAD = 3  # arrays
_LEAST, _MOST = 256 * 2**20, 768 * 2**20  # bytes of all arrays together, on a CPU
_ON_DEVICE = 3 * 2**30
_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


def measure(
    device: torch.device,
    dtypes: Iterable[str],
    progress: Progress = lambda _, __: None,
    limit: TimeLimit | None = None,
    *,
    products_only: bool = False,
) -> Ceiling:
    """GFLOP/s of a square matrix product per dtype, GFLOP/s of elementwise arithmetic, and GB/s of a stream.

    Each is the best of several runs.

    Args:
        dtypes: torch's names, such as 'float32'; one that this device cannot multiply is left out.
        progress: called with the figures that are measured, and how many there are.
        limit: once it is over, each figure is measured once only; once it is spent, figures are left out.
        products_only: whether elementwise arithmetic and the stream are left out.
    """
    limit = limit or TimeLimit()
    gflops: dict[str, float] = {}
    once = list(dict.fromkeys(dtypes))
    names = once * _PASSES
    whole = len(names) + 2 * (not products_only)
    for done, name in enumerate(names, 1):
        if limit.is_spent or (limit.is_work_over and done > len(once)):
            continue
        rate = _product(device, getattr(torch, name))
        if rate is not None:
            gflops[name] = max(rate, gflops.get(name, 0.0))
        progress(done, whole)
    if products_only:
        return Ceiling(gflops=gflops)
    vector = None if limit.is_spent else _vector(device)
    progress(whole - 1, whole)
    stream = None if limit.is_spent else _stream(device)
    progress(whole, whole)
    return Ceiling(gflops=gflops, vector_gflops=vector, memory_gbps=stream)


def raise_to_now(known: Ceiling, device: torch.device, progress: Progress = lambda _, __: None) -> None:
    """Measure ``known`` once more, and raise its figures to what this machine reaches now where that is more.

    For a part that ran above its ceiling: the machine may have had less to give while the ceiling was measured.
    ``progress`` is that of `measure`.
    """
    now = measure(device, known.gflops, progress)
    known.gflops = {dtype: max(rate, now.gflops.get(dtype, 0.0)) for dtype, rate in known.gflops.items()}
    known.vector_gflops = max(filter(None, (known.vector_gflops, now.vector_gflops)), default=None)
    known.memory_gbps = max(filter(None, (known.memory_gbps, now.memory_gbps)), default=None)


@cache
def faster_in_bfloat16() -> bool:
    """Return whether this CPU multiplies matrices faster in bfloat16 than in float32; measured once, in 0.25 s.

    A CPU may have the instructions and be slower: Intel's that have AVX512-BF16 without AMX take twice as long.
    """
    narrow, wide = (_product(torch.device("cpu"), dtype, _LARGE) for dtype in (torch.bfloat16, torch.float32))
    return narrow is not None and wide is not None and narrow > wide


def _product(device: torch.device, dtype: torch.dtype, most: int = _SIDES[-1]) -> float | None:
    best: float | None = None
    for side in (side for side in _SIDES if side <= most):
        try:
            # No constants: a card clocks higher on them.
            a = torch.randn(side, side, device=device).mul_(1 if dtype.is_floating_point else 40).to(dtype)
            # Integers are multiplied by a function of their own, whose results are wider. It takes its second matrix as
            # a linear layer has it, transposed: on an H100 the other order is seven times as slow.
            multiply = torch.mm if dtype.is_floating_point else torch._int_mm
            b = a if dtype.is_floating_point else a.t()
            out = multiply(a, b)
            took = _best(device, partial(multiply, a, b, out=out), _SECONDS / 4 / _PASSES)
        except (RuntimeError, TypeError, NotImplementedError):  # not on this device, or not enough memory
            break
        best = max(best or 0.0, 2 * side**3 / 1e9 / took)
        if took > _ENOUGH and side >= _LARGE:
            break
        # Twice the side takes eight times as long. On busy cores the smallest product may wait longer than it computes.
        if took * 8 > _SECONDS and side > _SIDES[0]:
            break
    return best


def _vector(device: torch.device) -> float | None:
    # 1.5 MiB and 24 MiB in three arrays. A device gets several launches at a time: a wait takes as long as one of them.
    count, launches = (2**17, 1) if device.type == "cpu" else (2**21, 20)
    try:
        a, b = (torch.ones(count, device=device) for _ in range(2))
        out = torch.empty_like(a)

        def work() -> None:
            for _ in range(launches):
                torch.addcmul(a, a, b, out=out)

        return 2 * count * launches / 1e9 / _best(device, work, _SECONDS / 2)
    except RuntimeError:
        return None


def _stream(device: torch.device) -> float | None:
    # Larger than any cache where there is room, so that memory is measured and no cache.
    try:
        a, b = (torch.ones(stream_bytes(device) // _TRIAD // 4, device=device) for _ in range(2))
        out = torch.empty_like(a)
        copy = 2 * a.nbytes / 1e9 / _best(device, lambda: out.copy_(a))
        return max(copy, 3 * a.nbytes / 1e9 / _best(device, lambda: torch.add(a, b, alpha=2.0, out=out)))
    except RuntimeError:  # no room next to the policy
        return None


def stream_bytes(device: torch.device) -> int:
    """Bytes of the arrays that memory is measured with: twice the largest cache, within what can be spared."""
    if device.type != "cpu":
        return _ON_DEVICE
    return int(min(max(_LEAST, 2 * largest_cache()), _MOST, max(available_bytes() // 8, 48 * 2**20)))


def largest_cache() -> int:
    """Bytes of the largest cache that a core has a share in; 0 where the kernel does not say."""
    sizes = [0]
    for file in _CACHE.glob("index*/size"):
        try:
            text = file.read_text().strip()
            sizes.append(int(text[:-1]) * {"K": 2**10, "M": 2**20}[text[-1]])
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return max(sizes)


def _best(device: torch.device, work: Callable[[], object], seconds: float | None = None) -> float:
    work()
    synchronise(device)
    best, end = float("inf"), time.perf_counter() + (_SECONDS if seconds is None else seconds)
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return best
