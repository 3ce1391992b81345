"""A watched run of one of LeRobot's loops: its ticks, calls, actions, cameras and sections, and the loop's turns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from strobe.core.timeline.clock import ThreadUse
from strobe.core.timeline.timeline import Section, nest
from strobe.rollout.loops import events, rollout
from strobe.rollout.loops.device_probes import FROZEN
from strobe.rollout.measure.robot import BusRead, Move
from strobe.rollout.measure.rollout import Action, Call, Tick
from strobe.rollout.results.rollout import Turns, Unfinished

TICK, CALL = "control tick", "inference call"
CONTROL, INFERENCE, RECEIVING, OTHERS = "control", "inference", "receiving", "others"  # threads

OLDER = "the recording is of an older Strobe and does not tell its end: nobody knows whether it is whole"

Span = tuple[str, int, int]  # name, start, end of a section


@dataclass
class CameraReads:
    """Reads of one camera, in nanoseconds, and how many of them gave another frame than the one before.

    ``ages_ns`` are those of frames when they were read, where the camera tells.
    """

    took_ns: list[int] = field(default_factory=list)
    fresh: int = 0
    came_ns: int | None = None  # moment at which the latest frame was first read
    longest_ns: int = 0  # from the first read of a frame to the last one
    longest_from_ns: int = 0
    ages_ns: list[int] = field(default_factory=list)
    changed_ns: int | None = None  # moment at which the latest picture was first read
    frozen: int = 0  # frames since then
    frozen_ns: int = 0  # longest time, and how many frames came in it
    frozen_from_ns: int = 0
    frozen_frames: int = 0

    def read(self, now: int, fresh: int, age: int) -> None:
        if age >= 0:
            self.ages_ns.append(age)
        if fresh == FROZEN and self.changed_ns is not None:
            self.frozen += 1
            if now - self.changed_ns > self.frozen_ns:
                self.frozen_ns, self.frozen_from_ns = now - self.changed_ns, self.changed_ns
                self.frozen_frames = self.frozen
        elif fresh:
            self.changed_ns, self.frozen = now, 1
        if fresh or self.came_ns is None:
            self.fresh += bool(fresh)
            self.came_ns = now
        elif now - self.came_ns > self.longest_ns:
            self.longest_ns, self.longest_from_ns = now - self.came_ns, self.came_ns


@dataclass(slots=True)
class LoopTurn:
    """One turn of the control loop as it was recorded, in nanoseconds of `host_ns`; None if nothing tells a moment.

    Attributes:
        engine_reset: whether the engine was reset between this turn and the one before.
        follows: whether it comes right after the tick before it.
        notified: the engine was given the observation, or the loop had processed it.
        requested: the loop asked for an action.
        request_ns: length of that request.
        predicted: whether the request was a call of the policy, in the loop itself.
        sent: the action began to be sent.
        slept: the loop began to sleep.
        ready: whether there was an action; None in a turn that wants none.
        depth: actions left after it.
        observed: start of the turn whose observation is behind the action.
        at, command: positions of the joints, and the command that the robot took.
        ended: the turn's tick is complete, and what comes before the next turn does not count for it.
    """

    start: int
    engine_reset: bool
    follows: bool
    notified: int | None = None
    requested: int | None = None
    request_ns: int = 0
    predicted: bool = False
    sent: int | None = None
    slept: int | None = None
    ready: bool | None = None
    depth: int | None = None
    observed: int | None = None
    at: list[float] | None = None
    command: list[float] | None = None
    parts: dict[str, int] = field(default_factory=dict)
    ended: bool = False


@dataclass
class RunRecord:
    """All of a run that was recorded.

    Attributes:
        moves: for each of ``ticks``, the joints' positions and the command that they were sent; None unknown.
        values: every action that the loop got; ``actions`` leave out those that are not finite.
        episodes: moments at which frames were recorded, in nanoseconds, by episode: between two, a loop may rest.
        cpu_turns: who had the CPUs; None unknown.
        rows: sections by thread, in the order in which they ended.
        control_events: events of the control thread, each of which cost it time.
        caller: the thread that calls the policy.
        uses: of the calls after the first, on their thread.
        loop_turns: every turn of the loop, also those that are no tick.
        cadence: lines that LeRobot's own timer reported.
        uploads, trips, empty, clock_shared, encoding: of a robot client.
        failures: of remote inference, on either side.
        received, served: of a policy server.
        unfinished: the call that had not returned when the loop ended, where none had returned a chunk to execute.
        lost: what of the recording is missing or damaged, in words; '' if there is nothing.
        ends: whether the recording tells its end: else nobody knows whether it is whole.
    """

    ticks: list[Tick] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    values: list[events.ActionValues] = field(default_factory=list)
    cameras: dict[str, CameraReads] = field(default_factory=dict)
    episodes: list[list[int]] = field(default_factory=list)
    bus: list[BusRead] = field(default_factory=list)
    cpu_turns: Turns | None = None
    rows: dict[str, list[Span]] = field(default_factory=dict)
    control_events: int = 0
    caller: str = CONTROL
    uses: list[ThreadUse] = field(default_factory=list)
    loop_turns: list[LoopTurn] = field(default_factory=list)
    scheduled: list[events.Scheduled] = field(default_factory=list)
    cadence: list[str] = field(default_factory=list)
    uploads: list[events.ObservationUploaded] = field(default_factory=list)
    trips: list[events.ChunkReceived] = field(default_factory=list)
    empty: list[events.EmptyAnswer] = field(default_factory=list)
    failures: list[events.RequestFailed] = field(default_factory=list)
    clock_shared: bool = False
    encoding: events.ImagesEncoded | None = None
    received: list[events.ObservationReceived] = field(default_factory=list)
    served: list[events.ChunkServed] = field(default_factory=list)
    unfinished: Unfinished | None = None
    lost: str = ""
    ends: bool = True

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
