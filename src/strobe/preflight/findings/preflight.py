"""Rules on the policy's actions on recorded frames: R², the first action, the range, hypotheses."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results import units
from strobe.core.results.finding import Finding, good, info, warning
from strobe.loops.results.motion import JointJump
from strobe.preflight.findings.order import BEYOND
from strobe.preflight.results.preflight import HypothesisKind, NaiveName, PairedError, PreflightResult
from strobe.preflight.results.wiring import share_beyond

NAIVEST: NaiveName = "the mean action"
WELL = 0.5  # least R² of a sound policy
WORSE = 2.0  # times the error on training episodes: the policy overfits
# A first jump is large if it is twice the largest step of the joint in the recording, and as large as the joint's
# spread over the whole recording. The error of a policy that is better than the mean action is seldom that large.
FAR_USUAL, FAR_SPREADS = 2.0, 1.0
FEWEST_EPISODES = 4  # fewest episodes for a median over them
TITLES: dict[HypothesisKind, str] = {
    "cameras": "Two cameras are swapped",
    "channels": "Red and blue of the images are swapped",
    "image-range": "The images have another range than the policy takes",
    "state-order": "The state comes in another order than the policy takes",
    "action-order": "The actions are in another order than the data's",
    "order": "State and action are in another order than the policy's",
    "units": "The data has another unit than the policy takes",
    "statistics": "The policy was trained with another normalisation",
    "sign": "An action dimension has the opposite sign",
    "relative": "The policy and the data differ in relative and absolute actions",
    "shift": "The actions are shifted in time",
    "rate": "The policy was trained at another rate",
    "prompt": "The policy was trained with another prompt",
}


def better_hypotheses(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    """Hypotheses that predict the recorded actions better than the present wiring."""
    for each in result.hypotheses:
        if each.outcome == "claimed" and (paired := each.paired) is not None:
            ends = paired.interval
            within = f" [{ends.low:.2f}, {ends.high:.2f}]" if ends is not None else ""
            yield warning(
                rule=f"wired-otherwise-{each.kind}",
                title=TITLES[each.kind],
                found=f"If {each.name}, the policy predicts the recorded actions with R² = {_share(each.explained)}; "
                f"now R² = {_share(each.wired)}. With that change its error is {paired.ratio:.2f} times as "
                f"large{within}, over {paired.episodes} episodes.",
                why="On the robot the policy would act as wrongly as here.",
                do=each.fix or "",
                evidence={
                    "kind": each.kind,
                    "hypothesis": each.name,
                    "explained": each.explained,
                    "wired": each.wired,
                    "ratio": paired.ratio,
                },
            )


def explains_little(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or _any_claimed(result):
        return
    for name in ("hold still", "the last action", "the mean action"):
        error = next((each for each in part.naive if each.name == name), None)
        if error is not None and error.paired is not None and _is_no_better(error.paired, than_mean=name == NAIVEST):
            naive = "holding still" if name == "hold still" else name
            yield warning(
                rule="open-loop-explains-nothing",
                title=f"The policy predicts these actions no better than {naive}",
                found=f"Its error is {part.rms:.2g} σ, that of {naive} {error.rms or 0:.2g} σ (σ: the spread of each "
                "action dimension). No other wiring that Strobe tried predicts the actions better.",
                why="The policy was not trained on data like this, or for too short a time, or its wiring differs in "
                "a way that Strobe does not try. On the robot it would not do its task.",
                do="Name the data that the policy was trained on, with --dataset.root=FOLDER.",
                evidence={"explained": part.explained},
            )
            return


def _is_no_better(paired: PairedError, *, than_mean: bool) -> bool:
    if paired.smaller is not None:
        return not paired.smaller
    return than_mean and (paired.interval is not None or paired.ratio >= 1)


def held_out_worse(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    parts = {part.name: part for part in result.open_loop.parts} if result.open_loop is not None else {}
    training, other = parts.get("training"), parts.get("held out")
    if training is not None and other is not None and training.rms > 0 and other.rms > WORSE * training.rms:
        yield info(
            rule="open-loop-learnt-by-heart",
            title="The policy overfits its training episodes",
            found=f"Its error is {training.rms:.2g} σ on training episodes, and {other.rms:.2g} σ on {other.episodes} "
            f"held-out episodes, where R² = {_share(other.explained)} (σ: the spread of each action dimension).",
            why="On the robot every episode is new.",
            do="Train on more episodes, for fewer steps, or with image augmentation.",
            evidence={"ratio": other.rms / training.rms},
        )


def explains_well(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or part.explained < WELL or _any_claimed(result):
        return
    naive = {each.name: each.paired.smaller for each in part.naive if each.paired is not None}
    if naive and all(smaller is True for smaller in naive.values()):
        yield good(
            rule="open-loop-explains",
            title=f"The policy predicts the recorded actions with R² = {_share(part.explained)}",
            found=f"Over {part.episodes} episodes its error is smaller than that of {units.join_names(list(naive))}.",
            why="With this wiring the policy acts on these frames as in its training.",
            evidence={"explained": part.explained},
        )


def _any_claimed(result: PreflightResult) -> bool:
    return any(hypothesis.outcome == "claimed" for hypothesis in result.hypotheses)


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"


def far_jump(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    jump, reach = result.open_loop.first_jump if result.open_loop is not None else None, result.wiring.reach
    if jump is None or jump.episodes < FEWEST_EPISODES:
        return
    if any(each.outcome == "claimed" for each in result.hypotheses):  # a finding of its own, which explains the jump
        return
    far = sorted((joint for joint in jump.joints if is_far(joint)), key=lambda joint: -joint.predicted / joint.spread)
    if far:
        first = far[0]
        others = f" Also far: {', '.join(joint.joint for joint in far[1:])}." if len(far) > 1 else ""
        capped = reach is not None and reach.capped
        careful = "" if capped else " For the first runs: --robot.max_relative_target=5."
        yield warning(
            rule="first-jump-far",
            title=f"The first action makes {first.joint} jump by {first.predicted / first.spread:.1f} σ",
            found=f"On the first frames of {jump.episodes} episodes the first action is {first.predicted:.3g} from "
            "the recorded state (median; σ is the spread of the recorded actions). No recorded first action is more "
            f"than {first.recorded_largest:.3g} from its state. No recorded action is more than {first.usual:.3g} "
            f"from its state or from the action before it.{others}",
            why="A servo goes to its goal as fast as it can: the arm jumps as soon as the first action is sent.",
            do="Find the cause of the wrong actions: statistics, order, unit, or a hypothesis that predicts the "
            f"actions better.{careful}",
            evidence={
                "joint": first.joint,
                "predicted": first.predicted,
                "recorded": first.recorded_largest,
                "usual": first.usual,
                "spread": first.spread,
            },
        )


def is_far(joint: JointJump) -> bool:
    """Whether a joint's first predicted action is far from its position, compared with the recording."""
    return 0 < FAR_SPREADS * joint.spread < joint.predicted and joint.predicted > FAR_USUAL * joint.usual


def predicted_limits(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
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
            yield warning(
                rule="predicted-beyond-limits",
                title=f"The policy sends {joint} beyond its limits on recorded frames",
                found=f"On {frames} recorded frames it predicted {low:.4g} to {high:.4g}{unit}. The calibration "
                f"allows {least:.4g} to {most:.4g}.",
                why="LeRobot does not clamp degrees: the servo stops at its limit, or pushes against an obstacle.",
                do="Calibrate this arm like the arm of the data, or use that arm's file (--robot.calibration_dir). If "
                f"the data stays within the limits, the policy does not act as in its training.{careful}",
                evidence={"joint": joint, "low": low, "high": high, "share": share},
            )


RULES = (better_hypotheses, far_jump, predicted_limits, explains_little, held_out_worse, explains_well)
