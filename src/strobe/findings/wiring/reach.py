"""A rule on the range of actions that will be sent: does it stay within the arm's limits?"""

from __future__ import annotations

from collections.abc import Iterator

from strobe.results.finding import Finding
from strobe.results.wiring import Wiring

BEYOND = 0.05  # of a joint's width by which a range may leave its limits: demonstrations push against them


def limits(wiring: Wiring) -> Iterator[Finding]:
    """Joints whose actions leave the range of the calibration."""
    reach = wiring.reach
    if reach is None:
        return
    for joint in sorted(reach.joints, key=lambda each: -each.beyond):
        if joint.beyond <= BEYOND or joint.limit_low is None or joint.limit_high is None:
            continue
        unit = f" {reach.unit}" if reach.unit else ""
        part = joint.joint.rpartition(".")[0] or joint.joint
        careful = "" if reach.capped else f" For the first runs: --robot.max_relative_target='{{{part}: 5}}' and so on."
        yield Finding(
            rule="reach-beyond-limits",
            level="warning",
            title=f"{part} will be sent beyond its limits",
            seen=f"{joint.low:.4g} to {joint.high:.4g}{unit} ({reach.basis} of the actions); the calibration allows "
            f"{joint.limit_low:.4g} to {joint.limit_high:.4g}.",
            why="LeRobot does not clamp degrees: the servo stops at its limit, or pushes against what is in the way. "
            "The data is of an arm that was calibrated in another way, or of another arm.",
            do=f"Calibrate this arm as the data's was, or use that arm's file (--robot.calibration_dir).{careful}",
            evidence={"joint": part, "low": joint.low, "high": joint.high, "share": joint.beyond},
        )


CHECKS = (limits,)
