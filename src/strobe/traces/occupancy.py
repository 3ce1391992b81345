"""Of intervals: busy time and gaps of a span with the cause of each gap, and the host's calls by what they lie in."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Literal, NamedTuple, get_args

from strobe.traces.profiler_events import DeviceWork, HostCall

Cause = Literal["start", "end", "queued", "wait", "copy", "unknown", "idle"]
Kind = Literal["work", "queued", "wait", "copy", "unknown"]
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


def find_gaps(stretches: Iterable[Stretch], begin: int, end: int) -> list[Gap]:
    """Return the gaps from ``begin`` to ``end``; stretches may overlap, nest, touch and reach beyond that."""
    kinds: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in get_args(Kind)}
    for start, stop, kind in stretches:
        kinds[kind].append((max(start, begin), min(stop, end)))
    united: dict[Kind, Merged] = {kind: merge(pieces) for kind, pieces in kinds.items()}
    return [Gap(left, right, _cause(left, right, united)) for left, right in subtract([(begin, end)], united["work"])]


def merge(stretches: Iterable[tuple[int, int]]) -> Merged:
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


def unite(works: Iterable[DeviceWork]) -> Merged:
    """Return the union of the times of work on a device."""
    return merge((work.start, work.end) for work in works)


def clip(stretches: Merged, begin: int, end: int) -> Merged:
    """Return what of a union lies from ``begin`` to ``end``."""
    first = bisect_right(stretches, begin, key=itemgetter(1))
    near = stretches[first : bisect_left(stretches, end, lo=first, key=itemgetter(0))]
    return [(max(start, begin), min(stop, end)) for start, stop in near]


def subtract(some: Merged, others: Merged) -> Merged:
    """Return the stretches of one union that are outside of another."""
    left: list[tuple[int, int]] = []
    for start, stop in some:
        edges = [start, *(edge for piece in clip(others, start, stop) for edge in piece), stop]
        left += zip(edges[::2], edges[1::2], strict=True)
    return [(start, stop) for start, stop in left if stop > start]


def length(stretches: Merged) -> int:
    """Return the length of a union."""
    return sum(stop - start for start, stop in stretches)


def total_ns(calls: Iterable[HostCall | DeviceWork]) -> int:
    """Return the sum of the times of calls, or of work."""
    return sum(call.end - call.start for call in calls)


def _cause(left: int, right: int, united: dict[Kind, Merged]) -> Cause:
    work = united["work"]
    if not work or right <= work[0][0]:
        return "start"
    if left >= work[-1][1]:
        return "end"
    if clip(united["queued"], left, left + 1):
        return "queued"
    if clip(united["wait"], left, right):
        return "wait"
    if clip(united["copy"], left, right):
        return "copy"
    return "unknown" if clip(united["unknown"], right - 1, right) else "idle"


class Nest:
    """Calls of the host as a tree for each thread; nesting is containment in time, `DEEPEST` levels at most."""

    def __init__(self, calls: Iterable[HostCall]) -> None:
        self._threads: dict[str, list[HostCall]] = {}
        for call in sorted(calls, key=lambda call: (call.start, -call.end)):
            self._threads.setdefault(call.thread, []).append(call)
        self._starts = {thread: [call.start for call in calls] for thread, calls in self._threads.items()}
        self._parents = {thread: _parents(calls) for thread, calls in self._threads.items()}

    @cached_property
    def busiest(self) -> str | None:
        """The thread whose calls cover most time; None without calls."""
        covered = dict.fromkeys(self._threads, 0)
        for call, parent in self.pairs():
            covered[call.thread] += call.end - call.start if parent is None else 0
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
        return self._path(thread, bisect_right(self._starts[thread], moment) - 1, moment)

    def _path(self, thread: str, place: int, moment: int) -> tuple[HostCall, ...]:
        found = []
        while place >= 0:
            call, place = self._threads[thread][place], self._parents[thread][place]
            found += [call] if call.end > moment else []
        return tuple(found)

    def paths(self) -> Iterator[tuple[HostCall, ...]]:
        """Yield each call with those around it, the innermost first."""
        for thread, calls in self._threads.items():
            for place, call in enumerate(calls):
                yield (call, *self._path(thread, self._parents[thread][place], call.start))

    def pairs(self) -> Iterator[tuple[HostCall, HostCall | None]]:
        """Yield each call after the call that it lies in, with that one; None for an outermost call."""
        for thread, calls in self._threads.items():
            for call, parent in zip(calls, self._parents[thread], strict=True):
                yield call, calls[parent] if parent >= 0 else None


def _parents(calls: Sequence[HostCall]) -> list[int]:
    """Return where the call is that is open and began last where each begins, −1 for none; sorted by the start."""
    parents: list[int] = []
    open_calls: list[int] = []
    for place, call in enumerate(calls):
        while open_calls and calls[open_calls[-1]].end <= call.start:
            open_calls.pop()
        parents.append(open_calls[-1] if open_calls else -1)
        if len(open_calls) < DEEPEST:
            open_calls.append(place)
    return parents
