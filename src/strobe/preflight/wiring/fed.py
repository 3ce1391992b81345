"""What a run gave the policy: each joint's position next to the range that the policy's statistics know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strobe.preflight.results.wiring import FedJoint, Wiring, scales

STATE = "observation.state"
EDGE = 0.25  # normalised: a position that is nearer to the range is in it


def add_fed(wiring: Wiring, joints: Sequence[str], positions: Sequence[Sequence[float] | None]) -> None:
    """Add to ``wiring`` what the policy was given of each joint; nothing where statistics or names are not there.

    Args:
        joints: names of the positions.
        positions: of each tick, in the robot's unit; None where they are not known.
    """
    wire = wiring.wire(STATE)
    own, robot = (wire.ends.get("preprocessor"), wire.ends.get("robot")) if wire is not None else (None, None)
    known = [row for row in positions if row is not None and len(row) == len(joints)]
    if own is None or own.normalisation is None or robot is None or not known or positions[0] is None:
        return
    read = scales(own.normalisation.mode, own.normalisation.statistics)
    ends = [own.normalisation.statistics.get(name) or [] for name in ("min", "max")]
    every, found = np.array(known, dtype=float), []
    for at, joint in enumerate(joints):
        # LeRobot hands the state on in the order of the robot's features.
        place = robot.dimensions.index(joint) if joint in robot.dimensions else -1
        scale = read[place] if 0 <= place < len(read) else None
        low, high = (end[place] if 0 <= place < len(end) else None for end in ends)
        own_positions = every[:, at]
        if scale is None or low is None or high is None or scale.half <= 0 or not np.isfinite(own_positions).all():
            continue
        beyond = np.maximum(low - own_positions, own_positions - high).clip(min=0.0) / scale.half
        first = float(own_positions[0])
        found.append(
            FedJoint(
                joint=joint,
                low=low,
                high=high,
                first=first,
                normalised=(first - scale.centre) / scale.half,
                beyond=float(beyond[0]),
                outside=float((beyond > EDGE).mean()),
            )
        )
    wiring.fed = found or None
