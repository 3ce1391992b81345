"""Does `strobe optimize` find what a person finds? Twenty recipes made by hand against the ladder's own, by policy.

For each policy `strobe optimize` runs from nothing: a cache of its own, no earlier ladder, the usual time limit. Then
its recipe and the recipes made by hand take turns, a few of them in each `strobe compare`, beside the baseline, whose
actions all are compared with. The policies have full size and random weights.

    python benchmarks/hand_recipes.py [--quick] [--policies=act,vjepa2] [--repeats=1] [--time_limit=80]

`--repeats`: how many searches there are; the recipe of each takes turns with the others. Bars: no recipe made by hand
that holds the guard is faster than the ladder's by 3 %, and of the searches four in five end within 3 % of their best.
A recipe counts as faster where the interval of the pairs (99 %) shows it and their median is 3 % or more. Recipes that
this machine cannot run, or whose actions break the guard, are listed and count for nothing. `--quick`: ACT and six
recipes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from common.shared import finish, need

from strobe.core.measure.verdicts import paired_verdict

STROBE = Path(sys.executable).parent / "strobe"
MARGIN = 0.03
AT_ONCE, LARGE = 5, "pi05"  # recipes next to the baseline and the ladder's own; whose copies of the weights fill memory
LIMIT_S = 1800.0
KEPT, CHANNELS = "memory=kept", "channels_last=true"


def engine(part: str, precision: str) -> str:
    """``part`` in OpenVINO."""
    return f"engine=openvino, engine.part={part}, engine.precision={precision}"


def half(part: str) -> str:
    """The weights of ``part`` in bfloat16; '' for all."""
    return f"precision=bf16, precision.part={part}" if part else "precision=bf16"


def make_act() -> list[str]:
    backbone, encoder, decoder = (f"model.{part}" for part in ("backbone", "encoder", "decoder"))
    narrow = engine(backbone, "bf16")
    return [
        KEPT,
        CHANNELS,
        "weights=packed",
        half(backbone),
        f"{half(backbone)}, {CHANNELS}",
        f"{half(backbone)}, {CHANNELS}, {KEPT}",
        engine("model", "fp32"),
        f"{engine('model', 'fp32')}, {KEPT}",
        engine("model", "bf16"),
        narrow,
        f"{narrow}, {KEPT}",
        f"{narrow}, weights=packed, {KEPT}",
        f"{narrow}, {engine(encoder, 'fp32')}",
        f"{narrow}, {engine(encoder, 'bf16')}",
        f"{narrow}, {engine(encoder, 'fp32')}, {KEPT}",
        f"{narrow}, {engine(encoder, 'fp32')}, {engine(decoder, 'fp32')}, {KEPT}",
        f"{narrow}, {engine(encoder, 'bf16')}, {engine(decoder, 'bf16')}, {KEPT}",
        f"{half(backbone)}, {CHANNELS}, {engine(encoder, 'fp32')}, {KEPT}",
        "compile=default",
        f"{half(backbone)}, {CHANNELS}, compile=default",
    ]


def make_vjepa2() -> list[str]:
    rotations, fused, products = "rotations=once", "attention=sdpa", "scores=products"
    return [
        KEPT,
        rotations,
        half(""),
        "weights=packed",
        f"{half('')}, weights=packed",
        f"{half('')}, {rotations}",
        f"{half('')}, {rotations}, weights=packed",
        f"{half('')}, {rotations}, weights=packed, {KEPT}",
        f"{half('')}, {rotations}, weights=packed, {products}, {KEPT}",
        f"{half('')}, {rotations}, {products}",
        engine("encoder", "fp32"),
        engine("encoder", "bf16"),
        f"{rotations}, {engine('encoder', 'fp32')}",
        f"{rotations}, {engine('encoder', 'bf16')}",
        f"{rotations}, {engine('encoder', 'bf16')}, {KEPT}",
        f"{rotations}, {engine('encoder', 'fp32')}, {KEPT}",
        f"{rotations}, {fused}, {KEPT}",
        f"{rotations}, weights=packed, {KEPT}",
        "compile=default",
        f"{half('')}, {rotations}, compile=default",
    ]


def make_diffusion() -> list[str]:
    unet, eyes, other = "diffusion.unet", "diffusion.rgb_encoder.0", "diffusion.rgb_encoder.1"
    return [
        KEPT,
        CHANNELS,
        half(""),
        f"{half('')}, {KEPT}",
        half(unet),
        f"{half(unet)}, {KEPT}",
        engine(unet, "fp32"),
        engine(unet, "bf16"),
        f"{engine(unet, 'fp32')}, {KEPT}",
        f"{engine(unet, 'bf16')}, {KEPT}",
        f"{engine(unet, 'fp32')}, {engine(eyes, 'fp32')}",
        f"{engine(unet, 'bf16')}, {engine(eyes, 'fp32')}",
        f"{engine(unet, 'bf16')}, {engine(eyes, 'bf16')}",
        f"{engine(unet, 'fp32')}, {engine(eyes, 'fp32')}, {KEPT}",
        f"{engine(unet, 'bf16')}, {engine(eyes, 'fp32')}, {KEPT}",
        f"{engine(unet, 'bf16')}, {engine(eyes, 'bf16')}, {KEPT}",
        f"{engine(unet, 'bf16')}, engine.steps=all, {KEPT}",
        f"{engine(unet, 'bf16')}, engine.steps=all, {engine(eyes, 'bf16')}, {engine(other, 'bf16')}, {KEPT}",
        "compile=default",
        f"{CHANNELS}, compile=default, {KEPT}",
    ]


def make_smolvla() -> list[str]:
    eyes, joint = "model.vlm_with_expert.vlm.model.vision_model", "model.vlm_with_expert"
    whole = f"{engine('model', 'bf16')}, engine.steps=all"
    skipped = "padding=trimmed, prefix_tail=skipped, prefix_cache=static, timesteps=precomputed, masks=once"
    return [
        f"padding=trimmed, {whole}",
        "padding=trimmed",
        skipped,
        f"{skipped}, attention=sdpa, projections=fused",
        f"{skipped}, attention=sdpa, projections=fused, weights=packed, {KEPT}",
        half(""),
        f"{half('')}, {skipped}, {KEPT}",
        f"{half('')}, {skipped}, attention=sdpa, projections=fused, weights=packed, {KEPT}",
        f"{skipped}, {whole}",
        f"{half(eyes)}, {skipped}, {KEPT}",
        engine(eyes, "fp32"),
        engine(eyes, "bf16"),
        f"{engine(eyes, 'fp32')}, {skipped}, {KEPT}",
        f"{engine(eyes, 'bf16')}, {skipped}, {KEPT}",
        f"padding=trimmed, {engine(eyes, 'fp32')}, {engine(joint, 'fp32')}, {KEPT}",
        f"padding=trimmed, {engine(eyes, 'bf16')}, {engine(joint, 'fp32')}, {KEPT}",
        f"padding=trimmed, {engine(eyes, 'bf16')}, {engine(joint, 'bf16')}, {KEPT}",
        f"padding=trimmed, {half('')}, {engine(eyes, 'bf16')}, {engine(joint, 'bf16')}, {KEPT}",
        f"{half('')}, {skipped}, {engine(eyes, 'bf16')}, attention=sdpa, projections=fused, weights=packed, {KEPT}",
        f"{half('')}, {skipped}, {engine(eyes, 'bf16')}, compile=default, compile.part=model.denoise_step, {KEPT}",
    ]


def make_pi05() -> list[str]:
    joint = "model.paligemma_with_expert"
    eyes, language = f"{joint}.paligemma.model.vision_tower", f"{joint}.paligemma.model.language_model"
    skipped = "padding=trimmed, prefix_tail=skipped, prefix_cache=static, timesteps=precomputed, masks=once"
    fused, seen = "attention=sdpa, projections=fused", engine(eyes, "bf16")
    return [
        KEPT,
        "padding=trimmed",
        skipped,
        half(""),
        f"{skipped}, {engine('model', 'bf16')}, engine.steps=all",
        f"{half('')}, {skipped}",
        f"{half('')}, {skipped}, attention=sdpa",
        f"{half('')}, {skipped}, projections=fused",
        f"{half('')}, {skipped}, weights=packed",
        f"{half('')}, {skipped}, {fused}, weights=packed, {KEPT}",
        engine(eyes, "fp32"),
        seen,
        f"{half('')}, {skipped}, {seen}",
        f"{half('')}, {skipped}, {seen}, {fused}",
        f"{half('')}, {skipped}, {seen}, weights=packed",
        f"{half('')}, {skipped}, {seen}, {fused}, weights=packed, {KEPT}",
        f"{skipped}, {seen}, {engine(f'{joint}.gemma_expert.model', 'bf16')}",
        f"{skipped}, {seen}, {engine(language, 'bf16')}",
        f"{half('')}, {skipped}, {seen}, compile=default, compile.part=model.denoise_step",
        "compile=default",
    ]


CASES = {
    "act": (["--policy.type=act"], make_act),
    "diffusion": (
        ["--policy.type=diffusion", "--policy.noise_scheduler_type=DDIM", "--policy.num_inference_steps=10"],
        make_diffusion,
    ),
    "pi05": (["--policy.type=pi05", "--policy.dtype=bfloat16"], make_pi05),
    "smolvla": (["--policy.type=smolvla"], make_smolvla),
    "vjepa2": (["--model.type=vjepa2"], make_vjepa2),
}
QUICK = slice(9, 15)


@dataclass
class Tried:
    """One recipe beside the ladder's own, in the same run.

    Args:
        why_not: why it has no figures: it does not run here, or its actions break the guard.
        ratio: its time over the ladder's, the median of the pairs; ``low`` and ``high`` are the interval's ends.
    """

    recipe: str
    why_not: str | None = None
    ms: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the interval shows a difference from the ladder's recipe."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def is_faster(self) -> bool:
        """Whether it is shown to be faster than the ladder's recipe by the margin."""
        return self.ratio is not None and self.is_shown and self.ratio < 1 - MARGIN


def run_strobe(arguments: list[str], folder: Path, cache: Path) -> tuple[dict[str, Any] | None, str]:
    """Run a command. Return its answer, None if it has none, and what it printed."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "STROBE_CACHE": str(cache), "NO_COLOR": "1"}
    ended = subprocess.run(
        [STROBE, *arguments, f"--output_dir={folder}"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=LIMIT_S,
        check=False,
    )
    answers = sorted(folder.glob("*/result.json"))
    return (json.loads(answers[-1].read_text()) if answers else None), ended.stdout + ended.stderr


def search(flags: list[str], limit: list[str], folder: Path) -> dict[str, Any]:
    """Climb from nothing. Return the rungs, the seconds used, and the recipe as a variant has it."""
    answer, printed = run_strobe(["optimize", *flags, "--target_hz=1000", "--fresh", *limit], folder, folder / "cache")
    if answer is None:
        raise SystemExit(f"optimize failed: {printed[-2000:]}")
    ladder = answer["ladder"]
    chosen = next(rung for rung in ladder["rungs"] if rung["name"] == ladder["chosen"])
    text = ", ".join(f"{key}={value}" for spec in chosen["treatments"] for key, value in spec.items())
    medians = {each["name"]: each["samples"]["summary"]["median"] for each in answer["measurements"]}
    tries = [f"{each['treatment']}: {each['outcome']}" for each in ladder["tries"]]
    return {
        "recipe": text.replace("=True", "=true"), "ms": medians[ladder["chosen"]], "baseline_ms": medians["baseline"],
        "seconds": answer["duration_s"], "ended": ladder["ended"], "tries": tries,
    }  # fmt: skip


def compare(flags: list[str], own: str, recipes: list[str], folder: Path, cache: Path, iterations: int) -> list[Tried]:
    """Let ``recipes`` and the ladder's ``own`` take turns; one that cannot run is tried without the others."""
    named = {f"r{number}": text for number, text in enumerate(recipes)}
    variants = [f"--variant=ladder: {own}"] if own else []
    variants += [f"--variant={name}: {text}" for name, text in named.items()]
    answer, printed = run_strobe(["compare", *flags, *variants, f"--iterations={iterations}"], folder, cache)
    names = {each["name"] for each in answer["measurements"]} if answer is not None else set()
    reference = "ladder" if own else "baseline"
    if answer is None or reference not in names:
        if len(recipes) == 1:
            return [Tried(recipes[0], why_not=printed.strip().splitlines()[-1][:200] if printed.strip() else "failed")]
        alone = [
            compare(flags, own, [text], folder / f"alone{place}", cache, iterations)
            for place, text in enumerate(recipes)
        ]
        return [tried for each in alone for tried in each]
    times = {each["name"]: each["samples"]["values"] for each in answer["measurements"]}
    broken = {each["candidate"]: each.get("broken") or each.get("unjudged") for each in answer["comparisons"]}
    tried = []
    for name, text in named.items():
        if name not in times:
            tried.append(Tried(text, why_not="not in the answer"))
            continue
        verdict = paired_verdict(times[reference], times[name], baseline_name=reference, candidate_name=name)
        tried.append(
            Tried(
                text,
                broken.get(name) or None,
                sorted(times[name])[len(times[name]) // 2],
                verdict.ratio,
                verdict.interval.low,
                verdict.interval.high,
            )
        )
    return tried


def judge(kind: str, arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Return the searches of one policy, and the recipes made by hand beside the best of them."""
    flags, make = CASES[kind]
    limit = [f"--time_limit={arguments.time_limit:g}"] if arguments.time_limit else []
    searches = []
    for number in range(arguments.repeats):
        searches.append(found := search(flags, limit, work / f"{kind}-search{number}"))
        print(
            f"{kind}: {found['baseline_ms']:.0f} → {found['ms']:.0f} ms in {found['seconds']:.0f} s: {found['recipe']}"
        )
        print(f"  {found['ended']}", *(f"  {line}" for line in found["tries"]), sep="\n", flush=True)
    cache = work / f"{kind}-search0" / "cache"  # engines that are built need not be built again
    own = searches[0]["recipe"]
    others = [found["recipe"] for found in searches if found["recipe"] != own]  # the same recipe takes the same time
    among = compare(flags, own, others, work / f"{kind}-repeats", cache, arguments.iterations) if others else []
    ratios = [one.ratio if one.is_shown else 1.0 for one in among if one.ratio is not None]
    ratios += [1.0] * (len(searches) - len(others))
    steady = sum(ratio <= (1 + MARGIN) * min(ratios) for ratio in ratios) / len(searches)
    recipes = make()[QUICK] if arguments.quick else make()
    tried: list[Tried] = []
    several = 1 if kind == LARGE else AT_ONCE
    for begin in range(0, len(recipes), several):
        some = compare(
            flags, own, recipes[begin : begin + several], work / f"{kind}-hand{begin}", cache, arguments.iterations
        )
        for one in some:
            figures = f"{one.ratio:.3f} × the ladder's [{one.low:.3f}, {one.high:.3f}]" if one.ratio else "–"
            print(f"  {figures}  {one.recipe}{f'  ({one.why_not})' if one.why_not else ''}", flush=True)
        tried += some
    faster = [one.recipe for one in tried if one.why_not is None and one.is_faster]
    return {
        "searches": searches, "steady": steady, "tried": [asdict(one) for one in tried], "faster": faster,
        "holds": not faster and steady >= 0.8,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ACT and six recipes")
    parser.add_argument("--policies", help=f"some of {','.join(CASES)}, separated by commas")
    parser.add_argument("--repeats", type=int, default=1, help="searches of each policy")
    parser.add_argument("--iterations", type=int, default=12, help="calls of each recipe; 6 are the fewest to judge")
    parser.add_argument("--time_limit", type=float, help="seconds of each search")
    arguments = parser.parse_args()
    asked = (arguments.policies or ("act" if arguments.quick else ",".join(CASES))).split(",")
    if unknown := sorted(set(asked) - set(CASES)):
        parser.error(f"no such policy: {', '.join(unknown)}; there are {', '.join(CASES)}")
    need("openvino", "diffusion", "smolvla", "pi")
    with tempfile.TemporaryDirectory() as work:
        found = {kind: judge(kind, arguments, Path(work)) for kind in asked}
    finish({"quick": arguments.quick, "policies": found}, all(one["holds"] for one in found.values()))


if __name__ == "__main__":
    main()
