"""The checks of a recording's motion, in one table: what each needs, what it reads, and what judges it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from strobe.core.measure.sampling import Progress
from strobe.core.measure.statistics import summarise
from strobe.lerobot.datasets.images import Pictures
from strobe.lerobot.datasets.results import JointLag
from strobe.motion import pairs, pictures, rows
from strobe.motion.episodes import Figures, Joints, find_joints, measure
from strobe.motion.look import Look
from strobe.motion.results import Motion, Oddity, RestPoints
from strobe.motion.series import Series, read_columns

ALIKE = 0.7  # correlation of action and state above which they are one quantity; of a few joints with another sign
NEXT = 0.9  # share of the motions: such actions say nothing of how the servos follow
MOST_POINTS = 400  # episodes in a plot


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        needs: 'rows', or 'joints' that action and state have in common, as positions, or decoded 'pictures', or a robot
            whose 'servos' are known.
        reads: what it looks at, in words.
        judge: yields what it found.
        why: what that does to a policy.
        level: 'info' for what is no fault.
    """

    name: str
    needs: Literal["rows", "joints", "pictures", "servos"]
    reads: str
    judge: Callable[[Look], Iterable[Oddity]]
    why: str
    level: Literal["info", "warning"] = "warning"


# In this order: what an earlier one explains, a later one does not name again.
CHECKS = (
    Check("own means", "rows", "each episode's mean in meta/episodes against its rows", rows.own_means,
          "The policy learns from rows that are not what was recorded as this state or this action."),
    Check("one task", "rows", "the tasks of the rows", rows.one_task,
          "A policy that reads the task is told the same words for different motions, and learns to ignore them."),
    Check("spikes", "rows", "values that come and go within two ticks", rows.spikes,
          "The statistics that normalise the data carry them, and the policy learns from values that never were."),
    Check("wraps", "rows", "jumps of a whole turn", rows.wraps,
          "Its mean lies where the joint never is. Between two predictions on both sides of the jump the robot turns "
          "all the way round."),
    Check("repeats", "rows", "parts of an episode that are in another", rows.repeated_parts,
          "It counts twice in training. If one of the two is held out, that part is not unseen."),
    Check("held", "rows", "rows that repeat the row before", rows.held_values,
          "The loop that recorded them was slower than its rate: the policy learns a motion that stops and starts."),
    Check("speeds", "servos", "the speed of the joints against their servos'", rows.impossible_speeds,
          "Its rows are further apart in time than the data says, or no positions: the policy learns motions that the "
          "arm cannot make."),
    Check("units", "rows", "the size of the motions by episode", rows.changed_units,
          "Statistics of both units together fit neither: the policy's actions are far too small or too large."),
    Check("exchanged joints", "joints", "which action each joint's state follows", pairs.exchanged_joints,
          "The policy learns that one joint moves when another is told to."),
    Check("polarity", "joints", "whether state and action move the same way", pairs.polarity,
          "The policy learns that this joint does the opposite of what it is told."),
    Check("scale", "joints", "how far the state moves for its action", pairs.scale,
          "The policy's state is not where its actions lead: on the robot it starts from a pose that it never saw."),
    Check("stuck", "joints", "states that stand while their action moves", pairs.stuck_joints,
          "The policy learns that this joint's state says nothing, and cannot correct its position on the robot."),
    Check("delays", "joints", "ticks from action to state by episode", pairs.delays,
          "The policy learns two delays at once, and its actions come at the time of neither."),
    Check("copied state", "joints", "whether an action is a position that the arm has already", pairs.copied_state,
          "The policy learns to send the position that the arm already has, and the arm stays where it is."),
    Check("levels", "joints", "state less action at rest", pairs.levels,
          "The policy learns that the arm ends away from each goal. On an arm that does not, it misses by that much."),
    Check("image lag", "pictures", "the change of the images against the speed of the joints", pictures.late_images,
          "The policy learns from images of another moment than its state. On the robot both are of one."),
    Check("cameras in time", "pictures", "the change of one camera's images against another's", pictures.late_cameras,
          "The policy learns from images of two moments at once. On the robot all are of one."),
    Check("light", "pictures", "the brightness of all parts of the images", pictures.lost_light,
          "The policy learns two looks of one scene, and to tell the time of the task by the light."),
    Check("images behind", "pictures", "images behind those of the rows", pictures.images_behind,
          "Images and rows agree: nothing of it reaches a policy (lerobot #4109).", "info"),
    Check("frozen", "pictures", "images that stand while the arm moves", pictures.frozen_cameras,
          "The policy learns from images that do not show the arm's position."),
    Check("empty", "pictures", "images of one colour", pictures.empty_cameras,
          "The policy learns to ignore this camera, and on the robot it shows a scene."),
    Check("cameras", "pictures", "the first images of the cameras", pictures.exchanged_cameras,
          "The policy learns that a camera's view says nothing, and on the robot each has its own."),
)  # fmt: skip


def look_at_motion(
    series: Series, progress: Callable[[Progress], None] = lambda _: None, decoded: Pictures | None = None
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
    look = Look(series, {name: read_columns(series, name) for name in series.vectors}, decoded or Pictures())
    joints = find_joints(series, look.columns)
    lacking = "action and state have no dimension of the same name"
    if joints is not None:
        look.joints, look.figures = joints, measure(joints, series.bounds, series.fps, progress)
        look.positions, lacking = _find_positions(look.figures)
        motion.lags = list(_lags(joints, look.figures))
        if look.positions.any() and (share := pairs.share_equal(joints, 1)) > NEXT:
            look.positions[:] = False
            lacking = f"the action is the state of the next row by construction, in {100 * share:.0f} % of the rows"
        look.explained = np.zeros(look.figures.steps.shape, bool)
    missing = dict[str, str]()
    if not look.positions.any():
        missing["joints"] = f"the action against the state: {lacking}"
    if not series.servos:
        missing["servos"] = "speeds that no motor has: meta/info.json names no robot_type of known servos"
    motion.unjudged += missing.values()
    for check in CHECKS:
        if check.needs not in missing and (check.needs != "pictures" or look.pictures.first):
            motion.checks.append(check.name)
            of_check = {"check": check.name, "why": check.why, "level": check.level}
            motion.found += [each.model_copy(update=of_check) for each in check.judge(look)]
    motion.traces, motion.cameras = look.traces, look.cameras
    motion.rests = list(_rests(look, motion.found))
    return motion


def _find_positions(figures: Figures) -> tuple[np.ndarray, str]:
    """Return which joints' actions are positions in their state's unit, and why the others are not judged.

    A speed or a step goes with the state's steps and not with its values. All joints of an arm have one kind of action,
    so the median of the joints decides, and joints that stand are judged like the others.
    """
    alike = np.fmax(figures.steps, figures.levels)  # a speed towards a goal goes against the state in most joints
    same = np.isfinite(alike) & (alike >= ALIKE)
    if not np.isfinite(alike).any():
        return np.zeros(figures.steps.shape[1], bool), "no joint of both moves in an episode that is long enough"
    speeds = np.nanmedian(figures.velocity) > np.nanmedian(np.abs(figures.steps))
    if speeds or np.nanmedian(same[np.isfinite(alike)]) < 1:
        return np.zeros(figures.steps.shape[1], bool), "the actions are no positions in the unit of the state"
    return np.ones(figures.steps.shape[1], bool), ""


def _lags(joints: Joints, figures: Figures) -> Iterator[JointLag]:
    for at, name in enumerate(joints.names):
        lag, shown = JointLag(joint=name), figures.own[np.abs(figures.steps[:, at]) > pairs.ALIKE, at]
        if len(shown):
            summary = summarise(np.maximum(shown, 0.0).tolist())
            lag = JointLag(joint=name, recorded=summary.median, interval=summary.interval, episodes=len(shown))
        yield lag


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
