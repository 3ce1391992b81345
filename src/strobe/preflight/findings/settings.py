"""Rules on settings: weights, versions, chunk lengths, rates, lags, the prompt, compilation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from strobe.core.findings.texts import Found, finding
from strobe.core.results.finding import Finding
from strobe.preflight.results.wiring import CutPrompt, JointLag, Wiring

SAME_RATE = 0.02  # largest relative difference of equal rates
MOST_LAG_APART = 1.5  # ticks by which a joint's lag in a run may differ from that in the recording
SHOWN = 60  # characters of a text
LONG_BLIND = 1.0  # s for which a robot acts on one observation


@finding("weights-compiled", "warning")
def compiled_weights(wiring: Wiring) -> Found:
    """A rollout does not read these weights: the policy keeps random weights.

    Found: {compiled} of {tensors} weights, such as {first}, have names of a compiled policy. lerobot-rollout switches
        compile_model off.
    Why: LeRobot warns about missing and unexpected keys, and continues.
    Do: strobe preflight --policy.path={policy} --fix=FOLDER writes a copy with plain names. Or give
        --use_torch_compile=true: LeRobot then reads these weights.
    """
    # lerobot #4114
    weights = wiring.weights
    if weights is not None and weights.compiled and not wiring.rollout_compiles:
        words = {"first": weights.compiled[0], "policy": wiring.sources["policy"]}
        yield {"compiled": len(weights.compiled), "tensors": weights.tensors}, words


def unread_weights(wiring: Wiring) -> Iterator[Finding]:
    """Weights that the policy has and the file has not, or has in another shape: a layer stays random."""
    weights = wiring.weights
    if weights is None or weights.compiled:
        return
    more = weights.unexpected or []
    unused = [f"the file has {len(more)} weights that the policy lacks, such as {more[0]}"] if more else []
    if weights.missing or weights.reshaped:
        yield from _missing(weights.missing or [], weights.reshaped, more, unused)
    elif more:
        yield from _unused_weights(more, unused[0])


@finding("weights-missing", "warning")
def _missing(missing: Sequence[str], reshaped: Sequence[str], more: Sequence[str], unused: Sequence[str]) -> Found:
    """{lacking} weights of the policy are not in the file.

    Found: {seen}.
    Why: Weights that LeRobot does not read stay random. It warns, or stops.
    Do: Check that config.json and model.safetensors belong together, and that no --policy flag changes the
        architecture.
    """
    parts = [f"{len(missing)} weights are missing, such as {missing[0]}"] if missing else []
    parts += [f"{len(reshaped)} weights have another shape, such as {reshaped[0]}"] if reshaped else []
    words = {"lacking": len(missing) + len(reshaped), "seen": "; ".join([*parts, *unused])}
    yield {"missing": len(missing), "reshaped": len(reshaped), "unexpected": len(more)}, words


@finding("weights-unused", "info")
def _unused_weights(more: Sequence[str], unused: str) -> Found:
    """{unexpected} weights of the file belong to no layer of the policy.

    Found: {unused:capital}.
    Why: LeRobot does not load them. The saved policy had more layers than config.json says, or parts that it no longer
        needs.
    Do: Check that config.json and model.safetensors belong together.
    """
    yield {"unexpected": len(more)}


@finding("fields-unknown", "warning")
def unknown_fields(wiring: Wiring) -> Found:
    """The installed LeRobot does not know fields of the config.

    Found: Unknown fields: {fields}.
    Why: LeRobot refuses the checkpoint, because another version saved it.
    Do: strobe preflight --policy.path={policy} --fix=FOLDER writes a copy without these fields. Or install the LeRobot
        that saved the checkpoint.
    """
    # lerobot #3355, #3479
    if wiring.unknown_fields:
        yield {"fields": ", ".join(wiring.unknown_fields)}, {"policy": wiring.sources["policy"]}


@finding("chunk-short", "warning")
def short_chunk(wiring: Wiring) -> Found:
    """The config executes {executed} actions of a chunk that has {there}.

    Found: n_action_steps={executed}; the chunk has {there}{of}.
    Why: LeRobot calls the policy again after fewer actions than the config says, or it stops.
    Do: Give --policy.n_action_steps={there} or fewer.
    """
    # lerobot #2277
    timing = wiring.timing
    executed, there = timing.executed, timing.most_executed
    if executed is not None and there is not None and executed > there:
        of = f" of a horizon of {timing.chunk} with n_obs_steps={timing.observed}" if timing.observed > 1 else ""
        yield {"executed": executed, "there": there}, {"of": of}


@finding("horizon-long", "warning")
def long_horizon(wiring: Wiring) -> Found:
    """RTC's execution horizon of {horizon} is longer than a chunk of {chunk}.

    Found: The flag is --inference.rtc.execution_horizon={horizon}.
    Why: RTC cannot guide actions that the chunk does not have.
    Do: Give --inference.rtc.execution_horizon={chunk} or fewer.
    """
    horizon, chunk = wiring.timing.execution_horizon, wiring.timing.chunk
    if horizon is not None and chunk is not None and horizon > chunk:
        yield {"horizon": horizon, "chunk": chunk}


@finding("acts-long-unseen", "info")
def long_open_loop(wiring: Wiring) -> Found:
    """The robot acts for {seconds:.1f} s on one observation.

    Found: The robot executes {executed} actions of each chunk at {fps:g} Hz.
    Why: The policy sees nothing that happens in that time. Users of LeRobot report a difference of 15 to 23 points of
        success between 50 and 10 executed actions (#1316, #4614).
    Do: Try a lower --policy.n_action_steps, or --inference.type=rtc.
    """
    executed, fps = wiring.timing.executed, wiring.timing.loop_fps or wiring.timing.data_fps
    if wiring.engine != "rtc" and fps and executed and executed / fps >= LONG_BLIND:
        yield {"seconds": executed / fps}, {"executed": executed, "fps": fps}


@finding("rates-differ", "warning")
def rates(wiring: Wiring) -> Found:
    """The loop runs at {loop:g} Hz, and the data was recorded at {data:g} Hz.

    Found: --fps={loop:g}; the data set has {data:g} frames per second.
    Why: The robot moves {times:.2g} times as fast as in the data.
    Do: Give --fps={data:g}.
    """
    data, loop = wiring.timing.data_fps, wiring.timing.loop_fps
    if data and loop and abs(loop / data - 1) > SAME_RATE:
        yield {"loop": loop, "data": data}, {"times": loop / data}


@finding("camera-slow", "info")
def slow_cameras(wiring: Wiring) -> Found:
    """Camera {name} gives {camera:g} frames per second to a loop of {loop:g} Hz.

    Found: --robot.cameras sets its fps to {camera:g}.
    Why: Some control ticks get the same frame again: the loop takes the newest frame and does not wait.
    Do: Set its fps to {loop:g} in --robot.cameras, if the camera can do that.
    """
    loop = wiring.timing.loop_fps
    for name, fps in wiring.timing.camera_fps.items():
        if loop and fps < loop * (1 - SAME_RATE):
            yield {"camera": fps, "loop": loop}, {"name": name}


@finding("lags-differ", "warning")
def lags(wiring: Wiring) -> Found:
    """{worst.joint} lags its actions by {run:.1f} control ticks, in the data by {recorded:.1f}.

    Found: In {lag.run} the lags of these joints differ from the data by more than {MOST_LAG_APART:g} control ticks:
        {far:list}.
    Why: The policy has learnt how far an action is ahead of the arm. With another lag the arm overshoots, or stops
        short.
    Do: Check the rate (--fps), the servos' acceleration and gains, and the delay of the actions: strobe report
        {lag.run} shows the age of each action's observation.
    """
    lag = wiring.lag
    if lag is None or not lag.run_fps:
        return
    apart = sorted(lag.joints, key=lambda joint: -_ticks_apart(joint))
    if far := [each.joint for each in apart if _ticks_apart(each) > MOST_LAG_APART]:
        worst = apart[0]
        yield {"joints": len(far), "recorded": worst.recorded, "run": worst.run}, locals()


def _ticks_apart(joint: JointLag) -> float:
    return abs(joint.run - joint.recorded) if joint.run is not None and joint.recorded is not None else 0.0


def given_prompt(wiring: Wiring) -> Iterator[Finding]:
    """A prompt that is empty, or no task of the data set (lerobot #2753)."""
    words = wiring.prompt
    if words is None or not words.reads_words or words.given is None:
        return
    tasks = "; ".join(f"'{task}'" for task in words.tasks[:3]) or "those of its training data"
    if not words.given.strip():
        yield from _empty_prompt(tasks)
    elif words.tasks and words.given not in words.tasks:
        yield from _unknown_prompt(words.given, words.tasks[0], tasks)


@finding("prompt-empty", "warning")
def _empty_prompt(tasks: str) -> Found:
    """The policy needs a task in words, and --task is empty.

    Found: The data has the tasks {tasks}.
    Why: It was trained with a task in words. Without a task its motions have no goal.
    Do: Give --task="…" with one of these.
    """
    yield {}


@finding("prompt-unknown", "warning")
def _unknown_prompt(given: str, first: str, tasks: str) -> Found:
    """The task is not a task of the data set.

    Found: The flag is --task='{given}'; the data has {tasks}.
    Why: A policy that was trained on few tasks knows only their wording.
    Do: Give --task='{first}'.
    """
    yield {}


@finding("prompt-cut", "{level}")
def cut_prompt(wiring: Wiring) -> Found:
    """The tokenizer cuts off the end of the prompt.

    Found: '{task}' makes {tokens} tokens{state}, of which the policy sees {most} (max_length of
        policy_preprocessor.json). The tokenizer cuts off '{end}'.{data}{alike}
    Why: LeRobot gives no warning. The policy does not see that part of the text{numbers}.
    Do: Give a shorter --task, or train with a larger --policy.tokenizer_max_length.
    """
    words = wiring.prompt
    if words is None or not words.cut:
        return
    counts = Counter(_remaining_text(each) for each in words.cut if each.task in words.tasks)
    same = next((each for each in words.cut if counts[_remaining_text(each)] > 1), None)
    asked = next((each for each in words.cut if each.task == words.given), None)
    first = same or asked or words.cut[0]
    task, end = _short(first.task), _short(first.cut)
    state = "" if first.always else " with a state of three-digit numbers"
    numbers = ", which contains numbers of the state" if _is_state_cut(first) else ""
    of_data = sum(each.task in words.tasks for each in words.cut)
    data = f" It cuts {of_data} of the data set's {len(words.tasks)} tasks." if of_data else ""
    alike = " Two tasks become the same text." if same is not None else ""
    another = asked is not None and asked.task not in words.tasks
    level = "warning" if same is not None or another else "info"
    yield {"tokens": first.tokens, "most": words.most_tokens, "tasks": len(words.cut)}, locals()


def _remaining_text(each: CutPrompt) -> str:
    return each.text[: len(each.text) - len(each.cut)]


def _is_state_cut(each: CutPrompt) -> bool:
    return "State: " in each.text and any(character.isdigit() for character in each.cut)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN // 2]} … {line[-SHOWN // 2 :]}"


@finding("compiled-in-part", "info")
def compilation(wiring: Wiring) -> Found:
    """compile_model, which the bench and lerobot-eval follow and a rollout does not.

    Title: A rollout does not compile the policy, though its config says so
    Found: The checkpoint has compile_model=true. The bench and lerobot-eval compile it. lerobot-rollout does not.
    Why: The latency on the bench is then not the latency on the robot.
    Do: Give --use_torch_compile=true in the rollout, or --policy.compile_model=false on the bench.
    """
    weights = wiring.weights
    if wiring.compiled and not wiring.rollout_compiles and not (weights is not None and weights.compiled):
        yield {}


CHECKS = (
    compiled_weights,
    unread_weights,
    unknown_fields,
    short_chunk,
    long_horizon,
    long_open_loop,
    rates,
    slow_cameras,
    lags,
    given_prompt,
    cut_prompt,
    compilation,
)
