"""The first action on the first frame of each episode, and the range of all predicted actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from strobe.core.errors import UserError
from strobe.core.measure.sampling import Progress
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.policies.recorded_actions import RecordedActions
from strobe.loops.measure.robot import joint_jumps, starts
from strobe.loops.results.motion import FirstJump
from strobe.preflight.lag import PolicyRun
from strobe.preflight.predictions import Predictions, predict
from strobe.preflight.results.preflight import ActionRange

SHARE = 0.2  # share of the time for predictions that those on first frames may take


def predict_first(
    subject: PolicySubject, recorded: RecordedActions, seconds: float, progress: Callable[[Progress], None]
) -> tuple[FirstJump, Predictions]:
    """Predict on the first frame of each episode, until a share of ``seconds`` is over.

    Returns:
        the distances of first actions from the state, and the predicted chunks.
    """
    if not recorded.can_hold or recorded.states is None:
        return FirstJump(
            unjudged=["The first action: the state and the action have different dimensions."]
        ), Predictions()
    try:
        made = predict(subject, [int(frame) for frame in starts(recorded.episodes)], (), (), SHARE * seconds, progress)
    except UserError as error:  # such as a first frame that holds what is no number
        return FirstJump(unjudged=[f"The first action: {error}."]), Predictions()
    jump = FirstJump(episodes=len(made.frames))
    if not made.frames:
        jump.unjudged.append("The first action: it was stopped before the first frame.")
    elif made.wired.shape[2] == recorded.actions.shape[1]:
        first = made.wired[:, 0]
        jump.joints = joint_jumps(
            recorded.actions, recorded.states, recorded.spread, recorded.episodes, recorded.names, made.frames, first
        )
    left = [name for name in recorded.names if name not in {joint.joint for joint in jump.joints}]
    if made.frames and left:
        jump.unjudged.append(
            f"The first action of {', '.join(left)}: the predicted or the recorded number is NaN or infinite."
        )
    return jump, made


def ranges(names: Sequence[str], executed: int, *predictions: Predictions) -> list[ActionRange]:
    """Return the range of each dimension in the executed actions of the chunks; [] if one holds what is no number.

    Args:
        executed: actions of each chunk that count.
    """
    chunks = [each.wired[:, :executed] for each in predictions if each.frames]
    if not chunks or not all(np.isfinite(chunk).all() and chunk.shape[2] == len(names) for chunk in chunks):
        return []
    lows = np.min([chunk.min(axis=(0, 1)) for chunk in chunks], axis=0)
    highs = np.max([chunk.max(axis=(0, 1)) for chunk in chunks], axis=0)
    return [
        ActionRange(name=name, low=float(low), high=float(high))
        for name, low, high in zip(names, lows, highs, strict=True)
    ]


def executed_per_chunk(subject: PolicySubject, chunk: int) -> int:
    """Return how many actions of each chunk are executed, by the policy's config; all where it does not say."""
    steps = getattr(subject.policy.config, "n_action_steps", None)
    return min(chunk, steps) if isinstance(steps, int) and steps > 0 else chunk


def add_run(jump: FirstJump, run: PolicyRun) -> None:
    """Add the first action that a run sent, joint by joint."""
    jump.run = str(run.folder)
    sent = run.rollout.first_action or []
    by_name = {action.joint: action.jump for action in sent}
    for joint in jump.joints:
        joint.run = by_name.get(joint.joint)
    if not sent:
        why = "no action was sent, the robot reported no positions, or an earlier version of Strobe saved it"
        jump.unjudged.append(f"The first action of {run.folder}: {why}.")
    elif jump.joints and all(joint.run is None for joint in jump.joints):
        jump.unjudged.append(
            f"The first action of {run.folder}: none of its joints has the name of a joint in the data."
        )
