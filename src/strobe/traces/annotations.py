"""Iterations and parts of a program, from its annotations (`record_function`) in a trace."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from strobe.traces.occupancy import Merged, Nest, length, merge_stretches, overlap
from strobe.traces.profiler_events import DeviceWork, HostCall, Rows
from strobe.traces.results import TraceIterations, TracePart

STEP = re.compile(r"ProfilerStep#\d+")  # torch.profiler's own, of `profiler.step()`
FEWEST = 3  # repeats from which an annotation may be the iterations
COVERS = 0.5  # share of the host's time that it then covers
LEAST = 0.002  # share of the host's or the device's time from which a part is shown


def iterations(rows: Rows, unjudged: Merged = ()) -> TraceIterations | None:
    """Return the profiler's steps, or the annotation that repeats over most of the trace; None without one.

    Args:
        unjudged: stretches from which kernels may be missing: an iteration that has any of them has no device time.
    """
    calls = iteration_calls(rows)
    if not calls:
        return None
    busy = merge_stretches((work.start, work.end) for work in rows.device)
    windows = [(call.start, call.end) for call in calls]
    starts = sorted(work.start for work in rows.device)
    took = [(call.end - call.start) / 1e6 for call in calls]
    judged = [(window, overlap(unjudged, [window]) == 0) for window in windows if starts]
    return TraceIterations(
        name="ProfilerStep" if STEP.fullmatch(calls[0].name) else calls[0].name,
        ms=took,
        median_ms=median(took),
        busy_ms=[overlap(busy, [at]) / 1e6 if ok else None for at, ok in judged],
        work=[bisect_left(starts, at[1]) - bisect_left(starts, at[0]) if ok else None for at, ok in judged],
    )


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
    best = max(fitting, key=_total_duration, default=[])
    return best if span > 0 and _total_duration(best) >= COVERS * span else []


def _total_duration(calls: Sequence[HostCall]) -> int:
    return sum(call.end - call.start for call in calls)


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
    such as that of a backward pass, works for those that are open on the thread with the most of them.

    Args:
        lost: launches without a kernel.
    """
    of: dict[tuple[str, ...], _Part] = {}
    for around in annotations.paths():
        if path := annotation_path(around):
            part = of.setdefault(path, _Part())
            part.calls += 1
            part.host += around[0].end - around[0].start
    _add_device_work(of, rows, annotations, lost)
    host = sum(part.host for path, part in of.items() if len(path) == 1)
    device = sum(work.end - work.start for work in rows.device)
    on_device = {path: sum(work.end - work.start for work in part.work) for path, part in of.items()}
    shown = {path for path in of if of[path].host >= LEAST * host or on_device[path] >= LEAST * max(device, 1)}
    return [
        TracePart(
            path=list(path),
            calls=of[path].calls,
            host_ms=of[path].host / 1e6,
            device_ms=on_device[path] / 1e6,
            work=len(of[path].work),
            busy_ms=length(merge_stretches((work.start, work.end) for work in of[path].work)) / 1e6,
            median_us=median(work.end - work.start for work in of[path].work) / 1e3 if of[path].work else None,
            lost=of[path].lost,
        )
        for path in _sort_paths(shown, of)
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


def _sort_paths(shown: Iterable[tuple[str, ...]], of: dict[tuple[str, ...], _Part]) -> list[tuple[str, ...]]:
    def place(path: tuple[str, ...]) -> list[tuple[int, str]]:
        return [(-of[path[:depth]].host, path[depth - 1]) for depth in range(1, len(path) + 1)]

    return sorted((path for path in shown if all(path[:depth] in of for depth in range(1, len(path)))), key=place)
