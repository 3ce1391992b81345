"""A watched run of one of LeRobot's loops, and the reader that makes it of its events.

Studies of rollouts, replays and remote inference read no event themselves: all that they need is in a `RunRecord`.
"""

from __future__ import annotations

import gc
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from strobe.core.timeline.clock import ThreadUse
from strobe.core.timeline.timeline import Section, nest
from strobe.loops import events, instrument, remote_client, rollout, teleoperation
from strobe.loops.event_log import Rows
from strobe.loops.events import Row, decode
from strobe.loops.header import Header
from strobe.loops.measure.robot import BusRead
from strobe.loops.measure.rollout import Action, Call, LoopRun, Tick
from strobe.loops.results.rollout import Unfinished

TICK, CALL = "control tick", "inference call"
CONTROL, INFERENCE, RECEIVING, OTHERS = "control", "inference", "receiving", "others"  # threads

OLDER = "an older Strobe made the recording, without an end mark: it may be incomplete"

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
        lost: what of the recording is missing or damaged, in words.
        ends: whether the recording tells its end: else nobody knows whether it is whole.
    """

    turns: list[LoopTurn] = field(default_factory=list)
    episodes: list[list[int]] = field(default_factory=list)
    rows: dict[str, list[Span]] = field(default_factory=dict)
    caller: str = CONTROL
    unfinished: Unfinished | None = None
    lost: str | None = None
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

    def qualify_if_damaged(self, text: str) -> str:
        """Return ``text``, qualified if the recording is damaged."""
        if not self.lost:
            return text
        return f"The recording is damaged, {self.lost}. The rest of it says: {text}"

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

    def latest_calls(self, most: int) -> list[Section]:
        """Return the latest ``most`` calls as top sections, with all inside them."""
        return self.nest_sections(CALL, [(call.start_ns, call.end_ns) for call in self.calls[-most:]], self.caller)

    def nest_sections(self, name: str, wholes: Sequence[tuple[int, int]], thread: str) -> list[Section]:
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


NAMES = rollout.NAMES | teleoperation.NAMES | remote_client.NAMES  # parts of a tick
EACH = (instrument.CAMERA, instrument.MOTORS_READ, instrument.MOTORS_WRITTEN)  # begin names: of a camera, of an arm
AT_ANY_TIME = frozenset(  # other events count while the loop runs
    {events.LoopBegan, events.LoopEnded, events.ClockShared, events.ImagesEncoded, events.Cadence, events.Scheduled}
)
ASYNCHRONOUS = ("rtc", "remote", "server")  # engines whose policy is called outside the control thread


class _Reader:
    def __init__(self, header: Header) -> None:
        asynchronous = header.engine in ASYNCHRONOUS
        self.header = header
        self.other_thread = INFERENCE if asynchronous else OTHERS
        self.record = RunRecord(caller=INFERENCE if asynchronous else CONTROL)
        self.roles: dict[int, str] = {}  # threads → what they do now
        self.turn: LoopTurn | None = None  # the latest
        self.pending: Call | None = None  # of the inference thread, which goes on
        self.running = False
        self.broken = True  # the next tick does not follow another
        self.engine_reset = False  # since the latest turn
        self.joined = False  # the next action follows another
        self.new_episode = True
        self.depth: int | None = None
        self.observed: int | None = None  # of the action at hand
        self.offered: dict[int, int] = {}  # observation → start of its turn
        self.observed_by_chunk: dict[int, int | None] = {}
        self.merges = 0
        self.chunk = 0
        self.length: int | None = None
        self.warmups: int | None = None  # calls that had returned when the loop first wanted an action; None before
        self.over: int | None = None  # end of the loop
        self.cut = False  # recording stopped before the loop's end
        self.handlers: dict[type[object], Callable[[Any], None]] = {
            events.LoopBegan: self.loop_began,
            events.LoopEnded: self.loop_ended,
            events.SectionEnded: self.section_ended,
            events.TickBegan: self.tick_began,
            events.JointPositions: self.joint_positions,
            events.ActionReady: self.action_ready,
            events.CommandSent: self.command_sent,
            events.FrameRecorded: self.frame_recorded,
            events.EngineReset: self.engine_was_reset,
            events.ObservationOffered: self.observation_offered,
            events.ObservationTaken: self.observation_taken,
            events.ActionRequested: self.action_requested,
            events.ActionValues: self.action_values,
            events.ChunkPredicted: self.chunk_predicted,
            events.CallThreadUse: self.call_thread_use,
            events.CallRaised: self.call_raised,
            events.ChunkMerged: self.chunk_merged,
            events.ThreadRole: self.thread_role,
        }

    def read(self, rows: Iterable[Row]) -> RunRecord:
        odd = 0
        for row in rows:
            try:
                event = decode(row)
            except TypeError:
                odd += 1
                continue
            kind = type(event)
            if event is None or not (self.running or kind in AT_ANY_TIME):
                continue
            if handle := self.handlers.get(kind):
                handle(event)
            else:
                self.record.table(kind).append(event)
        self.end_tick(None)
        self.record.unfinished = self.unfinished_call()
        if isinstance(rows, Rows):
            self.record.lost, self.record.ends = rows.lost, rows.ends
        if odd and not self.record.lost:
            self.record.lost = f"{odd:,} of its events cannot be read"
        return self.record

    def unfinished_call(self) -> Unfinished | None:
        """Return the call that goes on at the end of the loop, if all calls before warmed the policy up."""
        turns, calls = self.record.turns, len(self.record.calls)
        warmups = calls if self.warmups is None else self.warmups
        if self.header.engine != "rtc" or self.pending is None or self.over is None or self.cut or calls > warmups:
            return None
        run_s = (self.over - turns[0].start_ns) / 1e9 if turns else 0.0
        ms = (self.over - self.pending.start_ns) / 1e6
        return Unfinished(calls=calls, ms=ms, run_s=run_s, compiled=self.header.compiled)

    @property
    def open_turn(self) -> LoopTurn | None:
        """The latest turn, while its tick goes on."""
        return self.turn if self.turn is not None and not self.turn.ended else None

    def end_tick(self, now: int | None) -> None:
        """End the tick that goes on, at ``now`` or where its last section ended."""
        turn = self.open_turn
        if turn is None:
            return
        turn.ended = True
        if not turn.wanted:  # warming up, paused, resetting
            self.broken = True
            return
        end = turn.slept if turn.slept is not None else now
        if end is None:
            return  # cut off
        if turn.sending is not None and turn.observed is not None:
            turn.age_ns = turn.sending - turn.observed
        turn.work_ns = max(0, end - turn.start_ns)
        self.record.ticks.append(turn)
        self.broken = False

    def loop_began(self, _: events.LoopBegan) -> None:
        self.running = self.broken = self.new_episode = True
        self.joined = False

    def loop_ended(self, event: events.LoopEnded) -> None:
        self.end_tick(event.at)
        self.turn = None
        self.cut = self.cut or not self.running
        self.over = event.at
        self.running = False

    def tick_began(self, event: events.TickBegan) -> None:
        self.end_tick(event.start)
        self.turn = LoopTurn(event.start, 0, False, follows=not self.broken, engine_reset=self.engine_reset)
        self.engine_reset = False
        self.record.turns.append(self.turn)

    def section_ended(self, section: events.SectionEnded) -> None:
        name, start, end, thread = section
        control = thread == self.header.main
        label = CONTROL if control else self.roles.get(thread, self.other_thread)
        self.record.rows.setdefault(label, []).append((sys.intern(name), start, end))
        self.new_episode = self.new_episode or name == instrument.SAVE
        turn = self.turn
        if not control or turn is None or start < turn.start_ns:
            return
        if name == instrument.SLEEP:
            turn.slept = start if turn.slept is None else turn.slept
            return
        if name == instrument.ACTION and turn.sending is None:
            turn.sending = start
        elif name == instrument.PROCESS_OBSERVATION and turn.notified is None:
            turn.notified = end  # the engine is given it next; one without a thread has no event for that
        if not turn.ended and (name in NAMES or name.startswith(EACH)):  # the policy's own parts are for the calls
            turn.parts[name] = turn.parts.get(name, 0) + end - start

    def joint_positions(self, event: events.JointPositions) -> None:
        if (turn := self.open_turn) is not None:
            turn.at = event.values

    def command_sent(self, event: events.CommandSent) -> None:
        if (turn := self.open_turn) is not None:
            turn.commanded = event.values

    def thread_role(self, event: events.ThreadRole) -> None:
        self.roles[event.thread] = event.role

    def observation_offered(self, event: events.ObservationOffered) -> None:
        if self.turn is None:
            return
        self.turn.notified = event.at
        if not self.turn.ended:
            self.offered[event.key] = self.turn.start_ns
            if len(self.offered) > 10_000:  # addresses of objects: few at a time are in use
                self.offered.pop(next(iter(self.offered)))

    def observation_taken(self, event: events.ObservationTaken) -> None:
        self.pending = Call(event.at, event.at, observed_ns=self.offered.get(event.key))

    def chunk_predicted(self, event: events.ChunkPredicted) -> None:
        self.length = event.length
        if self.pending is not None:
            self.pending.assumed, self.pending.length = event.assumed, event.length

    def call_thread_use(self, event: events.CallThreadUse) -> None:
        if self.record.calls:
            waited = event.waited if event.waited >= 0 else None
            self.record.table(ThreadUse).append(ThreadUse(event.end - event.start, event.cpu, waited))

    def call_raised(self, _: events.CallRaised) -> None:
        self.pending = None

    def chunk_merged(self, event: events.ChunkMerged) -> None:
        self.merges += 1
        call, self.pending = self.pending, None
        if call is None:
            return
        self.observed_by_chunk[self.merges] = call.observed_ns
        call.length = call.length or event.length
        call.merge(event.at, event.delay, event.executed, event.after)
        self.record.calls.append(call)

    def action_requested(self, event: events.ActionRequested) -> None:
        if self.warmups is None:
            self.warmups = len(self.record.calls)
        self.depth = event.depth if event.depth >= 0 else None
        self.chunk = event.chunk
        turn, asynchronous = self.turn, self.header.engine in ASYNCHRONOUS
        predicted = not asynchronous and bool(event.returned) and event.position == 0
        if turn is not None:
            turn.requested, turn.request_ns, turn.predicted = event.start, event.end - event.start, predicted
        if asynchronous:
            guided = event.returned and self.header.guided
            self.observed = self.observed_by_chunk.get(event.chunk) if guided else None
        elif predicted and (turn := self.open_turn) is not None:
            self.observed = turn.start_ns
            length = event.depth + 1 if event.depth >= 0 else self.length
            self.record.calls.append(Call(event.start, event.end, length))

    def action_values(self, event: events.ActionValues) -> None:
        self.record.actions.append(Action(self.chunk, event.values, self.joined, event.at))
        self.joined = True

    def action_ready(self, event: events.ActionReady) -> None:
        ready = bool(event.ready)
        self.joined = self.joined and ready
        if (turn := self.turn) is not None:
            turn.wanted = True
            if not turn.ended:
                turn.sent, turn.depth = ready, self.depth
            turn.observed = self.observed if ready else None

    def frame_recorded(self, event: events.FrameRecorded) -> None:
        if self.new_episode or not self.record.episodes:
            self.record.episodes.append([])
            self.new_episode = False
        self.record.episodes[-1].append(event.at)

    def engine_was_reset(self, event: events.EngineReset) -> None:
        if (turn := self.open_turn) is not None and turn.wanted:
            self.end_tick(event.at)  # its work is done: the reset lies between ticks
        self.broken, self.joined, self.new_episode = True, False, True
        self.engine_reset = bool(self.record.turns)
        if (turn := self.open_turn) is not None:
            turn.follows = False


def read_record(header: Header, rows: Iterable[Row]) -> RunRecord:
    """Return the course of the run that ``header`` is of and ``rows`` are the events of."""
    # Python would look through all that was read again and again, and find no garbage in it.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _Reader(header).read(rows)
    finally:
        if collects:
            gc.enable()
