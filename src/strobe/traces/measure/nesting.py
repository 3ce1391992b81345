"""Which call of the host was open on a thread at a moment, and in which others it lies."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from strobe.traces.measure.profiler_events import HostCall


class Nest:
    """Calls of the host as a tree for each thread; nesting is containment in time."""

    def __init__(self, calls: Iterable[HostCall]) -> None:
        self._threads: dict[str, list[HostCall]] = {}
        for call in sorted(calls, key=lambda call: (call.start, -call.end)):
            self._threads.setdefault(call.thread, []).append(call)
        self._starts = {thread: [call.start for call in calls] for thread, calls in self._threads.items()}
        self._parents = {thread: _parents(calls) for thread, calls in self._threads.items()}

    @cached_property
    def busiest(self) -> str | None:
        """The thread whose calls cover most time; None without calls."""
        covered = {thread: sum(call.end - call.start for call in self._outermost(thread)) for thread in self._threads}
        return max(covered, key=lambda thread: covered[thread], default=None)

    def around_launch(self, call: HostCall) -> tuple[HostCall, ...]:
        """Return the calls that are open where ``call`` is made, the innermost first.

        A thread with none of them, such as that of a backward pass, works for those of the busiest thread.
        """
        return self.around(call.thread, call.start) or self.around(self.busiest, call.start)

    def around(self, thread: str | None, moment: int) -> tuple[HostCall, ...]:
        """Return the calls that are open on ``thread`` at ``moment`` (nanoseconds), the innermost first."""
        if thread is None or thread not in self._threads:
            return ()
        return self._open(thread, bisect_right(self._starts[thread], moment) - 1, moment)

    def paths(self) -> Iterator[tuple[HostCall, ...]]:
        """Yield each call with those around it, the innermost first."""
        for thread, calls in self._threads.items():
            for place, call in enumerate(calls):
                yield (call, *self._open(thread, self._parents[thread][place], call.start))

    def _outermost(self, thread: str) -> list[HostCall]:
        pairs = zip(self._threads[thread], self._parents[thread], strict=True)
        return [call for call, parent in pairs if parent < 0]

    def _open(self, thread: str, place: int, moment: int) -> tuple[HostCall, ...]:
        calls, parents, found = self._threads[thread], self._parents[thread], []
        while place >= 0:
            if calls[place].end > moment:
                found.append(calls[place])
            place = parents[place]
        return tuple(found)


def _parents(calls: Sequence[HostCall]) -> list[int]:
    """Return the place of the call around each, -1 for none. The calls are sorted by their start."""
    parents: list[int] = []
    open_calls: list[int] = []
    for place, call in enumerate(calls):
        while open_calls and calls[open_calls[-1]].end <= call.start:
            open_calls.pop()
        parents.append(open_calls[-1] if open_calls else -1)
        open_calls.append(place)
    return parents
