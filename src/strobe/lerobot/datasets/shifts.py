"""By how many ticks a data set's state repeats its action: found in its numbers, joint by joint."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strobe.preflight.results.truth import JointShift

EARLIEST, LATEST = -3, 10  # ticks that are tried
MOST_EPISODES = 200
EQUAL = 1e-3  # share of a joint's spread: two numbers that are this near are one
MOVES = 0.01  # share of a joint's spread: a step above it is a motion
ENOUGH = 0.95  # share of the frames in which the joint moves
ALIKE = 0.8  # correlation of the steps above which state and action are of one motion
FEWEST = 30  # steps


def between(
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
    """Return the joints of both, with their places: by name, or by place where neither has names."""
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
    """Return the ticks of the highest correlation, to a part of a tick; None where it is low, or at the last one."""
    peak = int(np.argmax(matches))
    if matches[peak] < ALIKE or peak == len(matches) - 1:
        return None
    if peak == 0:
        return float(EARLIEST)
    before, here, after = matches[peak - 1 : peak + 2]
    curve = before - 2 * here + after
    return float(EARLIEST + peak + (0.5 * (before - after) / curve if curve < 0 else 0.0))
