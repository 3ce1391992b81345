"""How a data set's states and actions move: found in its numbers, joint by joint.

By how many ticks the state repeats the action, which dimensions only jitter, where the arm stands, and at which rate
a vector really changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strobe.core.measure.statistics import interpolate_peak
from strobe.lerobot.datasets.results import JointShift, Repeats, Standing, Statistics

EARLIEST, LATEST = -3, 10  # ticks that are tried
MOST_EPISODES = 200
EQUAL = 1e-3  # share of a joint's spread: two numbers that are this near are one
MOVES = 0.01  # share of a joint's spread: a step above it is a motion
ENOUGH = 0.95  # share of the frames in which the joint moves
ALIKE = 0.8  # correlation of the steps above which state and action are of one motion
FEWEST = 30  # steps
FLAT = 1e-6  # share of a dimension's size: a spread below it is none
# A dimension that jitters moves in a tick as far as in the whole data, and by little of what the others do.
JITTER, LITTLE = 0.5, 0.05
STANDS = 0.05  # share of a joint's spread: within it the joint has not left its place
HELD = 6  # ticks: a number that stands longer is a joint that stands
GRAINS = 3  # times a sensor's smallest step: a smaller change may be a slow motion that the sensor rounds
REGULAR = 0.9  # share of the changes of a held vector that come after the same number of ticks, or one more


def joint_shifts(
    action: np.ndarray | None,
    state: np.ndarray | None,
    bounds: Sequence[tuple[int, int]],
    action_names: Sequence[str],
    state_names: Sequence[str],
) -> list[JointShift]:
    """Return the shift of each joint that both have; [] where they have none in common, or one is not finite.

    Args:
        action, state: (frames, dimensions).
        bounds: each episode's first frame, and that behind its last.
    """
    if action is None or state is None or not bounds:
        return []
    pairs = _pairs(action, state, action_names, state_names)
    some = bounds[:: max(1, len(bounds) // MOST_EPISODES)]
    rows = np.concatenate([np.arange(start, end) for start, end in some])
    episode = np.repeat(np.arange(len(some)), [end - start for start, end in some])
    found = []
    for name, to, at in pairs:
        commanded, moved = action[rows, to].astype(float), state[rows, at].astype(float)
        if np.isfinite(commanded).all() and np.isfinite(moved).all():
            found.append(_shift(name, commanded, moved, episode))
    return found


def _pairs(
    action: np.ndarray, state: np.ndarray, action_names: Sequence[str], state_names: Sequence[str]
) -> list[tuple[str, int, int]]:
    if not action_names and not state_names and action.shape[1] == state.shape[1]:
        return [(f"number {at}", at, at) for at in range(action.shape[1])]
    common = [name for name in action_names if name in state_names]
    return [(name, list(action_names).index(name), list(state_names).index(name)) for name in common]


def _shift(name: str, commanded: np.ndarray, moved: np.ndarray, episode: np.ndarray) -> JointShift:
    found, spread = JointShift(joint=name), float(commanded.std())
    steps = np.abs(np.diff(commanded, append=commanded[-1:]))
    moving = steps > MOVES * spread
    if spread <= 0 or moving.sum() < FEWEST or not 0.5 < moved.std() / spread < 2.0:
        return found
    if abs(commanded.mean() - moved.mean()) > spread:  # no positions, but steps or speeds
        return found
    matches = []
    inside = np.append(np.diff(episode) == 0, False)
    ahead, behind = (np.diff(each, append=each[-1:]) for each in (commanded, moved))
    for ticks in range(EARLIEST, LATEST + 1):
        first, last = max(0, -ticks), min(len(episode), len(episode) - ticks)
        here, there = slice(first, last), slice(first + ticks, last + ticks)
        same = episode[here] == episode[there]
        own = same & moving[here]
        share = float((np.abs(commanded[here] - moved[there]) <= EQUAL * spread)[own].mean()) if own.any() else 0.0
        if share > found.share:
            found.share = share
            found.equal = ticks if share >= ENOUGH else None
        both = same & inside[here] & inside[there]
        matches.append(_correlation(ahead[here][both], behind[there][both]))
    found.alike = _peak(np.array(matches))
    return found


def _correlation(one: np.ndarray, two: np.ndarray) -> float:
    spread = one.std() * two.std() if len(one) >= FEWEST else 0.0
    return float(((one - one.mean()) * (two - two.mean())).mean() / spread) if spread > 0 else 0.0


def _peak(matches: np.ndarray) -> float | None:
    """Return the ticks of the highest correlation, to a part of a tick; None if it is low, or at the last one."""
    peak = int(np.argmax(matches))
    if matches[peak] < ALIKE or peak == len(matches) - 1:
        return None
    return EARLIEST + interpolate_peak(matches, peak)


def still(values: np.ndarray, episode: np.ndarray, measured: Statistics) -> list[bool]:
    """Return whether each dimension of (frames, dimensions) only jitters. ``measured``: their statistics."""
    spread = np.array([each or 0.0 for each in measured["std"]])
    inside = np.diff(episode) == 0
    if not inside.any():
        return [False] * len(spread)
    steps = np.abs(np.diff(values, axis=0)[inside]).mean(axis=0)  # not squared: a single jump is no jitter
    away = np.abs(values - values.mean(axis=0)).mean(axis=0)
    flat = np.maximum(np.abs(values).max(axis=0), 1.0) * FLAT
    others = np.median(spread[spread > flat]) if (spread > flat).any() else 0.0
    jitters = (spread > flat) & (steps > JITTER * away) & (spread < LITTLE * others)
    return [bool(each) for each in jitters]


def standing(states: np.ndarray | None, bounds: Sequence[tuple[int, int]]) -> Standing | None:
    """Return how long the arm stands at starts and ends; None without a state that moves."""
    if states is None or not bounds or not len(states) or not np.isfinite(states).all():
        return None
    spread = states.std(axis=0)
    moving = spread > np.maximum(np.abs(states).max(axis=0), 1.0) * FLAT
    if not moving.any():
        return None
    near, starts, ends, total = STANDS * spread[moving], [], [], 0
    for start, end in bounds:
        own = states[start:end][:, moving]
        starts.append(_frames_before_motion(own, near))
        ends.append(_frames_before_motion(own[::-1], near))
        total += len(own)
    return Standing(
        start_ticks=float(np.median(starts)),
        start_share=sum(starts) / total,
        end_ticks=float(np.median(ends)),
        end_share=sum(ends) / total,
    )


def _frames_before_motion(own: np.ndarray, near: np.ndarray) -> int:
    left = np.flatnonzero((np.abs(own - own[0]) > near).any(axis=1))
    return max(0, int(left[0]) - 1) if len(left) else len(own)


def repeats(name: str, values: np.ndarray, bounds: Sequence[tuple[int, int]]) -> Repeats | None:
    """Return how often a vector really changes while it moves; None if too little of it moves fast enough.

    A loop that reads a sensor too seldom writes its last numbers again. Such numbers change at even distances. A joint
    that stands, one that a rounding sensor sees move slowly, and a command that jumps now and then do not.

    Args:
        values: (frames, dimensions).
        bounds: each episode's first frame, and that behind its last.
    """
    some = bounds[:: max(1, len(bounds) // MOST_EPISODES)]
    if not some:
        return None
    rows = np.concatenate([np.arange(start, end) for start, end in some])
    episode = np.repeat(np.arange(len(some)), [end - start for start, end in some])
    inside = np.append(False, np.diff(episode) == 0)
    ticks = []
    for column in values[rows].astype(float).T:
        if not np.isfinite(column).all():
            continue
        steps = np.abs(np.diff(column, prepend=column[:1]))
        at = np.flatnonzero(inside & (steps > 0))
        grain = float(steps[at].min()) if len(at) else 0.0
        fast = steps[at] > max(MOVES * float(column.std()), GRAINS * grain)
        apart = np.diff(at)
        own = apart[fast[1:] & fast[:-1] & (apart <= HELD) & (np.diff(episode[at]) == 0)]
        least = int(own.mean()) if len(own) else 0
        if len(own) >= FEWEST and np.isin(own, (least, least + 1)).mean() >= REGULAR:
            ticks.append(float(own.mean()))
    return Repeats(name=name, ticks=float(np.median(ticks)), joints=len(ticks)) if ticks else None
