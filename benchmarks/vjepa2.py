"""V-JEPA 2's blocks: do they add up to the encoder, agree with torch.profiler, and is probing each of them free?

On ViT-L with random weights, 256 px and 16 frames, on the CPU. Bars: the blocks, with patch embedding and final norm,
sum to the encoder's time within 2 % (the median over the iterations; the blocks' own sum is shown beside it); every
part of at least 1 % agrees within 5 % with what torch.profiler sees of its operators, from the first one's start to
the last one's end; an iteration with probes over one without, interleaved, ≤ 1.01.

Like attribution.py it starts itself again with an allocator that keeps its memory.
"""

from __future__ import annotations

import argparse
from statistics import median

import torch
from common.attribution_study import Plan, study
from common.shared import finish, keep_memory, need
from rich.console import Console
from rich.table import Table

from strobe.core.measure.components import blocks
from strobe.lerobot.policies.options import ModelOptions
from strobe.vision.model_subject import load_model

SUM, BIG = 0.02, 0.01
ENCODER = ("model", "encoder")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 of the 24 blocks, 128 px, 8 frames: under a minute")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    arguments = parser.parse_args()
    need("pi")
    keep_memory(KINETO_LOG_LEVEL="5")
    torch.manual_seed(0)
    console = Console()
    console.width = max(console.width, 110)
    quick = arguments.quick
    layers = ["--num_hidden_layers=3"] if quick else []
    side, frames = (128, 8) if quick else (256, 16)
    subject = load_model(
        ModelOptions(
            type="vjepa2", size="large", img_size=side, num_frames=frames, dtype=arguments.dtype, overrides=layers
        )
    )
    figures, parts = study(
        subject.call("inference"),
        subject.hooks("inference", 1),
        console,
        Plan(
            title=f"ViT-L, {arguments.dtype}, {side} px, {frames} frames{', 3 blocks' if quick else ''}",
            seconds=15 if quick else 300,
            profiled=2 if quick else 4,
            quick=quick,
            outer=[ENCODER[:1], ENCODER],
            big=BIG,
        ),
    )
    whole = next(part for part in parts if tuple(part.path) == ENCODER)
    inside = [part for part in parts if tuple(part.path[:-1]) == ENCODER and not part.other]
    summed = [sum(values) for values in zip(*(part.values for part in inside), strict=True)]
    missing = median(1 - a / b for a, b in zip(summed, whole.values, strict=True))
    (repeated,) = blocks(parts)

    table = Table("", "ms", "of the encoder", title="What the encoder is made of")
    rows = {"encoder": whole.summary.median, "blocks": repeated.total.median, "all parts": median(summed)}
    for name, took in rows.items():
        table.add_row(name, f"{took:.2f}", f"{took / whole.summary.median:.2%}")
    table.add_row("a block, on average", f"{repeated.average:.2f}", "")
    shown = "they differ" if repeated.differ else "no difference shown"
    table.add_row("spread over the blocks", f"{repeated.spread:.2f}", shown)
    console.print(table)
    figures |= {
        "dtype": arguments.dtype,
        "encoder_ms": whole.summary.median,
        "blocks_ms": repeated.total.median,
        "blocks_over_encoder": repeated.total.median / whole.summary.median,
        "missing_from_encoder": missing,
        "block_average_ms": repeated.average,
        "block_spread_ms": repeated.spread,
        "blocks_differ": repeated.differ,
    }
    finish(figures, figures["holds"] and abs(missing) <= SUM)


if __name__ == "__main__":
    main()
