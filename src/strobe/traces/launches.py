"""Launches of kernels and graphs: which of them lack kernels in the trace, and what time that leaves unjudged.

A profiler can lose kernels, above all the first of a session (pytorch #192021), or have no access to the device (kineto
#762). The host's launches are in the trace all the same, so what is missing can be counted. Of a replayed graph it can
write a part (Hyperloom #1047): other replays have more, or the host waits while nothing runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from typing import Literal

from strobe.core.results import units
from strobe.traces.occupancy import Merged, merge, subtract, unite
from strobe.traces.profiler_events import DeviceWork, HostCall, Rows, is_collective
from strobe.traces.results import Gaps

_GRAPH = "graphlaunch"  # in the names of runtime calls, of CUDA and of HIP
_EARLY_NS = 1_000_000  # clocks of host and device differ by less; a kernel this early has another clock's time
_EMPTY_NS = 1_000_000  # a wait for a device that does nothing: waking a thread takes less
_COMPARED = 64  # largest sets of nodes that a replay is compared with


@dataclass(frozen=True)
class Lost:
    """Launches of kernels and graphs, and those of them that lack kernels in the trace."""

    launches: int
    calls: Sequence[HostCall]  # those without a kernel, in the order of time
    first: bool  # whether most of these are the first launches of the trace
    all: bool  # whether the host launched kernels, and the profiler saw none
    matched: bool  # whether any kernel has the number (correlation) of a call: else nobody knows its launch
    partial: Sequence[HostCall] = ()  # replays of graphs with fewer kernels than others of the same graph
    waits: Sequence[tuple[int, int, HostCall]] = ()  # a replay was waited for, and nothing ran: from, to, its launch
    replays: str = ""  # what replayed graphs lack, with numbers

    @property
    def lacking(self) -> list[HostCall]:
        """All launches that lack kernels."""
        return list(dict.fromkeys([*self.calls, *self.partial, *(call for *_, call in self.waits)]))


def lost_launches(rows: Rows) -> Lost:
    """Return the launches of a trace that lack kernels.

    A launch while a graph is being captured runs nothing, so it is none. Where kernels have no number, or are of a
    graph whose launch is not known, each of them may be what a launch lacks: then none is taken for lost. A replay
    lacks kernels if another one has the same nodes and more. Or if the host, or launched work, waits for over a
    millisecond while nothing runs: it waits for work that the trace lacks.
    """
    kernels = [work for work in rows.device if work.kind == "kernel"]
    called = rows.callers()
    ran = {work.correlation for work in rows.device} - {None}
    launches = _launches(rows.runtime)
    lost = [group[0] for group in launches if not any(call.correlation in ran for call in group)]
    matched = not kernels or any(work.correlation in called for work in kernels)
    unknown = sum(work.correlation is None or (work.graph and work.correlation not in called) for work in kernels)
    if kernels and (not matched or len(lost) <= unknown):
        lost = []
    middle = len(lost) // 2
    first = bool(lost) and launches[middle][0] is lost[middle]  # all launches up to that one are lost
    replays = replayed_work(rows)
    of, waits = _whole_replays(replays), _empty_waits(rows, list(replays))
    text = (
        f"{units.count(len(replays), 'replay')} of graphs have {sum(map(len, replays.values())):,} kernels in the trace"
    )
    if of:
        have = sum(len(replays[call]) for call in of)
        text += f"; {len(of):,} of them have {have:,} of the {sum(of.values()):,} that others of the same graph have"
    if waits:
        waited = units.short_ms(sum(stop - start for start, stop, _ in waits) / 1e6)
        text += f"; the host or launched work waits {waited} ms for them while nothing runs"
    blind = bool(launches) and not kernels
    return Lost(len(launches), lost, first, blind, matched, list(of), waits, text if of or waits else "")


def _whole_replays(replays: Mapping[HostCall, Sequence[DeviceWork]]) -> dict[HostCall, int]:
    """Return the launches of replays that lack nodes of another one, with the number of nodes of that."""
    nodes = {call: frozenset((work.graph, work.name) for work in works) for call, works in replays.items()}
    nodes = {call: own for call, own in nodes.items() if all(number for number, _ in own)}
    largest = sorted(set(nodes.values()), key=len, reverse=True)[:_COMPARED]
    whole = {call: next((len(other) for other in largest if own < other), 0) for call, own in nodes.items()}
    return {call: count for call, count in whole.items() if count}


def _empty_waits(rows: Rows, replays: Sequence[HostCall]) -> list[tuple[int, int, HostCall]]:
    """Return the stretches in which a replay was waited for and nothing ran, each with the latest replay before it."""
    callers, waits = rows.callers(), [(call.start, call.end) for call in waiting_calls(rows)]
    for work in rows.device:
        if call := callers.get(work.correlation):
            blocks = work.kind == "copy" and call.end >= work.end
            waits.append((call.start if blocks else call.end, work.start))
    begun, busy, found = [call.start for call in replays], unite(rows.device), []
    for start, stop in subtract(merge(waits), busy) if replays else ():
        place, ran = bisect_right(begun, start) - 1, bisect_right(busy, start, key=itemgetter(1)) - 1
        if place >= 0 and stop - start > _EMPTY_NS:
            found.append((max(begun[place], busy[ran][1] if ran >= 0 else 0), stop, replays[place]))
    return found


def lacks_text(gaps: Gaps, lost: Lost) -> str:
    """Return from how much of a device's time kernels may be missing, and which."""
    first = ", most of them the first ones" if lost.first else ""
    none = f"of {lost.launches:,} launches {len(lost.calls):,} have no kernel in the trace{first}" if lost.calls else ""
    unjudged, whole = units.short_ms(gaps.unjudged_ms), units.short_ms(gaps.span_ms + gaps.unjudged_ms)
    return f"kernels may be missing in {unjudged} of {whole} ms ({'; '.join(filter(None, (none, lost.replays)))})"


def blindness_text(launches: int) -> str:
    """Return what to say of launches of which no kernel is in the trace."""
    times = units.count(launches, "time")
    return f"the host launched kernels {times}, and the profiler saw none of them: it had no access to the device"


def _launches(runtime: Iterable[HostCall]) -> list[list[HostCall]]:
    groups: list[list[HostCall]] = []
    open_groups: dict[str, list[HostCall]] = {}
    capturing = False
    for call in sorted(runtime, key=lambda call: (call.start, -call.end)):
        name = call.name.lower()
        if "begincapture" in name or "endcapture" in name:
            capturing = "begin" in name
        elif "launch" in name and "hostfunc" not in name and not capturing:
            around = open_groups.get(call.thread)
            if around is not None and call.end <= around[0].end and call.name != around[0].name:
                around.append(call)
            else:
                open_groups[call.thread] = [call]
                groups.append(open_groups[call.thread])
    return groups


def holes(rows: Rows, lost: Lost) -> Merged:
    """Return the stretches in which kernels that the trace lacks may have run on the one device of ``rows``.

    Kernels begin in the order of their launches. So one that is lost ran after those launched before it, and before the
    next that is there: both are looked for among kernels that compute, because collectives have streams of their own.
    """
    callers = rows.callers()
    computing = [work for work in rows.device if work.kind == "kernel" and not is_collective(work)]
    order = sorted((callers.get(work.correlation, work).start, work.start, work.end) for work in computing)
    launched, last = [each[0] for each in order], max((work.end for work in rows.device), default=0)
    ended = list(accumulate((end for *_, end in order), max))
    found = [(start, stop) for start, stop, _ in lost.waits] if replayed_kernels(rows) else []
    for call in (*lost.calls, *lost.partial):
        before, after = bisect_left(launched, call.start), bisect_right(launched, call.start)
        begin = max(call.start, ended[before - 1]) if before else call.start
        found.append((begin, order[after][1] if after < len(order) else max(last, call.end)))
    return merge(found)


def drop_early_work(rows: Rows) -> Rows:
    """Return the rows without work that begins before its own launch, which is counted: its time is another clock's."""
    callers = rows.callers()
    late = [work for work in rows.device if work.start >= callers.get(work.correlation, work).start - _EARLY_NS]
    if early := len(rows.device) - len(late):
        rows.left_out["on the device before their own launch"] += early
    return replace(rows, device=late)


def graph_launches(rows: Rows) -> dict[str, HostCall]:
    """Return a correlation → the call that launched a graph, in the order of time."""
    calls = sorted((call for call in rows.runtime if _GRAPH in call.name.lower()), key=lambda call: call.start)
    return {call.correlation: call for call in calls if call.correlation is not None}


def replayed_work(rows: Rows) -> dict[HostCall, list[DeviceWork]]:
    """Return the launches of graphs that have work in the trace, each with its work; both in the order of time."""
    works: dict[str, list[DeviceWork]] = {}
    for work in sorted(rows.device, key=lambda work: work.start):
        works.setdefault(work.correlation or "", []).append(work)
    return {call: works[number] for number, call in graph_launches(rows).items() if number in works}


def replayed_kernels(rows: Rows) -> list[DeviceWork]:
    """Return the kernels that a replayed graph launched: the host's launches do not set their pace."""
    graphs = graph_launches(rows)
    return [work for work in rows.device if work.kind == "kernel" and (work.graph or work.correlation in graphs)]


def launches(rows: Rows) -> Iterable[tuple[DeviceWork, int | None]]:
    """Yield each work on the device with the end of the call that launched it; None if that is not known."""
    callers = rows.callers()
    for work in rows.device:
        yield work, callers[work.correlation].end if work.correlation in callers else None


def blocking_calls(rows: Rows) -> Iterable[tuple[HostCall, Literal["wait", "copy"]]]:
    """Yield the calls in which the host waits for the device, and the copies that it waits for.

    A copy is waited for where its call ends no earlier than the copy. Where the copy is not in the trace, the call's
    name decides: it does not say "async".
    """
    copies = {work.correlation: work.end for work in rows.device if work.correlation is not None}
    for call in rows.runtime:
        name = call.name.lower()
        if "synchronize" in name:
            yield call, "wait"
        elif "memcpy" in name:
            done = copies.get(call.correlation) if call.correlation is not None else None
            if call.end >= done if done is not None else "async" not in name:
                yield call, "copy"


def waiting_calls(rows: Rows) -> list[HostCall]:
    """Return the calls in which the program waits for the device: after the last operator the profiler does."""
    last = max((call.end for call in rows.operators), default=None)
    return [call for call, kind in blocking_calls(rows) if kind == "wait" and (last is None or call.start < last)]
