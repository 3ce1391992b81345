"""Iterations and parts of a program, from its annotations (`record_function`) in a trace."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from strobe.traces.occupancy import Merged, Nest, clip, length, total_ns, unite
from strobe.traces.profiler_events import DeviceWork, HostCall, Rows
from strobe.traces.results import TraceIterations, TracePart

STEP = re.compile(r"ProfilerStep#\d+")  # torch.profiler's own, of `profiler.step()`
FEWEST = 3  # repeats from which an annotation may be the iterations
COVERS = 0.5  # share of the host's time that it then covers
ROUNDED_NS = 2_000  # ends of calls that a trace in microseconds may exchange
LEAST = 0.002  # share of the host's or the device's time from which a part is shown


def iterations(rows: Rows, unjudged: Merged = ()) -> TraceIterations | None:
    """Return the profiler's steps, or the annotation that repeats over most of the trace; None without one.

    An iteration that has a part of an ``unjudged`` stretch may lack kernels, so it has no device time.
    """
    calls = iteration_calls(rows)
    if not calls:
        return None
    busy = unite(rows.device)
    windows = [(call.start, call.end) for call in calls]
    starts = sorted(work.start for work in rows.device)
    took = [(call.end - call.start) / 1e6 for call in calls]
    judged = [(window, not clip(unjudged, *window)) for window in windows if starts]
    return TraceIterations(
        name="ProfilerStep" if STEP.fullmatch(calls[0].name) else calls[0].name,
        ms=took,
        median_ms=median(took),
        busy_ms=[length(clip(busy, *at)) / 1e6 if ok else None for at, ok in judged],
        work=[bisect_left(starts, at[1]) - bisect_left(starts, at[0]) if ok else None for at, ok in judged],
    )


def drop_crossing(rows: Rows) -> tuple[Rows, list[str]]:
    """Return the rows without annotations of a name that crosses others of its thread, and these names.

    Of two that overlap, and that both have time outside of the other, neither is a part of the other. Steps of the
    profiler may cross others.
    """
    named = Nest(call for call in rows.annotations if not STEP.fullmatch(call.name))
    nested = ((call, around) for call, around in named.pairs() if around is not None)
    overlaps = ((call, around, min(around.end - call.start, call.end - around.end)) for call, around in nested)
    crossing = {name for call, around, by in overlaps if by > ROUNDED_NS for name in (call.name, around.name)}
    return replace(rows, annotations=[call for call in rows.annotations if call.name not in crossing]), sorted(crossing)


def iteration_calls(rows: Rows) -> list[HostCall]:
    """Return the annotations that are the iterations, in the order of time; [] if none can be taken for them.

    A step without any operator is none: the profiler opens one when the last has ended.
    """
    starts = sorted(call.start for call in rows.operators)
    steps = [call for call in rows.annotations if STEP.fullmatch(call.name)]
    if steps:
        ran = [call for call in steps if bisect_left(starts, call.start) < bisect_left(starts, call.end)]
        return sorted(ran, key=lambda call: call.start)
    host = (*rows.operators, *rows.runtime, *rows.annotations)
    span = max((call.end for call in host), default=0) - min((call.start for call in host), default=0)
    named: dict[tuple[str, str], list[HostCall]] = {}
    for call in sorted(rows.annotations, key=lambda call: call.start):
        named.setdefault((call.thread, call.name), []).append(call)
    fitting = [calls for calls in named.values() if len(calls) >= FEWEST and _one_by_one(calls)]
    best = max(fitting, key=total_ns, default=[])
    return best if span > 0 and total_ns(best) >= COVERS * span else []


def _one_by_one(calls: Sequence[HostCall]) -> bool:
    return all(call.end <= following.start for call, following in pairwise(calls))


@dataclass
class _Part:
    calls: int = 0
    host: int = 0
    lost: int = 0
    work: list[DeviceWork] = field(default_factory=list)


def parts(rows: Rows, annotations: Nest, lost: Sequence[HostCall] = ()) -> list[TracePart]:
    """Return the annotations by path, in the order of the tree: the longest first within each part.

    Work on the device belongs to the annotations that were open where it was launched. A thread without annotations,
    such as that of a backward pass, works for those that are open on the thread with the most of them. Launches
    ``lost`` lack kernels.
    """
    of: dict[tuple[str, ...], _Part] = {}
    for around in annotations.paths():
        if path := annotation_path(around):
            part = of.setdefault(path, _Part())
            part.calls += 1
            part.host += around[0].end - around[0].start
    _add_device_work(of, rows, annotations, lost)
    host = sum(part.host for path, part in of.items() if len(path) == 1)
    device = total_ns(rows.device)
    on_device = {path: total_ns(part.work) for path, part in of.items()}
    shown = {path for path in of if of[path].host >= LEAST * host or on_device[path] >= LEAST * max(device, 1)}
    return [
        TracePart(
            path=list(path),
            calls=of[path].calls,
            host_ms=of[path].host / 1e6,
            device_ms=on_device[path] / 1e6,
            work=len(of[path].work),
            busy_ms=length(unite(of[path].work)) / 1e6,
            median_us=median(work.end - work.start for work in of[path].work) / 1e3 if of[path].work else None,
            lost=of[path].lost,
        )
        for path in sort_paths(shown, {path: part.host for path, part in of.items()})
    ]


def _add_device_work(of: dict[tuple[str, ...], _Part], rows: Rows, annotations: Nest, lost: Sequence[HostCall]) -> None:
    calls = rows.callers()
    launched = [*((work, calls.get(work.correlation)) for work in rows.device), *((None, call) for call in lost)]
    for work, launch in launched:
        path = annotation_path(annotations.calls_around_launch(launch)) if launch is not None else ()
        for depth in range(1, len(path) + 1):
            part = of.setdefault(path[:depth], _Part())
            part.lost += work is None
            part.work += [] if work is None else [work]


def annotation_path(around: Iterable[HostCall]) -> tuple[str, ...]:
    """Return the names of annotations from the outermost in, without the profiler's steps."""
    return tuple(reversed([call.name for call in around if not STEP.fullmatch(call.name)]))


def sort_paths(paths: Iterable[tuple[str, ...]], took: Mapping[tuple[str, ...], int]) -> list[tuple[str, ...]]:
    """Return paths in the order of their tree: each before those in it, the longest first among those side by side."""
    return sorted(paths, key=lambda path: [(-took[path[:end]], path[end - 1]) for end in range(1, len(path) + 1)])
