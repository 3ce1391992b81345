"""From the events of a rollout, in the order recorded, to its ticks, calls, actions, cameras and sections."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from strobe.loops import instrument, remote_client, teleoperation
from strobe.loops import rollout as loop
from strobe.loops.camera_probe import FROZEN, UNKNOWN
from strobe.loops.event_log import Event
from strobe.measure.robot import BusRead, Move
from strobe.measure.rollout import Action, Call, Tick
from strobe.results.motor_bus import Turns
from strobe.timeline.clock import ThreadUse
from strobe.timeline.timeline import Section, nest

TICK, CALL = "control tick", "inference call"
NAMES = loop.NAMES | teleoperation.NAMES | remote_client.NAMES  # parts of a tick
CONTROL, INFERENCE, RECEIVING, OTHERS = "control", "inference", "receiving", "others"  # threads
BESIDE = ("rtc", "remote", "server")  # engines whose policy is asked beside the control thread
EACH = (
    instrument.CAMERA,
    instrument.MOTORS_READ,
    instrument.MOTORS_WRITTEN,
)  # begin the names of parts: a camera, an arm
ALWAYS = ("shared", "encoding", "cadence", "scheduled")  # events that count before and after the loop runs

Row = tuple[str, int, int]  # name, start, end


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


@dataclass
class Course:
    """All of a rollout that was recorded.

    Attributes:
        turns: who had the CPUs; None unknown.
        episodes: moments at which frames were recorded, in nanoseconds, by episode: between two, a loop may rest.
        rows: sections by thread, in the order in which they ended.
        others: events that only some loops have.
        caller: the thread that asks the policy.
        moves: of each of ``ticks``, where the joints were and what they were told then; None unknown, not told.
        uses: of the calls after the first, on their thread.
    """

    ticks: list[Tick] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    cameras: dict[str, CameraReads] = field(default_factory=dict)
    episodes: list[list[int]] = field(default_factory=list)
    bus: list[BusRead] = field(default_factory=list)
    turns: Turns | None = None
    rows: dict[str, list[Row]] = field(default_factory=dict)
    others: list[Event] = field(default_factory=list)
    control_events: int = 0
    caller: str = CONTROL
    uses: list[ThreadUse] = field(default_factory=list)

    def sections(self, most: int) -> list[Section]:
        """The latest ``most`` ticks, and what all threads did since, in tree order."""
        ticks = self.ticks[-most:]
        begin = ticks[0].start_ns if ticks else 0
        found: list[Section] = []
        for thread, rows in self.rows.items():
            whole = [(TICK, tick.start_ns, tick.start_ns + tick.work_ns) for tick in ticks]
            if thread == INFERENCE:
                whole = [(CALL, call.start_ns, call.end_ns) for call in self.calls]
            found += _sections([*rows, *(whole if thread != OTHERS else [])], thread, begin)
        return found

    def of_calls(self, most: int) -> list[Section]:
        """The latest ``most`` calls as top sections, with all inside them."""
        return self.within(CALL, [(call.start_ns, call.end_ns) for call in self.calls[-most:]], self.caller)

    def within(self, name: str, wholes: Sequence[tuple[int, int]], thread: str) -> list[Section]:
        """Each of ``wholes``, start and end, as a top section ``name``, with what ``thread`` did inside."""
        starts = [start for start, _ in wholes]
        inside: list[Row] = []
        for row in self.rows.get(thread, []):
            if row[0] == loop.GET_ACTION:  # the whole call, where the loop itself asks the policy
                continue
            at = bisect_left(starts, row[1] + 1) - 1
            if at >= 0 and row[2] <= wholes[at][1]:
                inside.append(row)
        whole = [(name, start, end) for start, end in wholes]  # last: they end after what is in them
        return _sections([*inside, *whole], thread, 0)


def _sections(rows: Sequence[Row], thread: str, begin: int) -> list[Section]:
    keyed = [(start, -end, -index, name, index) for index, (name, start, end) in enumerate(rows) if start >= begin]
    return [Section(name, path, start, end, thread) for path, start, end, name, _ in nest(keyed)]


@dataclass
class _Open:
    """A tick that goes on."""

    start: int
    follows: bool
    work_end: int | None = None
    picked: bool | None = None
    depth: int | None = None
    observed: int | None = None
    sent: int | None = None
    parts: dict[str, int] = field(default_factory=dict)
    at: list[float] | None = None
    told: list[float] | None = None
    last: int = 0


@dataclass
class _Pending:
    """A call of the inference thread that goes on."""

    start: int
    observed: int | None
    assumed: int | None = None
    length: int | None = None


class _Reader:
    def __init__(self, header: dict[str, Any]) -> None:
        self.header = header
        beside = header["engine"] in BESIDE
        self.beside = INFERENCE if beside else OTHERS
        self.found = Course(caller=INFERENCE if beside else CONTROL)
        self.roles: dict[int, str] = {}  # threads → what they do now
        self.tick: _Open | None = None
        self.pending: _Pending | None = None
        self.turns: tuple[int, ...] | None = None  # as they stood when the loop began
        self.running = False
        self.broken = True  # the next tick does not follow another
        self.joined = False  # the next action follows another
        self.new_episode = True
        self.depth: int | None = None
        self.observed: int | None = None  # of the action at hand
        self.seen: dict[int, int] = {}
        self.of_chunk: dict[int, int | None] = {}
        self.merges = 0
        self.chunk = 0
        self.length: int | None = None

    def read(self, events: Iterable[Event]) -> Course:
        for event in events:
            kind, *rest = event
            if kind == "run":
                self.running = self.broken = self.new_episode = True
                self.joined = False
            elif kind == "end":
                self.close(rest[0])
                self.running = False
            elif kind in ALWAYS:
                self.found.others.append(event)
            elif self.running:
                handler = getattr(self, f"on_{kind}", None)
                if handler is None:
                    self.found.others.append(event)
                else:
                    handler(*rest)
        self.close(None)
        return self.found

    def close(self, now: int | None) -> None:
        """End the tick that goes on, at ``now`` or where its last section ended."""
        tick, self.tick = self.tick, None
        if tick is None:
            return
        if tick.picked is None:  # a turn that wants no action: warming up, paused, resetting
            self.broken = True
            return
        if now is None and tick.work_end is None:
            return  # cut off
        end = tick.work_end if tick.work_end is not None else now
        assert end is not None
        aged = tick.sent - tick.observed if tick.sent is not None and tick.observed is not None else None
        work = max(0, end - tick.start)
        one = Tick(tick.start, work, tick.picked, tick.follows, tick.depth, aged, tick.parts)
        self.found.ticks.append(one)
        self.found.moves.append(Move(tick.at, tick.told, tick.follows))
        self.broken = False

    def on_tick(self, start: int) -> None:
        self.close(start)
        self.tick = _Open(start, not self.broken)
        self.found.control_events += 1

    def on_s(self, name: str, start: int, end: int, thread: int) -> None:
        control = thread == self.header["main"]
        beside = self.roles.get(thread, self.beside)
        self.found.rows.setdefault(CONTROL if control else beside, []).append((name, start, end))
        self.found.control_events += control
        if name.startswith(f"{instrument.CAMERA} "):
            self.camera(name.removeprefix(f"{instrument.CAMERA} ")).took_ns.append(end - start)
        self.new_episode = self.new_episode or name == instrument.SAVE
        tick = self.tick
        if not control or tick is None or start < tick.start:
            return
        if name == instrument.SLEEP:
            tick.work_end = start if tick.work_end is None else tick.work_end
            return
        if name == instrument.ACTION and tick.sent is None:
            tick.sent = start
        if name in NAMES or name.startswith(EACH):  # the policy's own parts are for the calls
            tick.parts[name] = tick.parts.get(name, 0) + end - start

    def on_at(self, values: list[float]) -> None:
        if self.tick is not None:
            self.tick.at = values

    def on_sent(self, values: list[float]) -> None:
        if self.tick is not None:
            self.tick.told = values

    def on_role(self, thread: int, name: str) -> None:
        self.roles[thread] = name

    def on_camera(self, now: int, name: str, fresh: int, age: int = UNKNOWN) -> None:
        self.camera(name).read(now, fresh, age)

    def on_bus(self, *read: Any) -> None:
        self.found.bus.append(BusRead(*read))
        self.found.control_events += 1

    def on_turns(self, *now: int) -> None:
        self.turns = self.turns or now
        took, waited, own, everyone = (b - a for a, b in zip(self.turns, now, strict=True))
        if took > 0 and now[1] >= 0:
            self.found.turns = Turns(
                waited_share=waited / took, own_cpus=own / took, other_cpus=max(0, everyone - own) / took
            )

    def camera(self, name: str) -> CameraReads:
        return self.found.cameras.setdefault(name, CameraReads())

    def on_seen(self, _: int, identity: int) -> None:
        if self.tick is not None:
            self.seen[identity] = self.tick.start
            if len(self.seen) > 10_000:  # addresses of objects: few at a time are in use
                self.seen.pop(next(iter(self.seen)))

    def on_taken(self, now: int, identity: int) -> None:
        self.pending = _Pending(now, self.seen.get(identity))

    def on_call(self, _: int, __: int, assumed: int | None, ___: int | None, length: int) -> None:
        self.length = length
        if self.pending is not None:
            self.pending.assumed, self.pending.length = assumed, length

    def on_used(self, start: int, end: int, cpu: int, waited: int) -> None:
        if self.found.calls:
            self.found.uses.append(ThreadUse(end - start, cpu, waited if waited >= 0 else None))

    def on_merge(self, now: int, delay: int, _: int, executed: int, length: int, after: int) -> None:
        self.merges += 1
        call, self.pending = self.pending, None
        if call is not None:
            self.of_chunk[self.merges] = call.observed
            self.found.calls.append(
                Call(call.start, now, call.length or length, call.assumed, delay, max(0, executed), after)
            )

    def on_get(self, start: int, end: int, got: int, depth: int, chunk: int, at: int) -> None:
        self.depth = depth if depth >= 0 else None
        self.chunk = chunk
        if self.header["engine"] in BESIDE:
            self.observed = self.of_chunk.get(chunk) if got and self.header["guided"] else None
        elif got and at == 0 and self.tick is not None:
            self.of_chunk = {chunk: self.tick.start}
            self.observed = self.tick.start
            length = depth + 1 if depth >= 0 else self.length
            self.found.calls.append(Call(start, end, length))

    def on_values(self, _: int, values: list[float]) -> None:
        if not all(map(math.isfinite, values)):
            self.joined = False
            return
        self.found.actions.append(Action(self.chunk, values, self.joined))
        self.joined = True

    def on_pick(self, _: int, got: int) -> None:
        self.joined = self.joined and bool(got)
        if self.tick is not None:
            self.tick.picked, self.tick.depth = bool(got), self.depth
            self.tick.observed = self.observed if got else None

    def on_frame(self, now: int) -> None:
        if self.new_episode or not self.found.episodes:
            self.found.episodes.append([])
            self.new_episode = False
        self.found.episodes[-1].append(now)

    def on_reset(self, now: int) -> None:
        if self.tick is not None and self.tick.picked is not None:
            self.close(now)  # its work is done: the reset lies between ticks
        self.broken, self.joined, self.new_episode = True, False, True
        if self.tick is not None:
            self.tick.follows = False


def course_of(header: dict[str, Any], events: Iterable[Event]) -> Course:
    """Return the course that ``events`` tell, of the run that ``header`` tells about (see `rollout_loop`)."""
    return _Reader(header).read(events)
