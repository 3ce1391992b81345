"""Rules on settings: weights, versions, chunk lengths, rates, lags, the prompt, compilation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from strobe.core.results.finding import Finding
from strobe.preflight.results.lag import JointLag
from strobe.preflight.results.wiring import CutPrompt, Wiring

SAME_RATE = 0.02  # largest relative difference of equal rates
MOST_LAG_APART = 1.5  # ticks by which a joint's lag in a run may differ from that in the recording
SHOWN = 60  # characters of a text
LONG_BLIND = 1.0  # s for which a robot acts on one observation


def compiled_weights(wiring: Wiring) -> Iterator[Finding]:
    """Weights that were saved from a compiled policy: a rollout leaves them unread (lerobot #4114)."""
    weights = wiring.weights
    if weights is None or not weights.compiled or wiring.rollout_compiles:
        return
    yield Finding(
        rule="weights-compiled",
        level="warning",
        title="A rollout does not read these weights: the policy acts with random weights",
        seen=f"{len(weights.compiled)} of {weights.tensors} names, such as {weights.compiled[0]}, are names of a "
             "compiled policy. lerobot-rollout switches compile_model off.",
        why="LeRobot warns about missing and unexpected keys, and goes on.",
        do="With --use_torch_compile=true LeRobot reads them. Or strobe preflight "
           f"--policy.path={wiring.sources['policy']} --mend=NEW writes a copy without the prefix.",
        evidence={"compiled": len(weights.compiled), "tensors": weights.tensors},
    )  # fmt: skip


def unread_weights(wiring: Wiring) -> Iterator[Finding]:
    """Weights that the policy has and the file has not, or has in another shape: a layer stays random."""
    weights = wiring.weights
    if weights is None or weights.compiled:
        return
    missing, reshaped, more = weights.missing or [], weights.reshaped, weights.unexpected or []
    unused = f"the file has {len(more)} weights that the policy does not have, such as {more[0]}" if more else ""
    if missing or reshaped:
        seen = [f"{len(missing)} weights are missing, such as {missing[0]}"] if missing else []
        seen += [f"{len(reshaped)} weights have another shape, such as {reshaped[0]}"] if reshaped else []
        yield Finding(
            rule="weights-missing",
            level="warning",
            title=f"{len(missing) + len(reshaped)} weights of the policy are not in the file",
            seen="; ".join([*seen, *([unused] if unused else [])]) + ".",
            why="Weights that LeRobot does not read stay random. It warns, or stops.",
            do="Check that config.json and model.safetensors belong together, and that no --policy flag changes the "
            "architecture.",
            evidence={"missing": len(missing), "reshaped": len(reshaped), "unexpected": len(more)},
        )
    elif more:
        yield Finding(
            rule="weights-unused",
            level="info",
            title=f"{len(more)} weights of the file belong to no layer of the policy",
            seen=f"{unused[:1].upper()}{unused[1:]}.",
            why="LeRobot does not load them. The saved policy had more layers than config.json says, or parts that "
            "it no longer needs.",
            do="Check that config.json and model.safetensors belong together.",
            evidence={"unexpected": len(more)},
        )


def unknown_fields(wiring: Wiring) -> Iterator[Finding]:
    """Fields of another version of LeRobot in the config (lerobot #3355, #3479)."""
    if wiring.unknown_fields:
        fields = ", ".join(wiring.unknown_fields)
        yield Finding(
            rule="fields-unknown",
            level="warning",
            title="The config has fields that the installed LeRobot does not have",
            seen=f"{fields}.",
            why="LeRobot refuses the checkpoint, since another version saved it.",
            do="Install the LeRobot that saved it. Or: strobe preflight "
            f"--policy.path={wiring.sources['policy']} --mend=NEW writes a copy without them.",
            evidence={"fields": fields},
        )  # fmt: skip


def chunk(wiring: Wiring) -> Iterator[Finding]:
    """Lengths that do not fit into each other (lerobot #2277)."""
    timing = wiring.timing
    if timing.executed is not None and timing.most_executed is not None and timing.executed > timing.most_executed:
        of = f" of a horizon of {timing.chunk} with n_obs_steps={timing.observed}" if timing.observed > 1 else ""
        yield Finding(
            rule="chunk-short",
            level="warning",
            title=f"The config wants {timing.executed} actions of a chunk that has {timing.most_executed}",
            seen=f"n_action_steps={timing.executed}; the chunk has {timing.most_executed}{of}.",
            why="LeRobot calls the policy again after fewer actions than the config says, or it stops.",
            do=f"--policy.n_action_steps={timing.most_executed} or fewer.",
            evidence={"executed": timing.executed, "there": timing.most_executed},
        )
    if timing.execution_horizon is not None and timing.chunk is not None and timing.execution_horizon > timing.chunk:
        yield Finding(
            rule="horizon-long",
            level="warning",
            title=f"RTC's execution horizon of {timing.execution_horizon} is longer than a chunk of {timing.chunk}",
            seen=f"--inference.rtc.execution_horizon={timing.execution_horizon}.",
            why="RTC cannot guide actions that the chunk does not have.",
            do=f"--inference.rtc.execution_horizon={timing.chunk} or fewer.",
            evidence={"horizon": timing.execution_horizon, "chunk": timing.chunk},
        )


def long_open_loop(wiring: Wiring) -> Iterator[Finding]:
    """A robot that acts for long on one observation (lerobot #1316, #4614)."""
    timing = wiring.timing
    fps = timing.loop_fps or timing.data_fps
    if wiring.engine == "rtc" or not fps or not timing.executed or timing.executed / fps < LONG_BLIND:
        return
    yield Finding(
        rule="acts-long-unseen",
        level="info",
        title=f"The robot acts for {timing.executed / fps:.1f} s on one observation",
        seen=f"{timing.executed} actions of each chunk are executed at {fps:g} Hz.",
        why="The policy does not see what happens in that time. Users of LeRobot report a difference of 15 to 23 "
        "points of success between 50 and 10 executed actions (#1316, #4614).",
        do="Try fewer: --policy.n_action_steps, or --inference.type=rtc.",
        evidence={"seconds": timing.executed / fps},
    )


def rates(wiring: Wiring) -> Iterator[Finding]:
    """A loop at another rate than the data's, and cameras that are slower than the loop."""
    timing = wiring.timing
    data, loop = timing.data_fps, timing.loop_fps
    if data and loop and abs(loop / data - 1) > SAME_RATE:
        yield Finding(
            rule="rates-differ",
            level="warning",
            title=f"The loop runs at {loop:g} Hz, and the data was recorded at {data:g}",
            seen=f"--fps={loop:g}; the data set says {data:g}.",
            why=f"The robot moves {loop / data:.2g} times as fast as in the data.",
            do=f"--fps={data:g}",
            evidence={"loop": loop, "data": data},
        )
    for name, fps in timing.camera_fps.items():
        if loop and fps < loop * (1 - SAME_RATE):
            yield Finding(
                rule="camera-slow",
                level="info",
                title=f"{name} gives {fps:g} images a second to a loop of {loop:g} Hz",
                seen=f"fps of --robot.cameras: {fps:g}.",
                why="Some ticks see the same image again: the loop takes the newest image and does not wait.",
                do=f"Set its fps to {loop:g}, if the camera can do that.",
                evidence={"camera": fps, "loop": loop},
            )


def lags(wiring: Wiring) -> Iterator[Finding]:
    """A joint that follows its actions later, or sooner, in the run than in the recording."""
    lag = wiring.lag
    if lag is None or not lag.run_fps:
        return
    apart = sorted(lag.joints, key=lambda joint: -_ticks_apart(joint))
    if not apart or _ticks_apart(apart[0]) <= MOST_LAG_APART:
        return
    joint = apart[0]
    far = [each.joint for each in apart if _ticks_apart(each) > MOST_LAG_APART]
    assert joint.recorded is not None
    assert joint.run is not None
    yield Finding(
        rule="lags-differ",
        level="warning",
        title=f"{joint.joint} follows its actions {joint.run:.1f} ticks late, and {joint.recorded:.1f} in the data",
        seen=f"In {lag.run} these joints differ from the data by more than {MOST_LAG_APART:g} ticks: {', '.join(far)}.",
        why="The policy has learnt how far an action is ahead of the arm. With another lag the arm overshoots, or "
        "falls short.",
        do="Check the rate (--fps), the servos' acceleration and gains, and what delays an action: strobe report "
        f"{lag.run} shows how old each action's observation was.",
        evidence={"joints": len(far), "recorded": joint.recorded, "run": joint.run},
    )


def _ticks_apart(joint: JointLag) -> float:
    return abs(joint.run - joint.recorded) if joint.run is not None and joint.recorded is not None else 0.0


def given_prompt(wiring: Wiring) -> Iterator[Finding]:
    """A prompt that is empty, or none of the data set's tasks (lerobot #2753)."""
    words = wiring.prompt
    if words is None or not words.reads_words or words.given is None:
        return
    tasks = "; ".join(f"'{task}'" for task in words.tasks[:3]) or "those of its training data"
    if not words.given.strip():
        yield Finding(
            rule="prompt-empty",
            level="warning",
            title="The policy needs a task in words and gets none",
            seen="--task is empty.",
            why="It was trained with a task in words. Without a task its motions have no goal.",
            do=f"--task=… : {tasks}",
        )
    elif words.tasks and words.given not in words.tasks:
        yield Finding(
            rule="prompt-unknown",
            level="warning",
            title="The task is not a task of the data set",
            seen=f"--task='{words.given}'; the data has {tasks}.",
            why="A policy that was trained on few tasks knows only their wording.",
            do=f"--task='{words.tasks[0]}'",
        )


def cut_prompt(wiring: Wiring) -> Iterator[Finding]:
    """A prompt whose end the tokenizer cuts off, so that the policy never sees it."""
    words = wiring.prompt
    if words is None or not words.cut:
        return
    alike = Counter(_seen(each) for each in words.cut if each.task in words.tasks)
    same = next((each for each in words.cut if alike[_seen(each)] > 1), None)
    asked = next((each for each in words.cut if each.task == words.given), None)
    first = same or asked or words.cut[0]
    of_data = sum(each.task in words.tasks for each in words.cut)
    seen = f"'{_short(first.task)}' makes {first.tokens} tokens"
    seen += "" if first.always else " with a state of three-digit numbers"
    seen += (
        f", of which the policy sees {words.most_tokens} (max_length of policy_preprocessor.json). The tokenizer "
        "cuts off "
    )
    seen += f"'{_short(first.cut)}'."
    seen += f" That happens to {of_data} of the data set's {len(words.tasks)} tasks." if of_data else ""
    seen += " Two of them become the same text." if same is not None else ""
    another = asked is not None and asked.task not in words.tasks
    yield Finding(
        rule="prompt-cut",
        level="warning" if same is not None or another else "info",
        title="The tokenizer cuts the end of the prompt off",
        seen=seen,
        why="LeRobot gives no warning. The policy does not see the text there"
        + (", which contains numbers of the state." if _with_state(first) else "."),
        do="Give a shorter task, or train with a larger --policy.tokenizer_max_length.",
        evidence={"tokens": first.tokens, "most": words.most_tokens, "tasks": len(words.cut)},
    )


def _seen(each: CutPrompt) -> str:
    return each.text[: len(each.text) - len(each.cut)]


def _with_state(each: CutPrompt) -> bool:
    """Whether numbers of the state are cut off: they stand behind the task."""
    return "State: " in each.text and any(character.isdigit() for character in each.cut)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN // 2]} … {line[-SHOWN // 2 :]}"


def compilation(wiring: Wiring) -> Iterator[Finding]:
    """compile_model, which the bench and lerobot-eval follow and a rollout does not."""
    weights = wiring.weights
    if not wiring.compiled or wiring.rollout_compiles or (weights is not None and weights.compiled):
        return
    yield Finding(
        rule="compiled-in-part",
        level="info",
        title="compile_model is switched off in a rollout",
        seen="The checkpoint has compile_model=true. The bench and lerobot-eval compile it. lerobot-rollout does not.",
        why="The latency on the bench is not the latency on the robot.",
        do="Give --use_torch_compile=true in the rollout, or --policy.compile_model=false on the bench.",
    )


CHECKS = (
    compiled_weights,
    unread_weights,
    unknown_fields,
    chunk,
    long_open_loop,
    rates,
    lags,
    given_prompt,
    cut_prompt,
    compilation,
)
