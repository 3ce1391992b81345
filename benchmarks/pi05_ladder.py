"""The ladder of pi0.5: what each treatment buys on top of those before it, and what the whole buys over LeRobot.

Bars: the fastest rung whose actions have a cosine of at least 0.999 to those of LeRobot's policy as it is, on the same
observations with the same noise, is at least 1.6 times as fast. Full-size pi0.5 (random weights, bf16 as LeRobot holds
it, two cameras, ten steps); all rungs take turns in one run. The prompt is padded to 200 tokens; how many of them the
observations' own prompts use is shown.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import torch
from common.shared import finish, need
from rich.console import Console
from rich.table import Table

from strobe.core.cli.live import Live
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.measurement import Measurement
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Spec, Treatment, Variant
from strobe.lerobot.families import pi
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions

FASTER, COSINE = 1.6, 0.999
BASE = "LeRobot"
PROJECTOR = f"{pi.JOINT}.paligemma.model.multi_modal_projector"
PARTS = {"vision": "vision tower", "prefix": "prefix KV cache", "denoise": "denoise step"}

RUNGS: tuple[tuple[str, tuple[Spec, ...]], ...] = (
    ("padding trimmed", ({"padding": "trimmed"},)),
    ("prefix tail skipped", ({"prefix_tail": "skipped"},)),
    ("timesteps precomputed", ({"timesteps": "precomputed"},)),
    ("static prefix cache", ({"prefix_cache": "static"},)),
    ("masks once", ({"masks": "once"},)),
    (
        "vision in bf16",
        ({"precision": "bf16", "precision.part": pi.VISION}, {"precision": "bf16", "precision.part": PROJECTOR}),
    ),
    ("cameras batched", ({"cameras": "batched"},)),
    ("fused attention", ({"attention": "sdpa"},)),
    ("int8 language model", ({"int8": "dynamic", "int8.part": pi.LANGUAGE},)),
    ("int8 vision tower", ({"int8": "dynamic", "int8.part": pi.VISION},)),
    ("int8 action expert", ({"int8": "dynamic", "int8.part": pi.EXPERT},)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=9, help="chunks of every rung")
    parser.add_argument("--ends", action="store_true", help="LeRobot and the last rung alone: more pairs in less time")
    parser.add_argument("--quick", action="store_true", help="a tiny policy; its ratio is not judged")
    arguments = parser.parse_args()
    need("pi", "quantise", memory_gib=0 if arguments.quick else 16)
    subject = load_subject(
        PolicyOptions(
            type="pi05",
            size="tiny" if arguments.quick else "full",
            overrides=[f"--device={arguments.device}", "--dtype=bfloat16"],
        ),
        InputOptions(cameras=2),
    )
    mask = subject.loaded.preprocessor(subject.observation(0))["observation.language.attention_mask"]
    steps = subject.traits("inference", 1).denoising_steps or 0
    told = f"{int(mask.sum())} of {mask.shape[1]} tokens of the prompt in use, {steps} steps, {arguments.device}"
    # Rungs share their treatments, so that a converted copy of the weights is there once: they must fit into memory.
    made: dict[str, Treatment] = {}
    variants, so_far = [Variant(BASE)], list[Spec]()
    for name, specs in RUNGS:
        so_far += specs
        made |= {catalogue.format_spec(spec): catalogue.make(spec) for spec in specs}
        shared = tuple(made[catalogue.format_spec(spec)] for spec in catalogue.sort_specs(so_far))
        variants.append(Variant(f"+ {name}", shared))
    if arguments.ends:
        variants = [variants[0], variants[-1]]
    budget = SamplingBudget(iterations=3 if arguments.quick else arguments.rounds, seconds=3600)
    console = Console(width=140)
    with Live() as live:
        result, _ = compare(subject, variants, "inference", Options(budget, counted=False), live)
    table = Table("rung", "ms", "Hz", "× so far", "cosine", *PARTS, title=f"{subject.info.name}, {told}")
    rungs = []
    judged = {comparison.candidate: comparison for comparison in result.comparisons if comparison.baseline == BASE}
    for measurement in result.measurements:
        rung = _rung(measurement, judged.get(measurement.name))
        rungs.append(rung)
        shown = [f"{rung[part]:.1f}" for part in PARTS]
        cosine = "" if rung["cosine"] is None else f"{rung['cosine']:.6f}"
        table.add_row(rung["name"], f"{rung['ms']:.1f}", f"{rung['hz']:.3f}", f"{rung['times']:.2f}", cosine, *shown)
    console.print(table)
    allowed = [c for c in judged.values() if c.agreement is not None and c.agreement.cosine >= COSINE]
    best = min(allowed, key=lambda comparison: comparison.verdict.ratio, default=None)
    figures = {"device": arguments.device, "quick": arguments.quick, "prompt_tokens": int(mask.sum()), "rungs": rungs}
    if best is None or best.agreement is None:
        print(f"no rung keeps a cosine of {COSINE}")
        finish(figures, False)
    ratio, interval, cosine = 1 / best.verdict.ratio, best.verdict.interval, best.agreement.cosine
    faster = [1 / interval.high, 1 / interval.low]
    print(
        f"{best.candidate}: {ratio:.2f} × LeRobot [{faster[0]:.2f}, {faster[1]:.2f}], {best.verdict.pairs} pairs, "
        f"cosine {cosine:.6f}"
    )
    figures |= {
        "best": best.candidate,
        "times": ratio,
        "interval": faster,
        "pairs": best.verdict.pairs,
        "cosine": cosine,
    }
    finish(figures, arguments.quick or ratio >= FASTER)


def _rung(measurement: Measurement, comparison: Any) -> dict[str, Any]:
    parts = {component.name: component for component in measurement.components if len(component.path) <= 3}
    rung: dict[str, Any] = {"name": measurement.name, "ms": median(measurement.samples.values)}
    rung["hz"] = 1e3 / rung["ms"]
    rung["times"] = 1 / comparison.verdict.ratio if comparison else 1.0
    rung["cosine"] = comparison.agreement.cosine if comparison and comparison.agreement else None
    for short, name in PARTS.items():
        part = parts.get(name)
        rung[short] = part.summary.median if part is not None else 0.0
    return rung


if __name__ == "__main__":
    main()
