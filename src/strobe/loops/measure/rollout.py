"""From the ticks, calls and actions of a rollout to figures: pace, latency, delays, starvation, age, seams.

Times are nanoseconds of one clock. Nothing here knows how they were recorded.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from strobe.core.results.call_times import find_growth
from strobe.core.results.data import Interval, Quantiles
from strobe.loops.results.motion import Jump
from strobe.loops.results.rollout import Delays, Inference, JointSeam, Pace, Queue, Series

MOST_POINTS = 4000  # points in a series; more only make the page heavy


@dataclass(slots=True)
class Tick:
    """One turn of the control loop that wants an action.

    Args:
        work_ns: from its start until it sleeps.
        sent: whether it had an action to send.
        follows: whether it comes right after the tick before it: no reset, pause or other work of the loop between.
        depth: actions left after it; None if that is not told.
        age_ns: from the start of the observation behind its action until that was sent.
        parts: nanoseconds of its parts, by name.
        at, commanded: position of each joint, and the command that it was sent after that, in the robot's unit; None
            if they are unknown, or nothing was sent.
    """

    start_ns: int
    work_ns: int
    sent: bool
    follows: bool = True
    depth: int | None = None
    age_ns: int | None = None
    parts: dict[str, int] = field(default_factory=dict)
    at: Sequence[float] | None = None
    commanded: Sequence[float] | None = None


@dataclass
class Call:
    """One call for a chunk.

    Args:
        start_ns, end_ns: from taking the observation to its actions in the queue.
        length: actions of the chunk.
        assumed: `inference_delay`, as the policy was given it.
        dropped: actions at the chunk's start that the queue left out.
        executed: actions that the robot took from the queue meanwhile.
        after: actions in the queue afterwards.
        observed_ns: start of the tick whose observation it was given.
        chunk: number of its chunk, as of `Action`.
    """

    start_ns: int
    end_ns: int
    length: int | None = None
    assumed: int | None = None
    dropped: int | None = None
    executed: int | None = None
    after: int | None = None
    observed_ns: int | None = None
    chunk: int | None = None

    @property
    def ms(self) -> float:
        """Milliseconds of the call."""
        return (self.end_ns - self.start_ns) / 1e6

    def merge(self, end_ns: int, dropped: int, executed: int, after: int) -> None:
        """End it: the queue took its chunk."""
        self.end_ns, self.dropped, self.executed, self.after = end_ns, dropped, max(0, executed), after


@dataclass(frozen=True, slots=True)
class Action:
    """One action of the policy that the loop got: the number of its chunk, its value for each joint, and when."""

    chunk: int
    values: Sequence[float]
    joined: bool = True  # with the action before it: no tick without an action and no reset lies between
    at_ns: int = 0


@dataclass
class LoopRun:
    """What one run of a control loop did: a reader of events fills it, and so does a loop in virtual time."""

    ticks: list[Tick] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)


def quantiles(values: Sequence[float]) -> Quantiles:
    """Median, 95th and 99th percentile (linear between values) and maximum. Raises ValueError for no values."""
    if not len(values):
        raise ValueError("no values")
    median, p95, p99 = (float(value) for value in np.percentile(values, [50, 95, 99]))
    return Quantiles(n=len(values), median=median, p95=p95, p99=p99, max=float(max(values)))


def pace(ticks: Sequence[Tick], asked_hz: float) -> Pace | None:
    """How well ``ticks`` kept ``asked_hz``, a late one that none follows by its work; None without two in a row."""
    asked_ms = 1e3 / asked_hz
    periods = [(b.start_ns - a.start_ns) / 1e6 for a, b in pairwise(ticks) if b.follows]
    if not periods or sum(periods) <= 0:
        return None
    last = [a for a, b in zip(ticks, [*ticks[1:], None], strict=True) if b is None or not b.follows]
    periods += [tick.work_ns / 1e6 for tick in last if tick.work_ns / 1e6 > asked_ms]
    late = [tick for tick in ticks if tick.work_ns / 1e6 > asked_ms]
    part, part_ms = late_part(ticks, late)
    return Pace(
        asked_hz=asked_hz,
        held_hz=1e3 * len(periods) / sum(periods),
        ticks=len(ticks),
        seconds=(ticks[-1].start_ns - ticks[0].start_ns) / 1e9,
        period=quantiles(periods),
        jitter=quantiles([abs(period - asked_ms) for period in periods]),
        work=quantiles([tick.work_ns / 1e6 for tick in ticks]),
        late=len(late),
        late_part=part or None,
        late_part_ms=part_ms,
    )


def late_part(ticks: Sequence[Tick], late: Sequence[Tick]) -> tuple[str, float | None]:
    """The part that ``late`` ticks spend most more on than the others, and its mean milliseconds in them.

    Where all are late: the part that takes longest. Where a part lies in another, and has most of its time: the inner.
    """
    known = {id(tick) for tick in late}
    others = [tick for tick in ticks if id(tick) not in known]

    def mean(group: Sequence[Tick], name: str) -> float:
        return sum(tick.parts.get(name, 0) for tick in group) / len(group) / 1e6 if group else 0.0

    names = sorted({name for tick in late for name in tick.parts})
    if not names:
        return "", None
    more = {name: mean(late, name) - mean(others, name) for name in names}
    most = max(more.values())
    name = min((name for name in names if more[name] >= 0.8 * most), key=lambda one: more[one])
    return name, mean(late, name)


def inference(calls: Sequence[Call], hz: float, resets_ns: Sequence[int] = ()) -> Inference | None:
    """The calls' latency and delays at ``hz`` actions per second, and growth between resets; None without calls."""
    if not calls:
        return None
    lengths = [call.length for call in calls if call.length is not None]
    later, starts = calls[1:], [call.start_ns for call in calls]
    return Inference(
        calls=len(calls),
        chunk=max(lengths) if lengths else None,
        first_ms=calls[0].ms,
        latency=quantiles([call.ms for call in later]) if later else None,
        delays=delays(calls, hz),
        growth=find_growth([call.ms for call in calls], [bisect_left(starts, at) for at in resets_ns]),
        useless=sum(call.after == 0 for call in calls),
    )


def due_ticks(ms: float, hz: float) -> int:
    """Actions that fall due in ``ms``, rounded up as LeRobot does."""
    return math.ceil(round(ms * hz / 1e3, 9))


def delays(calls: Sequence[Call], hz: float) -> Delays | None:
    """Assumed against needed and executed delays; None without two calls of Real-Time Chunking."""
    later = [call for call in calls[1:] if call.assumed is not None]
    if not later:
        return None
    first = calls[0]
    return Delays(
        assumed=quantiles([float(call.assumed or 0) for call in later]),
        needed=quantiles([float(due_ticks(call.ms, hz)) for call in later]),
        executed=quantiles([float(call.executed or 0) for call in later]),
        first_needed=due_ticks(first.ms, hz),
        first_dropped=max(0, (first.dropped or 0) - (first.executed or 0)),
    )


def queue(ticks: Sequence[Tick], threshold: int | None = None) -> Queue:
    """How deep the queue was, and the time that ticks waited for an action.

    A wait goes from the start of the first tick without an action to that of the next one with one, or to the end.
    """
    first = next((index for index, tick in enumerate(ticks) if tick.sent), None)
    after = ticks[first:] if first is not None else []
    depths = [tick.depth for tick in after if tick.depth is not None]
    gaps: list[int] = []
    began: int | None = None
    for tick in after:
        if not tick.sent and began is None:
            began = tick.start_ns
        elif tick.sent and began is not None:
            gaps.append(tick.start_ns - began)
            began = None
    if began is not None:
        gaps.append(after[-1].start_ns + after[-1].work_ns - began)
    until_ms = None if not after else (after[0].start_ns + after[0].work_ns - ticks[0].start_ns) / 1e6
    return Queue(
        depth=quantiles([float(depth) for depth in depths]) if depths else None,
        least=min(depths) if depths else None,
        threshold=threshold,
        first_action_ms=until_ms,
        starved=sum(not tick.sent for tick in after),
        starved_ms=sum(gaps) / 1e6,
        longest_ms=max(gaps, default=0) / 1e6,
    )


def seams(actions: Sequence[Action], joints: Sequence[str]) -> list[JointSeam]:
    """For each joint, its steps inside chunks and its jumps between them; none without both."""
    steps, jumps = _steps_and_jumps(actions)
    if not steps or not jumps:
        return []
    seams = []
    for index, joint in enumerate(joints[: len(steps[0])]):
        step, jump = (quantiles([sizes[index] for sizes in group]) for group in (steps, jumps))
        seams.append(JointSeam(joint=joint, step=step, jump=jump, ratio=jump.median / step.p95 if step.p95 else None))
    return seams


def series(ticks: Sequence[Tick], calls: Sequence[Call], most: int = MOST_POINTS) -> Series:
    """Ticks and calls over time; of ticks that lie together the worst value of each figure, so that few are shown."""
    if not ticks:
        return Series()
    begin = ticks[0].start_ns
    periods: list[float | None] = [None]
    periods += [(b.start_ns - a.start_ns) / 1e6 if b.follows else None for a, b in pairwise(ticks)]
    size = max(1, math.ceil(len(ticks) / most))
    groups = [range(at, min(at + size, len(ticks))) for at in range(0, len(ticks), size)]

    def largest(values: Sequence[float | int | None], group: range) -> float | None:
        return max((value for index in group if (value := values[index]) is not None), default=None)

    ages = [None if tick.age_ns is None else tick.age_ns / 1e6 for tick in ticks]
    shown = sorted(sorted(calls, key=lambda call: -call.ms)[:most], key=lambda call: call.start_ns)
    return Series(
        at_s=[(ticks[group[0]].start_ns - begin) / 1e9 for group in groups],
        period_ms=[largest(periods, group) for group in groups],
        work_ms=[max(ticks[index].work_ns for index in group) / 1e6 for group in groups],
        depth=[min((d for i in group if (d := ticks[i].depth) is not None), default=None) for group in groups],
        age_ms=[largest(ages, group) for group in groups],
        starved=[any(not ticks[index].sent for index in group) for group in groups],
        call_at_s=[(call.start_ns - begin) / 1e9 for call in shown],
        call_ms=[call.ms for call in shown],
    )


DRAWS_BLOCK = 5  # mean length of calls that are drawn together: slow ones come in rows
DRAWS_LEVEL = 0.95
RESAMPLES = 1000


def cycle_latencies(latencies: Sequence[int], first: int = 1) -> Iterator[int]:
    """``latencies`` as recorded, then those after the ``first`` ones over again, without end."""
    yield from latencies
    rest = list(latencies[first:]) or list(latencies)
    while True:
        yield from rest


def draw_latencies(latencies: Sequence[int], rng: np.random.Generator, first: int = 1) -> Iterator[int]:
    """The ``first`` latencies as recorded, then others drawn from the rest, without end.

    Drawn twice: a pool as large as the rest, since another recording would have had other latencies, then from that.
    Both in blocks of random length, which keep neighbours together (the stationary bootstrap: Politis and Romano,
    Journal of the American Statistical Association 89, 1994).
    """
    yield from latencies[:first]
    rest = list(latencies[first:]) or list(latencies)
    blocks = _blocks(rest, rng)
    pool = [next(blocks) for _ in rest]
    yield from _blocks(pool, rng)


def _blocks(values: Sequence[int], rng: np.random.Generator) -> Iterator[int]:
    size = len(values)
    while True:
        at, length = int(rng.integers(size)), int(rng.geometric(1 / DRAWS_BLOCK))
        for index in range(at, at + length):
            yield values[index % size]


def middle(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the interval that 95 % of ``values`` lie in, each one of them."""
    low, high = np.percentile(values, [50 * (1 - DRAWS_LEVEL), 50 * (1 + DRAWS_LEVEL)], method="closest_observation")
    return float(low), float(high)


def jumps(actions: Sequence[Action], joints: Sequence[str], rng: np.random.Generator) -> list[Jump]:
    """Jumps at seams over ordinary steps, joint by joint; the interval is a bootstrap over seams, steps held."""
    jumps = []
    _, sizes = _steps_and_jumps(actions)
    for index, seam in enumerate(seams(actions, joints)):
        if seam.ratio is None:
            continue
        interval = None
        if len(sizes) >= 3:
            mine = np.array([size[index] for size in sizes])
            medians = np.median(rng.choice(mine, (RESAMPLES, len(mine))), axis=1) / seam.step.p95
            low, high = np.percentile(medians, [50 * (1 - DRAWS_LEVEL), 50 * (1 + DRAWS_LEVEL)])
            interval = Interval(low=float(low), high=float(high), level=DRAWS_LEVEL)
        jumps.append(Jump(joint=seam.joint, ratio=seam.ratio, interval=interval, seams=len(sizes)))
    return jumps


def _steps_and_jumps(actions: Sequence[Action]) -> tuple[list[list[float]], list[list[float]]]:
    steps: list[list[float]] = []
    jumps: list[list[float]] = []
    for before, now in pairwise(actions):
        if not now.joined or len(before.values) != len(now.values):
            continue
        sizes = [abs(b - a) for a, b in zip(before.values, now.values, strict=True)]
        if all(map(math.isfinite, sizes)):
            (steps if before.chunk == now.chunk else jumps).append(sizes)
    return steps, jumps
