"""Operators, kernels and gaps of one stretch of a program, from the rows of torch.profiler's trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median

from strobe.traces.launches import (
    blindness_text,
    blocking_calls,
    holes,
    lacks_text,
    launches,
    lost_launches,
    replayed_kernels,
)
from strobe.traces.occupancy import Cause, Gap, Merged, Nest, Stretch, clip, find_gaps, length, merge, subtract
from strobe.traces.profiler_events import DeviceWork, Rows, is_collective, parse_rows
from strobe.traces.results import GapCause, Gaps, KernelClass, LongGap, OperatorProfile, OperatorTime, short_kernel

MARK = "strobe: one iteration"  # the annotation around the iteration that is profiled
SHOWN = 20  # operators and kernels in the result; the trace has all
GAP_US = 10.0  # shorter gaps are what any launch costs
LONG_MS = 1.0  # gaps longer than this are too long for the cost of a launch
LONGEST = 5  # how many of the long gaps are listed, with the calls around each

DEVICE_CAUSES: Mapping[Cause, str] = {
    "start": "before the first kernel",
    "end": "after the last kernel",
    "queued": "launched, but not begun",
    "wait": "the host synchronised",
    "copy": "the host copied",
    "unknown": "its launch is not known",
    "idle": "nothing was launched yet",
}
_HOST_CAUSES: Mapping[Cause, str] = {
    "start": "before the first operator",
    "end": "after the last operator",
    "idle": "between operators",
}


def operator_profile(events: Iterable[object], measurement: str) -> OperatorProfile:
    """Return operators, kernels and gaps inside the annotation `MARK`.

    Raises:
        ValueError: no such annotation among the events.
    """
    rows = parse_rows(events)
    marks = [annotation for annotation in rows.annotations if annotation.name == MARK]
    if not marks:
        raise ValueError(f"no '{MARK}' among the profiler's events")
    begin, end = marks[-1].start, marks[-1].end
    inside = rows.inside(begin, end)
    profile = profile_rows(inside, measurement, begin, end)
    lost = lost_launches(Rows(runtime=inside.runtime, device=[work for work in rows.device if work.start >= begin]))
    elsewhere = len(rows.device) - len(inside.device)
    if inside.device and not lost.all:
        gaps = device_gaps(inside, begin, end, holes(inside, lost))
        profile.device = gaps if gaps.is_judged else None
        profile.device_not_judged = None if gaps.is_judged else lacks_text(gaps, lost)
    elif elsewhere:  # seen on a virtual machine with an H100: the times of all kernels were 0
        profile.device_not_judged = (
            f"{elsewhere:,} kernels and copies ran, but torch.profiler's times for them are outside the iteration on "
            "this machine: nothing is said of kernels and of the device's gaps"
        )
    elif lost.all:
        profile.device_not_judged = blindness_text(lost.launches)
    return profile


def profile_rows(rows: Rows, measurement: str, begin: int, end: int) -> OperatorProfile:
    """Return the operators and kernels of ``rows``, and the gaps between operators from ``begin`` to ``end``.

    What the device waited for is left to `device_gaps`. Times are in nanoseconds.
    """
    calls = [*_calls(Nest(rows.operators))]
    top = sum(call.top for call in calls)
    runs = [_Call(work.name, work.start, work.end) for work in rows.device]
    on_host = find_gaps([Stretch(call.start, call.end) for call in (*rows.operators, *rows.runtime)], begin, end)
    return OperatorProfile(
        measurement=measurement,
        iteration_ms=(end - begin) / 1e6,
        operators=_totals(calls, begin, end, nested=True),
        operator_calls=len(calls),
        operator_median_us=median(call.own for call in calls) / 1e3 if calls else None,
        kernels=_totals(runs, begin, end, nested=False),
        kernel_calls=len(runs),
        kernel_classes=kernel_classes(rows.device),
        graph_kernels=len(replayed_kernels(rows)),
        kernel_median_us=median(run.own for run in runs) / 1e3 if runs else None,
        # The profiler adds its cost to every operator; only that of the outermost lies outside all of them.
        host=_gaps(on_host, end - begin, _HOST_CAUSES, calls, exposed=top / len(calls) if calls else 1.0),
    )


def device_gaps(rows: Rows, begin: int, end: int, unjudged: Merged = ()) -> Gaps:
    """Return busy and idle time of the one device of ``rows`` from ``begin`` to ``end`` (nanoseconds), with causes.

    Stretches ``unjudged`` may lack kernels (see `holes`): they are no part of any of these times.
    """
    left_out = clip(unjudged, begin, end)
    stretches = [Stretch(work.start, work.end) for work in rows.device]
    stretches += [Stretch(start, stop) for start, stop in left_out]
    for work, at in launches(rows):
        unknown = Stretch(work.start - 1, work.start, "unknown")
        stretches.append(unknown if at is None else Stretch(at, work.start, "queued"))
    stretches += [Stretch(call.start, call.end, kind) for call, kind in blocking_calls(rows)]
    span = end - begin - length(left_out)
    gaps = _gaps(find_gaps(stretches, begin, end), span, DEVICE_CAUSES, rows.device, host=rows)
    gaps.unjudged_ms = length(left_out) / 1e6
    return gaps


@dataclass(slots=True)
class _Call:
    name: str
    start: int
    end: int
    shapes: str = ""
    inner: list[tuple[int, int]] = field(default_factory=list, init=False)  # the calls in it, one after the other
    top: bool = field(default=True, init=False)

    @property
    def own(self) -> int:
        return self.end - self.start - length(self.inner)


def _calls(operators: Nest) -> Iterable[_Call]:
    """Yield operators with the stretches of those nested in them."""
    made: dict[int, _Call] = {}
    for call, parent in operators.pairs():
        made[id(call)] = own = _Call(call.name, call.start, call.end, shapes=call.shapes)
        if parent is not None:
            own.top, around = False, made[id(parent)]
            begin = max(call.start, around.inner[-1][1]) if around.inner else call.start
            around.inner.append((begin, max(min(call.end, around.end), begin)))
        yield own


def _totals(calls: Iterable[_Call], begin: int, end: int, *, nested: bool) -> list[OperatorTime]:
    groups: dict[str, list[_Call]] = {}
    for call in calls:
        groups.setdefault(call.name, []).append(call)
    own = {name: sum(call.own for call in group) for name, group in groups.items()}

    def share(calls: Iterable[_Call]) -> float:
        united = merge(piece for call in calls for piece in subtract([(call.start, call.end)], call.inner))
        return length(clip(united, begin, end)) / (end - begin) if end > begin else 0.0

    return [
        OperatorTime(
            name=name,
            calls=len(groups[name]),
            own_ms=own[name] / 1e6,
            total_ms=sum(call.end - call.start for call in groups[name]) / 1e6 if nested else None,
            share=share(groups[name]),
            shapes=_longest(groups[name]),
        )
        for name in sorted(own, key=lambda name: -own[name])[:SHOWN]
    ]


def _longest(calls: Iterable[_Call]) -> str:
    by_shape: dict[str, int] = {}
    for call in calls:
        by_shape[call.shapes] = by_shape.get(call.shapes, 0) + call.own
    return max(by_shape, key=lambda shapes: by_shape[shapes])


def _gaps(
    found: Sequence[Gap],
    span: int,
    words: Mapping[Cause, str],
    calls: Iterable[_Call | DeviceWork],
    exposed: float = 1.0,
    host: Rows | None = None,
) -> Gaps:
    """Sum up the gaps in ``span``, with each cause in ``words``; times are in nanoseconds.

    The longest gaps are named by the calls that end and begin there, the outermost where several do, and by what the
    ``host`` did meanwhile.
    """
    idle = sum(gap.end - gap.start for gap in found)
    counted = [gap for gap in found if gap.end - gap.start > GAP_US * 1e3]
    long = sorted((g for g in counted if g.end - g.start > LONG_MS * 1e6), key=lambda g: g.start - g.end)
    ordered_calls = sorted(calls, key=lambda call: call.end - call.start)
    ended = {call.end: call.name for call in ordered_calls}
    began = {call.start: call.name for call in ordered_calls}
    causes: dict[Cause, list[int]] = {}
    for gap in counted:
        causes.setdefault(gap.cause, []).append(gap.end - gap.start)
    ordered = sorted(causes.items(), key=lambda item: -sum(item[1]))
    return Gaps(
        span_ms=span / 1e6,
        busy_ms=(span - idle) / 1e6,
        idle_ms=idle / 1e6,
        threshold_us=GAP_US,
        gaps=len(counted),
        gaps_ms=sum(gap.end - gap.start for gap in counted) / 1e6,
        causes=[
            GapCause(cause=words[cause], kind=cause, gaps=len(took), ms=sum(took) / 1e6) for cause, took in ordered
        ],
        long_ms=sum(gap.end - gap.start for gap in long) / 1e6,
        longest=[
            LongGap(
                ms=(g.end - g.start) / 1e6,
                after=ended.get(g.start, ""),
                before=began.get(g.end, ""),
                host=_gap_activity(g, host) if host is not None else "",
            )
            for g in long[:LONGEST]
        ],
        exposed=exposed,
    )


def _gap_activity(gap: Gap, host: Rows) -> str:
    """Return the innermost call or annotation of the host over at least half of the gap; else empty."""
    half = (gap.end - gap.start) / 2
    found = [
        call
        for calls in (host.annotations, host.operators, host.runtime)
        for call in calls
        if min(call.end, gap.end) - max(call.start, gap.start) >= half and call.name != MARK
    ]
    return min(found, key=lambda call: call.end - call.start).name if found else ""


PRODUCTS, POINTWISE = "matrix products", "elementwise and norms"
# The first that is in a name decides: names of cuBLAS, cuDNN, CUTLASS, Triton, torch, and Tensile on ROCm.
_CLASSES = (
    (r"triton_(poi|red|per)_", POINTWISE),
    (r"flash|fmha|attention|sdpa", "attention"),
    (r"quanti[sz]|scaled_cast|absmax", "quantising"),
    (r"gemm|gemv|cutlass|nvjet|cijk_|scudnn|wgrad|dgrad|fprop|winograd|convol|conv\dd|triton_(tem|mm)_", PRODUCTS),
    (r"copy|catarray|index|gather|scatter|embedding|transpose|nchwtonhwc|nhwctonchw|fill", "copies and gathers"),
    (r"elementwise|norm|softmax|reduce|epilogue|foreach|multi_tensor|pool|dropout|bn_(fw|bw)|gammabeta", POINTWISE),
)
_DTYPES = (
    (r"e4m3|e5m2|fp8|float8|nvjet_q|_F8", ", float8"),
    (r"int8|i8816|i16832|imma|s8s8|_I8", ", int8"),
    (r"bf16|bfloat16|nvjet_t|_BB[SH]_|_BBS", ", bfloat16"),
    (r"fp16|f16f16|half|h16816|h1688|h884|hgemm|nvjet_h|_HH[SH]|_HSS|_HB_", ", float16"),
    (r"tf32|s1688", ", TF32"),
    (r"dgemm|f64|double", ", float64"),
    (r"sgemm|scudnn|fp32|f32|float|_SB_|_SS_", ", float32"),
)


@lru_cache(4096)
def kernel_class(name: str) -> str:
    """Return the class of a kernel by its name; a product's has the dtype that the name tells, if it tells one."""
    name = short_kernel(name)
    found = next((each for of, each in _CLASSES if re.search(of, name, re.IGNORECASE)), "other kernels")
    return found + next((dtype for of, dtype in _DTYPES if found == PRODUCTS and re.search(of, name)), "")


def kernel_classes(works: Iterable[DeviceWork]) -> list[KernelClass]:
    """Return the classes of kernels and copies, that with the most time first."""
    took: dict[str, list[int]] = {}
    for work in works:
        named = "collectives" if is_collective(work) else kernel_class(work.name)
        took.setdefault(named if work.kind == "kernel" else "copies and memsets", []).append(work.end - work.start)
    ordered = sorted(took.items(), key=lambda item: -sum(item[1]))
    return [KernelClass(name=of, calls=len(ns), ms=sum(ns) / 1e6, median_us=median(ns) / 1e3) for of, ns in ordered]
