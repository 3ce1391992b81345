"""Rules on the policy's actions on recorded frames: R², the first action, the range, hypotheses."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.loops.results.motion import JointJump
from strobe.preflight.findings.order import BEYOND
from strobe.preflight.results.open_loop import HypothesisKind, NaiveName, PairedError
from strobe.preflight.results.preflight import PreflightResult
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


@finding("wired-otherwise-{kind}", "warning")
def better_hypotheses(result: PreflightResult, _: Thresholds) -> Found:
    """Hypotheses that predict the recorded actions better than the present wiring.

    Title: {title}
    Found: If {hypothesis}, the policy predicts the recorded actions with R² = {other}; now R² = {now}. With that change
        its error is {ratio:.2f} times as large{within}, over {paired.episodes} episodes.
    Why: On the robot the policy would act as wrongly as here.
    Do: {fix}
    """
    for each in result.hypotheses:
        if each.outcome == "claimed" and (paired := each.paired) is not None:
            title, fix, ends = TITLES[each.kind], each.fix, paired.interval
            within = f" [{ends.low:.2f}, {ends.high:.2f}]" if ends is not None else ""
            other, now = _share(each.explained), _share(each.wired)
            evidence = {"kind": each.kind, "hypothesis": each.name, "explained": each.explained, "wired": each.wired}
            yield {**evidence, "ratio": paired.ratio}, locals()


@finding("open-loop-explains-nothing", "warning")
def explains_little(result: PreflightResult, _: Thresholds) -> Found:
    """The policy predicts these actions no better than {naive}.

    Found: Its error is {part.rms:.2g} σ, that of {naive} {naive_rms:.2g} σ (σ: the spread of each action dimension). No
        other wiring that Strobe tried predicts the actions better.
    Why: The policy was not trained on data like this, or for too short a time, or its wiring differs in a way that
        Strobe does not try. On the robot it would not do its task.
    Do: Name the data that the policy was trained on, with --dataset.root=FOLDER.
    """
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or _any_claimed(result):
        return
    for name in ("hold still", "the last action", "the mean action"):
        error = next((each for each in part.naive if each.name == name), None)
        if error is not None and error.paired is not None and _is_no_better(error.paired, than_mean=name == NAIVEST):
            naive, naive_rms = "holding still" if name == "hold still" else name, error.rms or 0
            yield {"explained": part.explained}, locals()
            return


def _is_no_better(paired: PairedError, *, than_mean: bool) -> bool:
    if paired.smaller is not None:
        return not paired.smaller
    return than_mean and (paired.interval is not None or paired.ratio >= 1)


@finding("open-loop-learnt-by-heart", "info")
def held_out_worse(result: PreflightResult, _: Thresholds) -> Found:
    """The policy overfits its training episodes.

    Found: Its error is {training.rms:.2g} σ on training episodes, and {other.rms:.2g} σ on {other.episodes} held-out
        episodes, where R² = {share} (σ: the spread of each action dimension).
    Why: On the robot every episode is new.
    Do: Train on more episodes, for fewer steps, or with image augmentation.
    """
    parts = {part.name: part for part in result.open_loop.parts} if result.open_loop is not None else {}
    training, other = parts.get("training"), parts.get("held out")
    if training is not None and other is not None and training.rms > 0 and other.rms > WORSE * training.rms:
        share = _share(other.explained)
        yield {"ratio": other.rms / training.rms}, locals()


@finding("open-loop-explains", "good")
def explains_well(result: PreflightResult, _: Thresholds) -> Found:
    """The policy predicts the recorded actions with R² = {share}.

    Found: Over {part.episodes} episodes its error is smaller than that of {others}.
    Why: With this wiring the policy acts on these frames as in its training.
    """
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or part.explained < WELL or _any_claimed(result):
        return
    naive = {each.name: each.paired.smaller for each in part.naive if each.paired is not None}
    if naive and all(smaller is True for smaller in naive.values()):
        share, others = _share(part.explained), _join_names(list(naive))
        yield {"explained": part.explained}, locals()


def _any_claimed(result: PreflightResult) -> bool:
    return any(hypothesis.outcome == "claimed" for hypothesis in result.hypotheses)


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"


def _join_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


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


RULES = (better_hypotheses, far_jump, predicted_limits, explains_little, held_out_worse, explains_well)
