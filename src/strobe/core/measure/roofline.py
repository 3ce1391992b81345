"""Lower bounds of the roofline model: the least time of each part on this machine, and what bounds it.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009: a part takes at least
as long as its products at the measured ceiling of their dtype, and as its compulsory bytes at that of memory. All else,
elementwise work and what the framework does around it, is free here. A bound is too high in two cases: weights that
stay in a cache from call to call, and convolutions that need less arithmetic than is counted (Winograd's). There a part
is seen to beat its bound, and the time that it took is taken for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strobe.core.measure.components import group_parts
from strobe.core.results.measurement import Component, Limit, Lower, Measurement, PartLimit
from strobe.core.results.subject import Ceiling

OTHER = "other"
# Of the whole: products in no named part that take so much longer than the time which is in none were counted elsewhere
# than they ran. The bound of such parts would be far too low, so there is none.
MISPLACED = 0.05
# Floating dtypes from the widest down, then the integers that weights and inputs are rounded to; with their bytes.
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
LOWER = {"float32": ("bfloat16", "float16", "int8"), "bfloat16": ("int8",), "float16": ("int8",)}


def limits(measurements: Sequence[Measurement], ceiling: Ceiling) -> list[Limit | None]:
    """The limit of each measurement of one subject.

    None if FLOP, or the ceiling of one of their dtypes, is missing, and where FLOP are in no part with their time.

    The first measurement decides which parts are looked into, as in `common_parts`.
    """
    return [_limit(m, parts, ceiling) for m, parts in zip(measurements, group_parts(measurements), strict=True)]


def _limit(measurement: Measurement, parts: Mapping[str, Sequence[Component]], ceiling: Ceiling) -> Limit | None:
    whole_ms = measurement.samples.summary.median
    total = _flop([part for part in measurement.components if part.depth == 1])
    if whole_ms <= 0 or not total or any(ceiling.gflops.get(dtype, 0) <= 0 for dtype in total):
        return None
    limits: list[PartLimit] = []
    for name, components in parts.items():
        ms = sum(component.summary.median for component in components)
        limits.append(_part(name, ms, _flop(components), _sum_moved_bytes(components), ceiling))
    # What is in no part; its bytes are not known, and none are taken.
    named = _sum(part.gflop for part in limits)
    rounding = sum(total.values()) / 1e4
    rest = {dtype: left for dtype, gflop in total.items() if (left := gflop - named.get(dtype, 0.0)) > rounding}
    rest_ms = max(0.0, whole_ms - sum(part.ms for part in limits))
    limits.append(_part(OTHER, rest_ms, rest, None, ceiling))
    if limits[-1].compute_ms - rest_ms > MISPLACED * whole_ms:
        return None
    dtype = max(total, key=lambda name: total[name])
    least = sum(part.least_ms for part in limits)
    lower = [
        Lower(dtype=narrow, least_ms=sum(_narrowed_part_ms(part, narrow, ceiling) for part in limits))
        for narrow in LOWER.get(dtype, ())
        if ceiling.gflops.get(narrow, 0) > ceiling.gflops[dtype]
    ]
    return Limit(
        dtype=dtype,
        parts=limits,
        ceiling_share=sum(part.compute_ms for part in limits) / whole_ms,
        least_ms=least,
        lower=[other for other in lower if other.least_ms < 0.99 * least],
    )


def _part(name: str, ms: float, gflop: Mapping[str, float], moved: int | None, ceiling: Ceiling) -> PartLimit:
    compute, memory = compute_ms(gflop, ceiling.gflops), _memory_ms(moved, ceiling)
    return PartLimit(
        part=name,
        ms=ms,
        gflop=dict(gflop),
        moved_bytes=moved,
        compute_ms=compute,
        memory_ms=memory,
        least_ms=min(max(compute, memory), ms),
        bound="" if not (compute or memory) else "compute" if compute >= memory else "memory",
    )


def _narrowed_part_ms(part: PartLimit, narrow: str, ceiling: Ceiling) -> float:
    """Least ms of the part with all products that are wider than ``narrow`` in it, and as many fewer bytes."""
    changed = {dtype: narrow for dtype in part.gflop if BYTES.get(dtype, 0) > BYTES[narrow]}
    return min(_changed_ms(part.gflop, part.memory_ms, changed, ceiling), part.least_ms)


def dtype_speedup(dtype: str, parts: Sequence[Sequence[Component]], ceiling: Ceiling) -> float | None:
    """Return how many times as fast ``parts`` can be, at the limits of the machine, with their products in ``dtype``.

    Less than 1 where this machine is slower in it. None if the parts were not counted, or a ceiling is missing.
    """
    now, then = dtype_least_ms(None, parts, ceiling), dtype_least_ms(dtype, parts, ceiling)
    return now / then if now and then else None


def dtype_least_ms(dtype: str | None, parts: Iterable[Sequence[Component]], ceiling: Ceiling) -> float | None:
    """Return the least ms of ``parts`` with their products in ``dtype``; None for those that they are in now.

    None if a ceiling is missing. Products of integers stay as they are.
    """
    least = 0.0
    for components in parts:
        gflop, memory_ms = _flop(components), _memory_ms(_sum_moved_bytes(components), ceiling)
        if any(ceiling.gflops.get(name, 0) <= 0 or name not in BYTES for name in (*filter(None, [dtype]), *gflop)):
            return None
        floating = {name: dtype for name in gflop if dtype and BYTES[name] > 1}
        least += _changed_ms(gflop, memory_ms, floating, ceiling)
    return least


def _changed_ms(gflop: Mapping[str, float], memory_ms: float, changed: Mapping[str, str], ceiling: Ceiling) -> float:
    """Least ms with the products in other dtypes (``changed``: now → then), and as many bytes as that takes."""
    counts: dict[str, float] = {}
    for name, count in gflop.items():
        runs_in = changed.get(name, name)
        counts[runs_in] = counts.get(runs_in, 0.0) + count
    # The bytes are taken for those of the dtype that most of the products are in.
    main = max(gflop, key=lambda name: gflop[name], default="")
    scale = BYTES[changed[main]] / BYTES[main] if main in changed else 1.0
    return max(compute_ms(counts, ceiling.gflops), memory_ms * scale)


def compute_ms(gflop: Mapping[str, float], gflops: Mapping[str, float]) -> float:
    """Return the milliseconds that ``gflop`` (dtype → GFLOP) take at the ceilings ``gflops`` (dtype → GFLOP/s)."""
    return sum(count / gflops[dtype] * 1e3 for dtype, count in gflop.items())


def _memory_ms(moved: int | None, ceiling: Ceiling) -> float:
    return (moved or 0) / 1e6 / ceiling.memory_gbps if ceiling.memory_gbps else 0.0


def _flop(components: Sequence[Component]) -> dict[str, float]:
    return _sum(component.gflop_by_dtype for component in components)


def _sum(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for count in counts:
        for dtype, gflop in count.items():
            total[dtype] = total.get(dtype, 0.0) + gflop
    return total


def _sum_moved_bytes(components: Sequence[Component]) -> int | None:
    known = [component.moved_bytes for component in components if component.moved_bytes is not None]
    return sum(known) if known else None
