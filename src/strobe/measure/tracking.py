"""How well a robot's joints follow what they are told: the distance, and the ticks by which they trail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strobe.measure.rollout import quantiles
from strobe.results.rollout import JointTracking

MOST_LAG = 15  # ticks that are looked at: half a second at 30 Hz
FEWEST = 10  # distances, for a figure


@dataclass(frozen=True)
class Move:
    """One tick's position of each joint, and the command that it was sent after that, in the robot's unit.

    Args:
        at, told: None where they are unknown, or nothing was sent.
        follows: whether the tick comes right after the one before it.
    """

    at: Sequence[float] | None
    told: Sequence[float] | None
    follows: bool = True


def tracking(moves: Sequence[Move], joints: Sequence[str]) -> list[JointTracking]:
    """For each joint, how far it is from its last command, and by how many ticks it trails; [] without positions.

    The lag is the shift of the commands, up to `MOST_LAG` ticks, at which their mean distance to the positions is
    smallest. A joint that is never told to move has none.
    """
    if not joints or not moves:
        return []
    count = len(joints)
    nothing = [np.nan] * count
    at, told = (
        np.array([one if one is not None and len(one) == count else nothing for one in column], float).reshape(
            -1, count
        )
        for column in ([move.at for move in moves], [move.told for move in moves])
    )
    run = np.cumsum([not move.follows for move in moves])  # of ticks that follow one another
    shifted = [_distances(at, told, run, lag) for lag in range(1, MOST_LAG + 1)]
    found = []
    for index, joint in enumerate(joints):
        apart = [distances[:, index][np.isfinite(distances[:, index])] for distances in shifted]
        if len(apart[0]) < FEWEST:
            continue
        lag = min((lag for lag, one in enumerate(apart) if len(one) >= FEWEST), key=lambda lag: apart[lag].mean())
        known = told[:, index][np.isfinite(told[:, index])]
        moves_at_all = bool(np.ptp(known) > 0)
        found.append(
            JointTracking(
                joint=joint,
                error=quantiles(apart[0].tolist()),
                lag_ticks=lag + 1 if moves_at_all else None,
                left=quantiles(apart[lag].tolist()) if moves_at_all else None,
            )
        )
    return found


def _distances(at: np.ndarray, told: np.ndarray, run: np.ndarray, lag: int) -> np.ndarray:
    """From each command to the position ``lag`` ticks later; nan where a pause lies between, or one is unknown."""
    if len(at) <= lag:
        return np.full((0, at.shape[1]), np.nan)
    apart = np.abs(at[lag:] - told[:-lag])
    apart[run[lag:] != run[:-lag]] = np.nan
    return apart
