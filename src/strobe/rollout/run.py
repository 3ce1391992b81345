"""Run a real loop of LeRobot and watch whether its loop, its inference and its queue keep up.

`bench` then is what the robot is compared with: the run's own policy, still loaded, called again once the robot is at
rest.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import FrameType

from strobe.core.errors import UserError, error_line
from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.results.recipe import NOT_USED
from strobe.core.studies.shared.cadence import SETTLE_S, Spacing
from strobe.core.studies.shared.progress import Reporter, Silent
from strobe.core.timeline.clock import ThreadUse
from strobe.core.timeline.timeline import Section
from strobe.lerobot.flags.lerobot_flags import patched_arguments
from strobe.loops.bench_calls import FEWEST, CallWatch, compare_places
from strobe.loops.event_log import Log, read
from strobe.loops.events import RequestFailed
from strobe.loops.header import Header
from strobe.loops.instrument import LoopWatch
from strobe.loops.observations import Keeper
from strobe.loops.reader import RunRecord, read_record
from strobe.loops.registry import ROLLOUT, Loop, load_loop
from strobe.loops.results.rollout import Place, RolloutResult
from strobe.rollout.answer import make_answer
from strobe.rollout.remote import round_trips, sections_of_receiving, sections_of_trips

# LeRobot's own answer to each sets a flag that nobody looks at after the run.
ALL_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
TRACED = 300  # ticks that go into the trace


class NotStartedError(UserError):
    """A run that ended before its second tick."""

    code = 1


@dataclass
class WatchedRollout:
    """The result, without findings, and the sections of its last ticks.

    Attributes:
        record: everything that was recorded.
        calls: calls the policy again, on the bench; None if the run did not end by itself.
    """

    result: RolloutResult
    sections: list[Section] = field(default_factory=list)
    record: RunRecord = field(default_factory=RunRecord)
    calls: CallWatch | None = None


def watch(
    arguments: Sequence[str],
    events: Path,
    depth: int = 1,
    record_s: float = 1800.0,
    observations: Path | None = None,
    command: str = ROLLOUT,
) -> WatchedRollout:
    """Run ``command`` with ``arguments`` in this process, and watch it.

    A run that fails, or that a signal ends, keeps what was recorded: LeRobot has put the robot to rest by then.

    Args:
        events: the file that events are written to while the robot runs. It is left there, for the caller to delete
            once the answer is saved.
        depth: levels of the policy's parts.
        record_s: seconds that are recorded; the run goes on without Strobe after them.
        observations: a new folder for each tick's observation, left there too; None: they are not recorded.
        command: ``lerobot-rollout``, or another of `strobe.loops.registry.NAMES`.

    Raises:
        NotStartedError: the run ended before its second tick.
        KeyboardInterrupt: it was interrupted before its second tick.
    """
    log = Log(events)
    loop = load_loop(command)
    keeper = Keeper(observations) if observations is not None else None
    watching = loop.watch(log, depth, record_s, keeper.append if keeper is not None else None)
    with _unused_recipes() as unused:
        error = _run(loop, arguments, command, watching, keeper)
    header, rows = log.read()
    record = RunRecord() if header is None else read_record(header, rows)
    interrupted = watching.signals > 0 or isinstance(error, KeyboardInterrupt)
    failed = error is not None and not (interrupted and watching.endless)
    reason = _reason(error, command, interrupted) if error is not None and failed else watching.failed
    if header is None or not _can_be_shown(header, record):
        log.remove()
        if observations is not None:
            shutil.rmtree(observations, ignore_errors=True)
        if interrupted and not (watching.endless and watching.notes):
            raise KeyboardInterrupt
        torque = "" if command == "policy_server" else f" (torque is {_torque(watching)})"
        raise NotStartedError(f"{reason or _unwatched_reason(watching, record)}{torque}") from None
    watched = _make_watched_rollout(header, record)
    result = watched.result
    if interrupted and not watching.endless:
        result.status = "interrupted"
    elif reason:
        result.status = "failed"
    else:
        watched.calls = watching.calls
    result.rollout.error = reason or None
    result.rollout.torque = _torque(watching) if result.rollout.engine != "server" else None
    if watching.failed and result.rollout.inference is not None:
        result.rollout.inference.errors = watching.failed
    result.notes += watching.notes
    result.caveats += [f"{words}; the policy ran unchanged" for words in dict.fromkeys(unused)]
    if keeper is not None:
        result.notes.append(_note_on_observations(keeper, len(record.turns)))
    if watching.stopped:
        result.notes.append(f"Strobe recorded the first {record_s:g} s (--record_s); the rest ran without it")
    return watched


@contextlib.contextmanager
def _unused_recipes() -> Iterator[list[str]]:
    unused: list[str] = []

    class Unused(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if words := getattr(record, NOT_USED, ""):
                unused.append(words)

    logger, handler = logging.getLogger("strobe"), Unused()
    logger.addHandler(handler)
    try:
        yield unused
    finally:
        logger.removeHandler(handler)


def _run(
    loop: Loop, arguments: Sequence[str], command: str, watching: LoopWatch, keeper: Keeper | None
) -> BaseException | None:
    ended: BaseException | None = None
    if keeper is not None:
        keeper.start()
    with _signals(ALL_SIGNALS), patched_arguments(arguments, command):
        try:
            with watching:
                loop.main()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            ended = error
            # The frames hold the robot, which switches its torque off when nobody holds it any more.
            traceback.clear_frames(error.__traceback__)
            error.__traceback__ = None
        gc.collect()
        watching.released.close()
        watching.log.stop()
        if keeper is not None:
            keeper.stop()
    return ended


def recover_rollout(events: Path) -> WatchedRollout:
    """Return the answer from the events that a killed run left.

    Raises:
        UserError: it is another file, or holds too few events.
    """
    header, rows = read(events)
    record = read_record(header, rows)
    if not _can_be_shown(header, record):
        raise UserError(f"{events} has fewer than two control ticks: nothing to show")
    watched = _make_watched_rollout(header, record)
    watched.result.status = "failed"
    watched.result.rollout.error = "the process was killed; these are the events that it had written"
    return watched


def _can_be_shown(header: Header, record: RunRecord) -> bool:
    return bool(record.calls or record.table(RequestFailed)) if header.engine == "server" else len(record.turns) > 1


def _make_watched_rollout(header: Header, record: RunRecord) -> WatchedRollout:
    sections = record.sections(TRACED)
    if header.engine == "remote":
        begin = sections[0].start_ns if sections else 0
        sections += sections_of_trips([trip for trip in round_trips(record) if trip.start_ns >= begin], TRACED)
    elif header.engine == "server":
        sections = [*record.latest_calls(TRACED), *sections_of_receiving(record, TRACED)]
    return WatchedRollout(make_answer(header, record), sections, record)


def _note_on_observations(keeper: Keeper, ticks: int) -> str:
    missing = max(0, ticks - keeper.kept)
    why = keeper.failed or "writing took longer than a control tick"
    note = f"saved observations of {keeper.kept:,} control ticks"
    return f"{note}, and not of {missing:,}: {why}" if missing else note


def _unwatched_reason(watching: LoopWatch, record: RunRecord) -> str:
    if watching.notes:
        return watching.notes[0]
    why = "nothing to show"
    if record.calls:  # made by the loop itself, which looks at its --duration before each tick
        call = record.calls[0]
        why = f"the policy's first call took {(call.end_ns - call.start_ns) / 1e9:.1f} s; give a longer --duration"
    return f"the run ended before its second control tick: {why}"


def _torque(watching: LoopWatch) -> str:
    left = watching.torque or {"": "not known: this robot's driver does not show it"}
    return "; ".join(f"{arm} {how}".strip() for arm, how in left.items())


def _reason(error: BaseException, command: str, interrupted: bool) -> str:
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, KeyboardInterrupt) or (interrupted and isinstance(error, SystemExit)):
        return "interrupted"
    first = error  # of those that came on top of one another: what ended the loop, before the robot was put to rest
    while first.__context__ is not None and first.__cause__ is None and not first.__suppress_context__:
        first = first.__context__
    after = "" if first is error else f", after {_error_line(first)}"
    return f"{command} ended with {_error_line(error)}{after}"


def _error_line(error: BaseException) -> str:
    kind = type(error)
    name = kind.__name__ if kind.__name__ != "error" else f"{kind.__module__}.error"
    return f"{name}: {error_line(error)}"[:300]


@contextlib.contextmanager
def _signals(names: Sequence[str], answer: Callable[[int, FrameType | None], object] | None = None) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for name in names if (number := getattr(signal, name, None))]
    before = {number: signal.getsignal(number) for number in numbers}
    if answer is not None:
        for number in numbers:
            signal.signal(number, answer)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


LIMIT_S = 10.0
ROUNDS = 7  # rounds: the first is warm-up, and six are the fewest to judge
ENOUGH = 12  # calls of each kind before the precision is looked at
PRECISION = 0.02
TOGETHER: Place = "bench"
SPACED: Place = "bench at the robot's pace"


def bench(watched: WatchedRollout, reporter: Reporter | None = None, limit_s: float = LIMIT_S) -> None:
    """Call the policy on the run's last observation, back to back and at the robot's pace, and add the comparison.

    Whatever happens here, signals included, costs only its own figures, and a note says so.

    Args:
        watched: a run that ended by itself; its result gets the figures.
        limit_s: seconds; a quarter more where calls turn out longer than it seemed at first.
    """
    notes, calls = watched.result.notes, watched.calls
    if calls is None or watched.result.rollout.inference is None:
        return
    if watched.result.rollout.bench is None:
        notes.append(f"no bench comparison: it needs {FEWEST} policy calls after the first")
        return
    try:
        # These signals end the bench, and not the answer that is there.
        with _signals(("SIGTERM", "SIGHUP"), signal.default_int_handler):
            if calls.refusal_reason:
                notes.append(f"no bench comparison: {calls.refusal_reason}")
                return
            _compare(watched, calls, reporter or Silent(), limit_s)
    except KeyboardInterrupt:
        notes.append("no bench comparison: it was interrupted")
    except Exception as error:
        notes.append(f"no bench comparison: the policy raised {type(error).__name__}: {error}"[:300])
    finally:
        gc.collect()


def _compare(watched: WatchedRollout, calls: CallWatch, reporter: Reporter, limit_s: float) -> None:
    result = watched.result
    reporter.stage(f"the robot is at rest; calling the policy without it for about {limit_s:.0f} s (Ctrl-C ends that)")
    begun = time.perf_counter()
    call_s = min(calls.repeat_call().wall, calls.repeat_call().wall) / 1e9
    left_s = limit_s - (time.perf_counter() - begun)
    if ROUNDS * call_s > left_s:
        result.notes.append(f"no bench comparison: a call takes {call_s:.1f} s, too long for {limit_s:.0f} s")
        return
    starts = [call.start_ns for call in watched.record.calls[1:]]
    period = median(b - a for a, b in pairwise(starts)) / 1e9 if len(starts) > 1 else None
    # Two rounds are three calls at the robot's pace, one of them untimed, and two back to back, which settle first.
    spaced_s = ROUNDS * (1.5 * max(period or 0.0, call_s) + call_s + SETTLE_S / 2)
    fits = period is not None and spaced_s <= left_s
    if period is not None and not fits:
        result.notes.append(
            f"calls were {period:.1f} s apart; repeating that does not fit in {limit_s:.0f} s of bench time, so the "
            "cost of idle gaps is unknown"
        )
    taken: dict[Place, list[ThreadUse]] = {TOGETHER: [], **({SPACED: []} if fits else {})}
    spacing = Spacing(1 / period, frozenset({TOGETHER})) if fits and period is not None else None

    def make_timed_call(place: Place) -> Callable[[], float]:
        def call() -> float:
            if spacing is not None:
                spacing.wait_for_start(place, 1, calls.repeat_call)
            taken[place].append(calls.repeat_call())
            return taken[place][-1].wall / 1e6

        return call

    # Calls that turn out longer than those two get a quarter more: with fewer rounds all of them were in vain.
    seconds = max(left_s, 1.25 * (spaced_s if fits else ROUNDS * call_s))
    budget = SamplingBudget(seconds=seconds, min_iterations=ENOUGH, precision=PRECISION)
    collected = collect({place: make_timed_call(place) for place in taken}, budget, reporter.progress)
    counted = slice(1, collected.rounds)  # the policy is warm from its run, and its calls there are all counted too
    if collected.interrupted:
        result.notes.append("the bench comparison was cut short")
    result.rollout.bench = compare_places(
        watched.record.table(ThreadUse),
        taken[TOGETHER][counted],
        taken.get(SPACED, [])[counted],
        period_ms=None if period is None else 1e3 * period,
    )
    if result.rollout.bench is not None and result.rollout.bench.verdict is None:
        result.notes.append(f"the bench comparison is inconclusive after {collected.rounds} calls")
