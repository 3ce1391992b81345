"""The time of devices in traces: computing, collectives, copies, stretches bound by launches; waits of hosts, ranks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from strobe.traces.launches import blocking_calls, launches, replayed_kernels
from strobe.traces.occupancy import Merged, Nest, length, merge_stretches, overlap
from strobe.traces.operator_table import LONG_MS, device_gaps
from strobe.traces.profiler_events import DeviceWork, HostCall, Rows, is_collective
from strobe.traces.results import CopyTime, DeviceTime, LaunchBound, RankWait, RankWaits, SyncTime

SMALL_NS = 10_000  # a kernel shorter than that costs less than its launch
AT_ONCE_NS = 10_000  # longest time from the end of its launch to a kernel's start; later ones stood in a queue
CHAIN = 20  # kernels in a row that began at once: fewer are no stretch
IDLE_BETWEEN = 0.1  # share of a stretch in which the device idled: less than that, the host kept up
SLICES = 120
CALLERS = 3


def device_time(rows: Rows, name: str, annotations: Nest, unjudged: Merged = ()) -> DeviceTime:
    """Return the time of one device.

    Args:
        rows: with the work of this device alone, at least one, and with the calls of all threads.
        name: the device's, '' if it is not known.
        annotations: of the host, to name stretches by.
        unjudged: stretches from which kernels may be missing: they are no part of any time.
    """
    begin, end = min(work.start for work in rows.device), max(work.end for work in rows.device)
    left_out = merge_stretches((max(start, begin), min(stop, end)) for start, stop in unjudged)
    kernels = [work for work in rows.device if work.kind == "kernel"]
    copying = [work for work in rows.device if work.kind != "kernel"]

    def judged_ms(works: Iterable[DeviceWork], under: Iterable[DeviceWork] = ()) -> float:
        below = [*left_out, *_union(under)]
        return (length(merge_stretches([*below, *_union(works)])) - length(merge_stretches(below))) / 1e6

    computing = [work for work in kernels if not is_collective(work)]
    communicating = [work for work in kernels if is_collective(work)]
    return DeviceTime(
        device=rows.device[0].device,
        name=name,
        streams=len({work.stream for work in rows.device}),
        gaps=device_gaps(rows, begin, end, left_out),
        kernels_ms=judged_ms(kernels),
        compute_ms=judged_ms(computing),
        communication_ms=judged_ms(communicating),
        exposed_communication_ms=judged_ms(communicating, computing),
        copies_ms=judged_ms(copying),
        exposed_copies_ms=judged_ms(copying, kernels),
        kernels=len(kernels),
        small_kernels=sum(work.end - work.start < SMALL_NS for work in kernels),
        graph_kernels=len(replayed_kernels(rows)),
        launch_bound=_launch_bound(rows, annotations, left_out),
        busy_shares=_shares(_union(rows.device), left_out, begin, end),
    )


def _union(works: Iterable[DeviceWork]) -> Merged:
    return merge_stretches((work.start, work.end) for work in works)


def _launch_bound(rows: Rows, annotations: Nest, left_out: Merged) -> LaunchBound | None:
    """Return the stretches in which kernel after kernel began at once and the device idled between; None without any.

    Copies and collectives wait for other things than launches, so they are passed over. A pause of a millisecond ends
    a stretch: no launch takes that long.
    """
    everything, found = merge_stretches([*_union(rows.device), *left_out]), []
    for chain in _chains(rows):
        begin, end = chain[0].start if chain else 0, max((work.end for work in chain), default=0)
        idle = end - begin - overlap(everything, [(begin, end)]) if len(chain) >= CHAIN else 0
        if idle and idle >= IDLE_BETWEEN * (end - begin):
            found.append((end - begin, idle, chain))
    if not found:
        return None
    longest, _, first = max(found, key=lambda each: each[0])
    launch = rows.callers().get(first[0].correlation)
    around = annotations.calls_around_launch(launch) if launch is not None else ()
    return LaunchBound(
        stretches=len(found),
        kernels=sum(len(chain) for *_, chain in found),
        ms=sum(took for took, *_ in found) / 1e6,
        idle_ms=sum(idle for _, idle, _ in found) / 1e6,
        longest_ms=longest / 1e6,
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
    edges = [begin + (end - begin) * place // SLICES for place in range(SLICES + 1)]
    both, shares = merge_stretches([*busy, *left_out]), []
    for left, right in pairwise(edges):
        first = bisect_right(both, left, key=lambda piece: piece[1])
        near = both[first : bisect_left(both, right, key=lambda piece: piece[0])]
        out = overlap(left_out, [(left, right)])
        if right > left:
            judged = right - left - out
            shares.append(round((overlap(near, [(left, right)]) - out) / judged, 4) if judged else None)
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
                ms=sum(work.end - work.start for work in works) / 1e6,
                size=sum(sizes) if len(sizes) == len(works) else None,
                waited=len(calls),
                waited_ms=_sum_ms(calls),
                callers=_callers(calls, operators),
            )
        )
    return sorted(found, key=lambda copy: -copy.ms)


def syncs(rows: Rows) -> list[SyncTime]:
    """Return the calls that wait for the device by name, with the operators around them.

    The profiler waits for the device itself when it stops: calls after the last operator are left out.
    """
    last = max((call.end for call in rows.operators), default=0)
    operators = Nest(rows.operators)
    names: dict[str, list[HostCall]] = {}
    for call, kind in blocking_calls(rows):
        if kind == "wait" and (call.start < last or not rows.operators):
            names.setdefault(call.name, []).append(call)
    found = [
        SyncTime(name=name, calls=len(calls), ms=_sum_ms(calls), callers=_callers(calls, operators))
        for name, calls in names.items()
    ]
    return sorted(found, key=lambda sync: -sync.ms)


def _sum_ms(calls: Sequence[HostCall]) -> float:
    return sum(call.end - call.start for call in calls) / 1e6


def _callers(calls: Iterable[HostCall], operators: Nest) -> list[str]:
    around = (operators.calls_at_moment(call.thread, call.start) for call in calls)
    return [name for name, _ in Counter(found[-1].name for found in around if found).most_common(CALLERS)]


def rank_waits(ranks: Mapping[str, Rows]) -> RankWaits | str:
    """Return what each rank waited for the others in collectives, or why these traces cannot show it.

    The kernel of a collective runs from when its own rank arrives until all have arrived and the data is exchanged. So
    the rank whose kernel is the shortest came last, and the others waited for it. That needs no common clock.

    Args:
        ranks: name → rows.
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
        took = [work.end - work.start for work in works]
        waits.append(
            RankWait(
                name=name,
                waiting_ms=sum(mine - least for mine, least in zip(took, shortest, strict=True)) / 1e6,
                last=sum(mine == least for mine, least in zip(took, shortest, strict=True)),
            )
        )
    return RankWaits(collectives=len(together), ranks=waits)


def _collectives(rows: Rows) -> Sequence[DeviceWork]:
    works = [work for work in rows.device if is_collective(work)]
    streams = list(dict.fromkeys(work.stream for work in sorted(works, key=lambda work: work.start)))
    return sorted(works, key=lambda work: (streams.index(work.stream), work.start))
