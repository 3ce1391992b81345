"""The time of devices in traces: computing, collectives, copies, stretches bound by launches; waits of hosts, ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from strobe.traces.launches import blocking_calls, launches, replayed_kernels, waiting_calls
from strobe.traces.occupancy import Merged, Nest, clip, length, merge, subtract, total_ns, unite
from strobe.traces.operator_table import LONG_MS, device_gaps
from strobe.traces.profiler_events import DeviceWork, HostCall, Rows, is_collective
from strobe.traces.results import CopyTime, DeviceTime, LaunchBound, RankWait, RankWaits, SyncTime

AT_ONCE_NS = 10_000  # longest time from the end of its launch to a kernel's start; later ones stood in a queue
CHAIN = 20  # kernels in a row that began at once: fewer are no stretch
IDLE_BETWEEN = 0.1  # share of a stretch in which the device idled: less than that, the host kept up
SLICES = 120
CALLERS = 3


def device_time(rows: Rows, name: str, annotations: Nest, unjudged: Merged = ()) -> DeviceTime:
    """Return the time of the one device of ``rows``, which have the calls of all threads.

    What ``unjudged`` stretches lack is not known, so they are no part of any time. ``annotations`` name stretches.
    """
    begin, end = min(work.start for work in rows.device), max(work.end for work in rows.device)
    end = max([end, *(stop for _, stop in unjudged)])
    waits = merge((max(call.start, begin), min(call.end, end)) for call, _ in blocking_calls(rows))
    left_out = clip(unjudged, begin, end)
    kernels = [work for work in rows.device if work.kind == "kernel"]
    copying = [work for work in rows.device if work.kind != "kernel"]

    def judged_ms(works: Iterable[DeviceWork], under: Iterable[DeviceWork] = ()) -> float:
        return length(subtract(unite(works), merge([*left_out, *unite(under)]))) / 1e6

    computing = [work for work in kernels if not is_collective(work)]
    communicating = [work for work in kernels if is_collective(work)]
    return DeviceTime(
        device=rows.device[0].device,
        name=name,
        streams=len({work.stream for work in rows.device}),
        gaps=device_gaps(rows, begin, end, left_out),
        compute_ms=judged_ms(computing),
        communication_ms=judged_ms(communicating),
        exposed_communication_ms=judged_ms(communicating, computing),
        copies_ms=judged_ms(copying),
        exposed_copies_ms=judged_ms(copying, kernels),
        waited_ms=length(subtract(waits, left_out)) / 1e6,
        kernels=len(kernels),
        graph_kernels=len(replayed_kernels(rows)),
        launch_bound=_launch_bound(rows, annotations, left_out),
        busy_shares=_shares(unite(rows.device), left_out, begin, end),
    )


def _launch_bound(rows: Rows, annotations: Nest, left_out: Merged) -> LaunchBound | None:
    """Return the stretches in which kernel after kernel began at once and the device idled between; None without any.

    Copies and collectives wait for other things than launches, so they are passed over. A pause of a millisecond ends
    a stretch: no launch takes that long.
    """
    everything, found = merge([*unite(rows.device), *left_out]), []
    for chain in _chains(rows):
        begin, end = chain[0].start if chain else 0, max((work.end for work in chain), default=0)
        idle = length(subtract([(begin, end)], everything)) if len(chain) >= CHAIN else 0
        if idle and idle >= IDLE_BETWEEN * (end - begin):
            found.append((begin, end, chain))
    if not found:
        return None
    begin, end, first = max(found, key=lambda each: each[1] - each[0])
    stretches = merge((begin, end) for begin, end, _ in found)
    launch = rows.callers().get(first[0].correlation)
    around = annotations.calls_around_launch(launch) if launch is not None else ()
    return LaunchBound(
        stretches=len(found),
        kernels=sum(len(chain) for *_, chain in found),
        ms=length(subtract(stretches, left_out)) / 1e6,
        idle_ms=length(subtract(stretches, everything)) / 1e6,
        longest_ms=(end - begin) / 1e6,
        within=around[0].name if around else None,
    )


def _chains(rows: Rows) -> list[list[DeviceWork]]:
    """Return runs of kernels that each began at once after its launch, which was its own: a graph launches many.

    How many a graph launches does not matter: those of a replayed graph follow each other without the host.
    """
    chains: list[list[DeviceWork]] = [[]]
    launched_by = Counter(work.correlation for work in rows.device)
    in_graphs = set(map(id, replayed_kernels(rows)))
    kernels = ((work, at) for work, at in launches(rows) if work.kind == "kernel" and not is_collective(work))
    for work, launched in sorted(kernels, key=lambda pair: pair[0].start):
        own = launched_by[work.correlation] == 1 and id(work) not in in_graphs
        at_once = own and launched is not None and work.start - launched <= AT_ONCE_NS
        if not at_once or (chains[-1] and work.start - chains[-1][-1].end > LONG_MS * 1e6):
            chains.append([])
        if at_once:
            chains[-1].append(work)
    return chains


def _shares(busy: Merged, left_out: Merged, begin: int, end: int) -> list[float | None]:
    """Return the busy share of what is judged of each of `SLICES` equal slices; None where that is nothing."""
    edges, shares = [begin + (end - begin) * place // SLICES for place in range(SLICES + 1)], []
    for left, right in pairwise(edges):
        judged = length(subtract([(left, right)], left_out))
        worked = length(subtract(clip(busy, left, right), left_out))
        shares += [round(worked / judged, 4) if judged else None] if right > left else []
    return shares


def copies(rows: Rows) -> list[CopyTime]:
    """Return the copies and memsets of all devices by their kind, those that took longest first."""
    held = {call.correlation: call for call, kind in blocking_calls(rows) if kind == "copy"}
    operators = Nest(rows.operators)
    kinds: dict[str, list[DeviceWork]] = {}
    for work in rows.device:
        if work.kind != "kernel":
            kinds.setdefault(work.name, []).append(work)
    found = []
    for kind, works in kinds.items():
        calls = [held[work.correlation] for work in works if work.correlation is not None and work.correlation in held]
        sizes = [work.size for work in works if work.size is not None]
        found.append(
            CopyTime(
                kind=kind,
                calls=len(works),
                ms=total_ns(works) / 1e6,
                size=sum(sizes) if len(sizes) == len(works) else None,
                waited=len(calls),
                waited_ms=total_ns(calls) / 1e6,
                callers=_callers(calls, operators),
            )
        )
    return sorted(found, key=lambda copy: -copy.ms)


def syncs(rows: Rows) -> list[SyncTime]:
    """Return the calls that wait for the device by name, with the operators around them."""
    operators = Nest(rows.operators)
    names: dict[str, list[HostCall]] = {}
    for call in waiting_calls(rows):
        names.setdefault(call.name, []).append(call)
    found = [
        SyncTime(name=name, calls=len(calls), ms=total_ns(calls) / 1e6, callers=_callers(calls, operators))
        for name, calls in names.items()
    ]
    return sorted(found, key=lambda sync: -sync.ms)


def _callers(calls: Iterable[HostCall], operators: Nest) -> list[str]:
    around = (operators.calls_at_moment(call.thread, call.start) for call in calls)
    return [name for name, _ in Counter(found[-1].name for found in around if found).most_common(CALLERS)]


def rank_waits(ranks: Mapping[str, Rows]) -> RankWaits | str:
    """Return what each rank waited for the others in collectives, or why these traces cannot show it.

    The kernel of a collective runs from when its own rank arrives until all have arrived and the data is exchanged. So
    the rank whose kernel is the shortest came last, and the others waited for it. That needs no common clock.
    """
    if len(ranks) < 2:
        return "there is one rank"
    orders = {name: _collectives(rows) for name, rows in ranks.items()}
    without = [name for name, works in orders.items() if not works]
    if without:
        return f"{', '.join(without[:4])}{' …' if len(without) > 4 else ''}: no collectives in the trace"
    sequences = {tuple(work.name for work in works) for works in orders.values()}
    if len(sequences) > 1:
        return "the ranks did not run the same collectives in the same order"
    together = list(zip(*orders.values(), strict=True))
    shortest = [min(work.end - work.start for work in works) for works in together]
    waits = []
    for name, works in orders.items():
        waited = [(work.start, work.end - least) for work, least in zip(works, shortest, strict=True)]
        last = sum(start == stop for start, stop in waited)
        waits.append(RankWait(name=name, waiting_ms=length(merge(waited)) / 1e6, last=last))
    return RankWaits(collectives=len(together), ranks=waits)


def _collectives(rows: Rows) -> Sequence[DeviceWork]:
    works = [work for work in rows.device if is_collective(work)]
    streams = list(dict.fromkeys(work.stream for work in sorted(works, key=lambda work: work.start)))
    return sorted(works, key=lambda work: (streams.index(work.stream), work.start))
