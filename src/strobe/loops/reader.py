"""A watched run of one of LeRobot's loops, and the reader that makes it of its events.

Studies of rollouts, replays and remote inference read no event themselves: all that they need is in a `RunRecord`.
"""

from __future__ import annotations

import gc
import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from strobe.core.timeline.clock import ThreadUse
from strobe.core.timeline.timeline import Section, nest
from strobe.loops import events, instrument, remote_client, rollout, teleoperation
from strobe.loops.event_log import Rows
from strobe.loops.events import Row, decode
from strobe.loops.header import Header
from strobe.loops.measure.rollout import Action, Call, LoopRun, Tick
from strobe.loops.results.rollout import Unfinished

TICK, CALL = "control tick", "inference call"
CONTROL, INFERENCE, RECEIVING, OTHERS = "control", "inference", "receiving", "others"  # threads

OLDER = "The recording may be incomplete, since an older Strobe made it without an end mark"

Event = TypeVar("Event")
Span = tuple[str, int, int]  # name, start, end of a section
Ready = tuple[bool, int | None, int | None]  # whether a turn has an action, those left, start of the turn it rests on


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
        ended: its tick was complete; None if it is none, or was cut off.
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
    ended: int | None = None


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

    def qualify_if_damaged(self, text: str) -> str:
        """Return ``text``, qualified if the recording is damaged, or nobody knows whether it is whole."""
        if self.lost:
            return f"The recording is damaged, {self.lost}. The rest of it says: {text}"
        return text if self.ends else f"{OLDER}. It says: {text}"

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
            at = bisect_left(starts, row[1] + 1) - 1
            # Where the loop itself asks the policy, getting an action is the whole call.
            if row[0] != rollout.GET_ACTION and at >= 0 and row[2] <= wholes[at][1]:
                inside.append(row)
        whole = [(name, start, end) for start, end in wholes]  # last: they end after what is in them
        return _sections([*inside, *whole], thread, 0)


def _sections(rows: Sequence[Span], thread: str, begin: int) -> list[Section]:
    keyed = [(start, -end, -index, name, index) for index, (name, start, end) in enumerate(rows) if start >= begin]
    return [Section(name, path, start, end, thread) for path, start, end, name, _ in nest(keyed)]


PARTS = (rollout.NAMES | teleoperation.NAMES | remote_client.NAMES) - {instrument.SLEEP}  # of a tick
EACH = (instrument.CAMERA, instrument.MOTORS_READ, instrument.MOTORS_WRITTEN)  # begin names: of a camera, of an arm
AT_ANY_TIME = frozenset(  # other events count while the loop runs
    {events.LoopBegan, events.LoopEnded, events.ClockShared, events.ImagesEncoded, events.Cadence, events.Scheduled}
)
OF_CALLS_AND_TURNS = (
    events.ObservationOffered, events.ObservationTaken, events.ChunkPredicted, events.ChunkMerged, events.CallRaised,
    events.CallThreadUse, events.JointPositions, events.CommandSent,
)  # fmt: skip
ASYNCHRONOUS = ("rtc", "remote", "server")  # engines whose policy is called outside the control thread
MOST_OFFERED = 10_000  # observations that are remembered: keys are addresses of objects, few of which are in use


class _Window:
    """The events from the begin of a turn to the next one's or the loop's end; or one event that lies in none.

    Attributes:
        start: begin of the turn; None without one.
        end: moment where its tick is complete: a reset after it wanted an action, else ``until``; None if cut off.
        tick: number of events until then; what comes later tells moments of the turn alone.
        wants: whether it wants an action, and so is a tick.
    """

    def __init__(self, start: int | None, recorded: list[object], until: int | None) -> None:
        self.start, self.events = start, recorded
        self._places: dict[type[object], list[tuple[int, Any]]] = {}
        for place, event in enumerate(recorded):
            self._places.setdefault(type(event), []).append((place, event))
        ready, resets = self._places.get(events.ActionReady, []), self._places.get(events.EngineReset, [])
        self.wants = start is not None and bool(ready)
        closing = ((place, reset.at) for place, reset in resets if self.wants and place > ready[0][0])
        self.tick, self.end = next(closing, (len(recorded), until))

    def find(self, kind: type[Event], *, in_tick: bool = False) -> list[Event]:
        """Return the events of ``kind``, all or those in its tick."""
        return [event for place, event in self._places.get(kind, ()) if not in_tick or place < self.tick]


@dataclass
class _Recording:
    """Facts on the whole recording, known once all windows were read."""

    rows: Iterable[Row]
    odd: int = 0  # events that cannot be read
    over: int | None = None  # end of the loop
    cut: bool = False  # recording stopped before it

    def read_windows(self) -> Iterator[_Window]:
        """Yield all that was recorded, in order; what lies in no turn event by event: a server has nothing else."""
        start, recorded, running, latest = None, list[object](), False, -math.inf
        for row in self.rows:
            try:
                event = decode(row)
            except TypeError:
                self.odd += 1
                continue
            if event is None or not (running or type(event) in AT_ANY_TIME):
                continue
            if isinstance(event, events.TickBegan) and event.start < latest:  # no clock of a recording runs back
                self.odd += 1
            elif isinstance(event, events.TickBegan):
                yield _Window(start, recorded, event.start)
                start, recorded, latest = event.start, [], event.start
            elif isinstance(event, events.LoopEnded):
                yield _Window(start, recorded, event.at)
                start, recorded = None, []
                self.cut, self.over, running = self.cut or not running, event.at, False
            else:
                running = running or isinstance(event, events.LoopBegan)
                recorded.append(event)
                if start is None:
                    yield _Window(None, recorded, None)
                    recorded = []
        yield _Window(start, recorded, None)


class _Calls:
    """The calls of the policy in the windows so far, and the request for an action that comes latest."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.calls: list[Call] = []
        self.uses: list[ThreadUse] = []  # of their thread
        self.pending: Call | None = None  # of the inference thread, which goes on
        self.warmups: int | None = None  # calls that had returned when the loop first wanted an action; None before
        self._offered: dict[int, int] = {}  # observation → start of its turn
        self._observed_by_chunk: dict[int, int | None] = {}
        self._merges, self._length, self._depth, self._observed = 0, None, None, None

    def take(self, window: _Window) -> list[Ready]:
        """Take the events of ``window``. Return what it says of its actions."""
        ready = []
        for place, event in enumerate(window.events):
            start = window.start if place < window.tick else None  # of the tick that goes on
            match event:
                case events.ObservationOffered() if start is not None:
                    self._offered[event.key] = start
                    if len(self._offered) > MOST_OFFERED:
                        self._offered.pop(next(iter(self._offered)))
                case events.ObservationTaken():
                    self.pending = Call(event.at, event.at, observed_ns=self._offered.get(event.key))
                case events.ChunkPredicted():
                    self._length = event.length
                    if self.pending is not None:
                        self.pending.assumed, self.pending.length = event.assumed, event.length
                case events.CallRaised():
                    self.pending = None
                case events.ChunkMerged():
                    self._merges += 1
                    if (call := self.pending) is not None:
                        self._observed_by_chunk[self._merges] = call.observed_ns
                        call.length, call.chunk = call.length or event.length, self._merges
                        call.merge(event.at, event.delay, event.executed, event.after)
                        self.calls.append(call)
                    self.pending = None
                case events.CallThreadUse() if self.calls:
                    waited = event.waited if event.waited >= 0 else None
                    self.uses.append(ThreadUse(event.end - event.start, event.cpu, waited))
                case events.ActionRequested():
                    self.warmups = len(self.calls) if self.warmups is None else self.warmups
                    self._depth = event.depth if event.depth >= 0 else None
                    if self.header.engine in ASYNCHRONOUS:
                        guided = event.returned and self.header.guided
                        self._observed = self._observed_by_chunk.get(event.chunk) if guided else None
                    elif start is not None and _is_call(self.header, event):
                        self._observed, length = start, self._length if self._depth is None else self._depth + 1
                        self.calls.append(Call(event.start, event.end, length, observed_ns=start, chunk=event.chunk))
                case events.ActionReady(ready=sent):
                    ready.append((bool(sent), self._depth, self._observed if sent else None))
        return ready


def _is_call(header: Header, request: events.ActionRequested) -> bool:
    return header.engine not in ASYNCHRONOUS and bool(request.returned) and request.position == 0


def _make_turn(header: Header, window: _Window, start: int, ready: Sequence[Ready]) -> LoopTurn:
    """Return the turn that begins at ``start``; ``ready`` is of the window, by `_Calls`."""
    turn = LoopTurn(start, 0, False, wanted=window.wants, observed=ready[-1][2] if ready else None)
    sections = _sections_since(start, window.find(events.SectionEnded), header.main)
    in_tick = _sections_since(start, window.find(events.SectionEnded, in_tick=True), header.main)
    begun, begun_in_tick = ({each.name: each.start for each in reversed(some)} for some in (sections, in_tick))
    turn.sending, turn.slept = begun.get(instrument.ACTION), begun.get(instrument.SLEEP)
    turn.notified = next((each.end for each in sections if each.name == instrument.PROCESS_OBSERVATION), None)
    for offered in window.find(events.ObservationOffered):
        turn.notified = offered.at  # an engine without a thread has no such event: it is given what was processed
    for request in window.find(events.ActionRequested):
        turn.requested, turn.request_ns = request.start, request.end - request.start
        turn.predicted = _is_call(header, request)
    for joints in window.find(events.JointPositions, in_tick=True):
        turn.at = joints.values
    for command in window.find(events.CommandSent, in_tick=True):
        turn.commanded = command.values
    for name, begin, end, _ in in_tick:
        if name in PARTS or name.startswith(EACH):  # the policy's own parts are for the calls
            turn.parts[name] = turn.parts.get(name, 0) + end - begin
    if told := ready[: len(window.find(events.ActionReady, in_tick=True))]:
        turn.sent, turn.depth, observed = told[-1]
        turn.ended = begun_in_tick.get(instrument.SLEEP, window.end)
        if turn.ended is not None:
            turn.work_ns, sent = max(0, turn.ended - start), begun_in_tick.get(instrument.ACTION)
            turn.age_ns = None if sent is None or observed is None else sent - observed
    return turn


def _sections_since(start: int, sections: Iterable[events.SectionEnded], thread: int) -> list[events.SectionEnded]:
    return [each for each in sections if each.thread == thread and each.start >= start]


class _Course:
    """The actions, episodes and sections of the windows so far, and tables of what nothing else is made of.

    Two actions are joined where no reset and no tick without an action lies between. Another episode begins with a
    loop, a reset, or after one is saved.
    """

    def __init__(self, header: Header) -> None:
        self.actions, self.episodes = list[Action](), list[list[int]]()
        self.rows: dict[str, list[Span]] = {}
        self.tables: dict[type[object], list[object]] = {}
        self._main, self._others = header.main, INFERENCE if header.engine in ASYNCHRONOUS else OTHERS
        self._roles: dict[int, str] = {}  # threads → what they do now
        self._chunk, self._joined, self._is_new = 0, False, True

    def take(self, window: _Window) -> None:
        for event in window.events:
            match event:
                case events.SectionEnded(name, start, end, thread):
                    role = CONTROL if thread == self._main else self._roles.get(thread, self._others)
                    self.rows.setdefault(role, []).append((sys.intern(name), start, end))
                    self._is_new = self._is_new or name == instrument.SAVE
                case events.ThreadRole(thread, role):
                    self._roles[thread] = role
                case events.LoopBegan() | events.EngineReset():
                    self._joined, self._is_new = False, True
                case events.ActionRequested(chunk=chunk):
                    self._chunk = chunk
                case events.ActionReady(_, sent):
                    self._joined = self._joined and bool(sent)
                case events.ActionValues(at, values):
                    self.actions.append(Action(self._chunk, values, self._joined, at))
                    self._joined = True
                case events.FrameRecorded(at):
                    self.episodes += [[]] if self._is_new else []
                    self.episodes[-1].append(at)
                    self._is_new = False
                case other if not isinstance(other, OF_CALLS_AND_TURNS):
                    self.tables.setdefault(type(other), []).append(other)


def _find_unfinished(recording: _Recording, calls: _Calls, turns: Sequence[LoopTurn]) -> Unfinished | None:
    """Return the call that goes on at the end of the loop, if all calls before warmed the policy up."""
    count, pending, over = len(calls.calls), calls.pending, recording.over
    warmups = count if calls.warmups is None else calls.warmups
    if calls.header.engine != "rtc" or pending is None or over is None or recording.cut or count > warmups:
        return None
    ms, run_s = (over - pending.start_ns) / 1e6, (over - turns[0].start_ns) / 1e9 if turns else 0.0
    return Unfinished(calls=count, ms=ms, run_s=run_s, compiled=calls.header.compiled)


def read_record(header: Header, rows: Iterable[Row]) -> RunRecord:
    """Return the course of the run that ``header`` is of and ``rows`` are the events of."""
    recording, calls, course, turns = _Recording(rows), _Calls(header), _Course(header), list[LoopTurn]()
    follows = reset = False
    # Python would look through all that was read again and again, and find no garbage in it.
    collects = gc.isenabled()
    gc.disable()
    try:
        for window in recording.read_windows():
            ready = calls.take(window)
            course.take(window)
            if window.start is not None:
                turns.append(turn := _make_turn(header, window, window.start, ready))
                turn.follows = follows and not window.find(events.EngineReset, in_tick=True)
                turn.engine_reset, reset = reset, False
            reset = bool(turns) and (reset or bool(window.find(events.EngineReset)))
            follows = window.wants and window.tick == len(window.events)
    finally:
        if collects:
            gc.enable()
    lost, ends = (rows.lost, rows.ends) if isinstance(rows, Rows) else (None, True)
    return RunRecord(
        [turn for turn in turns if turn.ended is not None],
        calls.calls,
        course.actions,
        turns=turns,
        episodes=course.episodes,
        rows=course.rows,
        caller=INFERENCE if header.engine in ASYNCHRONOUS else CONTROL,
        unfinished=_find_unfinished(recording, calls, turns),
        lost=lost or (f"{recording.odd:,} of its events cannot be read" if recording.odd else None),
        ends=ends,
        _tables=course.tables | {ThreadUse: calls.uses},
    )
