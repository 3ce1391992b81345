"""Rules on what a robot would be sent by a policy that was run on recorded frames: its first action, and its range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.preflight.findings.order import BEYOND
from strobe.preflight.results.preflight import PreflightResult
from strobe.preflight.results.reach import JointReach, share_beyond
from strobe.rollout.results.motion import FirstJump, JointJump

# A first jump is far where it is twice the most that the recording ever asked of the joint in a tick, and as large as
# the joint's spread over the whole recording. The error of a policy that beats the mean action is seldom that large.
FAR_USUAL, FAR_SPREADS = 2.0, 1.0
FEWEST_EPISODES = 4  # fewest episodes for a median over them


def far_jump(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    """A first action that lies farther from where the arm stands than anything in the recording."""
    jump = result.open_loop.first_jump if result.open_loop is not None else None
    if jump is None or jump.episodes < FEWEST_EPISODES:
        return
    if any(each.outcome == "claimed" for each in result.hypotheses):  # it has a finding, and the jump follows from it
        return
    far = sorted((joint for joint in jump.joints if is_far(joint)), key=lambda joint: -joint.predicted / joint.spread)
    if far:
        yield _far(jump, far, capped=result.wiring.reach is not None and result.wiring.reach.capped)


def is_far(joint: JointJump) -> bool:
    """Whether a joint's first predicted action is far from where it stands, by what the recording does."""
    return 0 < FAR_SPREADS * joint.spread < joint.predicted and joint.predicted > FAR_USUAL * joint.usual


def _far(jump: FirstJump, far: Sequence[JointJump], *, capped: bool) -> Finding:
    first = far[0]
    others = f" Also far: {', '.join(joint.joint for joint in far[1:])}." if len(far) > 1 else ""
    careful = "" if capped else " For the first runs: --robot.max_relative_target=5."
    return Finding(
        rule="first-jump-far",
        level="warning",
        title=f"{first.joint} jumps at the first action",
        seen=f"On the first frames of {jump.episodes} episodes the first action is {first.predicted:.3g} from the "
        f"recorded state (median; {first.predicted / first.spread:.1f} σ). No recorded first action is more "
        f"than {first.recorded_largest:.3g} from its state. No recorded action is more than {first.usual:.3g} "
        f"from its state or from the action before it.{others}",
        why="A servo goes to its goal as fast as it can: the arm jumps as soon as the first action is sent.",
        do="Find the cause of the wrong actions: statistics, order, unit, or a hypothesis that explains the data "
        f"better.{careful}",
        evidence={
            "joint": first.joint,
            "predicted": first.predicted,
            "recorded": first.recorded_largest,
            "usual": first.usual,
            "spread": first.spread,
        },
    )


def predicted_limits(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    """Joints whose predicted actions leave the range of the calibration, where their statistics do not."""
    loop, reach = result.open_loop, result.wiring.reach
    if loop is None or reach is None:
        return
    for joint, predicted in zip(reach.joints, loop.ranges, strict=False):
        share = share_beyond(predicted.low, predicted.high, joint.limit_low, joint.limit_high)
        if share > BEYOND and joint.beyond <= BEYOND:
            frames = loop.frames + (loop.first_jump.episodes if loop.first_jump is not None else 0)
            yield _beyond(joint, predicted.low, predicted.high, share, reach.unit, frames, capped=reach.capped)


def _beyond(
    joint: JointReach, low: float, high: float, share: float, unit: str, frames: int, *, capped: bool
) -> Finding:
    part = joint.joint.rpartition(".")[0] or joint.joint
    careful = "" if capped else f" For the first runs: --robot.max_relative_target='{{{part}: 5}}' and so on."
    return Finding(
        rule="predicted-beyond-limits",
        level="warning",
        title=f"{part} is sent beyond its limits on recorded frames",
        seen=f"Predicted on {frames} recorded frames: {low:.4g} to {high:.4g}{f' {unit}' if unit else ''}. The "
        f"calibration allows {joint.limit_low:.4g} to {joint.limit_high:.4g}.",
        why="LeRobot does not clamp degrees: the servo stops at its limit, or pushes against what is in the way.",
        do="Calibrate this arm like the arm of the data, or use that arm's file (--robot.calibration_dir). If the "
        f"data stays within the limits, the policy does not act as in its training.{careful}",
        evidence={"joint": part, "low": low, "high": high, "share": share},
    )


RULES = (far_jump, predicted_limits)
