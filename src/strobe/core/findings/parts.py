"""Rules on where the time goes."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import examined_measurements, find, first_level, free, ms, number, percent, top, whole_ms
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.finding import Finding, info, warning

SMALL_BACKBONE = 0.5  # share of a training forward: under it batch expansion hardly pays (the delay benchmark's)
MAX_PREPROCESSING_SHARE = 0.2  # share of an inference (the RTC profiling toolkit's experience)

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


def biggest_part(result: Result, _: Thresholds) -> Iterator[Finding]:
    for measurement in examined_measurements(result):
        parts = first_level(measurement)
        if parts and top(measurement, "model") is None:  # a backbone's blocks say more than its one big part
            biggest = max(parts, key=lambda part: part.share)
            times = f" in {biggest.calls:g} calls" if biggest.calls > 1 else ""
            yield info(
                rule="biggest-part",
                title=f"The {biggest.name} takes {percent(biggest.share)} of the {measurement.phase}",
                found=f"{ms(biggest.ms)}{times} of {ms(whole_ms(measurement))} in {units.quote(measurement.name)}.",
                why="A change elsewhere saves at most the rest of the time.",
                do=LEVERS.get(biggest.name, "Start here: repeat with --depth=2 to see its blocks."),
                gain=free(measurement, biggest.share),
                evidence={"gain_share": min(biggest.share, 1.0)},
            )


def backbone_share(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
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
        yield Finding(
            rule=f"backbone-{size}",
            level=level,
            title=f"The backbone takes {percent(share)} of the training forward pass: {answer}",
            found=f"{ms(backbone.ms)} of {ms(forward.ms)}, without preprocessing. By the rule of thumb of the "
            f"batch-expansion benchmark it is viable from {percent(thresholds.backbone_dominates)}; reconsider it "
            f"under {percent(SMALL_BACKBONE)}.",
            why="Batch expansion encodes the images once and runs the rest once per delay.",
            do=do,
            gain=f"computed: {delays} delays would cost {expanded:.1f}× one forward instead of {delays}×, if the rest "
            "grows in proportion to the batch",
            evidence={"gain_share": 1 - expanded / delays},
        )


def preprocessing(result: Result, _: Thresholds) -> Iterator[Finding]:
    for measurement in examined_measurements(result, "inference"):
        component, model = top(measurement, "preprocessing"), top(measurement, "model")
        # A backbone's limit is its model's own time, see backbone.py.
        if model is None and component is not None and component.share > MAX_PREPROCESSING_SHARE:
            yield warning(
                rule="preprocessing-heavy",
                title=f"Preprocessing takes {percent(component.share)} of the inference",
                found=f"{ms(component.ms)} of {ms(whole_ms(measurement))}; under {percent(MAX_PREPROCESSING_SHARE)} "
                "is usual (the RTC profiling toolkit's experience).",
                why="Preprocessing delays every chunk.",
                do="Lower the cameras' resolution, or leave out cameras that the policy does not need. An accelerator "
                "can preprocess too: --variant 'on device: preprocessing=device'. --depth=2 shows the steps.",
                gain=free(measurement, component.share),
                evidence={"gain_share": min(component.share, 1.0)},
            )


RULES = (biggest_part, backbone_share, preprocessing)
