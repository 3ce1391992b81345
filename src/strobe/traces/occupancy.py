"""Of intervals: busy time and gaps of a span with the cause of each gap, and the host's calls by what they lie in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from strobe.traces.profiler_events import HostCall

Kind = Literal["work", "queued", "wait", "copy", "unknown"]
Cause = Literal["start", "end", "queued", "wait", "copy", "unknown", "idle"]
Merged = Sequence[tuple[int, int]]
DEEPEST = 64  # levels of calls that are followed: a call deeper inside lies in the call at the last of them


class Stretch(NamedTuple):
    """From ``start`` to ``end``, in any unit.

    It is work, work launched but not begun, a host that waits for the device, a host that copies, or the moment before
    work whose launch is not known.
    """

    start: int
    end: int
    kind: Kind = "work"


@dataclass(frozen=True)
class Gap:
    """A stretch without work.

    ``cause`` is 'start' before the first work and 'end' after the last; 'queued' where the next work had been launched
    when the gap began; 'wait' where it had not, and the host waited for the device during the gap; 'copy' where the
    host copied; 'unknown' where nobody knows when the next work was launched; 'idle' where it had not been.
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
        """The length of all gaps."""
        return self.span - self.busy


def occupancy(stretches: Iterable[Stretch], begin: int, end: int) -> Occupancy:
    """Return busy time and gaps from ``begin`` to ``end``; stretches may overlap, nest, touch and reach beyond that."""
    kinds: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in get_args(Kind)}
    for start, stop, kind in stretches:
        kinds[kind].append((max(start, begin), min(stop, end)))
    united: dict[Kind, Merged] = {kind: merge_stretches(pieces) for kind, pieces in kinds.items()}
    work = united["work"]
    edges = [begin, *(edge for stretch in work for edge in stretch), end]
    gaps = [
        Gap(left, right, _cause(left, right, united))
        for left, right in zip(edges[::2], edges[1::2], strict=True)
        if right > left
    ]
    return Occupancy(max(end - begin, 0), length(work), gaps)


def merge_stretches(stretches: Iterable[tuple[int, int]]) -> Merged:
    """Return the union of ``stretches``, as stretches that neither overlap nor touch; empty ones vanish."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(stretches):
        if stop <= start:
            continue
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], stop))
        else:
            united.append((start, stop))
    return united


def length(stretches: Merged) -> int:
    """Return the length of a union."""
    return sum(stop - start for start, stop in stretches)


def overlap(some: Merged, others: Merged) -> int:
    """Return the length of what two unions share."""
    shared = mine = theirs = 0
    while mine < len(some) and theirs < len(others):
        start, stop = max(some[mine][0], others[theirs][0]), min(some[mine][1], others[theirs][1])
        shared += max(stop - start, 0)
        if some[mine][1] < others[theirs][1]:
            mine += 1
        else:
            theirs += 1
    return shared


def _cause(left: int, right: int, united: dict[Kind, Merged]) -> Cause:
    work = united["work"]
    if not work or right <= work[0][0]:
        return "start"
    if left >= work[-1][1]:
        return "end"
    if _reaches(united["queued"], left, left + 1):
        return "queued"
    if _reaches(united["wait"], left, right):
        return "wait"
    if _reaches(united["copy"], left, right):
        return "copy"
    return "unknown" if _reaches(united["unknown"], right - 1, right) else "idle"


def _reaches(stretches: Merged, left: int, right: int) -> bool:
    last = bisect_right(stretches, right - 1, key=lambda stretch: stretch[0]) - 1  # the last that begins in time
    return last >= 0 and stretches[last][1] > left


class Nest:
    """Calls of the host as a tree for each thread; nesting is containment in time, `DEEPEST` levels at most."""

    def __init__(self, calls: Iterable[HostCall]) -> None:
        self._threads: dict[str, list[HostCall]] = {}
        for call in sorted(calls, key=lambda call: (call.start, -call.end)):
            self._threads.setdefault(call.thread, []).append(call)
        self._starts = {thread: [call.start for call in calls] for thread, calls in self._threads.items()}
        self._around = {thread: _calls_around(calls) for thread, calls in self._threads.items()}

    @cached_property
    def busiest(self) -> str | None:
        """The thread whose calls cover most time; None without calls."""
        covered = {thread: sum(call.end - call.start for call in self._outermost(thread)) for thread in self._threads}
        return max(covered, key=lambda thread: covered[thread], default=None)

    def calls_around_launch(self, call: HostCall) -> tuple[HostCall, ...]:
        """Return the calls that are open where ``call`` is made, the innermost first.

        A thread with none of them, such as that of a backward pass, works for those of the busiest thread.
        """
        return self.calls_at_moment(call.thread, call.start) or self.calls_at_moment(self.busiest, call.start)

    def calls_at_moment(self, thread: str | None, moment: int) -> tuple[HostCall, ...]:
        """Return the calls that are open on ``thread`` at ``moment`` (nanoseconds), the innermost first."""
        if thread is None or thread not in self._threads:
            return ()
        last = bisect_right(self._starts[thread], moment) - 1
        begun = (self._threads[thread][last], *self._around[thread][last]) if last >= 0 else ()
        return tuple(call for call in begun if call.end > moment)

    def paths(self) -> Iterator[tuple[HostCall, ...]]:
        """Yield each call with those around it, the innermost first."""
        for thread, calls in self._threads.items():
            for call, around in zip(calls, self._around[thread], strict=True):
                yield (call, *around)

    def _outermost(self, thread: str) -> list[HostCall]:
        return [call for call, around in zip(self._threads[thread], self._around[thread], strict=True) if not around]


def _calls_around(calls: Sequence[HostCall]) -> list[tuple[HostCall, ...]]:
    """Return the calls that are open where each begins, the innermost first. The calls are sorted by their start."""
    found: list[tuple[HostCall, ...]] = []
    open_calls: tuple[HostCall, ...] = ()
    for call in calls:
        open_calls = tuple(other for other in open_calls if other.end > call.start)
        found.append(open_calls)
        if len(open_calls) < DEEPEST:
            open_calls = (call, *open_calls)
    return found
