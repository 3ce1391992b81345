"""Rules on the actions that a policy predicts on recorded frames: the first action, and the range."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.loops.results.motion import JointJump
from strobe.preflight.findings.order import BEYOND
from strobe.preflight.results.preflight import PreflightResult
from strobe.preflight.results.wiring import share_beyond

# A first jump is large if it is twice the largest step of the joint in the recording, and as large as the joint's
# spread over the whole recording. The error of a policy that is better than the mean action is seldom that large.
FAR_USUAL, FAR_SPREADS = 2.0, 1.0
FEWEST_EPISODES = 4  # fewest episodes for a median over them


@finding("first-jump-far", "warning")
def far_jump(result: PreflightResult, _: Thresholds) -> Found:
    """The first action makes {first.joint} jump by {spreads:.1f} σ.

    Found: On the first frames of {jump.episodes} episodes the first action is {predicted:.3g} from the recorded state
        (median; σ is the spread of the recorded actions). No recorded first action is more than {recorded:.3g} from its
        state. No recorded action is more than {usual:.3g} from its state or from the action before it.{others}
    Why: A servo goes to its goal as fast as it can: the arm jumps as soon as the first action is sent.
    Do: Find the cause of the wrong actions: statistics, order, unit, or a hypothesis that predicts the actions
        better.{careful}
    """
    jump, reach = result.open_loop.first_jump if result.open_loop is not None else None, result.wiring.reach
    if jump is None or jump.episodes < FEWEST_EPISODES:
        return
    if any(each.outcome == "claimed" for each in result.hypotheses):  # a finding of its own, which explains the jump
        return
    far = sorted((joint for joint in jump.joints if is_far(joint)), key=lambda joint: -joint.predicted / joint.spread)
    if far:
        first, spreads = far[0], far[0].predicted / far[0].spread
        others = f" Also far: {', '.join(joint.joint for joint in far[1:])}." if len(far) > 1 else ""
        capped = reach is not None and reach.capped
        careful = "" if capped else " For the first runs: --robot.max_relative_target=5."
        evidence = {"joint": first.joint, "predicted": first.predicted, "recorded": first.recorded_largest}
        yield {**evidence, "usual": first.usual, "spread": first.spread}, locals()


def is_far(joint: JointJump) -> bool:
    """Whether a joint's first predicted action is far from its position, compared with the recording."""
    return 0 < FAR_SPREADS * joint.spread < joint.predicted and joint.predicted > FAR_USUAL * joint.usual


@finding("predicted-beyond-limits", "warning")
def predicted_limits(result: PreflightResult, _: Thresholds) -> Found:
    """The policy sends {joint} beyond its limits on recorded frames.

    Found: On {frames} recorded frames it predicted {low:.4g} to {high:.4g}{unit}. The calibration allows {least:.4g} to
        {most:.4g}.
    Why: LeRobot does not clamp degrees: the servo stops at its limit, or pushes against an obstacle.
    Do: Calibrate this arm like the arm of the data, or use that arm's file (--robot.calibration_dir). If the data stays
        within the limits, the policy does not act as in its training.{careful}
    """
    loop, reach = result.open_loop, result.wiring.reach
    if loop is None or reach is None:
        return
    frames, unit = loop.frames, f" {reach.unit}" if reach.unit else ""
    frames += loop.first_jump.episodes if loop.first_jump is not None else 0
    for each, predicted in zip(reach.joints, loop.ranges, strict=False):
        low, high, least, most = predicted.low, predicted.high, each.limit_low, each.limit_high
        share = share_beyond(low, high, least, most)
        if share > BEYOND and each.excess_share <= BEYOND:
            joint, careful = each.joint.rpartition(".")[0] or each.joint, ""
            if not reach.capped:
                careful = f" For the first runs: --robot.max_relative_target='{{{joint}: 5}}' and so on."
            yield {"joint": joint, "low": low, "high": high, "share": share}, locals()


RULES = (far_jump, predicted_limits)
