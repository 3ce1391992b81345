"""Parts of replayed graphs: a kernel in a graph is in no annotation, the same kernel launched by itself is.

A replay runs the kernels that its capture met, in that order. So its parts are those of the same sequence of kernels,
by name, in a run without the graph. Where that run does not have the sequence (kernels are fused, chosen otherwise or
in another order), nothing is said of parts. Kernels of random numbers, and copies from and to the host, are passed
over: Strobe draws numbers before a replay, and its graphs hold no such copies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

from strobe.traces.annotations import annotation_path, sort_paths
from strobe.traces.launches import graph_launches, replayed_work
from strobe.traces.occupancy import Nest, length, total_ns, unite
from strobe.traces.profiler_events import DeviceWork, Rows
from strobe.traces.results import GraphPart, GraphTime, short_kernel

_PASSED_OVER = re.compile(r"HtoD|DtoH|distribution|philox|random", re.IGNORECASE)
_FIRST = 0xE000  # each name becomes a character from here on, so that texts are searched

Path = tuple[str, ...]


def graph_times(replay: Rows, eager: Rows) -> list[GraphTime]:
    """Return the graphs that ``replay`` launched, those of one sequence of kernels together, with their parts.

    Of ``eager``, which may be the same rows, the work outside of graphs has the annotations of the parts.
    """
    known: dict[str, str] = {}
    around, found = Nest(replay.annotations), {}
    for call, works in replayed_work(replay).items():
        name = (annotation_path(around.calls_around_launch(call)) or ("graph",))[-1]
        found.setdefault((name, _text(_comparable_work(works), known)), []).append(works)
    if not found:
        return []
    alone = _outside_graphs(eager)
    eager_text, paths = _text(alone, known), _paths(alone, eager)
    return [_graph(name, text, replays, alone, eager_text, paths) for (name, text), replays in found.items()]


def _outside_graphs(rows: Rows) -> list[DeviceWork]:
    graphs = graph_launches(rows)
    outside = (work for work in rows.device if not work.graph and work.correlation not in graphs)
    return _comparable_work(sorted(outside, key=lambda work: work.start))


def _comparable_work(works: Sequence[DeviceWork]) -> list[DeviceWork]:
    return [work for work in works if not _PASSED_OVER.search(work.name)]


def _text(works: Sequence[DeviceWork], known: dict[str, str]) -> str:
    return "".join(known.setdefault(work.name, chr(_FIRST + len(known))) for work in works)


def _paths(works: Sequence[DeviceWork], rows: Rows) -> list[Path]:
    calls, nest = rows.callers(), Nest(rows.annotations)
    launched = [calls.get(work.correlation) for work in works]
    return [() if call is None else annotation_path(nest.calls_around_launch(call)) for call in launched]


def _graph(
    name: str,
    text: str,
    replays: Sequence[list[DeviceWork]],
    alone: list[DeviceWork],
    eager_text: str,
    paths: list[Path],
) -> GraphTime:
    every = [work for works in replays for work in works]
    places = [each.start() for each in re.finditer(re.escape(text), eager_text)] if text else []
    same = len(text) if places else _longest_start(text, eager_text)
    seen = GraphTime(name=name, replays=len(replays), matched=same, **_times(every))
    ways = {tuple(paths[place : place + len(text)]) for place in places}
    if not places:
        first = next((short_kernel(work.name) for work in _comparable_work(replays[0])[same : same + 1]), "")
        seen.not_judged = f"of its {len(text):,} kernels the first {same:,} come in this order without the graph"
        seen.not_judged += f"; the next, {first[:60]}, does not follow there" if first else ""
    elif len(ways) > 1 and len(places) != len(replays):
        seen.not_judged = (
            f"its kernels come {len(places):,} times in other parts without the graph, and {len(replays):,} times in it"
        )
    elif not any(path for way in ways for path in way):
        seen.not_judged = "its kernels are in no annotation without the graph either"
    else:
        pairs = [
            (paths[place + at], work, alone[place + at])
            for number, works in enumerate(replays)
            for place in [places[number % len(places)]]
            for at, work in enumerate(_comparable_work(works))
        ]
        seen.parts = _parts(pairs)
    return seen


def _longest_start(text: str, eager_text: str) -> int:
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] in eager_text else (low, middle - 1)
    return low


def _parts(pairs: Sequence[tuple[Path, DeviceWork, DeviceWork]]) -> list[GraphPart]:
    of: dict[Path, list[tuple[DeviceWork, DeviceWork]]] = {}
    for path, work, eager in pairs:
        for depth in range(1, len(path) + 1):
            of.setdefault(path[:depth], []).append((work, eager))

    took = {path: total_ns(work for work, _ in both) for path, both in of.items()}
    return [
        GraphPart(
            path=list(path),
            alone_ms=total_ns(eager for _, eager in of[path]) / 1e6,
            **_times([work for work, _ in of[path]]),
        )
        for path in sort_paths(of, took)
    ]


def _times(works: Sequence[DeviceWork]) -> dict[str, Any]:
    took = [work.end - work.start for work in works]
    busy = length(unite(works))
    return {"work": len(works), "device_ms": sum(took) / 1e6, "busy_ms": busy / 1e6, "median_us": median(took) / 1e3}
