"""A watched run of one of LeRobot's loops: its ticks, calls, actions, cameras and sections, and the loop's turns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from strobe.core.timeline.timeline import Section, nest
from strobe.rollout.loops import rollout
from strobe.rollout.measure.robot import BusRead
from strobe.rollout.measure.rollout import LoopRun, Tick
from strobe.rollout.results.rollout import Unfinished

TICK, CALL = "control tick", "inference call"
CONTROL, INFERENCE, RECEIVING, OTHERS = "control", "inference", "receiving", "others"  # threads

OLDER = "the recording is of an older Strobe and does not tell its end: nobody knows whether it is whole"

Event = TypeVar("Event")
Span = tuple[str, int, int]  # name, start, end of a section


@dataclass(slots=True)
class LoopTurn(Tick):
    """One turn of the control loop as it was recorded, in nanoseconds of `host_ns`; None if nothing tells a moment.

    Attributes:
        engine_reset: whether the engine was reset between this turn and the one before.
        wanted: whether it wants an action, and so is a tick.
        notified: the engine was given the observation, or the loop had processed it.
        requested: the loop asked for an action.
        request_ns: length of that request.
        predicted: whether the request was a call of the policy, in the loop itself.
        sending: the action began to be sent.
        slept: the loop began to sleep.
        observed: start of the turn whose observation is behind the action.
        ended: the turn's tick is complete, and what comes before the next turn does not count for it.
    """

    engine_reset: bool = False
    wanted: bool = False
    notified: int | None = None
    requested: int | None = None
    request_ns: int = 0
    predicted: bool = False
    sending: int | None = None
    slept: int | None = None
    observed: int | None = None
    ended: bool = False


@dataclass
class RunRecord(LoopRun):
    """All of a run that was recorded: ticks, calls and actions, and the table of every other kind of event.

    Attributes:
        turns: every turn of the loop, also those that are no tick.
        episodes: moments at which frames were recorded, in nanoseconds, by episode: between two, a loop may rest.
        rows: sections by thread, in the order in which they ended.
        caller: the thread that calls the policy.
        unfinished: the call that had not returned when the loop ended, where none had returned a chunk to execute.
        lost: what of the recording is missing or damaged, in words; '' if there is nothing.
        ends: whether the recording tells its end: else nobody knows whether it is whole.
    """

    turns: list[LoopTurn] = field(default_factory=list)
    episodes: list[list[int]] = field(default_factory=list)
    rows: dict[str, list[Span]] = field(default_factory=dict)
    caller: str = CONTROL
    unfinished: Unfinished | None = None
    lost: str = ""
    ends: bool = True
    _tables: dict[type[object], list[Any]] = field(default_factory=dict)

    def table(self, kind: type[Event]) -> list[Event]:
        """Return the events of one kind of `events.RECORDS`, in their order; of calls, what they cost their thread.

        What a turn, a call, an action or a section is made of is in those, and has no table.
        """
        return self._tables.setdefault(kind, [])

    @property
    def control_events(self) -> int:
        """Events of the control thread, each of which cost it time."""
        return len(self.rows.get(CONTROL, ())) + len(self.turns) + len(self.table(BusRead))

    def of_what_is_left(self, text: str) -> str:
        """Return what ``text`` says of the run, which of a damaged recording is said of what is left of it."""
        if not self.lost:
            return text
        return f"Not judged as a whole, since the recording is damaged: {self.lost}. Of what is left: {text}"

    @property
    def notes(self) -> list[str]:
        """Notes on the recording, which a reader of the figures must know."""
        return [] if self.ends or self.lost else [OLDER]

    def sections(self, most: int) -> list[Section]:
        """Return the latest ``most`` ticks, and what all threads did since, in tree order."""
        ticks = self.ticks[-most:]
        begin = ticks[0].start_ns if ticks else 0
        sections: list[Section] = []
        for thread, rows in self.rows.items():
            whole = [(TICK, tick.start_ns, tick.start_ns + tick.work_ns) for tick in ticks]
            if thread == INFERENCE:
                whole = [(CALL, call.start_ns, call.end_ns) for call in self.calls]
            sections += _sections([*rows, *(whole if thread != OTHERS else [])], thread, begin)
        return sections

    def of_calls(self, most: int) -> list[Section]:
        """Return the latest ``most`` calls as top sections, with all inside them."""
        return self.within(CALL, [(call.start_ns, call.end_ns) for call in self.calls[-most:]], self.caller)

    def within(self, name: str, wholes: Sequence[tuple[int, int]], thread: str) -> list[Section]:
        """Return each of ``wholes``, start and end, as a top section ``name``, with what ``thread`` did inside."""
        starts = [start for start, _ in wholes]
        inside: list[Span] = []
        for row in self.rows.get(thread, []):
            if row[0] == rollout.GET_ACTION:  # the whole call, where the loop itself asks the policy
                continue
            at = bisect_left(starts, row[1] + 1) - 1
            if at >= 0 and row[2] <= wholes[at][1]:
                inside.append(row)
        whole = [(name, start, end) for start, end in wholes]  # last: they end after what is in them
        return _sections([*inside, *whole], thread, 0)


def _sections(rows: Sequence[Span], thread: str, begin: int) -> list[Section]:
    keyed = [(start, -end, -index, name, index) for index, (name, start, end) in enumerate(rows) if start >= begin]
    return [Section(name, path, start, end, thread) for path, start, end, name, _ in nest(keyed)]
