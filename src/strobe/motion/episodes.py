"""The joints that action and state have in common, and each episode's figures: how the states follow the actions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from scipy.ndimage import maximum_filter1d, minimum_filter1d

from strobe.core.measure.sampling import Progress
from strobe.core.measure.statistics import interpolate_peak
from strobe.lerobot.datasets.numbers import ACTION, STATE, is_switch
from strobe.motion.series import Column, Series, cut

LATEST_S = 0.5  # seconds between action and state that are tried; a hobby arm has 0.05 to 0.2
STEP_S = 0.1  # a motion is the way in this time: longer than an encoder's noise, shorter than a move
MOVES = 0.1  # share of a joint's range: it moves in an episode that has more of it
FEWEST = 30  # rows of an episode that is judged
REST_S = 0.3  # seconds without motion after which a servo has arrived
STILL = 0.01  # share of a joint's range: less is no motion
NOISE = 4.0  # times the noise of an encoder, which is no motion either
ENDS = (0.1, 0.9)  # quantiles of action less state: a gripper that holds something is at its goal while it is open


@dataclass(frozen=True)
class Joints:
    """Dimensions that action and state both name; those by place where neither has names.

    Args:
        names: of the joints.
        action, state: of each joint, (frames,) without spikes and wraps.
        reach: (joints,) the larger range of the two.
        turn: (joints,) a whole turn in the joint's unit.
        switch: (joints,) whether it is mostly at one end or the other, as a gripper is.
    """

    names: list[str]
    action: list[np.ndarray]
    state: list[np.ndarray]
    reach: np.ndarray
    turn: np.ndarray
    switch: np.ndarray


def find_joints(series: Series, columns: dict[str, list[Column]]) -> Joints | None:
    """Return the joints that action and state have in common; None if there are none."""
    if ACTION not in columns or STATE not in columns:
        return None
    named, of_state = series.names[ACTION], series.names[STATE]
    places = [(at, of_state.index(name)) for at, name in enumerate(named) if name in of_state]
    if not places or (series.names[ACTION][0].startswith("number ") and len(named) != len(of_state)):
        return None
    one, two = [columns[ACTION][at] for at, _ in places], [columns[STATE][at] for _, at in places]
    action, state = ([each.clean for each in side] for side in (one, two))
    reach = np.array([max(mine.reach, theirs.reach) for mine, theirs in zip(one, two, strict=True)])
    turn = np.array([mine.turn for mine in one])
    rows = np.stack([each[:: max(1, len(each) // 20_000)] for each in action], axis=1)
    return Joints([named[at] for at, _ in places], action, state, reach, turn, is_switch(rows))


@dataclass
class Figures:
    """Figures of (episodes,) or (episodes, joints); NaN where an episode cannot give them.

    Args:
        lag: ticks from the actions to the states that go with them.
        sure: correlation at that lag, mean over the joints.
        own: ticks from a joint's action to its own state, which may be a little later than the arm's.
        steps: correlation of a joint's steps at that lag, with its sign.
        levels: correlation of a joint's values at that lag.
        slope: of state on action at that lag, by the ratio of their spreads.
        ratio: of a state's steps to its action's where both move: without the ticks in which one cannot.
        velocity: correlation of the action with the state's steps: above `steps` where actions are no positions.
        offset: state less action at rest.
        resting: ticks at rest.
        low, high: state less action over all ticks, 10th and 90th percentile.
        moved_action, moved_state: range, as a share of the joint's own range in the set.
        held: longest time, in seconds, that a state stands while its action moves.
        action, state: median.
        cross: (episodes, joints, joints) correlation of action i's steps with state k's.
    """

    lag: np.ndarray
    sure: np.ndarray
    own: np.ndarray
    steps: np.ndarray
    levels: np.ndarray
    slope: np.ndarray
    ratio: np.ndarray
    velocity: np.ndarray
    offset: np.ndarray
    resting: np.ndarray
    low: np.ndarray
    high: np.ndarray
    moved_action: np.ndarray
    moved_state: np.ndarray
    held: np.ndarray
    action: np.ndarray
    state: np.ndarray
    cross: np.ndarray


def measure(joints: Joints, bounds: list[tuple[int, int]], fps: float, progress: Callable[[Progress], None]) -> Figures:
    """Return the figures of all episodes."""
    count, size = len(bounds), len(joints.names)
    shapes = {"lag": (count,), "sure": (count,), "cross": (count, size, size)}
    found = Figures(**{each.name: np.full(shapes.get(each.name, (count, size)), np.nan) for each in fields(Figures)})
    reach, began = np.maximum(joints.reach, 1e-12), time.monotonic()
    for at, (start, end) in enumerate(bounds):
        action, state = (cut(each, start, end).astype(float) for each in (joints.action, joints.state))
        _measure_episode(found, at, action, state, reach, fps)
        seconds = time.monotonic() - began
        progress(Progress(at + 1, count, seconds, seconds * (count / (at + 1) - 1), "episodes"))
    return found


def _measure_episode(
    found: Figures, at: int, action: np.ndarray, state: np.ndarray, reach: np.ndarray, fps: float
) -> None:
    found.action[at], found.state[at] = np.median(action, axis=0), np.median(state, axis=0)
    found.moved_action[at], found.moved_state[at] = np.ptp(action, axis=0) / reach, np.ptp(state, axis=0) / reach
    found.resting[at] = 0
    latest, far = max(3, round(LATEST_S * fps)), max(1, round(STEP_S * fps))
    if len(action) < FEWEST + latest + far:
        return
    found.held[at] = _held_s(action, state, reach, fps)
    ahead, behind = (each[far:] - each[:-far] for each in (action, state))
    moves = (np.ptp(action, axis=0) > MOVES * reach) | (np.ptp(state, axis=0) > MOVES * reach)
    if not moves.any():
        return
    matches = _correlate_over_lags(ahead, behind, latest)
    score = np.abs(matches[:, moves]).mean(axis=1)
    peak = int(np.argmax(score))
    lag = peak - latest
    found.lag[at], found.sure[at] = interpolate_peak(score, peak) - latest, score[peak]
    first = max(0, peak - 2)
    near = matches[first : peak + 3]
    best = np.argmax(np.abs(near), axis=0)
    found.steps[at] = np.where(moves, np.take_along_axis(near, best[None], axis=0)[0], np.nan)
    for joint in np.flatnonzero(moves):
        found.own[at, joint] = interpolate_peak(np.abs(matches[:, joint]), first + int(best[joint])) - latest
    one, two = shift_rows(ahead, behind, lag)
    found.cross[at] = np.where(moves[:, None] & moves, _cross(one, two), np.nan)
    found.ratio[at] = _median_ratio(one, two, 0.2 * STEP_S * reach)
    centred = action[:-far] - action[:-far].mean(axis=0)
    found.velocity[at] = np.max(np.abs([_correlate(*shift_rows(centred, behind, one)) for one in (0, 1, 2)]), axis=0)
    early, late = shift_rows(action, state, lag)
    spread = early.std(axis=0), late.std(axis=0)
    found.levels[at] = np.where(moves, _correlate(early - early.mean(axis=0), late - late.mean(axis=0)), np.nan)
    found.slope[at] = np.where(moves & (spread[0] > 1e-9 * reach), spread[1] / np.maximum(spread[0], 1e-12), np.nan)
    # A servo that is φ behind a swinging command (first order) reaches cos φ of it: that is no other scale.
    swing = np.sqrt((np.diff(early, axis=0) ** 2).mean(axis=0)) / np.maximum(spread[0], 1e-12)  # radians a tick
    for each in (found.slope[at], found.ratio[at]):
        np.copyto(each, np.minimum(1.0, each / np.cos(np.clip(swing * lag, 0, 1.3))), where=each < 1)
    found.low[at], found.high[at] = np.quantile(late - early, ENDS, axis=0)
    _measure_rests(found, at, action, state, reach, max(3, round(REST_S * fps)))


def _measure_rests(
    found: Figures, at: int, action: np.ndarray, state: np.ndarray, reach: np.ndarray, ticks: int
) -> None:
    still = _is_still(action, reach, ticks) & _is_still(state, reach, ticks)
    apart = (state - action)[ticks - 1 :]
    found.resting[at] = still.sum(axis=0)
    for joint in np.flatnonzero(found.resting[at] > 0):
        found.offset[at, joint] = np.median(apart[still[:, joint], joint])


def _is_still(values: np.ndarray, reach: np.ndarray, ticks: int) -> np.ndarray:
    noise = np.median(np.abs(np.diff(values, 2, axis=0)), axis=0) / 0.6745 / np.sqrt(6)
    before = (ticks - 1) // 2  # each row's window is the row and those before it
    highest, lowest = (each(values, ticks, axis=0, origin=before) for each in (maximum_filter1d, minimum_filter1d))
    moved = highest - lowest
    return moved[ticks - 1 :] <= STILL * reach + NOISE * noise


def _held_s(action: np.ndarray, state: np.ndarray, reach: np.ndarray, fps: float) -> np.ndarray:
    """Return the longest time that a state stands while its action moves, in halves of a second; that of each joint.

    Its action has moved in a half before, so a servo has had the time to follow.
    """
    ticks = max(3, round(0.5 * fps))
    count = len(action) // ticks
    parts = [each[: count * ticks].reshape(count, ticks, -1) for each in (action, state)]
    moves = np.ptp(parts[0], axis=1) > STILL * 3 * reach
    stands = np.ptp(parts[1], axis=1) <= 1e-6 * np.maximum(reach, np.abs(state).max(axis=0))
    stands[1:] &= parts[1][1:, 0] == parts[1][:-1, -1]
    longest = np.zeros(action.shape[1])
    for joint in np.flatnonzero(stands.any(axis=0)):
        run = acted = 0
        for moving, standing in zip(moves[:, joint].tolist(), stands[:, joint].tolist(), strict=True):
            run, acted = (run + 1, acted + moving) if standing else (0, 0)
            longest[joint] = max(longest[joint], run if acted >= 2 else 0)
    return longest * ticks / fps


def shift_rows(early: np.ndarray, late: np.ndarray, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of ``early``, and those of ``late`` that come ``lag`` rows later."""
    return (early[: len(early) - lag], late[lag:]) if lag >= 0 else (early[-lag:], late[:lag])


def _correlate(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    size = np.sqrt((one * one).sum(axis=0) * (two * two).sum(axis=0))
    return (one * two).sum(axis=0) / np.maximum(size, 1e-12)


def _correlate_over_lags(early: np.ndarray, late: np.ndarray, latest: int) -> np.ndarray:
    """Return (2 latest + 1, joints): the correlation of each joint's rows with those that come a lag later."""
    size = len(early) + latest
    product = np.fft.irfft(np.conj(np.fft.rfft(early, size, axis=0)) * np.fft.rfft(late, size, axis=0), size, axis=0)
    sums = np.concatenate([product[size - latest :], product[: latest + 1]])
    lags, count = np.arange(-latest, latest + 1), len(early)
    energy = [np.concatenate([np.zeros((1, each.shape[1])), np.cumsum(each * each, axis=0)]) for each in (early, late)]
    first, last = np.maximum(0, -lags), np.minimum(count, count - lags)
    sizes = np.sqrt((energy[0][last] - energy[0][first]) * (energy[1][last + lags] - energy[1][first + lags]))
    return sums / np.maximum(sizes, 1e-12)


def _cross(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    sizes = [np.sqrt((each * each).sum(axis=0)) for each in (one, two)]
    return (one.T @ two) / np.maximum(np.outer(*sizes), 1e-12)


def _median_ratio(one: np.ndarray, two: np.ndarray, least: np.ndarray) -> np.ndarray:
    one, two = np.abs(one), np.abs(two)
    both = (one > least) & (two > least)
    found = np.full(one.shape[1], np.nan)
    for joint in np.flatnonzero(both.sum(axis=0) >= FEWEST // 3):
        some = both[:, joint]
        found[joint] = np.median(two[some, joint] / one[some, joint])
    return found
