"""Operators, kernels and gaps of one iteration, from the events of torch.profiler's Chrome trace."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, NamedTuple

from strobe.results.profiles import GapCause, Gaps, LongGap, OperatorProfile, OperatorTime

MARK = "strobe: one iteration"  # the annotation around the iteration that is profiled
SHOWN = 20  # operators and kernels in the result; the trace has all
GAP_US = 10.0  # shorter gaps are what any launch costs
LONG_MS = 1.0  # gaps longer than this are too long for the cost of a launch
LONGEST = 5  # how many of the long gaps are listed, with the calls around each

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_RUNTIME = ("cuda_runtime", "cuda_driver")
_BLOCKING = ("synchronize", "memcpy")

_DEVICE_CAUSES: Mapping[Cause, str] = {
    "start": "before the first kernel",
    "end": "after the last kernel",
    "queued": "launched, but not begun",
    "wait": "the host synchronised or copied",
    "idle": "nothing was launched yet",
}
_HOST_CAUSES: Mapping[Cause, str] = {
    "start": "before the first operator",
    "end": "after the last operator",
    "idle": "between operators",
}


def operator_profile(events: Sequence[Mapping[str, Any]], measurement: str) -> OperatorProfile:
    """Return operators, kernels and gaps inside the annotation `MARK`.

    Raises:
        ValueError: no such annotation among the events.
    """
    marks = [e for e in events if e.get("name") == MARK and e.get("cat") == "user_annotation"]
    if not marks:
        raise ValueError(f"no '{MARK}' among the profiler's events")
    begin, end = _stretch(marks[-1])[:2]

    def inside(*kinds: str) -> list[Mapping[str, Any]]:
        chosen = (e for e in events if e.get("cat") in kinds and e.get("ph") == "X")
        return [e for e in chosen if begin <= _stretch(e)[0] < end]

    operators, runtime, kernels = inside("cpu_op"), inside(*_RUNTIME), inside(*_ON_DEVICE)
    calls = [*_calls(operators)]
    top = sum(call.top for call in calls)
    runs = [_Call(e["name"], *_stretch(e)[:2]) for e in kernels]
    on_host = occupancy([_stretch(e) for e in (*operators, *runtime)], begin, end)
    profile = OperatorProfile(
        measurement=measurement,
        iteration_ms=(end - begin) / 1e6,
        operators=_totals(calls, end - begin, nested=True),
        operator_calls=len(calls),
        operator_median_us=median(call.own for call in calls) / 1e3 if calls else None,
        kernels=_totals(runs, end - begin, nested=False),
        kernel_calls=len(runs),
        kernel_median_us=median(run.own for run in runs) / 1e3 if runs else None,
        # The profiler adds its cost to every operator; only that of the outermost lies outside all of them.
        host=_gaps(on_host, _HOST_CAUSES, calls, exposed=top / len(calls) if calls else 1.0),
    )
    if runs:
        profile.device = _gaps(occupancy(_device_stretches(kernels, runtime), begin, end), _DEVICE_CAUSES, runs)
    return profile


@dataclass
class _Call:
    name: str
    start: int
    end: int
    shapes: str = ""
    inner: int = field(default=0, init=False)
    top: bool = field(default=True, init=False)

    @property
    def own(self) -> int:
        return max(self.end - self.start - self.inner, 0)


def _stretch(event: Mapping[str, Any]) -> Stretch:
    # Integers, so that times add up; torch writes microseconds with three decimals.
    start = round(event["ts"] * 1e3)
    return Stretch(start, start + round(event.get("dur", 0) * 1e3))


def _calls(operators: Iterable[Mapping[str, Any]]) -> Iterable[_Call]:
    """Yield operators with the time of those nested in them; nesting is containment in time, thread by thread."""
    threads: dict[Any, list[_Call]] = {}
    for event in operators:
        call = _Call(event["name"], *_stretch(event)[:2], shapes=_shapes(event.get("args", {})))
        threads.setdefault(event.get("tid"), []).append(call)
    for calls in threads.values():
        open_calls: list[_Call] = []
        for call in sorted(calls, key=lambda c: (c.start, -c.end)):
            while open_calls and open_calls[-1].end <= call.start:
                open_calls.pop()
            if open_calls:
                call.top = False
                open_calls[-1].inner += min(call.end, open_calls[-1].end) - call.start
            open_calls.append(call)
            yield call


def _shapes(args: Mapping[str, Any]) -> str:
    def text(dims: Any) -> str:
        if dims and all(isinstance(dim, list) for dim in dims):  # a list of tensors
            return f"[{', '.join(map(text, dims))}]"
        return "×".join(map(str, dims))

    dims = args.get("Input Dims") or args.get("Input dims") or []
    return ", ".join(text(one) for one in dims if one)


def _totals(calls: Iterable[_Call], span: int, *, nested: bool) -> list[OperatorTime]:
    groups: dict[str, list[_Call]] = {}
    for call in calls:
        groups.setdefault(call.name, []).append(call)
    own = {name: sum(call.own for call in group) for name, group in groups.items()}
    return [
        OperatorTime(
            name=name,
            calls=len(groups[name]),
            own_ms=own[name] / 1e6,
            total_ms=sum(call.end - call.start for call in groups[name]) / 1e6 if nested else None,
            share=own[name] / span if span > 0 else 0.0,
            shapes=_longest(groups[name]),
        )
        for name in sorted(own, key=lambda name: -own[name])[:SHOWN]
    ]


def _longest(calls: Iterable[_Call]) -> str:
    by_shape: dict[str, int] = {}
    for call in calls:
        by_shape[call.shapes] = by_shape.get(call.shapes, 0) + call.own
    return max(by_shape, key=lambda shapes: by_shape[shapes])


def _device_stretches(kernels: Iterable[Mapping[str, Any]], runtime: Iterable[Mapping[str, Any]]) -> Iterable[Stretch]:
    """Yield work on the device, kernels queued (from their launch's end to their start), and waits of the host."""
    launched: dict[Any, int] = {}
    for event in runtime:
        start, end, _ = _stretch(event)
        launched[event.get("args", {}).get("correlation")] = end
        if any(word in event["name"].lower() for word in _BLOCKING):
            yield Stretch(start, end, "wait")
    for event in kernels:
        start, end, _ = _stretch(event)
        yield Stretch(start, end)
        correlation = event.get("args", {}).get("correlation")
        if correlation is not None and correlation in launched:
            yield Stretch(launched[correlation], start, "queued")


def _gaps(seen: Occupancy, words: Mapping[Cause, str], calls: Iterable[_Call], exposed: float = 1.0) -> Gaps:
    """Sum up the gaps in ``seen``, with each cause in ``words``.

    The longest gaps are named by the calls that end and begin there, the outermost where several do.
    """
    counted = [gap for gap in seen.gaps if gap.end - gap.start > GAP_US * 1e3]
    long = sorted((g for g in counted if g.end - g.start > LONG_MS * 1e6), key=lambda g: g.start - g.end)
    ordered_calls = sorted(calls, key=lambda call: call.end - call.start)
    ended = {call.end: call.name for call in ordered_calls}
    began = {call.start: call.name for call in ordered_calls}
    causes: dict[Cause, list[int]] = {}
    for gap in counted:
        causes.setdefault(gap.cause, []).append(gap.end - gap.start)
    ordered = sorted(causes.items(), key=lambda item: -sum(item[1]))
    return Gaps(
        span_ms=seen.span / 1e6,
        busy_ms=seen.busy / 1e6,
        idle_ms=seen.idle / 1e6,
        threshold_us=GAP_US,
        gaps=len(counted),
        gaps_ms=sum(gap.end - gap.start for gap in counted) / 1e6,
        causes=[GapCause(cause=words[cause], gaps=len(took), ms=sum(took) / 1e6) for cause, took in ordered],
        long_ms=sum(gap.end - gap.start for gap in long) / 1e6,
        longest=[
            LongGap(ms=(g.end - g.start) / 1e6, after=ended.get(g.start, ""), before=began.get(g.end, ""))
            for g in long[:LONGEST]
        ],
        exposed=exposed,
    )


Kind = Literal["work", "queued", "wait"]
Cause = Literal["start", "end", "queued", "wait", "idle"]


class Stretch(NamedTuple):
    """From ``start`` to ``end``, in any unit: work, work launched but not begun, or a host that waits or copies."""

    start: int
    end: int
    kind: Kind = "work"


@dataclass(frozen=True)
class Gap:
    """A stretch without work.

    ``cause`` is 'start' before the first work and 'end' after the last; 'queued' where the next work had been launched
    when the gap began; 'wait' where it had not, and the host waited for the device or copied during the gap; 'idle'
    where nobody had launched anything.
    """

    start: int
    end: int
    cause: Cause


@dataclass(frozen=True)
class Occupancy:
    """A span divided into busy time and gaps: ``busy`` and the gaps' lengths add up to ``span``."""

    span: int
    busy: int
    gaps: list[Gap]

    @property
    def idle(self) -> int:
        return self.span - self.busy


def occupancy(stretches: Iterable[Stretch], begin: int, end: int) -> Occupancy:
    """Return busy time and gaps from ``begin`` to ``end``; stretches may overlap, nest, touch and reach beyond that."""
    kinds: dict[Kind, list[tuple[int, int]]] = {"work": [], "queued": [], "wait": []}
    for start, stop, kind in stretches:
        kinds[kind].append((max(start, begin), min(stop, end)))
    work, queued, wait = (_merged(kinds[kind]) for kind in ("work", "queued", "wait"))
    edges = [begin, *(edge for stretch in work for edge in stretch), end]
    gaps = [
        Gap(left, right, _cause(left, right, work, queued, wait))
        for left, right in zip(edges[::2], edges[1::2], strict=True)
        if right > left
    ]
    return Occupancy(max(end - begin, 0), sum(stop - start for start, stop in work), gaps)


Merged = Sequence[tuple[int, int]]


def _merged(stretches: Iterable[tuple[int, int]]) -> Merged:
    """Return the union of ``stretches``, as stretches that neither overlap nor touch; empty ones vanish."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if stop <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


def _cause(left: int, right: int, work: Merged, queued: Merged, wait: Merged) -> Cause:
    if not work or right <= work[0][0]:
        return "start"
    if left >= work[-1][1]:
        return "end"
    if _reaches(queued, left, left + 1):
        return "queued"
    return "wait" if _reaches(wait, left, right) else "idle"


def _reaches(stretches: Merged, left: int, right: int) -> bool:
    """Whether one of ``stretches`` overlaps [left, right)."""
    last = bisect_right(stretches, right - 1, key=lambda stretch: stretch[0]) - 1  # the last that begins in time
    return last >= 0 and stretches[last][1] > left
