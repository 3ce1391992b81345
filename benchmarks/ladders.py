"""Ladders on a CPU: five policies at full size, LeRobot unchanged, torch.compile alone, and Strobe's recipe.

The variants of a policy take turns in one run, each policy in a process of its own: random weights, two cameras of
480 × 640, V-JEPA 2 with 16 frames of 256 px. pi0.5 comes twice, the second time in int8. Shown are ms, Hz, the share
of the machine's measured ceiling, the least ms that the roofline allows, and how far the actions move. Where OpenVINO
is installed it is also given one part alone. Recipes are in bfloat16 where this machine is faster in it than in
float32.

    python benchmarks/ladders.py [--quick] [--policies=act,pi05] [--iterations=15]

Bars: so many times LeRobot as the table in this file says, with no limit of the guard broken; of ACT, pi0.5 and V-JEPA
2 the best rung computes at 60 % of the ceiling or more. They were set on a machine with AMX. Where a
recipe's arithmetic and memory alone, at the ceilings measured here, take too long for its bar, that is told, and
the recipe must reach 60 % of what is left. The last line is JSON. `--quick` takes tiny versions, whose ratios are not
judged: the recipe must run and hold its guard.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from common.shared import finish, need
from policies.ladder_case import LEROBOT, STROBE, Case, Seen, look
from rich.console import Console
from rich.table import Table

from strobe.core.errors import UserError
from strobe.core.measure.ceiling import faster_in_bfloat16
from strobe.core.processes import isolate
from strobe.core.treatments.treatment import Spec
from strobe.lerobot.families import pi

LIMIT_S, QUICK_S = 2400.0, 600.0
REACHED = 0.6  # of what a machine can give, where that is less than the bar
POLICIES = ("act", "diffusion", "smolvla", "pi05", "pi05-int8", "vjepa2")

KEPT: tuple[Spec, ...] = ({"memory": "kept"},)
PACKED: Spec = {"weights": "packed"}
PRODUCTS: Spec = {"scores": "products"}
UNFUSED: tuple[Spec, ...] = (
    {"padding": "trimmed"},
    {"prefix_tail": "skipped"},
    {"prefix_cache": "static"},
    {"timesteps": "precomputed"},
    {"masks": "once"},
    {"attention": "sdpa"},
)
FLOW: tuple[Spec, ...] = (*UNFUSED, {"projections": "fused"})
SMOLVLA_VISION, SMOLVLA_JOINT = "model.vlm_with_expert.vlm.model.vision_model", "model.vlm_with_expert"
STEPS_COMPILED: Spec = {"compile": "default", "compile.part": "model.denoise_step"}


def int8(part: str) -> Spec:
    """``part`` in OpenVINO, in int8."""
    return {"int8_engine": "openvino", "int8_engine.part": part}


def cases(half: bool) -> tuple[Case, ...]:
    """The best recipes that are known, and the bars.

    Args:
        half: whether this machine is faster in bfloat16 than in float32.
    """

    def engine(part: str) -> Spec:
        """``part`` in OpenVINO, in the floating dtype that this machine is fastest in."""
        return {"engine": "openvino", "engine.part": part, "engine.precision": "bf16" if half else "fp32"}

    def narrow(part: str = "") -> tuple[Spec, ...]:
        """The weights in bfloat16 where that is faster."""
        return ({"precision": "bf16"} | ({"precision.part": part} if part else {}),) if half else ()

    # Of pi0.5, which LeRobot keeps in bfloat16 but for its vision tower, on a machine that is slower in it. Its word
    # table stays narrow, no projections are fused, and the language model is not packed: more copies in float32 do not
    # fit into 24 GiB.
    wide: tuple[Spec, ...] = (
        *({"precision": "fp32", "precision.part": part} for part in (f"{pi.LANGUAGE}.layers", pi.EXPERT)),
        *({"weights": "packed", "weights.part": part} for part in (pi.VISION, pi.EXPERT)),
    )

    def smolvla_in_openvino(vision: Spec) -> tuple[Spec, ...]:
        """SmolVLA without compiling, its vision tower by ``vision``."""
        return ({"padding": "trimmed"}, *narrow(), vision, engine(SMOLVLA_JOINT), *KEPT)

    smolvla_engines = smolvla_in_openvino(engine(SMOLVLA_VISION))
    smolvla_compiled = (*FLOW, *narrow(), PACKED, engine(SMOLVLA_VISION), STEPS_COMPILED, *KEPT)
    return (
        Case(
            "act",
            (
                *narrow("model.backbone"),
                {"channels_last": True},
                engine("model.encoder"),
                engine("model.backbone"),
                *KEPT,
            ),
            bar=4.5,
            more={"with int8": ((int8("model.encoder"), int8("model.backbone"), *KEPT), None)},
            exported="model.backbone",
            share=0.6,
        ),
        Case(
            "diffusion",
            (
                {**engine("diffusion.unet"), "engine.steps": "all"},
                *(engine(f"diffusion.rgb_encoder.{camera}") for camera in range(2)),
                *KEPT,
            ),
            bar=10.0,
            flags=("--noise_scheduler_type=DDIM", "--num_inference_steps=10"),
            more={
                "memory=kept alone": (KEPT, 1.5),
                "with int8": ((int8("diffusion.unet"), int8("diffusion.rgb_encoder.0"), *KEPT), None),
            },
            exported="diffusion.unet",
        ),
        Case(
            "smolvla",
            smolvla_compiled if half else smolvla_engines,
            bar=3.0,
            more={
                **({"all in OpenVINO": (smolvla_engines, None)} if half else {}),
                "with int8": (smolvla_in_openvino(int8(SMOLVLA_VISION)), None),
            },
            exported=SMOLVLA_VISION,
            compiled=half,  # on the machine that was slower in bfloat16, compiling took more than ten minutes
        ),
        Case(
            "pi05",
            (*((*FLOW, {"precision": "bf16"}, PACKED, PRODUCTS) if half else (*UNFUSED, *wide)), *KEPT),
            bar=2.0,
            flags=("--dtype=bfloat16",),
            share=0.6,
            compiled=half,  # else two more sets of copies do not fit
        ),
        # By itself: two sets of copies do not fit into 24 GiB beside the policy. Projections in int8 cannot be fused.
        Case(
            "pi05-int8",
            (
                *UNFUSED,
                {"precision": "bf16"},
                PACKED,
                PRODUCTS,
                *({"int8": "dynamic", "int8.part": part} for part in (pi.LANGUAGE, pi.VISION, pi.EXPERT)),
                *KEPT,
            ),
            bar=2.5,
            flags=("--dtype=bfloat16",),
            type="pi05",
            compiled=False,
        ),
        Case(
            "vjepa2",
            ({"rotations": "once"}, engine("encoder"), *KEPT),
            bar=2.2,
            more={"with int8": (({"rotations": "once"}, int8("encoder"), *KEPT), None)},
            share=0.6,
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny versions; ratios are not judged")
    parser.add_argument("--policies", default=",".join(POLICIES), help="some of them, separated by commas")
    parser.add_argument("--iterations", type=int, default=15, help="calls of each variant")
    arguments = parser.parse_args()
    asked = arguments.policies.split(",")
    if unknown := sorted(set(asked) - set(POLICIES)):
        parser.error(f"no such policy: {', '.join(unknown)}; there are {', '.join(POLICIES)}")
    need("diffusion", "pi", "quantise", memory_gib=0 if arguments.quick else 16)
    console = Console()
    console.width = max(console.width, 130)
    found: dict[str, Any] = {}
    half = faster_in_bfloat16()
    for case in cases(half):
        if case.name not in asked:
            continue
        limit_s = QUICK_S if arguments.quick else LIMIT_S
        try:
            seen, machine = isolate.run(
                look, case, arguments.quick, 3 if arguments.quick else arguments.iterations, limit_s=limit_s
            )
        except (UserError, isolate.IsolatedCallError) as error:
            console.print(f"{case.name}: {error}", markup=False)
            found[case.name] = {"failed": str(error), "holds": False}
            continue
        wrong, beyond = judge(case, seen, quick=arguments.quick)
        console.print(make_table(case, seen))
        for text in [*wrong, *beyond]:
            console.print(f"  {text}", markup=False)
        found[case.name] = {
            "variants": {one.name: asdict(one) for one in seen}, "ceiling": machine, "wrong": wrong, "beyond": beyond,
            "holds": not wrong,
        }  # fmt: skip
    finish(
        {"quick": arguments.quick, "faster_in_bfloat16": half, "policies": found},
        all(one["holds"] for one in found.values()),
    )


def judge(case: Case, seen: list[Seen], *, quick: bool) -> tuple[list[str], list[str]]:
    """Return in words all that does not hold, and which bars are beyond this machine.

    Of a tiny version, whether the recipe runs and holds its guard.
    """
    by_name = {one.name: one for one in seen}
    bars = {STROBE: case.bar} | {name: bar for name, (_, bar) in case.more.items() if bar is not None}
    lerobot_ms = by_name[LEROBOT].ms or 0.0
    wrong, beyond = list[str](), list[str]()
    for name, bar in bars.items():
        one = by_name[name]
        if one.ms is None:
            wrong += [] if quick else [f"{name}: {one.why_not}"]
            continue
        if one.broken:
            wrong.append(f"{name}: {one.broken}")
        if quick or one.times >= bar:
            continue
        possible = lerobot_ms / one.least_ms if one.least_ms else bar
        text = f"{name}: {one.times:.2f} × LeRobot, not {bar:g} ×"
        if possible >= bar:
            wrong.append(text)
            continue
        text += f", which is beyond this machine: it takes {one.least_ms:.0f} ms at the least, {possible:.2f} × LeRobot"
        (beyond if one.times >= REACHED * possible else wrong).append(text)
    best = max((by_name[name] for name in bars if by_name[name].ms), key=lambda one: one.times, default=None)
    if best is not None and not quick and (best.ceiling_share or 0.0) < case.share:
        wrong.append(f"{best.name}: {best.ceiling_share or 0.0:.0%} of the ceiling, not {case.share:.0%}")
    return wrong, beyond


def make_table(case: Case, seen: list[Seen]) -> Table:
    """The variants of one policy, a row each."""
    table = Table("", "ms", "Hz", "× LeRobot", "% of ceiling", "at least (ms)", "actions", title=f"\n{case.name}")
    for one in seen:
        if one.ms is None:
            table.add_row(one.name, "–", "", "", "", "", one.why_not)
            continue
        times = f"{one.times:.2f}" + (f" [{one.interval[0]:.2f}, {one.interval[1]:.2f}]" if one.interval else "")
        share = "–" if one.ceiling_share is None else f"{one.ceiling_share:.0%} {one.dtype}"
        least = "–" if one.least_ms is None else f"{one.least_ms:.1f}"
        table.add_row(one.name, f"{one.ms:.1f}", f"{1e3 / one.ms:.2f}", times, share, least, _describe_error(one))
    return table


def _describe_error(one: Seen) -> str:
    if one.name == LEROBOT or one.cosine is None:
        return ""
    held = f"; breaks {one.broken}" if one.broken else ""
    if one.rms is None or one.worst is None:
        return f"cosine {one.cosine:.6f}{held}"
    return f"{one.rms:.2g} σ, at most {one.worst:.2g} σ{held}"


if __name__ == "__main__":
    main()
