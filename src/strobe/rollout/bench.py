"""The bench to compare the robot with: the run's own policy, still loaded, called again once the robot is at rest."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from types import FrameType

from strobe.core.measure.sampling import SamplingBudget, collect
from strobe.core.studies.shared.cadence import SETTLE_S, Spacing
from strobe.core.studies.shared.progress import Reporter, Silent
from strobe.core.timeline.clock import ThreadUse
from strobe.rollout.loops.bench_calls import FEWEST, CallWatch, compare_places
from strobe.rollout.measure.rollout import Call
from strobe.rollout.results.rollout import Place
from strobe.rollout.run import WatchedRollout

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
        notes.append(f"no bench comparison: it needs at least {FEWEST} policy calls after the first")
        return
    try:
        with _interruptible():
            if calls.refused:
                notes.append(f"the policy was not called again on the bench: {calls.refused}")
                return
            _compare(watched, calls, reporter or Silent(), limit_s)
    except KeyboardInterrupt:
        notes.append("the bench was interrupted: calls on the robot stand alone")
    except Exception as error:
        notes.append(f"the policy could not be called again on the bench: {type(error).__name__}: {error}"[:300])
    finally:
        gc.collect()


def period_s(calls: Sequence[Call]) -> float | None:
    """The median time from the start of a call to that of the next, in seconds; None for fewer than three calls."""
    starts = [call.start_ns for call in calls[1:]]
    return median(b - a for a, b in pairwise(starts)) / 1e9 if len(starts) > 1 else None


def _compare(watched: WatchedRollout, calls: CallWatch, reporter: Reporter, limit_s: float) -> None:
    result = watched.result
    reporter.stage(f"the robot is at rest; about {limit_s:.0f} s of calls on the bench (Ctrl-C ends them)")
    begun = time.perf_counter()
    call_s = min(calls.repeat_call().wall, calls.repeat_call().wall) / 1e9
    left_s = limit_s - (time.perf_counter() - begun)
    if ROUNDS * call_s > left_s:
        result.notes.append(f"a call takes {call_s:.1f} s: too long for a bench of {limit_s:.0f} s")
        return
    period = period_s(watched.record.calls)
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

    def timed(place: Place) -> Callable[[], float]:
        def call() -> float:
            if spacing is not None:
                spacing.before(place, 1, calls.repeat_call)
            taken[place].append(calls.repeat_call())
            return taken[place][-1].wall / 1e6

        return call

    # Calls that turn out longer than those two get a quarter more: with fewer rounds all of them were in vain.
    seconds = max(left_s, 1.25 * (spaced_s if fits else ROUNDS * call_s))
    budget = SamplingBudget(seconds=seconds, min_iterations=ENOUGH, precision=PRECISION)
    collected = collect({place: timed(place) for place in taken}, budget, reporter.progress)
    counted = slice(1, collected.rounds)  # the policy is warm from its run, and its calls there are all counted too
    if collected.interrupted:
        result.notes.append("the bench was cut short")
    result.rollout.bench = compare_places(
        watched.record.table(ThreadUse),
        taken[TOGETHER][counted],
        taken.get(SPACED, [])[counted],
        period_ms=None if period is None else 1e3 * period,
    )
    if result.rollout.bench is not None and result.rollout.bench.verdict is None:
        result.notes.append(f"{collected.rounds} calls on the bench are too few to judge by")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the bench as Ctrl-C does, not the process, which has an answer to keep."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> object:
        raise KeyboardInterrupt

    numbers = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None))]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
