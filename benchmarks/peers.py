"""Is Strobe's recipe faster than the engines that people would use in its place, where all act the same?

Each policy has random weights and runs in alternation, in one process, on the same observations with the same noise:
LeRobot unchanged; torch.compile (default, max-autotune); the whole policy in OpenVINO (float32, bfloat16, int8) and in
ONNX Runtime, by strobe export; and the recipe that strobe optimize finds. V-JEPA 2 is a backbone, which strobe export
does not take: OpenVINO gets its encoder.

Shown of each: ms; times LeRobot; its time over the recipe's, paired, with a 95 % interval; the distance of its actions
in σ and the guard's word; seconds to build; memory. An engine that is not installed, or cannot take the policy, has a
line with the reason.

Bars: of what the roofline says is possible the recipe reaches 95 % for ACT, 85 % for V-JEPA 2, 75 % for Diffusion and
pi0.5, 70 % for SmolVLA. No peer in float32 or bfloat16 within its guard is faster than the recipe by more than 3 %. Of
the five, the best such peer takes 1.2 × the recipe's time for three; fewer than five are not judged by that.

    python benchmarks/peers.py --only=act,diffusion           some of act, diffusion, smolvla, pi05, vjepa2
    python benchmarks/peers.py --only=smolvla --recipe=recipe.yaml --skip=int8,ONNX
    python benchmarks/peers.py --quick                        tiny ones; times are not judged
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from common.shared import finish, need
from policies.peer_case import LEROBOT, STROBE, Case, Seen, look
from rich.console import Console
from rich.table import Table

from strobe.core.errors import UserError
from strobe.core.processes import isolate

CASES = (
    Case("act", 0.95),
    Case("diffusion", 0.75, ("noise_scheduler_type=DDIM", "num_inference_steps=10"), search_s=480.0),
    Case("smolvla", 0.7, search_s=900.0),
    Case("pi05", 0.75, ("dtype=bfloat16",), search_s=1800.0),
    Case("vjepa2", 0.85, search_s=300.0),
)
FASTER, SLOWER, OF_FIVE = 1.2, 0.97, 3
LIMIT_S = 5400.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny versions; times are not judged")
    parser.add_argument("--only", default=",".join(case.name for case in CASES), help="some, separated by commas")
    parser.add_argument("--seconds", type=float, default=120.0, help="of taking turns, for each policy")
    parser.add_argument("--recipe", type=Path, help="that strobe optimize found before, in place of a search")
    parser.add_argument("--skip", default="", help="engines with one of these in their names: int8,ONNX")
    asked = parser.parse_args()
    names = asked.only.split(",")
    if unknown := sorted(set(names) - {case.name for case in CASES}):
        parser.error(f"--only: {', '.join(unknown)}: they are {', '.join(case.name for case in CASES)}")
    need("diffusion", "onnx", "openvino", "pi", memory_gib=0 if asked.quick else 16)
    console = Console(width=150)
    found: dict[str, Any] = {}
    for case in (case for case in CASES if case.name in names):
        try:
            seconds = 5.0 if asked.quick else asked.seconds
            case = replace(case, recipe=asked.recipe, skipped=tuple(filter(None, asked.skip.split(","))))
            seen = isolate.run(look, case, asked.quick, seconds, limit_s=LIMIT_S)
        except (UserError, isolate.IsolatedCallError) as error:
            console.print(f"{case.name}: {error}", markup=False)
            found[case.name] = {"wrong": [str(error)]}
            continue
        best, wrong = judge(case, seen, quick=asked.quick)
        console.print(engine_table(case, seen))
        for text in wrong:
            console.print(f"  {text}", markup=False)
        found[case.name] = {"engines": [asdict(one) for one in seen], "best_peer_over_recipe": best, "wrong": wrong}
    held = not any(one["wrong"] for one in found.values())
    if len(found) == len(CASES) and not asked.quick:
        held &= sum((one.get("best_peer_over_recipe") or 0.0) >= FASTER for one in found.values()) >= OF_FIVE
    finish({"quick": asked.quick, "policies": found}, held)


def judge(case: Case, seen: list[Seen], *, quick: bool) -> tuple[float | None, list[str]]:
    """Return the best peer's time over the recipe's, and in words what does not hold."""
    by_name = {one.name: one for one in seen}
    recipe = by_name[STROBE]
    if recipe.ms is None:
        return None, [f"no recipe: {recipe.why_not}"]
    wrong = [f"the recipe breaks {recipe.broken}"] if recipe.broken else []
    sound = [one for one in seen if one.over_recipe and not (one.broken or one.unjudged or "int8" in one.name)]
    best = min((one.over_recipe[0] for one in sound if one.name != LEROBOT and one.over_recipe), default=None)
    if quick:
        return best, wrong
    if (share := recipe.least_share or 0.0) < case.share:
        wrong.append(f"the recipe reaches {share:.0%} of what is possible, not {case.share:.0%}")
    wrong += [
        f"{one.name} takes {one.over_recipe[0]:.2f} × the recipe's time"
        for one in sound
        if one.over_recipe and one.over_recipe[2] < SLOWER
    ]
    return best, wrong


def engine_table(case: Case, seen: list[Seen]) -> Table:
    """The engines of one policy, a row each."""
    columns = (
        "ms",
        "× LeRobot",
        "time over the recipe's",
        "of what is possible",
        "actions",
        "build (s)",
        "memory (MiB)",
    )
    table = Table("", *columns, title=f"\n{case.name}")
    for one in seen:
        if one.ms is None:
            table.add_row(one.name, "–", "", "", "", one.why_not)
            continue
        over = "{:.2f} [{:.2f}, {:.2f}]".format(*one.over_recipe) if one.over_recipe else ""
        possible = "" if one.least_share is None else f"{one.least_share:.0%}"
        build = "" if one.build_s is None else f"{one.build_s:.0f}"
        memory = "" if one.memory_mib is None else f"{one.memory_mib:.0f}"
        table.add_row(
            one.name, f"{one.ms:.1f}", f"{one.times:.2f}", over, possible, _describe_action_change(one), build, memory
        )
    return table


def _describe_action_change(one: Seen) -> str:
    if one.rms is None or one.worst is None:
        return ""
    word = f"breaks {one.broken}" if one.broken else one.unjudged or "within the guard"
    return f"{one.rms:.2g} σ, at most {one.worst:.2g} σ; {word}"


if __name__ == "__main__":
    main()
