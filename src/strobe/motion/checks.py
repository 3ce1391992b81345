"""The checks of a recording's motion, in one table: what each needs, what it reads, and what judges it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from strobe.core.measure.sampling import Progress
from strobe.motion import pairs, pictures, rows
from strobe.motion.episodes import Figures, Joints, find_joints, measure
from strobe.motion.look import Look
from strobe.motion.results import Motion, Oddity, RestPoints
from strobe.motion.series import Series, read_columns

ALIKE = 0.7  # correlation of action and state above which they are one quantity, with either sign
NEXT = 0.9  # share of the motions: such actions say nothing of how the servos follow
MOST_POINTS = 400  # episodes in a plot


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        needs: 'rows', or 'joints' that action and state have in common, as positions, or decoded 'pictures'.
        reads: what it looks at, in words.
        judge: yields what it found.
    """

    name: str
    needs: Literal["rows", "joints", "pictures"]
    reads: str
    judge: Callable[[Look], Iterable[Oddity]]


# In this order: what an earlier one explains, a later one does not name again.
CHECKS = (
    Check("own means", "rows", "each episode's mean in meta/episodes against its rows", rows.own_means),
    Check("one task", "rows", "the tasks of the rows", rows.one_task),
    Check("spikes", "rows", "values that come and go within two ticks", rows.spikes),
    Check("wraps", "rows", "jumps of a whole turn", rows.wraps),
    Check("repeats", "rows", "parts of an episode that are in another", rows.repeated_parts),
    Check("held", "rows", "rows that repeat the row before", rows.held_values),
    Check("units", "rows", "the size of the motions by episode", rows.changed_units),
    Check("exchanged joints", "joints", "which action each joint's state follows", pairs.exchanged_joints),
    Check("polarity", "joints", "whether state and action move the same way", pairs.polarity),
    Check("scale", "joints", "how far the state moves for its action", pairs.scale),
    Check("stuck", "joints", "states that stand while their action moves", pairs.stuck),
    Check("delays", "joints", "ticks from action to state by episode", pairs.delays),
    Check("levels", "joints", "state less action at rest", pairs.levels),
    Check("image lag", "pictures", "the change of the images against the speed of the joints", pictures.late_images),
    Check("images behind", "pictures", "images behind those of the rows", pictures.images_behind),
    Check("cameras", "pictures", "the first images of the cameras", pictures.exchanged_cameras),
)


def look_at_motion(
    series: Series, progress: Callable[[Progress], None] = lambda _: None, decoded: pictures.Pictures | None = None
) -> Motion:
    """Return what the checks find.

    Args:
        progress: told how many episodes were measured.
        decoded: images of some episodes; without them the checks that need them do not judge.
    """
    motion = Motion(checks=[], rows=series.rows)
    if not series.bounds:
        motion.unjudged.append("the motion: no episode has numbers that are all finite")
        return motion
    look = Look(series, {name: read_columns(series, name) for name in series.vectors})
    joints = find_joints(series, look.columns)
    lacking = "action and state have no dimension of the same name"
    if joints is not None:
        look.joints, look.figures = joints, measure(joints, series.bounds, series.fps, progress)
        look.positions, lacking = _find_positions(look.figures)
        if look.positions.any() and (share := _share_next_state(series, joints)) > NEXT:
            look.positions[:] = False
            lacking = f"the action is the state of the next row by construction, in {100 * share:.0f} % of the rows"
        look.explained = np.zeros(look.figures.steps.shape, bool)
    there = {
        "rows": True,
        "joints": bool(look.positions.any()),
        "pictures": decoded is not None and bool(decoded.first),
    }
    if decoded is not None:
        look.pictures = decoded
    judged = [check for check in CHECKS if there[check.needs]]
    for check in judged:
        motion.found += check.judge(look)
    motion.checks = [check.name for check in judged]
    if not there["joints"]:
        motion.unjudged.append(f"the action against the state: {lacking}")
    motion.traces, motion.cameras = look.traces, look.cameras
    motion.rests = list(_rests(look, motion.found))
    return motion


def _find_positions(figures: Figures) -> tuple[np.ndarray, str]:
    """Return which joints' actions are positions in their state's unit, and why the others are not judged.

    A speed or a step goes with the state's steps and not with its values. All joints of an arm have one kind of action,
    so the median of the joints decides, and joints that stand are judged like the others.
    """
    alike = np.fmax(np.abs(figures.steps), np.abs(figures.levels))
    same = np.isfinite(alike) & (alike >= ALIKE)
    if not np.isfinite(alike).any():
        return np.zeros(figures.steps.shape[1], bool), "no joint of both moves in an episode that is long enough"
    speeds = np.nanmedian(figures.velocity) > np.nanmedian(np.abs(figures.steps))
    if speeds or np.nanmedian(same[np.isfinite(alike)]) < 1:
        return np.zeros(figures.steps.shape[1], bool), "the actions are no positions in the unit of the state"
    return np.ones(figures.steps.shape[1], bool), ""


def _share_next_state(series: Series, joints: Joints) -> float:
    """Return the share of the joints' motions after which the state is the action, number by number."""
    inside, equal, moves = series.inside(), 0, 0
    for action, state in zip(joints.action, joints.state, strict=True):
        moved = inside & (np.diff(state) != 0)
        equal, moves = equal + int((action[:-1] == state[1:])[moved].sum()), moves + int(moved.sum())
    return equal / max(1, moves)


def _rests(look: Look, found: list[Oddity]) -> Iterator[RestPoints]:
    if not look.positions.any():
        return
    figures, episodes = look.figures, look.series.episodes
    odd = [each for each in found if each.check == "levels"]
    named = {(joint, episode) for each in odd for joint in each.joints for episode in each.episodes}
    for at, name in enumerate(look.joints.names):
        rests = np.flatnonzero((figures.resting[:, at] > 0) & np.isfinite(figures.offset[:, at]))[:MOST_POINTS]
        if len(rests):
            action = figures.action[rests, at]
            yield RestPoints(
                joint=name,
                action=action.tolist(),
                state=(action + figures.offset[rests, at]).tolist(),
                odd=[(name, int(episodes[one])) in named for one in rests],
            )
