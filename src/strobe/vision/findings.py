"""Rules on vision and video backbones: blocks, memory, and what limits the frame rate.

Shares are of the model's own time, without decoding and preprocessing. 'The guide' is the profiling guide of V-JEPA 2
whose limits these are.
"""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import (
    Part,
    examined_measurements,
    free,
    gib,
    ms,
    number,
    top,
    whole_ms,
)
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.finding import Finding, warning
from strobe.core.results.measurement import Blocks, Measurement
from strobe.core.results.numerals import significant

# Limits of the guide.
MAX_BLOCK_SPREAD_MS = 0.5  # standard deviation over blocks that do the same work

LARGE = 304e6  # parameters of ViT-L's encoder, for which the guide gives its limit of memory


def block_variance(result: Result, _: Thresholds) -> Iterator[Finding]:
    for measurement, model, blocks in _backbones(result):
        if not blocks.differ or blocks.spread <= MAX_BLOCK_SPREAD_MS:
            continue
        ranked = sorted(zip(blocks.medians, blocks.names, strict=False), reverse=True)
        slowest = ranked[0][1]
        over = [f"{name} ({ms(took)})" for took, name in ranked[:5] if took > blocks.average + blocks.spread]
        saved = max(sum(blocks.medians) - len(blocks.medians) * sorted(blocks.medians)[len(blocks.medians) // 2], 0.0)
        yield warning(
            rule="block-variance",
            title=f"Blocks that do the same work take different times: {ms(blocks.spread)} standard deviation",
            found=f"Standard deviation over the medians of {len(blocks.names)} blocks, {ms(blocks.average)} on "
            f"average in '{measurement.name}'. Above the rest: {', '.join(over) or slowest}. Under "
            f"{ms(MAX_BLOCK_SPREAD_MS)} is usual (the guide's number).",
            why="The blocks do the same arithmetic on tensors of the same shape. If every iteration shows the "
            "difference, the clocks fall while the blocks run, their memory is further away, or the slow blocks do "
            "more.",
            do="Check the power supply, the clocks and the temperature. --depth=2 shows which part of a block is slow.",
            gain=f"about {ms(saved)} if every block took as long as the median block (computed)",
            evidence={"slowest": slowest, "gain_share": min(saved / model.ms, 1.0)},
        )


def memory(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    limit = thresholds.model_memory_gib * max(result.subject.parameters / LARGE, 1.0)
    for measurement in examined_measurements(result, "inference"):
        held = measurement.memory.peak_device or measurement.memory.peak_process
        if top(measurement, "model") is not None and held is not None and held > limit * 2**30:
            activations = _gib(measurement.memory.peak_activations, "at most ")
            yield warning(
                rule="memory-high",
                title=f"The model holds {gib(held)} at its peak",
                found=f"In '{measurement.name}', {_gib(measurement.memory.weights)} of that is weights, and "
                f"{activations} is activations. Up to {limit:.1f} GiB is usual for its size (the guide's "
                f"{thresholds.model_memory_gib:g} GiB for ViT-L, in proportion to the parameters).",
                why="A device must hold all tensors that live at the same time. Most of them are the intermediate "
                "tensors of one block.",
                do="Take fewer clips at a time (--batch_size), fewer frames, smaller images, or "
                "--model.dtype=bfloat16.",
            )


def frame_rate(result: Result, _: Thresholds) -> Iterator[Finding]:
    for measurement in examined_measurements(result, "inference"):
        model = top(measurement, "model")
        around = [whole for name in ("decode", "preprocessing") if (whole := top(measurement, name)) is not None]
        if model is None or not around:
            continue
        slowest = max([model, *around], key=lambda part: part.ms)
        if slowest is model and all(part.name != "decode" for part in around):
            continue
        clips, backbone = number(measurement.traits.batch_size) or 0, measurement.traits.backbone
        frames = clips * (number(backbone.frames_per_clip) or 0 if backbone is not None else 0)

        def rate(took: float, frames: float = frames) -> str:
            return f"{significant(1e3 * frames / took)} frames/s" if frames > 0 else ms(took)

        whole = whole_ms(measurement)
        each = f" ({significant(1e3 * clips / whole)} clips/s)" if clips > 0 else ""
        by_itself = ", ".join(f"{part.name} {rate(part.ms)} ({ms(part.ms)})" for part in [*around, model])
        if slowest is model:
            level, why = "info", "Even if the parts overlap, the slowest part sets the frame rate."
            do = "Make the model faster."
        else:
            level, do = "warning", _LEVERS[slowest.name]
            why = f"A faster model cannot give more frames, because the {slowest.name} takes longer than the model."
        yield Finding(
            rule="frame-rate-limit",
            level=level,
            title=f"{units.capital(slowest.name)} limits the frame rate",
            found=f"{rate(whole)}{each} in '{measurement.name}', one part after the other. Each by itself: "
            f"{by_itself}. Overlapped, at most {rate(slowest.ms)} (computed).",
            why=why,
            do=do,
            gain=free(measurement, slowest.share),
            evidence={
                "part": slowest.name,
                "part_ms": slowest.ms,
                "model_ms": model.ms,
                "frames_per_s": 1e3 * frames / whole if frames > 0 else None,
                "overlapped_frames_per_s": 1e3 * frames / slowest.ms if frames > 0 else None,
                "gain_share": min(slowest.share, 1.0),
            },
        )


_LEVERS = {
    "decode": "Decode in a worker or on the device while the model runs, record at a lower resolution, or put key "
    "frames closer together.",
    "preprocessing": "Preprocess in a worker while the model runs, feed smaller frames, or let an accelerator do it: "
    "--variant 'there: preprocessing=device'.",
}


def _backbones(result: Result) -> Iterator[tuple[Measurement, Part, Blocks]]:
    for measurement in examined_measurements(result, "inference"):
        model = top(measurement, "model")
        groups = [blocks for blocks in measurement.blocks if blocks.path[:1] == ["model"] and blocks.names]
        if model is not None and groups:
            yield measurement, model, max(groups, key=lambda blocks: blocks.total.median)


def _gib(size: int | None, how: str = "") -> str:
    return "an unknown part" if size is None else f"{how}{gib(size)}"


RULES = (block_variance, memory, frame_rate)
