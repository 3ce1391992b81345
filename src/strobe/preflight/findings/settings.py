"""Rules on settings: weights, versions, chunk lengths, rates, lags, the prompt, compilation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from strobe.core.results import units
from strobe.core.results.finding import Finding, info, warning
from strobe.lerobot.datasets.results import JointLag
from strobe.preflight.results.wiring import CutPrompt, Wiring

SAME_RATE = 0.02  # largest relative difference of equal rates
MOST_LAG_APART = 1.5  # ticks by which a joint's lag in a run may differ from that in the recording
SHOWN = 60  # characters of a text
MOST_OF_EPISODE = 0.5  # share of an episode that executed actions, or a chunk, take
LONG_BLIND = 1.0  # s for which a robot acts on one observation


def compiled_weights(wiring: Wiring) -> Iterator[Finding]:
    # lerobot #4114
    weights = wiring.weights
    if weights is not None and weights.compiled and not wiring.rollout_compiles:
        yield warning(
            rule="weights-compiled",
            title="A rollout does not read these weights: the policy keeps random weights",
            found=f"{len(weights.compiled)} of {weights.tensors} weights, such as {weights.compiled[0]}, have names "
            "of a compiled policy. lerobot-rollout switches compile_model off.",
            why="LeRobot warns about missing and unexpected keys, and continues.",
            do=f"strobe preflight --policy.path={wiring.sources['policy']} --fix=FOLDER writes a copy with plain "
            "names. Or give --use_torch_compile=true: LeRobot then reads these weights.",
        )


def nan_weights(wiring: Wiring) -> Iterator[Finding]:
    weights = wiring.weights
    if weights is not None and (odd := weights.nan):
        yield warning(
            rule="weights-nan",
            title=f"{len(odd)} of {weights.tensors} tensors of the weights are not a number",
            found=f"NaN is among the first numbers of {units.join_names(odd, 3)}.",
            why="Every action that is computed with them is NaN. One step whose gradient is not finite makes such "
            "weights.",
            do="Take an earlier checkpoint of the run, and train on from it with a lower learning rate or in float32. "
            "strobe preflight --dataset.root=DATA finds such numbers in the data.",
            evidence={"nan": len(odd), "tensors": weights.tensors},
        )


def infinite_losses(wiring: Wiring) -> Iterator[Finding]:
    log = wiring.training.log if wiring.training is not None else None
    if log is not None and None in log.losses:
        first, lines = log.losses.index(None) + 1, len(log.losses)
        yield warning(
            rule="training-loss-not-finite",
            title="The loss of the training became infinite or not a number",
            found=f"Of {lines} lines of the log, {log.losses.count(None)} have such a loss. The first is line {first}.",
            why="LeRobot takes the step all the same: weights that were trained after it are of no use.",
            do="Take a checkpoint from before that line. Train on from it with a lower learning rate or in float32.",
            evidence={"first": first, "lines": lines},
        )


def unread_weights(wiring: Wiring) -> Iterator[Finding]:
    """Weights that the policy has and the file has not, or has in another shape: a layer stays random."""
    weights = wiring.weights
    if weights is None or weights.compiled:
        return
    more = weights.unexpected or []
    unused = [f"the file has {len(more)} weights that the policy lacks, such as {more[0]}"] if more else []
    missing, reshaped = weights.missing or [], weights.reshaped
    if missing or reshaped:
        parts = [f"{len(missing)} weights are missing, such as {missing[0]}"] if missing else []
        parts += [f"{len(reshaped)} weights have another shape, such as {reshaped[0]}"] if reshaped else []
        yield warning(
            rule="weights-missing",
            title=f"{len(missing) + len(reshaped)} weights of the policy are not in the file",
            found=f"{'; '.join([*parts, *unused])}.",
            why="Weights that LeRobot does not read stay random. It warns, or stops.",
            do="Check that config.json and model.safetensors belong together, and that no --policy flag changes the "
            "architecture.",
        )
    elif more:
        yield info(
            rule="weights-unused",
            title=f"{len(more)} weights of the file belong to no layer of the policy",
            found=f"{units.capital(unused[0])}.",
            why="LeRobot does not load them. The saved policy had more layers than config.json says, or parts that it "
            "no longer needs.",
            do="Check that config.json and model.safetensors belong together.",
        )


def unknown_fields(wiring: Wiring) -> Iterator[Finding]:
    # lerobot #3355, #3479
    if wiring.unknown_fields:
        fields = ", ".join(wiring.unknown_fields)
        yield warning(
            rule="fields-unknown",
            title="The installed LeRobot does not know fields of the config",
            found=f"Unknown fields: {fields}.",
            why="LeRobot refuses the checkpoint, because another version saved it.",
            do=f"strobe preflight --policy.path={wiring.sources['policy']} --fix=FOLDER writes a copy without these "
            "fields. Or install the LeRobot that saved the checkpoint.",
        )


def short_chunk(wiring: Wiring) -> Iterator[Finding]:
    # lerobot #2277
    timing = wiring.timing
    executed, there = timing.executed, timing.most_executed
    if executed is not None and there is not None and executed > there:
        of = f" of a horizon of {timing.chunk} with n_obs_steps={timing.observed}" if timing.observed > 1 else ""
        yield warning(
            rule="chunk-short",
            title=f"The config executes {executed} actions of a chunk that has {there}",
            found=f"n_action_steps={executed}; the chunk has {there}{of}.",
            why="LeRobot calls the policy again after fewer actions than the config says, or it stops.",
            do=f"Give --policy.n_action_steps={there} or fewer.",
        )


def long_horizon(wiring: Wiring) -> Iterator[Finding]:
    horizon, chunk = wiring.timing.execution_horizon, wiring.timing.chunk
    if horizon is not None and chunk is not None and horizon > chunk:
        yield warning(
            rule="horizon-long",
            title=f"RTC's execution horizon of {horizon} is longer than a chunk of {chunk}",
            found=f"The flag is --inference.rtc.execution_horizon={horizon}.",
            why="RTC cannot guide actions that the chunk does not have.",
            do=f"Give --inference.rtc.execution_horizon={chunk} or fewer.",
        )


def unused_average(wiring: Wiring) -> Iterator[Finding]:
    # strands-labs/robots #731
    if wiring.engine == "rtc" and wiring.timing.averages is not None:
        yield warning(
            rule="averaging-ignored",
            title="RTC ignores the policy's averaging of chunks",
            found=f"temporal_ensemble_coeff={wiring.timing.averages:g}; --inference.type=rtc takes whole chunks.",
            why="LeRobot averages chunks in select_action, which RTC does not call.",
            do="Give --inference.type=sync to average chunks, or --policy.temporal_ensemble_coeff=null.",
        )


def long_open_loop(wiring: Wiring) -> Iterator[Finding]:
    """Many actions on one observation, by the clock or by the length of an episode."""
    chunk, executed, truth = wiring.timing.chunk, wiring.timing.executed, wiring.truth
    fps = wiring.timing.loop_fps or wiring.timing.data_fps
    length = truth.frames / truth.episodes if truth is not None and truth.frames and truth.episodes else math.inf
    most = bool(executed and executed >= MOST_OF_EPISODE * length)
    if not fps or not executed or wiring.engine == "rtc" or not (executed / fps >= LONG_BLIND or most):
        return
    found = f"The robot executes {executed} actions of each chunk at {fps:g} Hz."
    if chunk and chunk >= MOST_OF_EPISODE * length:
        padded = (chunk - 1) / (2 * length) if chunk <= length else 1 - (length + 1) / (2 * chunk)
        found += f" An episode of the data has {length:.0f} frames (mean), a chunk {chunk} actions: over all frames "
        found += f"{100 * padded:.0f} % of them lie after the episode's end, where LeRobot repeats the last action."
    yield Finding(
        rule="acts-long-unseen",
        level="warning" if most else "info",
        title=f"The robot acts for {executed / fps:.1f} s on one observation"
        + f", {100 * executed / length:.0f} % of an episode" * most,
        found=found,
        why="The policy sees nothing that happens in that time. Users of LeRobot report a difference of 15 to 23 "
        "points of success between 50 and 10 executed actions (#1316, #4614).",
        do="Try a lower --policy.n_action_steps, or --inference.type=rtc.",
    )


def rates(wiring: Wiring) -> Iterator[Finding]:
    data, loop = wiring.timing.data_fps, wiring.timing.loop_fps
    if data and loop and abs(loop / data - 1) > SAME_RATE:
        yield warning(
            rule="rates-differ",
            title=f"The loop runs at {loop:g} Hz, and the data was recorded at {data:g} Hz",
            found=f"--fps={loop:g}; the data set has {data:g} frames per second.",
            why=f"The robot moves {loop / data:.2g} times as fast as in the data.",
            do=f"Give --fps={data:g}.",
        )


def slow_cameras(wiring: Wiring) -> Iterator[Finding]:
    loop = wiring.timing.loop_fps
    for name, fps in wiring.timing.camera_fps.items():
        if loop and fps < loop * (1 - SAME_RATE):
            yield info(
                rule="camera-slow",
                title=f"Camera {name} gives {fps:g} frames per second to a loop of {loop:g} Hz",
                found=f"--robot.cameras sets its fps to {fps:g}.",
                why="Some control ticks get the same frame again: the loop takes the newest frame and does not wait.",
                do=f"Set its fps to {loop:g} in --robot.cameras, if the camera can do that.",
            )


def lags(wiring: Wiring) -> Iterator[Finding]:
    lag = wiring.lag
    if lag is None or not lag.run_fps:
        return
    apart = sorted(lag.joints, key=lambda joint: -_ticks_apart(joint))
    if far := [each.joint for each in apart if _ticks_apart(each) > MOST_LAG_APART]:
        worst = apart[0]
        yield warning(
            rule="lags-differ",
            title=f"{worst.joint} lags its actions by {worst.run:.1f} control ticks, in the data by "
            f"{worst.recorded:.1f}",
            found=f"In {lag.run} the lags of these joints differ from the data by more than {MOST_LAG_APART:g} "
            f"control ticks: {', '.join(far)}.",
            why="The policy has learnt how far an action is ahead of the arm. With another lag the arm overshoots, or "
            "stops short.",
            do="Check the rate (--fps), the servos' acceleration and gains, and the delay of the actions: strobe "
            f"report {lag.run} shows the age of each action's observation.",
        )


def _ticks_apart(joint: JointLag) -> float:
    return abs(joint.run - joint.recorded) if joint.run is not None and joint.recorded is not None else 0.0


def given_prompt(wiring: Wiring) -> Iterator[Finding]:
    """A prompt that is empty, or no task of the data set (lerobot #2753)."""
    words = wiring.prompt
    if words is None or not words.reads_words or words.given is None:
        return
    tasks = "; ".join(f"'{task}'" for task in words.tasks[:3]) or "those of its training data"
    if not words.given.strip():
        yield warning(
            rule="prompt-empty",
            title="The policy needs a task in words, and --task is empty",
            found=f"The data has the tasks {tasks}.",
            why="It was trained with a task in words. Without a task its motions have no goal.",
            do='Give --task="…" with one of these.',
        )
    elif words.tasks and words.given not in words.tasks:
        yield warning(
            rule="prompt-unknown",
            title="The task is not a task of the data set",
            found=f"The flag is --task='{words.given}'; the data has {tasks}.",
            why="A policy that was trained on few tasks knows only their wording.",
            do=f"Give --task='{words.tasks[0]}'.",
        )


def cut_prompt(wiring: Wiring) -> Iterator[Finding]:
    words = wiring.prompt
    if words is None or not words.cut:
        return
    counts = Counter(_remaining_text(each) for each in words.cut if each.task in words.tasks)
    same = next((each for each in words.cut if counts[_remaining_text(each)] > 1), None)
    asked = next((each for each in words.cut if each.task == words.given), None)
    first = same or asked or words.cut[0]
    state = "" if first.always else " with a state of three-digit numbers"
    of_state = "State: " in first.text and any(character.isdigit() for character in first.cut)
    numbers = ", which contains numbers of the state" if of_state else ""
    of_data = sum(each.task in words.tasks for each in words.cut)
    data = f" It cuts {of_data} of the data set's {len(words.tasks)} tasks." if of_data else ""
    alike = " Two tasks become the same text." if same is not None else ""
    another = asked is not None and asked.task not in words.tasks
    yield Finding(
        rule="prompt-cut",
        level="warning" if same is not None or another else "info",
        title="The tokenizer cuts off the end of the prompt",
        found=f"'{_short(first.task)}' makes {first.tokens} tokens{state}, of which the policy sees "
        f"{words.most_tokens} (max_length of policy_preprocessor.json). The tokenizer cuts off "
        f"'{_short(first.cut)}'.{data}{alike}",
        why=f"LeRobot gives no warning. The policy does not see that part of the text{numbers}.",
        do="Give a shorter --task, or train with a larger --policy.tokenizer_max_length.",
    )


def _remaining_text(each: CutPrompt) -> str:
    return each.text[: len(each.text) - len(each.cut)]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN // 2]} … {line[-SHOWN // 2 :]}"


def compilation(wiring: Wiring) -> Iterator[Finding]:
    """compile_model, which the bench and lerobot-eval follow and a rollout does not."""
    weights = wiring.weights
    if wiring.compiled and not wiring.rollout_compiles and not (weights is not None and weights.compiled):
        yield info(
            rule="compiled-in-part",
            title="A rollout does not compile the policy, though its config says so",
            found="The checkpoint has compile_model=true. The bench and lerobot-eval compile it. lerobot-rollout does "
            "not.",
            why="The latency on the bench is then not the latency on the robot.",
            do="Give --use_torch_compile=true in the rollout, or --policy.compile_model=false on the bench.",
        )


CHECKS = (
    nan_weights, infinite_losses, compiled_weights, unread_weights, unknown_fields, short_chunk, long_horizon,
    unused_average, long_open_loop, rates, slow_cameras, lags, given_prompt, cut_prompt, compilation,
)  # fmt: skip
