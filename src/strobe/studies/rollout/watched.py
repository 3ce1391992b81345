"""Run a real loop of LeRobot and watch whether its loop, its inference and its queue keep up."""

from __future__ import annotations

import contextlib
import gc
import shutil
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strobe.errors import UserError
from strobe.lerobot.flags import patched_arguments
from strobe.loops.bench_calls import CallWatch
from strobe.loops.event_log import Log, read
from strobe.loops.instrument import Watching
from strobe.loops.observations import Keeper
from strobe.loops.registry import ROLLOUT, loop_of
from strobe.results.rollout import RolloutResult
from strobe.studies.rollout.answer import answer_of
from strobe.studies.rollout.course import Course, course_of
from strobe.studies.rollout.remote import sections_of_receiving, sections_of_trips, trips_of
from strobe.timeline.timeline import Section

TRACED = 300  # ticks that go into the trace


@dataclass
class Watched:
    """The result, without findings, and the sections of its last ticks.

    Attributes:
        course: all that was recorded.
        calls: what calls the policy again, on the bench; None where the run did not end by itself.
    """

    result: RolloutResult
    sections: list[Section] = field(default_factory=list)
    course: Course = field(default_factory=Course)
    calls: CallWatch | None = None


def watch(
    arguments: Sequence[str],
    events: Path,
    depth: int = 1,
    record_s: float = 1800.0,
    observations: Path | None = None,
    command: str = ROLLOUT,
) -> Watched:
    """Run ``command`` with ``arguments`` in this process, and watch it.

    A run that fails, or that a signal ends, keeps what was recorded: LeRobot has put the robot to rest by then.

    Args:
        events: the file that events are written to while the robot runs. It is left there, for the caller to delete
            once the answer is kept.
        depth: levels of the policy's parts.
        record_s: seconds that are recorded; the run goes on without Strobe after them.
        observations: a new folder for each tick's observation, left there too; None: they are not kept.
        command: ``lerobot-rollout``, or another of `strobe.loops.registry.NAMES`.

    Raises:
        UserError: the run ended before its second tick, with what ended it.
        KeyboardInterrupt: it was interrupted before its second tick.
    """
    log = Log(events)
    ended: BaseException | None = None
    loop = loop_of(command)
    keeper = Keeper(observations) if observations is not None else None
    watched = loop.watch(log, depth, record_s, keeper.append if keeper is not None else None)
    if keeper is not None:
        keeper.start()
    with _signals_kept(), patched_arguments(arguments, command):
        try:
            with watched:
                loop.main()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            ended = error
            # The frames hold the robot, which switches its torque off when nobody holds it any more.
            traceback.clear_frames(error.__traceback__)
            error.__traceback__ = None
        gc.collect()
        log.stop()
        if keeper is not None:
            keeper.stop()
    header, recorded = log.read()
    interrupted = watched.signals > 0 or isinstance(ended, KeyboardInterrupt)
    over = interrupted and watched.endless
    reason = _reason(ended, command) if ended is not None and not over else watched.failed
    if header is None or not _enough(header, recorded):
        log.remove()  # nothing in it is worth showing
        if observations is not None:
            shutil.rmtree(observations, ignore_errors=True)
        if interrupted:
            raise KeyboardInterrupt
        raise UserError(reason or _unwatched(watched)) from None
    found = _answered(header, recorded)
    result = found.result
    if interrupted and not over:
        result.status = "interrupted"
    elif reason:
        result.status = "failed"
    else:
        found.calls = watched.calls
    result.rollout.error = reason
    if watched.failed and result.rollout.inference is not None:
        result.rollout.inference.errors = watched.failed
    result.notes += watched.notes
    if log.failed:
        result.notes.append(f"events could not be written ({log.failed}): the earliest may be missing")
    if keeper is not None:
        result.notes += _about(keeper, sum(event[0] == "tick" for event in recorded))
    if watched.stopped:
        result.notes.append(f"the first {record_s:g} s were recorded; the rest ran without Strobe")
    return found


def recovered(events: Path) -> Watched:
    """The answer from the events that a killed run left. Raises UserError for another file, or too few of them."""
    header, recorded = read(events)
    if not _enough(header, recorded):
        raise UserError(f"{events} holds fewer than two ticks: nothing to show")
    found = _answered(header, recorded)
    found.result.status = "failed"
    found.result.rollout.error = "the process was ended; this is what it had written"
    return found


def _enough(header: dict[str, Any], recorded: Sequence[tuple[Any, ...]]) -> bool:
    """Whether there is something to show: two ticks, of a server one chunk."""
    kind, least = ("merge", 1) if header["engine"] == "server" else ("tick", 2)
    return sum(event[0] == kind for event in recorded) >= least


def _answered(header: dict[str, Any], recorded: Sequence[tuple[Any, ...]]) -> Watched:
    course = course_of(header, recorded)
    traced = course.sections(TRACED)
    if header["engine"] == "remote":
        begin = traced[0].start_ns if traced else 0
        traced += sections_of_trips([trip for trip in trips_of(course) if trip.start_ns >= begin], TRACED)
    elif header["engine"] == "server":
        traced = [*course.of_calls(TRACED), *sections_of_receiving(course, TRACED)]
    return Watched(answer_of(header, course), traced, course)


def _about(keeper: Keeper, ticks: int) -> list[str]:
    """Notes on the observations that were kept of so many ticks."""
    missing = max(0, ticks - keeper.kept)
    why = f": {keeper.failed}" if keeper.failed else ": writing them took longer than the loop's ticks"
    said = f"observations of {keeper.kept:,} ticks were kept"
    return [f"{said}, those of {missing:,} were not{why}" if missing else said]


def _unwatched(watched: Watching) -> str:
    return watched.notes[0] if watched.notes else "the run ended before its second tick: nothing to show"


def _reason(error: BaseException, command: str) -> str:
    """The reason why the run ended early, in a line."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "interrupted"
    first = error  # of those that came on top of one another: what ended the loop, before the robot was put to rest
    while first.__context__ is not None and first.__cause__ is None and not first.__suppress_context__:
        first = first.__context__
    after = "" if first is error else f", after {_said(first)}"
    return f"{command} failed: {_said(error)}{after}"


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else "it says nothing more"
    if said.endswith(":"):  # what follows is the point: the ids of motors that are missing
        said = " ".join(lines)
    kind = type(error)
    name = kind.__name__ if kind.__name__ != "error" else f"{kind.__module__}.error"
    return f"{name}: {said}"[:300]


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Put this process's answers to signals back afterwards: LeRobot's set a flag that nobody looks at any more."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    before = {number: signal.getsignal(number) for name in names if (number := getattr(signal, name, None))}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
