"""Rules on where the time goes."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import (
    examined_measurements,
    find,
    first_level,
    free,
    number,
    part_evidence,
    top,
    whole_ms,
)
from strobe.core.results.answer import Result

SMALL_BACKBONE = 0.5  # share of a training forward: under it batch expansion hardly pays (the delay benchmark's)
MAX_PREPROCESSING_SHARE = 0.2  # share of an inference (the RTC profiling toolkit's experience)
MIN_POLICY_SHARE = 0.7  # share of an inference (the RTC profiling toolkit: 70 to 90 % is usual)

# Advice on a part by its name; the flags are Strobe's.
LEVERS = {
    "denoise step": "Compare fewer denoising steps. They change the actions, so check the action drift too.",
    "backbone": "Use fewer or smaller images, or a smaller backbone.",
    "image encoder": "Use fewer or smaller images, or a smaller encoder.",
    "vision tower": "Use fewer cameras: each camera is a pass through the tower.",
    "prefix KV cache": "Use fewer cameras or a shorter prompt: the length of the prefix sets its cost.",
}
MEASURE_WAYS = "The share says nothing about packing all delays into one sequence. "
HAS_WAYS = (
    "Measure the ways at your batch and image size: `strobe compare --policy.type={kind} "
    "--policy.prefix_attention=one_way --phase='training step' --variant 'packed: policy.delay_training=packed' "
    "--variant 'expanded: policy.delay_training=expanded'`."
)
HAS_NO_WAYS = (
    "This policy trains for no delays. With one that does, strobe compare measures the ways "
    "(docs: from a recording to a rollout)."
)


@finding("biggest-part", "info")
def biggest_part(result: Result, _: Thresholds) -> Found:
    """The {biggest.name} takes {biggest.share:percent} of the {measurement.phase}.

    Found: {biggest.ms:ms}{times} of {whole:ms} in {measurement.name:name}.
    Why: A change elsewhere saves at most the rest of the time.
    Do: {do}
    Gain: {gain}
    """
    for measurement in examined_measurements(result):
        parts, whole = first_level(measurement), whole_ms(measurement)
        if parts and top(measurement, "model") is None:  # a backbone's blocks say more than its one big part
            biggest = max(parts, key=lambda part: part.share)
            times = f" in {biggest.calls:g} calls" if biggest.calls > 1 else ""
            do = LEVERS.get(biggest.name, "Start here: repeat with --depth=2 to see its blocks.")
            gain = free(measurement, biggest.share)
            yield {"part": biggest.name, **part_evidence(biggest, measurement)}, locals()


@finding("backbone-{size}", "{level}", ("backbone-dominates", "backbone-small", "backbone-undecided"))
def backbone_share(result: Result, thresholds: Thresholds) -> Found:
    """The backbone takes {share:percent} of the training forward pass: {answer}.

    Found: {backbone_ms:ms} of {forward_ms:ms}, without preprocessing. By the rule of thumb of the batch-expansion
        benchmark it is viable from {thresholds.backbone_dominates:percent}; reconsider it under
        {SMALL_BACKBONE:percent}.
    Why: Batch expansion encodes the images once and runs the rest once per delay.
    Do: {do}
    Gain: computed: {delays} delays would cost {expanded:.1f}× one forward instead of {delays}×, if the rest grows in
        proportion to the batch
    """
    for measurement in examined_measurements(result, "training forward"):
        forward, backbone = top(measurement, "forward"), find(measurement, "backbone", inside="forward")
        if forward is None or backbone is None:
            continue
        share = min(backbone.share / forward.share, 1.0)
        training = measurement.traits.delay_training
        delays = int(max(number(training.delays if training is not None else None) or thresholds.delays, 1))
        expanded = share + delays * (1 - share)
        do = MEASURE_WAYS + (HAS_WAYS.format(kind=result.subject.kind) if training is not None else HAS_NO_WAYS)
        if share >= thresholds.backbone_dominates:
            size, level, answer = "dominates", "good", "batch expansion is viable"
            do = f"Expanding the batch after the backbone may be enough. {do}"
        elif share < SMALL_BACKBONE:
            size, level, answer = "small", "info", "reconsider batch expansion"
        else:
            size, level, answer = "undecided", "info", "undecided on batch expansion"
        evidence = {"share": share, "backbone_ms": backbone.ms, "forward_ms": forward.ms, "delays": delays}
        yield {**evidence, "expanded_over_one": expanded, "gain_share": 1 - expanded / delays}, locals()


@finding("preprocessing-heavy", "warning")
def preprocessing(result: Result, _: Thresholds) -> Found:
    """Preprocessing takes {share:percent} of the inference.

    Found: {part_ms:ms} of {whole_ms:ms}; under {MAX_PREPROCESSING_SHARE:percent} is usual (the RTC profiling toolkit's
        experience).
    Why: Preprocessing delays every chunk.
    Do: Lower the cameras' resolution, or leave out cameras that the policy does not need. An accelerator can preprocess
        too: --variant 'on device: preprocessing=device'. --depth=2 shows the steps.
    Gain: {gain}
    """
    for measurement in examined_measurements(result, "inference"):
        component, model = top(measurement, "preprocessing"), top(measurement, "model")
        # A backbone's limit is its model's own time, see backbone.py.
        if model is None and component is not None and component.share > MAX_PREPROCESSING_SHARE:
            yield part_evidence(component, measurement), {"gain": free(measurement, component.share)}


@finding("policy-share-low", "info")
def policy_share(result: Result, _: Thresholds) -> Found:
    """The policy takes only {share:percent} of the inference.

    Found: {part_ms:ms} of {whole_ms:ms}; 70 to 90 % is usual (the RTC profiling toolkit's experience).
    Why: The work around the policy takes a large part of the time.
    Do: Look at pre- and postprocessing with --depth=2 before you change the policy.
    Gain: {gain}
    """
    for measurement in examined_measurements(result, "inference"):
        policy = top(measurement, "policy")
        if policy is not None and policy.share < MIN_POLICY_SHARE:
            rest = 1 - policy.share
            yield part_evidence(policy, measurement, saved=rest), {"gain": free(measurement, rest)}


RULES = (biggest_part, backbone_share, preprocessing, policy_share)
