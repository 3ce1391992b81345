"""Rules on where the time goes."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.advice.thresholds import Thresholds
from strobe.advice.view import examined, find, first_level, free, ms, number, percent, top, whole_ms, without
from strobe.results.answer import Result
from strobe.results.finding import Finding

# What to try on a part, where its name says what it does; the flags are Strobe's.
LEVERS = {
    "denoise step": "Compare fewer denoising steps: they change the actions, so look at the agreement too.",
    "backbone": "Feed fewer or smaller images, or a smaller backbone.",
    "image encoder": "Feed fewer or smaller images, or a smaller encoder.",
    "vision tower": "Feed fewer cameras: each one is a pass through the tower.",
    "prefix KV cache": "Feed fewer cameras or a shorter prompt: the prefix's length sets its cost.",
}
MEASURE_WAYS = (
    "The share says nothing of packing all delays into one sequence: measure the ways at your batch and image size, "
    "e.g. `strobe compare --policy.type=act_relative_rtc --policy.prefix_attention=one_way --phase='training step' "
    "--variant 'packed: policy.delay_training=packed' --variant 'expanded: policy.delay_training=expanded'`."
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
            why="No change elsewhere can save more than the rest of the time.",
            do=LEVERS.get(biggest.name, "Start here: --depth=2 shows its blocks."),
            gain=free(measurement, biggest.share),
            evidence={
                "part": biggest.name,
                "share": biggest.share,
                "part_ms": biggest.ms,
                "whole_ms": whole_ms(measurement),
                "without_ms": without(whole_ms(measurement), biggest.share),
                "gain_share": min(biggest.share, 1.0),
            },
        )


def backbone(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """Whether training over all delays by batch expansion pays: the images are encoded once for all of them."""
    for measurement in examined(result, "training forward"):
        forward, found = top(measurement, "forward"), find(measurement, "backbone", inside="forward")
        if forward is None or found is None:
            continue
        share = min(found.share / forward.share, 1.0)
        policy = measurement.traits.policy
        training = policy.delay_training if policy is not None else None
        delays = int(max(number(training.delays if training is not None else None) or thresholds.delays, 1))
        expanded = share + delays * (1 - share)
        if share >= thresholds.backbone_dominates:
            rule, level, answer = "backbone-dominates", "good", "batch expansion is viable"
            do = f"Expanding the batch after the backbone may do. {MEASURE_WAYS}"
        elif share < thresholds.backbone_small:
            rule, level, answer = "backbone-small", "info", "reconsider batch expansion"
            do = MEASURE_WAYS
        else:
            rule, level, answer = "backbone-undecided", "info", "undecided on batch expansion"
            do = MEASURE_WAYS
        yield Finding(
            rule=rule,
            level=level,
            title=f"The backbone is {percent(share)} of the training forward: {answer}",
            seen=f"{ms(found.ms)} of {ms(forward.ms)}, without preprocessing. The rule of thumb of the batch-expansion "
            f"benchmark says viable from {percent(thresholds.backbone_dominates)}, reconsider under "
            f"{percent(thresholds.backbone_small)}.",
            why="Batch expansion encodes the images once and runs the rest once per delay.",
            do=do,
            gain=f"computed: {delays} delays would cost {expanded:.1f}× one forward instead of {delays}×, "
            "if the rest grows in proportion to the batch",
            evidence={
                "share": share,
                "backbone_ms": found.ms,
                "forward_ms": forward.ms,
                "delays": delays,
                "expanded_over_one": expanded,
                "gain_share": 1 - expanded / delays,
            },
        )


def preprocessing(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """Images are resized and normalised before the policy sees them."""
    for measurement in examined(result, "inference"):
        found = top(measurement, "preprocessing")
        if top(measurement, "model") is not None:  # a backbone's limit is its model's own time, see backbone.py
            continue
        if found is None or found.share <= thresholds.preprocessing_heavy:
            continue
        yield Finding(
            rule="preprocessing-heavy",
            level="warning",
            title=f"Preprocessing is {percent(found.share)} of the inference",
            seen=f"{ms(found.ms)} of {ms(whole_ms(measurement))}; under {percent(thresholds.preprocessing_heavy)} is "
            "usual (the RTC profiling toolkit's experience).",
            why="It delays every chunk and moves no robot.",
            do="Lower the cameras' resolution, leave out views that are not needed, or preprocess on the device. "
            "--depth=2 shows the steps.",
            gain=free(measurement, found.share),
            evidence={
                "share": found.share,
                "part_ms": found.ms,
                "whole_ms": whole_ms(measurement),
                "without_ms": without(whole_ms(measurement), found.share),
                "gain_share": min(found.share, 1.0),
            },
        )


def policy_share(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """The policy itself should be most of its inference."""
    for measurement in examined(result, "inference"):
        found = top(measurement, "policy")
        if found is None or found.share >= thresholds.policy_low:
            continue
        around = 1 - found.share
        yield Finding(
            rule="policy-share-low",
            level="info",
            title=f"The policy is only {percent(found.share)} of the inference",
            seen=f"{ms(found.ms)} of {ms(whole_ms(measurement))}; 70 to 90 % is usual "
            "(the RTC profiling toolkit's experience).",
            why="What surrounds the policy costs as much as a good part of it.",
            do="Look at pre- and postprocessing with --depth=2 before changing the policy.",
            gain=free(measurement, around),
            evidence={
                "share": found.share,
                "part_ms": found.ms,
                "whole_ms": whole_ms(measurement),
                "gain_share": min(around, 1.0),
            },
        )


RULES = (biggest_part, backbone, preprocessing, policy_share)
