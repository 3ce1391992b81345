"""Rules on where the time goes."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import evidence_of, examined, find, first_level, free, ms, number, percent, top, whole_ms
from strobe.core.results.answer import Result
from strobe.core.results.finding import Finding

SMALL_BACKBONE = 0.5  # share of a training forward: under it batch expansion hardly pays (the delay benchmark's)
MAX_PREPROCESSING_SHARE = 0.2  # share of an inference (the RTC profiling toolkit's experience)
MIN_POLICY_SHARE = 0.7  # share of an inference (the RTC profiling toolkit: 70 to 90 % is usual)

# What to try on a part, where its name says what it does; the flags are Strobe's.
LEVERS = {
    "denoise step": "Compare fewer denoising steps. They change the actions, so look at the agreement too.",
    "backbone": "Feed fewer or smaller images, or a smaller backbone.",
    "image encoder": "Feed fewer or smaller images, or a smaller encoder.",
    "vision tower": "Feed fewer cameras: each camera is a pass through the tower.",
    "prefix KV cache": "Feed fewer cameras or a shorter prompt: the prefix's length sets its cost.",
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


def biggest_part(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Where to start, and what at most it can give."""
    for measurement in examined(result):
        parts = first_level(measurement)
        if not parts or top(measurement, "model") is not None:  # a backbone's blocks say more than its one big part
            continue
        biggest = max(parts, key=lambda part: part.share)
        times = f" in {biggest.calls:g} calls" if biggest.calls > 1 else ""
        yield Finding(
            rule="biggest-part",
            level="info",
            title=f"{biggest.name} is {percent(biggest.share)} of the {measurement.phase}",
            seen=f"{ms(biggest.ms)}{times} of {ms(whole_ms(measurement))} in '{measurement.name}'.",
            why="A change elsewhere can save no more than the rest of the time.",
            do=LEVERS.get(biggest.name, "Start here: --depth=2 shows its blocks."),
            gain=free(measurement, biggest.share),
            evidence={"part": biggest.name, **evidence_of(biggest, measurement)},
        )


def backbone_share(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """Whether training over all delays by batch expansion pays: the images are encoded once for all of them."""
    for measurement in examined(result, "training forward"):
        forward, backbone = top(measurement, "forward"), find(measurement, "backbone", inside="forward")
        if forward is None or backbone is None:
            continue
        share = min(backbone.share / forward.share, 1.0)
        training = measurement.traits.delay_training
        delays = int(max(number(training.delays if training is not None else None) or thresholds.delays, 1))
        expanded = share + delays * (1 - share)
        if share >= thresholds.backbone_dominates:
            rule, level, answer = "backbone-dominates", "good", "batch expansion is viable"
        elif share < SMALL_BACKBONE:
            rule, level, answer = "backbone-small", "info", "reconsider batch expansion"
        else:
            rule, level, answer = "backbone-undecided", "info", "undecided on batch expansion"
        ways = MEASURE_WAYS + (HAS_WAYS.format(kind=result.subject.kind) if training is not None else HAS_NO_WAYS)
        yield Finding(
            rule=rule,
            level=level,
            title=f"The backbone is {percent(share)} of the training forward: {answer}",
            seen=f"{ms(backbone.ms)} of {ms(forward.ms)}, without preprocessing. The rule of thumb of the "
            f"batch-expansion benchmark says viable from {percent(thresholds.backbone_dominates)}, reconsider under "
            f"{percent(SMALL_BACKBONE)}.",
            why="Batch expansion encodes the images once and runs the rest once per delay.",
            do=f"Expanding the batch after the backbone may be enough. {ways}" if level == "good" else ways,
            gain=f"computed: {delays} delays would cost {expanded:.1f}× one forward instead of {delays}×, "
            "if the rest grows in proportion to the batch",
            evidence={
                "share": share,
                "backbone_ms": backbone.ms,
                "forward_ms": forward.ms,
                "delays": delays,
                "expanded_over_one": expanded,
                "gain_share": 1 - expanded / delays,
            },
        )


def preprocessing(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Images are resized and normalised before the policy sees them."""
    for measurement in examined(result, "inference"):
        component, model = top(measurement, "preprocessing"), top(measurement, "model")
        # A backbone's limit is its model's own time, see backbone.py.
        if model is not None or component is None or component.share <= MAX_PREPROCESSING_SHARE:
            continue
        yield Finding(
            rule="preprocessing-heavy",
            level="warning",
            title=f"Preprocessing is {percent(component.share)} of the inference",
            seen=f"{ms(component.ms)} of {ms(whole_ms(measurement))}; under {percent(MAX_PREPROCESSING_SHARE)} is "
            "usual (the RTC profiling toolkit's experience).",
            why="It delays every chunk.",
            do="Lower the cameras' resolution, leave out cameras that the policy does not need, or preprocess on the "
            "device. --depth=2 shows the steps.",
            gain=free(measurement, component.share),
            evidence=evidence_of(component, measurement),
        )


def policy_share(result: Result, _: Thresholds) -> Iterator[Finding]:
    """The policy itself should be most of its inference."""
    for measurement in examined(result, "inference"):
        policy = top(measurement, "policy")
        if policy is None or policy.share >= MIN_POLICY_SHARE:
            continue
        rest = 1 - policy.share
        yield Finding(
            rule="policy-share-low",
            level="info",
            title=f"The policy is only {percent(policy.share)} of the inference",
            seen=f"{ms(policy.ms)} of {ms(whole_ms(measurement))}; 70 to 90 % is usual "
            "(the RTC profiling toolkit's experience).",
            why="The work around the policy takes a large part of the time.",
            do="Look at pre- and postprocessing with --depth=2 before changing the policy.",
            gain=free(measurement, rest),
            evidence=evidence_of(policy, measurement, saved=rest),
        )


RULES = (biggest_part, backbone_share, preprocessing, policy_share)
