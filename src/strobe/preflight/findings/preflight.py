"""Rules on the actions on recorded frames: R², the first action, the range, hypotheses, what was learnt."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results import units
from strobe.core.results.answer import Answer, Result
from strobe.core.results.finding import Finding, info, warning
from strobe.loops.results.motion import JointJump
from strobe.open_loop.results import LOOKED, HypothesisKind, NaiveName, OpenLoop, PairedError, Switch
from strobe.preflight.findings.order import BEYOND
from strobe.preflight.results.wiring import PreflightResult, Wiring, share_beyond

NAIVEST: NaiveName = "the mean action"
WELL = 0.5  # least R² of a sound policy
SAME = 0.9  # times the error of the mean action: what is shown to be as large predicts no better
WORSE = 2.0  # times the error on training episodes: the policy overfits
# A first jump is large if it is twice the largest step of the joint in the recording, and as large as the joint's
# spread over the whole recording. The error of a policy that is better than the mean action is seldom that large.
FAR_USUAL, FAR_SPREADS = 2.0, 1.0
FEWEST_EPISODES = 4  # fewest episodes for a median over them
ONE_CHUNK = 0.1  # share of the recorded chunks' spread
ALL_NOISE = 0.9  # share of the spread of its own chunks: the noise is 81 % of their variance
HOLDS = 0.3  # times as far from the state as the recorded actions
SURE = 0.95
ADDED, FAIRLY = 0.5, 0.3  # share of a chunk's motion by which the sum of its steps is off; least R² of single ones
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
            )


def explains_little(result: PreflightResult, thresholds: Thresholds) -> Iterator[Finding]:
    part = result.open_loop.whole if result.open_loop is not None else None
    if part is None or _any_claimed(result) or part.episodes < FEWEST_EPISODES or ignores_observation(result.open_loop):
        return
    ignored = list(ignored_inputs(result, thresholds))
    for name in ("hold still", "the last action", "the mean action"):
        error = next((each for each in part.naive if each.name == name), None)
        if error is not None and error.paired is not None and is_no_better(error.paired, than_mean=name == NAIVEST):
            naive = "holding still" if name == "hold still" else name
            yield warning(
                rule="open-loop-explains-nothing",
                title=f"The policy predicts these actions no better than {naive}",
                found=f"Its error is {part.rms:.2g} σ, that of {naive} {error.rms or 0:.2g} σ (σ: the spread of each "
                "action dimension). No other wiring that Strobe tried predicts the actions better.",
                why="The policy was not trained on data like this, or for too short a time, or its wiring differs in "
                "a way that Strobe does not try. On the robot it would not do its task.",
                do="Find out why it does not look at the input named above."
                if ignored
                else "Name the data that the policy was trained on, with --dataset.root=FOLDER.",
            )
            return


def is_no_better(paired: PairedError, *, than_mean: bool) -> bool:
    if paired.smaller is not None:
        return not paired.smaller
    return than_mean and paired.interval is not None and paired.interval.low >= SAME


def held_out_worse(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    parts = {part.name: part for part in result.open_loop.parts} if result.open_loop is not None else {}
    training, other = parts.get("training"), parts.get("held out")
    if training is not None and other is not None and training.rms > 0 and other.rms > WORSE * training.rms:
        yield info(
            rule="open-loop-learnt-by-heart",
            title="The policy overfits its training episodes",
            found=f"Its error is {training.rms:.2g} σ on training episodes, and {other.rms:.2g} σ on {other.episodes} "
            f"held-out episodes, where R² = {_share(other.explained)} (σ: the spread of each action dimension).",
            why="On the robot every episode is new. Held-out episodes of another scene or operator look alike.",
            do="Train on more episodes, for fewer steps, or with image augmentation.",
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
            )


# What it has learnt.


def ignores_observation(loop: OpenLoop | None) -> bool:
    """Whether the chunks of all frames are nearly one, or differ as much between two calls on one frame."""
    learnt = loop.learnt if loop is not None else None
    if learnt is None or learnt.spread is None or not learnt.recorded_spread:
        return False
    by_noise = (learnt.noise or 0.0) / math.sqrt(2)  # of one call, where two differ by more
    return learnt.spread < ONE_CHUNK * learnt.recorded_spread or by_noise >= ALL_NOISE * learnt.spread


def one_chunk(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    loop = result.open_loop
    if loop is not None and loop.learnt is not None and ignores_observation(loop):
        moves = ", ".join(f"{each.name} {each.moved:.2g} σ" for each in loop.learnt.inputs)
        noise = f", two calls on one frame by {loop.learnt.noise:.2g} σ" if loop.learnt.noise else ""
        yield warning(
            rule="learnt-one-chunk",
            title="The policy's chunks hardly depend on the observation",
            found=f"Its chunks on {loop.frames} frames differ by {loop.learnt.spread:.2g} σ{noise}, the recorded ones "
            f"by {loop.learnt.recorded_spread:.2g} σ."
            f"{f' With another frame’s input its actions change by: {moves}.' if moves else ''}",
            why="The loss may fall all the same, down to that of the mean motion. On the robot the arm makes one "
            "motion, wherever the object is.",
            do="Look at the training: whether the loss fell below that of a constant, whether images and states were "
            "normalised, whether the learning rate was too high, and whether the vision encoder was frozen.",
        )


def ignored_inputs(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    loop = result.open_loop
    if loop is None or loop.learnt is None or ignores_observation(loop) or loop.episodes < FEWEST_EPISODES:
        return
    ignored = [each.name for each in loop.learnt.inputs if each.moved < LOOKED]
    cameras = [each.name for each in loop.learnt.inputs if "image" in each.name]
    several = result.wiring.prompt is not None and len(result.wiring.prompt.tasks) > 1
    if not (ignored := [name for name in ignored if name != "task" or several]):
        return
    poor = loop.whole is not None and loop.whole.explained < WELL
    others = ", ".join(f"{each.name} {each.moved:.2g} σ" for each in loop.learnt.inputs if each.name not in ignored)
    blind = bool(cameras) and set(cameras) <= set(ignored)
    yield Finding(
        rule="learnt-ignores",
        level="warning" if poor or blind or "task" in ignored else "info",
        title=f"The policy does not look at {'any camera' if blind else units.join_names(ignored)}",
        found=f"With another frame's {units.join_names(ignored)} its actions change by less than {LOOKED:g} σ"
        f"{f'; with another {others}' if others else ''}.",
        why="What it does not look at cannot guide it: another place of the object, or another task, changes nothing.",
        do="If the policy should look: see whether that input varies in the data with what the arm does, whether "
        "another input tells the same (a state that gives the motion away), and whether its encoder was trained.",
    )


def copies_state(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    learnt = result.open_loop.learnt if result.open_loop is not None else None
    if learnt is not None and (held := learnt.held) is not None and held.smaller and held.ratio < HOLDS:
        yield warning(
            rule="learnt-holds-still",
            title="The policy sends the position that the arm already has",
            found=f"The last action of its chunks is {learnt.from_state or 0:.2g} σ from the state, that of the "
            f"recorded ones {learnt.recorded_from_state or 0:.2g} σ.",
            why="Its error is small while the arm stands or moves slowly. On the robot the arm stays where it is.",
            do="See whether the data's actions are ahead of its states (strobe preflight --dataset.root=DATA), leave "
            "out rows in which nothing moves, or train without the state.",
        )


def missed_switches(result: PreflightResult, _: Thresholds) -> Iterator[Finding]:
    loop = result.open_loop
    if loop is None or loop.learnt is None or ignores_observation(loop):
        return
    for each in filter(_is_missed, loop.learnt.switches):
        rest = [one.explained for one in loop.dimensions if one.name != each.name and one.explained is not None]
        others = f" R² of the other dimensions: {sum(rest) / len(rest):.2f} (mean)." if rest else ""
        yield warning(
            rule="learnt-misses-switch",
            title=f"The policy misses most changes of {each.name}",
            found=f"{each.changes} recorded chunks open or close it, and the policy's do in {each.caught} of them; in "
            f"{each.missed} of {each.episodes} episodes it misses more than half.{others}",
            why="Such changes are a small part of the rows, so the error over all rows hides them. On the robot the "
            "hand does not close, or does not let go.",
            do="Execute fewer actions of each chunk (--policy.n_action_steps), train longer, or give the rows around "
            "these changes more weight.",
        )


def adding_errors(result: PreflightResult, thresholds: Thresholds) -> Iterator[Finding]:
    """Steps of the state whose errors add up along a chunk, until they are a large part of the motion."""
    loop = result.open_loop
    if loop is None or loop.learnt is None or ignores_observation(loop) or any(explains_little(result, thresholds)):
        return
    explained = {each.name: each.explained or 0.0 for each in loop.dimensions}
    for each in loop.learnt.steps:
        summed, ends = each.summed, each.summed.interval if each.summed is not None else None
        if summed is not None and ends is not None and ends.low > ADDED and explained.get(each.name, 0.0) > FAIRLY:
            yield warning(
                rule="steps-add-up",
                title=f"The errors of {each.name} add up to {summed.ratio:.1f} times its motion over a chunk",
                found=f"Its actions are steps of the state. The error of one is {each.single:.2f} times its size. The "
                f"sum of the {each.actions} executed ones is off by {summed.ratio:.2f} times the recorded sum "
                f"[{ends.low:.2f}, {ends.high:.2f}], in pairs over {summed.episodes} episodes.",
                why="Each step adds to the one before it. Errors that go one way grow with every action, and the arm "
                "ends next to its goal.",
                do="Execute fewer actions of each chunk (--policy.n_action_steps), and look for what shifts these "
                "actions: statistics, a rate, or another arm than that of the data.",
            )


def _is_missed(each: Switch) -> bool:
    """Whether more than half of the episodes are missed, at 95 % (Clopper and Pearson's bound)."""
    if not each.missed:
        return False
    from scipy import stats

    return float(stats.beta.ppf(1 - SURE, each.missed, each.episodes - each.missed + 1)) > 0.5


RULES = (
    better_hypotheses, far_jump, predicted_limits, one_chunk, ignored_inputs, copies_state, missed_switches,
    adding_errors, explains_little, held_out_worse,
)  # fmt: skip


def preflight_of_run(result: Answer) -> PreflightResult | None:
    """Return what a command that runs a policy saw of it on recorded frames, as a preflight; None if it saw none."""
    wiring = result.wiring if isinstance(result, Result) else None
    if not isinstance(wiring, Wiring) or (seen := wiring.on_frames) is None:
        return None
    about = {"strobe_version": result.strobe_version, "title": result.title, "wiring": wiring}
    return PreflightResult(**about, open_loop=seen.open_loop, hypotheses=seen.hypotheses)


def findings_of_run(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """Everything that recorded frames show of the policy of another command's run."""
    if (seen := preflight_of_run(result)) is not None:
        for rule in RULES:
            yield from rule(seen, thresholds)
