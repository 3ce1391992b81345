"""From a rollout's events to what a replay plays: the turns of its loop, the latencies of its calls, its set-up."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.errors import UserError
from strobe.loops import instrument
from strobe.loops import rollout as loop
from strobe.loops.event_log import Event, read
from strobe.results.recorded import events_of, observations_of
from strobe.studies.replay.settings import Beat, Setting
from strobe.studies.rollout.course import Course, course_of


@dataclass
class Recorded:
    """A rollout as it was recorded.

    Attributes:
        beats: the turns of its loop.
        latencies: nanoseconds of each call, in their order.
        origin: the start of the first turn, in nanoseconds of the recording's clock.
        span_ns: from there to the start of the last turn.
        observations: the folder of those that were kept; None: none were.
    """

    header: dict[str, Any]
    course: Course
    beats: list[Beat]
    latencies: list[int]
    origin: int
    span_ns: int
    observations: Path | None = None

    @property
    def setting(self) -> Setting:
        """The set-up that it ran with."""
        return setting_of(self.header, self.course)


@dataclass
class _Turn:
    start: int
    notify: int | None = None
    get: int | None = None
    took: int = 0
    asked: bool = False
    send: int | None = None
    work: int | None = None
    wanted: bool = False
    reset: bool = False


@dataclass
class _Read:
    turns: list[_Turn] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)


def load(run: Path) -> Recorded:
    """The rollout kept in ``run``: its folder, or the file of events of one that was killed.

    Raises:
        UserError: there is none, it kept no events, or too few for a replay.
    """
    file = events_of(run)
    found = recorded(*read(file))
    found.observations = observations_of(file)
    return found


def recorded(header: dict[str, Any], events: Sequence[Event]) -> Recorded:
    """The rollout that ``events`` tell of. Raises UserError where they are too few for a replay."""
    course = course_of(header, events)
    told = _read(header, events)
    if len(course.ticks) < 2 or not told.latencies:
        raise UserError("the run is too short for a replay: it needs two ticks and one call of the policy")
    start, end = told.turns[0].start, told.turns[-1].start
    return Recorded(header, course, _beats(header, told.turns), told.latencies, start, end - start)


def setting_of(header: dict[str, Any], course: Course) -> Setting:
    """The set-up of the run."""
    lengths = [call.length for call in course.calls if call.length]
    # A sync run tells nothing of Real-Time Chunking; where a replay asks for it, it guides, as LeRobot's default does.
    guided = header["guided"] or header["engine"] == "sync"
    rtc = dict(header.get("rtc") or {"enabled": guided, "execution_horizon": header["horizon"] or 10})
    return Setting(
        engine=header["engine"],
        fps=header["fps"],
        multiplier=header["multiplier"],
        threshold=30 if header["threshold"] is None else header["threshold"],
        rtc=rtc,
        chunk=max(lengths) if lengths else header.get("executed") or 1,
        warmups=max(1, header.get("warmups", 2)) if header["compiled"] and header["engine"] == "rtc" else 0,
    )


def _read(header: dict[str, Any], events: Iterable[Event]) -> _Read:
    found, turn, taken = _Read(), None, None
    sync, running, reset = header["engine"] == "sync", False, False
    for event in events:
        kind = event[0]
        if kind == "run":
            running = True
        if not running:
            continue
        if kind == "taken":
            taken = event[1]
        elif kind == "merge" and taken is not None:
            found.latencies.append(event[1] - taken)
            taken = None
        elif kind == "reset":
            reset = bool(found.turns)
        elif kind == "tick":
            turn = _Turn(event[1], reset=reset)
            reset = False
            found.turns.append(turn)
        elif kind == "end":
            running, turn = False, None
        elif turn is not None:
            _add(turn, event, header["main"])
            if kind == "get" and sync:
                turn.asked = bool(event[3]) and event[6] == 0
    if sync:
        idle = [turn.took for turn in found.turns if turn.get is not None and not turn.asked]
        least = round(statistics.median(idle)) if idle else 0
        for turn in found.turns:
            turn.took = max(0, turn.took - least) if turn.asked else 0
        found.latencies = [turn.took for turn in found.turns if turn.asked]
    else:
        for turn in found.turns:
            turn.took = 0
    return found


def _add(turn: _Turn, event: Event, main: int) -> None:
    kind = event[0]
    if kind == "seen":
        turn.notify = event[1] - turn.start
    elif kind == "get":
        turn.get, turn.took = event[1] - turn.start, event[2] - event[1]
    elif kind == "pick":
        turn.wanted = True
    elif kind == "s" and event[4] == main and event[2] >= turn.start:
        if event[1] == instrument.PROCESS_OBSERVATION and turn.notify is None:
            turn.notify = event[3] - turn.start  # the engine is told next; one without a thread has no event for it
        elif event[1] == loop.ACTION and turn.send is None:
            turn.send = event[2] - turn.start
        elif event[1] == loop.SLEEP and turn.work is None:
            turn.work = event[2] - turn.start


def _beats(header: dict[str, Any], turns: Sequence[_Turn]) -> list[Beat]:
    """The turns as beats; moments that a turn does not tell are the median of the others'."""
    period = 1e9 / (header["fps"] * header["multiplier"])
    notify = _median([turn.notify for turn in turns], 0)
    get = _median([turn.get for turn in turns], notify)
    send = _median([None if turn.send is None else turn.send - turn.took for turn in turns], get)
    # What torch.compile warms up with comes before the first action: those turns want one, and wait.
    first = next((index for index, turn in enumerate(turns) if turn.wanted), 0) if header["compiled"] else 0
    beats = []
    for index, turn in enumerate(turns):
        following = turns[index + 1].start if index + 1 < len(turns) else None
        if turn.work is None:  # it did not sleep: it was late
            turn.work = following - turn.start if following is not None else round(period)
        over = 0.0 if following is None else following - turn.start - max(turn.work, period)
        sent = send if turn.send is None else turn.send - turn.took
        beats.append(
            Beat(
                notify_ns=notify if turn.notify is None else turn.notify,
                get_ns=get if turn.get is None else turn.get,
                send_ns=sent,
                work_ns=max(0, turn.work - turn.took),
                over_ns=max(0, round(over)),
                wanted=turn.wanted or index < first,
                reset=turn.reset,
            )
        )
    return beats


def _median(values: Iterable[int | None], otherwise: int) -> int:
    known = [value for value in values if value is not None]
    return round(statistics.median(known)) if known else otherwise
