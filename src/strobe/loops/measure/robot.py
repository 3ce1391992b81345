"""A robot's joints and its motor bus.

How joints follow commands, how smooth these are, how the bus answers; and how far an episode's first action lies from
where the arm stands, as it was predicted and as it was recorded.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strobe.core.measure.statistics import interpolate_peak
from strobe.loops.measure.rollout import Action, Tick, quantiles
from strobe.loops.results.arm import Bus
from strobe.loops.results.motion import FirstAction, JointJump, Motion
from strobe.loops.results.rollout import JointTracking, NotFinite, WildCommand

Array = NDArray[np.float64]
BEYOND = 0.1  # share of a joint's range by which a command may exceed it: a policy reaches a little beyond its data
FAST = 20.0  # commands may lead a joint by many of its steps
MOST_LAG = 15  # ticks that are looked at: half a second at 30 Hz
FEWEST = 10  # distances, for a figure
FEWEST_STEPS = 30  # fewest steps of an episode, for its lag
LEAST_MATCH = 0.5  # correlation of the steps below which state and action are not seen to be of one motion
STILL = 1e-6  # share of a joint's size: a spread below it is none


def tracking(ticks: Sequence[Tick], joints: Sequence[str]) -> list[JointTracking]:
    """For each joint, how far it is from its last command, and by how many ticks it trails; [] without positions.

    The lag is the shift of the commands, up to `MOST_LAG` ticks, at which their mean distance to the positions is
    smallest. A joint that is never commanded to move has none.
    """
    if not joints or not ticks:
        return []
    at, commanded = _tables(ticks, len(joints))
    run = np.cumsum([not tick.follows for tick in ticks])  # of ticks that follow one another
    shifted = [_distances(at, commanded, run, lag) for lag in range(1, MOST_LAG + 1)]
    tracked = []
    for index, joint in enumerate(joints):
        own = [distances[:, index][np.isfinite(distances[:, index])] for distances in shifted]
        if len(own[0]) < FEWEST:
            continue
        enough = [lag for lag, distances in enumerate(own) if len(distances) >= FEWEST]
        lag = min(enough, key=lambda lag: own[lag].mean())
        known = commanded[:, index][np.isfinite(commanded[:, index])]
        moves_at_all = bool(np.ptp(known) > 0)
        tracked.append(
            JointTracking(
                joint=joint,
                error=quantiles(own[0].tolist()),
                lag_ticks=lag + 1 if moves_at_all else None,
                left=quantiles(own[lag].tolist()) if moves_at_all else None,
            )
        )
    return tracked


def _tables(ticks: Sequence[Tick], count: int) -> tuple[Array, Array]:
    """Return positions and commands, (ticks, joints) each; NaN where they are not known."""

    def table(column: Iterable[Sequence[float] | None]) -> Array:
        rows = [row if row is not None and len(row) == count else [np.nan] * count for row in column]
        return np.array(rows, float).reshape(-1, count)

    return table(tick.at for tick in ticks), table(tick.commanded for tick in ticks)


def wild_commands(
    ticks: Sequence[Tick], joints: Sequence[str], limits: Mapping[str, tuple[float, float]]
) -> list[WildCommand] | None:
    """Return the joints with commands that no motor executes; None where neither ranges nor positions are known.

    A command may exceed its range by `BEYOND`. From one tick to the next it may move by half the range, where that has
    two sides: a gripper snaps. Where it is not known, by twice the farthest position of any joint and by `FAST` of the
    fastest steps that a joint was seen to make.
    """
    if not joints or not ticks:
        return None
    at, sent = _tables(ticks, len(joints))
    sent[~np.isfinite(sent)] = np.nan
    low, high = (np.array([limits.get(joint, (np.nan, np.nan))[end] for joint in joints]) for end in (0, 1))
    moved, far = (np.fmax.reduce(np.abs(each), axis=None, initial=np.nan) for each in (np.diff(at, axis=0), at))
    most = np.where(low < 0, (high - low) / 2, np.where(low >= 0, np.inf, max(2 * far, FAST * moved)))
    if np.isnan(sent).all() or np.isnan(most).all():
        return None
    steps = np.abs(np.diff(sent, axis=0, prepend=np.nan))
    steps[[not tick.follows for tick in ticks]] = np.nan
    beyond, jumps = (sent < low - BEYOND * (high - low)) | (sent > high + BEYOND * (high - low)), steps > most
    found = []
    for index in map(int, np.flatnonzero((beyond | jumps).any(axis=0))):
        first = int(np.argmax(beyond[:, index] | jumps[:, index]))
        found.append(
            WildCommand(
                joint=joints[index],
                ticks=int((beyond | jumps)[:, index].sum()),
                from_s=(ticks[first].start_ns - ticks[0].start_ns) / 1e9,
                command=float(sent[first, index]),
                before=None if beyond[first, index] else float(sent[first - 1, index]),
                ends=limits.get(joints[index]),
            )
        )
    return found


def _distances(at: np.ndarray, commanded: np.ndarray, run: np.ndarray, lag: int) -> np.ndarray:
    """From each command to the position ``lag`` ticks later; nan where a pause lies between, or one is unknown."""
    if len(at) <= lag:
        return np.full((0, at.shape[1]), np.nan)
    distances = np.abs(at[lag:] - commanded[:-lag])
    distances[run[lag:] != run[:-lag]] = np.nan
    return distances


def lag_ticks(action: ArrayLike, state: ArrayLike) -> float | None:
    """Return the ticks after which a joint's steps repeat those of its action, to a part of a tick; None if not seen.

    The peak of the correlation of the differences, with a parabola through it and its neighbours. It is not seen where
    the joint hardly moves, where the steps resemble each other too little, or where the peak is at an end.

    Args:
        action, state: (ticks,), in the same unit or not; the state of a tick is read before its action is sent.
    """
    commanded, moved = (np.diff(np.asarray(values, dtype=float)) for values in (action, state))
    if len(commanded) < FEWEST_STEPS or not (np.isfinite(commanded).all() and np.isfinite(moved).all()):
        return None
    size = max(1.0, float(np.abs(np.asarray(action, dtype=float)).max()))
    if commanded.std() <= STILL * size or moved.std() <= STILL * size:
        return None
    most = min(MOST_LAG, len(commanded) // 3)
    match = np.array([_match(commanded[: len(commanded) - lag], moved[lag:]) for lag in range(most + 1)])
    peak = int(np.argmax(match))
    if match[peak] < LEAST_MATCH or peak == most:
        return None
    return interpolate_peak(match, peak)


def _match(a: np.ndarray, b: np.ndarray) -> float:
    spread = a.std() * b.std()
    return float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread > 0 else 0.0


def count_not_finite(ticks: Sequence[Tick], actions: Sequence[Action], joints: Sequence[str]) -> NotFinite | None:
    """Return the control ticks with NaN or infinite joints; None if neither positions nor actions were recorded."""
    rows = [
        [[place for place, value in enumerate(row) if not math.isfinite(value)] for row in column if row is not None]
        for column in ([tick.at for tick in ticks], [tick.commanded for tick in ticks], [one.values for one in actions])
    ]
    if not any(rows):
        return None
    read, sent, asked = (sum(map(bool, column)) for column in rows)
    places = sorted({place for column in rows for row in column for place in row})
    names = [joints[place] if place < len(joints) else f"dimension {place}" for place in places]
    return NotFinite(read=read, sent=max(sent, asked), joints=names)


def motion(actions: ArrayLike, begun: Collection[int]) -> Motion | None:
    """Return the figures of one episode; None with fewer than two actions, or where one is not finite.

    Jerk is the third difference of what is commanded: of positions it is the jerk, of velocities or of steps it is a
    derivative further.

    Args:
        actions: (control ticks, action dim).
        begun: ticks whose action is the first of a new chunk.
    """
    values = np.asarray(actions, dtype=np.float64)
    if values.ndim != 2 or len(values) < 2 or not np.isfinite(values).all():
        return None
    steps = np.linalg.norm(np.diff(values, axis=0), axis=1)  # steps[i] leads to tick i + 1
    third = np.diff(values, n=3, axis=0)
    at_seam = np.isin(np.arange(1, len(values)), list(begun))
    split = at_seam.any() and not at_seam.all()
    return Motion(
        path=float(steps.mean()),
        jerk=float(np.sqrt((third**2).sum(axis=1).mean())) if len(third) else None,
        within=float(steps[~at_seam].mean()) if split else None,
        seam=float(steps[at_seam].mean()) if split else None,
    )


def mean_motion(motions: Sequence[Motion]) -> Motion | None:
    """Return the mean of each figure over the episodes that have it; None without episodes."""
    if not motions:
        return None
    known = {name: [getattr(motion, name) for motion in motions] for name in Motion.model_fields}
    some = {name: [value for value in values if value is not None] for name, values in known.items()}
    return Motion.model_validate({name: float(np.mean(values)) if values else None for name, values in some.items()})


@dataclass(frozen=True)
class BusRead:
    """One synchronous read of all motors.

    Args:
        lost, damaged: tries that ended without an answer, and with one that could not be read.
        waiting: bytes that lay in the port's input before the question; -1 unknown.
        cpu_ns: time that the reading thread ran on a CPU.
        waited_ns: time that it waited for one; -1 unknown.
        arm: its name, where the robot has several.
    """

    start_ns: int
    end_ns: int
    lost: int
    damaged: int
    waiting: int
    cpu_ns: int
    waited_ns: int = 0
    arm: str = ""

    @property
    def ms(self) -> float:
        """Milliseconds of the read."""
        return (self.end_ns - self.start_ns) / 1e6


def buses(reads: Sequence[BusRead], begin_ns: int) -> list[Bus]:
    """The figures of each arm's bus, with moments in seconds from ``begin_ns``.

    A read that found bytes waiting gets the answers to an earlier question. Whatever is in the port before the first
    read counts too.
    """
    arms = dict.fromkeys(read.arm for read in reads)
    return [_bus([read for read in reads if read.arm == arm], begin_ns, arm) for arm in arms]


def worst(buses: Sequence[Bus]) -> Bus | None:
    """The bus with the most old answers, then the most failed tries, then the slowest reads; None of none."""
    return max(buses, key=lambda bus: (bus.stale, bus.lost + bus.damaged, bus.ms.median), default=None)


def _bus(reads: Sequence[BusRead], begin_ns: int, arm: str) -> Bus:
    stale = [read for read in reads if read.waiting > 0]
    failed = [read for read in reads if read.lost or read.damaged]
    whole = [read for read in reads if not read.lost and not read.damaged] or list(reads)
    whole_ns = [(read, read.end_ns - read.start_ns) for read in whole if read.end_ns > read.start_ns]
    ran = [min(1.0, read.cpu_ns / took) for read, took in whole_ns]
    # A driver without a serial port sleeps until the answer comes: that is the bus, and no other thread.
    polled = [(read, took) for read, took in whole_ns if read.waiting >= 0]
    blocked = [max(0.0, 1 - (read.cpu_ns + max(0, read.waited_ns)) / took) for read, took in polled]
    return Bus(
        arm=arm or None,
        ms=quantiles([read.ms for read in whole]),
        on_cpu=statistics.median(ran or [1.0]),
        blocked=statistics.median(blocked or [0.0]),
        lost=sum(read.lost for read in reads),
        damaged=sum(read.damaged for read in reads),
        failed_reads=len(failed),
        failed_ms=quantiles([read.ms for read in failed]) if failed else None,
        stale=len(stale),
        stale_from_s=(stale[0].start_ns - begin_ns) / 1e9 if stale else None,
        stale_at_end=bool(stale) and stale[-1] is reads[-1],
    )


def starts(episodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first frame of each episode.

    Args:
        episodes: of each frame, (frames,).
    """
    return np.flatnonzero(np.diff(episodes, prepend=episodes[:1] - 1))


def joint_jumps(
    actions: Array,
    states: Array,
    spread: Array,
    episodes: NDArray[np.int64],
    names: Sequence[str],
    frames: Sequence[int],
    first: Array,
) -> list[JointJump]:
    """Return for each joint the distance of first actions from the state, and what the recording asks of it.

    A joint of which a number is not finite is left out.

    Args:
        actions, states: recorded, (all frames, dimensions) each; a state, taken as an action, holds the joint still.
        spread: σ of each action dimension; 0 for one that never moves.
        episodes: of each of all frames.
        names: of the dimensions.
        frames: first frames of episodes; at least one.
        first: the first action that was predicted on each of ``frames``, (frames, dimensions).
    """
    predicted = np.abs(first - states[list(frames)])
    ahead = np.abs(actions - states)
    steps = np.abs(np.diff(actions, axis=0))[np.diff(episodes) == 0]
    recorded = ahead[starts(episodes)]
    found = []
    for at, name in enumerate(names):
        own = [each[:, at] for each in (predicted, recorded, ahead, steps)]
        if not all(np.isfinite(each).all() for each in own):
            continue
        found.append(
            JointJump(
                joint=name,
                spread=float(spread[at]),
                predicted=float(np.median(own[0])),
                predicted_largest=float(own[0].max()),
                recorded=float(np.median(own[1])),
                recorded_largest=float(own[1].max()),
                ahead=float(own[2].max()),
                step=float(own[3].max(initial=0.0)),
            )
        )
    return found


def first_action(ticks: Sequence[Tick], joints: Sequence[str]) -> list[FirstAction]:
    """Return the first action that was sent, and where the joints stood in that tick; [] if either is not known.

    Later ticks do not count where the first one is not known: the arm moves by then.
    """
    first = next((tick for tick in ticks if tick.commanded is not None), None)
    at, sent = (None, None) if first is None else (first.at, first.commanded)
    if at is None or sent is None or not len(at) == len(sent) == len(joints) or not np.isfinite([*at, *sent]).all():
        return []
    return [FirstAction(joint=joint, at=at, sent=sent) for joint, at, sent in zip(joints, at, sent, strict=True)]
