"""The distance of an episode's first action from where the arm stands: predicted, and as it was recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strobe.rollout.measure.rollout import Tick
from strobe.rollout.results.first_jump import FirstAction, JointJump

Array = NDArray[np.float64]


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
    """Return for each joint the distance of first actions from the state, beside what the recording asks of it.

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
    """Return the first action that was sent, beside where the joints stood in that tick; [] if either is not known.

    Later ticks do not count where the first one is not known: the arm moves by then.
    """
    first = next((tick for tick in ticks if tick.commanded is not None), None)
    if first is None or first.at is None or first.commanded is None:
        return []
    if not len(first.at) == len(first.commanded) == len(joints):
        return []
    if not (np.isfinite(first.at).all() and np.isfinite(first.commanded).all()):
        return []
    return [
        FirstAction(joint=joint, at=at, sent=sent)
        for joint, at, sent in zip(joints, first.at, first.commanded, strict=True)
    ]
