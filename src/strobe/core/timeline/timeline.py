"""The timeline: all sections of a run. Tables, plots and the Chrome trace come from it; nothing else records time."""

from __future__ import annotations

import multiprocessing.util
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from strobe.core.timeline import sections as sections_in_force
from strobe.core.timeline import workers
from strobe.core.timeline.clock import EventClock, device_clock, host_ns, synchronise
from strobe.core.timeline.ranges import add_ranges
from strobe.core.timeline.sections import MAIN, STOPS, Place, enter_strand, leave_strand, own, strands, thread_names

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Section:
    """One recorded interval. Times are nanoseconds on the host's monotonic clock."""

    name: str
    path: tuple[str, ...]
    start_ns: int
    end_ns: int
    thread: str
    device_start_ns: int | None = None
    device_end_ns: int | None = None
    cpu_ns: int | None = None  # of a worker process, over all its threads

    @property
    def depth(self) -> int:
        """Sections around it; 0 for one at the top."""
        return len(self.path) - 1

    @property
    def host_ms(self) -> float:
        """Milliseconds on the host."""
        return (self.end_ns - self.start_ns) / 1e6

    @property
    def device_ms(self) -> float | None:
        """Milliseconds on the device; None if it was not timed there."""
        if self.device_start_ns is None or self.device_end_ns is None:
            return None
        return (self.device_end_ns - self.device_start_ns) / 1e6

    @property
    def ms(self) -> float:
        """Device time where there is one, else host time."""
        device = self.device_ms
        return self.host_ms if device is None else device


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: on the host's clock, and on the device's where there is one."""

    ns: int
    device: Any = None


class Timeline:
    """Records sections between ``start`` and ``stop``, or inside ``with Timeline() as timeline:``.

    Args:
        device: an accelerator whose time the sections also take, through events resolved after the run.
        serialised: synchronise the device around every section, so that host time is true per part. It changes what
            is measured (nothing overlaps any more) and must be said wherever its numbers are shown.
        nvtx: put an NVTX range around every section (see `require_ranges`). Its cost is time of the section around it.
    """

    def __init__(
        self, device: torch.device | str | None = None, *, serialised: bool = False, nvtx: bool = False
    ) -> None:
        self.device = device
        self.serialised = serialised
        self._clock: EventClock | None = None if serialised else device_clock(self.device)
        self._records: list[tuple[Any, ...]] = []
        self._foreign: list[workers.Foreign] = []
        self._spool: workers.Spool | None = None
        self._take_off: Callable[[], None] | None = None  # while it is in force, or was put below another one
        self._ranges = add_ranges if nvtx else None
        self._opener = self._make_opener(self._records.append)
        self._lost: dict[str, str] = {}
        self.worker_facts: list[dict[str, Any]] = []  # by worker processes, see `workers.tell`

    def section(self, name: str) -> Any:
        """Open a section on this timeline, whichever is in force."""
        return self._opener(name)

    def now_ns(self) -> int:
        """This moment on the clock that sections read, in nanoseconds."""
        return host_ns()

    def mark(self) -> Mark:
        """This moment, for `between`."""
        if self.serialised:
            synchronise(self.device)
        return Mark(host_ns(), self._clock.read() if self._clock is not None else None)

    def record_span(self, name: str, start: Mark, end: Mark) -> None:
        """Record a section of the main thread that no block of code encloses."""
        if self._clock is None:
            self._records.append((name, start.ns, end.ns, MAIN))
        elif start.device is not None and end.device is not None:
            self._records.append((name, start.ns, end.ns, MAIN, start.device, end.device))

    def start(self) -> Self:
        """Put this timeline in force for every thread, and for worker processes started from here on.

        Without effect on one that was started and not stopped. Of several, the last one started reads the clock, and
        all record; worker processes record for that one.
        """
        if self._take_off is not None:
            return self
        if self._spool is not None:  # paused
            self.stop()
        self._spool = workers.Spool(self._records)
        _running.append(self)
        opener = self._opener if len(_running) == 1 else self._make_opener(self._record_on_all)
        self._take_off = sections_in_force.apply_opener(opener)
        return self

    def pause(self) -> None:
        """Record no more, neither here nor in worker processes, which go on working; `stop` gathers what they did."""
        self._leave()
        if self._spool is not None:
            self._spool.close()

    def stop(self) -> Self:
        """Take this timeline out of force, in whatever order; gathers what worker processes recorded."""
        self._leave()
        if self._spool is not None:
            gathered = self._spool.gather()
            self._foreign += gathered.sections
            self._lost.update(gathered.lost)
            self.worker_facts += gathered.facts
            self._spool = None
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _leave(self) -> None:
        if self._take_off is not None:
            self._take_off()
            _running.remove(self)
        self._take_off = None

    def clear(self) -> None:
        """Forget every section recorded so far."""
        self._records.clear()
        self._foreign.clear()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def unseen(self) -> dict[str, str]:
        """Sections that were reached but could not be timed → why."""
        seen = {record[0] for record in self._records}
        reached = {name: why for name, why in sections_in_force.unseen().items() if name not in seen}
        return {**reached, **self.stopped_sections, **self._lost}

    @property
    def stopped_sections(self) -> dict[str, str]:
        """Sections that lasted while other code ran, and are none of `sections` → why."""
        why = sections_in_force.STOPPED
        return {one[0]: why for one in self._records if isinstance(one[3], Place) and one[3].stopped}

    def sections(self) -> list[Section]:
        """Every section recorded so far in tree order: by thread, then a parent before its children."""
        records = list(self._records)
        device: list[int | None] = []
        if self._clock is not None and records:
            device = self._clock.resolve([mark for record in records for mark in record[4:6]])
        sections: list[Section] = []
        by_thread: dict[int, dict[int, list[Row]]] = {}  # thread → strand → sections
        around: dict[int, int] = {}
        for index, (name, start, end, place, *_marks) in enumerate(records):
            thread, strand, outer, stopped = Place(place) if isinstance(place, int) else place
            if stopped:
                continue
            by_thread.setdefault(thread, {}).setdefault(strand, []).append((start, -end, -index, name, index))
            around[strand] = outer
        names = _names(by_thread)
        for thread, rows in by_thread.items():
            for path, start, end, name, index in woven(rows, around):
                marks = (device[2 * index], device[2 * index + 1]) if device else (None, None)
                sections.append(Section(name, path, start, end, names[thread], *marks))
        by_worker: dict[str, list[Row]] = {}
        for index, (worker, name, start, end, _) in enumerate(self._foreign):
            by_worker.setdefault(worker, []).append((start, -end, -index, name, index))
        for worker, rows in by_worker.items():
            for path, start, end, name, index in nest(rows):
                sections.append(Section(name, path, start, end, worker, cpu_ns=self._foreign[index][4]))
        return sections

    def _make_opener(self, append: Append) -> Callable[[str], Any]:
        if self.serialised:
            opener = _serialised_opener(append, self.device)
        elif self._clock is not None:
            opener = _device_opener(append, self._clock)
        else:
            opener = _host_opener(append)
        return opener if self._ranges is None else self._ranges(opener)

    def _record_on_all(self, record: tuple[object, ...]) -> None:
        """Append to all timelines that run; to others than this one with the host's time alone."""
        for timeline in _running:
            foreign = timeline is not self and timeline._clock is not None
            timeline._records.append((*record[:4], None, None) if foreign else record)


_running: list[Timeline] = []
multiprocessing.util.register_after_fork(Timeline, lambda _: _running.clear())  # in a worker they are its parent's
Append = Callable[[tuple[object, ...]], None]


def _names(threads: Iterable[int]) -> dict[int, str]:
    """A name for each thread, another one for each: threads may share theirs."""
    taken, names = Counter[str](), dict[int, str]()
    for thread in threads:
        name = thread_names.get(thread, f"thread {thread}")
        taken[name] += 1
        names[thread] = name if taken[name] == 1 else f"{name} ({taken[name]})"
    return names


Row = tuple[int, int, int, str, int]  # start, −end, −index, name, index: sorted, a parent comes before its children
Placed = tuple[tuple[str, ...], int, int, str, int]  # path, start, end, name, index


def woven(strands: Mapping[int, list[Row]], around: Mapping[int, int]) -> list[Placed]:
    """Give sections of one thread their places in the tree, a parent before its children.

    Args:
        strands: the sections of each strand; those of the thread itself are in 0.
        around: strand → the strand that it was begun in.
    """
    if len(strands) == 1 and 0 in strands:
        return list(nest(strands[0]))
    inside: dict[int | None, list[Placed]] = {}  # index of a parent → its children
    placed: dict[int, list[Placed]] = {}

    def surrounding_section(moment: int, strand: int) -> Placed | None:
        while strand:
            strand = around.get(strand, 0)
            intervals = placed.get(strand, [])
            at = bisect_right(intervals, moment, key=lambda interval: interval[1])
            if (parent := next((each for each in reversed(intervals[:at]) if each[2] >= moment), None)) is not None:
                return parent
        return None

    for strand in sorted(strands):  # one begins after the one around it, and has a higher number
        mine = placed[strand] = []
        parents: list[Placed] = []
        for path, start, end, name, index in nest(strands[strand]):
            del parents[len(path) - 1 :]
            parent = parents[-1] if parents else surrounding_section(start, strand)
            one = ((*parent[0], name) if parent is not None else (name,), start, end, name, index)
            parents.append(one)
            mine.append(one)
            inside.setdefault(parent[4] if parent is not None else None, []).append(one)
    intervals: list[Placed] = []
    waiting = sorted(inside.get(None, []), key=_begins, reverse=True)
    while waiting:
        one = waiting.pop()
        intervals.append(one)
        waiting += sorted(inside.get(one[4], []), key=_begins, reverse=True)
    return intervals


def _begins(interval: Placed) -> tuple[int, int]:
    return interval[1], -interval[2]


def nest(rows: Iterable[Row]) -> Iterable[Placed]:
    """Give sections of one strand their places in the tree, a parent before its children.

    Args:
        rows: the index in the order in which sections ended.
    """
    # A child ends before its parent, so it was appended before it: of two equal intervals the later one is the parent,
    # which the third key (−index) puts first.
    open_sections: list[tuple[int, tuple[str, ...]]] = []
    for start, minus_end, _, name, index in sorted(rows):
        end = -minus_end
        while open_sections and (open_sections[-1][0] < end or open_sections[-1][0] <= start < end):
            open_sections.pop()
        path = (*open_sections[-1][1], name) if open_sections else (name,)
        open_sections.append((end, path))
        yield path, start, end, name, index


# In each opener's ``__enter__``: ``frame(above)`` is that of the ``with`` block. Written out, as a call costs too much.
def _host_opener(append: Append, above: int = 1) -> Callable[[str], Any]:
    now, mine, frame, stops, suspended = host_ns, own, sys._getframe, STOPS, strands

    class HostSection:
        __slots__ = ("name", "start", "strand")

        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            around = frame(above)
            self.strand = enter_strand(around) if suspended or around.f_code.co_flags & stops else None
            self.start = now()

        def __exit__(self, kind: object, error: object, traceback: object) -> None:
            end = now()
            append((self.name, self.start, end, mine.number if self.strand is None else leave_strand(self.strand)))

    return HostSection


def _device_opener(append: Append, clock: EventClock) -> Callable[[str], Any]:
    now, mine, frame, read = host_ns, own, sys._getframe, clock.read

    class DeviceSection:
        __slots__ = ("mark", "name", "start", "strand")

        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            around = frame(1)
            self.strand = enter_strand(around) if strands or around.f_code.co_flags & STOPS else None
            self.mark = read()
            self.start = now()

        def __exit__(self, kind: object, error: object, traceback: object) -> None:
            end = now()
            place = mine.number if self.strand is None else leave_strand(self.strand)
            mark = read() if self.mark is not None else None
            if mark is None:  # the host's time of a capture says nothing of the replays
                sections_in_force.note_unseen(self.name, sections_in_force.CAPTURED)
                return
            append((self.name, self.start, end, place, self.mark, mark))

    return DeviceSection


def _serialised_opener(append: Append, device: torch.device | str | None) -> Callable[[str], Any]:
    class SerialisedSection(_host_opener(append, above=2)):  # type: ignore[misc]
        __slots__ = ()

        def __enter__(self) -> None:
            synchronise(device)
            super().__enter__()

        def __exit__(self, *exception: object) -> None:
            synchronise(device)
            super().__exit__(*exception)

    return SerialisedSection  # type: ignore[return-value]


# A worker spawned by a process that is recording records too.
_inherited = workers.spawned_worker_record()
if _inherited is not None:
    sections_in_force.replace_openers(workers.opener(_inherited))
