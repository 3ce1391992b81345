"""All that is to be run once on a machine with a GPU, into one folder that can be committed.

    make gpu                                      the GPU that is there
    make gpu ARGS='--device=cuda:1 --output_dir=docs/hardware/h100'
    make gpu ARGS='--device=cpu --quick'          tiny policies on the CPU: a test of the way, not of the numbers
    make gpu ARGS='--only=doctor,pi05 --time_limit=60'    some of the steps, with less time for each ladder

In this order: the tests marked `gpu`, `strobe doctor`, and the ladders (`strobe optimize`) of pi0.5, SmolVLA, ACT,
Diffusion Policy and V-JEPA 2 at full size, each with its share of the roofline. At most 25 minutes on an H100: a step
that would begin after that is left out, and said so. Ctrl-C keeps what was done. In the folder: `summary.md`,
`summary.json`, the log of each step, and each run's `result.json` and `recipe.yaml`.

Exit code: 0 where every step ran and ended well, else 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ("result.json", "recipe.yaml")  # of each run; pages are made again by `strobe report`
LIMIT_S = 600.0  # for one step, whatever happens
LADDERS: dict[str, tuple[str, list[str]]] = {
    # name → the size that --quick takes, flags
    "pi05": ("--policy.size=tiny", ["--policy.type=pi05", "--policy.dtype=bfloat16", "--target-hz=50"]),
    "smolvla": ("--policy.size=tiny", ["--policy.type=smolvla", "--target-hz=50"]),
    "act": ("--policy.size=tiny", ["--policy.type=act", "--target-hz=200"]),
    "diffusion": (
        "--policy.size=tiny",
        [
            "--policy.type=diffusion",
            "--policy.noise_scheduler_type=DDIM",
            "--policy.num_inference_steps=10",
            "--target-hz=50",
        ],
    ),
    "vjepa2": ("--model.size=tiny", ["--model.type=vjepa2", "--model.size=large", "--target-hz=20"]),
}


@dataclass
class Step:
    """One command, and what came of it."""

    name: str
    command: list[str]
    outcome: str = "not run"
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ceilings:
    """GFLOP/s by format, and GB/s read and written."""

    gflops: dict[str, float]
    memory_gbps: float | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:1, … or cpu")
    parser.add_argument("--output_dir", type=Path, help="default: runs/gpu-DEVICE-DATE")
    parser.add_argument("--minutes", type=float, default=25.0, help="after which no further step begins (25)")
    parser.add_argument("--only", type=lambda text: text.split(","), help="steps, separated by commas (default: all)")
    parser.add_argument("--time_limit", type=float, default=150.0, help="seconds of measuring for each ladder (150)")
    parser.add_argument("--quick", action="store_true", help="tiny policies and a few seconds for each ladder")
    asked = parser.parse_args()
    if unknown := set(asked.only or ()) - {"tests", "doctor", *LADDERS}:
        parser.error(
            f"--only: no step is called {', '.join(sorted(unknown))}; there are tests, doctor, {', '.join(LADDERS)}"
        )
    if asked.device != "cpu":
        import torch

        if not torch.cuda.is_available():
            print(
                "make gpu: this machine has no CUDA device; ARGS='--device=cpu --quick' tries the way", file=sys.stderr
            )
            return 2
    today = datetime.date.today().isoformat()
    folder = asked.output_dir or ROOT / "runs" / f"gpu-{asked.device.replace(':', '-')}-{today}"
    folder.mkdir(parents=True, exist_ok=True)
    steps = [
        step
        for step in planned(asked.device, asked.quick, asked.time_limit)
        if not asked.only or step.name in asked.only
    ]
    ceilings = measured_ceilings(asked.device)
    began = time.monotonic()
    try:
        for step in steps:
            if time.monotonic() - began > 60 * asked.minutes:
                step.outcome = f"left out: {asked.minutes:g} minutes were over"
                continue
            run(step, folder, ceilings)
    except KeyboardInterrupt:
        print("interrupted: what was done is kept", file=sys.stderr)
    write(steps, folder, asked, time.monotonic() - began)
    print(f"\n{(folder / 'summary.md').read_text()}\n{folder}")
    return 0 if all(step.outcome == "done" for step in steps) else 1


def planned(device: str, quick: bool, time_limit_s: float = 150.0) -> list[Step]:
    """All steps, in their order."""
    strobe = str(Path(sys.executable).with_name("strobe"))
    # Only the files with such tests: pytest imports every file that it is given, which takes a minute for all.
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text()]
    tests = [sys.executable, "-m", "pytest", "-m", "gpu", "-n", "4", "-rs", "--durations=5", *files]
    steps = [Step("tests", tests), Step("doctor", [strobe, "doctor", f"--device={device}"])]
    for name, (tiny, flags) in LADDERS.items():
        sized = [flag for flag in flags if not (quick and flag.startswith("--model.size="))]
        limit = ["--seconds=3", "--time_limit=10", tiny] if quick else [f"--time_limit={time_limit_s:g}"]
        steps.append(Step(name, [strobe, "optimize", *sized, f"--device={device}", *limit]))
    return steps


def run(step: Step, folder: Path, ceilings: Ceilings) -> None:
    """Run ``step``, and bring what it kept into ``folder``."""
    print(f"… {step.name}", flush=True)
    runs = folder / f".{step.name}"
    command = [*step.command, *([] if step.name == "tests" else [f"--output_dir={runs}"])]
    began = time.monotonic()
    with (folder / f"{step.name}.log").open("w") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, timeout=LIMIT_S).returncode
            step.outcome = "done" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            step.outcome = f"not done within {LIMIT_S:g} s"
        except KeyboardInterrupt:
            step.outcome = "interrupted"
            raise
        finally:
            step.seconds = time.monotonic() - began
            keep(step, runs, folder, ceilings)
    print(f"  {step.outcome}, {step.seconds:.0f} s", flush=True)


def keep(step: Step, runs: Path, folder: Path, ceilings: Ceilings) -> None:
    """Copy the files of the step's run that are worth a commit, and take its figures from them."""
    if step.name == "tests":
        found = re.findall(r"(\d+) (passed|failed|skipped|error)", (folder / "tests.log").read_text()[-2000:])
        step.figures = {what: int(count) for count, what in found}
        return
    for kept in runs.glob("*/result.json"):
        place = folder / step.name
        place.mkdir(exist_ok=True)
        for name in KEPT:
            if (kept.parent / name).exists():
                shutil.copy(kept.parent / name, place / name)
        result = json.loads(kept.read_text())
        step.figures = of_doctor(result) if step.name == "doctor" else of_ladder(result, ceilings)
    shutil.rmtree(runs, ignore_errors=True)


def of_doctor(result: dict[str, Any]) -> dict[str, Any]:
    """The number of self-checks by outcome, and the names of those that fail."""
    outcomes = [check["outcome"] for check in result["checks"]]
    counted: dict[str, Any] = {name: outcomes.count(name) for name in dict.fromkeys(outcomes)}
    return counted | {"failing": [check["name"] for check in result["checks"] if check["outcome"] == "fails"]}


def of_ladder(result: dict[str, Any], ceilings: Ceilings) -> dict[str, Any]:
    """Milliseconds at the foot and at the top of a ladder, and the share of the roofline that each reaches."""
    ladder, machine = result.get("ladder"), result["machine"]
    if not ladder or not result["measurements"]:
        return {}
    by_name = {one["name"]: one for one in result["measurements"]}
    foot, top = result["measurements"][0], by_name.get(ladder["chosen"], result["measurements"][0])
    figures = {
        "device": machine["device_name"],
        "foot_ms": foot["samples"]["summary"]["median"],
        "top_ms": top["samples"]["summary"]["median"],
        "top": top["name"],
        "rungs": len(ladder["rungs"]),
        "refused": [one["treatment"] for one in ladder["tries"] if one["outcome"] in ("guard", "failed")],
    }
    figures["faster"] = figures["foot_ms"] / figures["top_ms"]
    for name, one in (("foot", foot), ("top", top)):
        figures[f"{name}_roofline"] = roofline(one, foot, ceilings)
    return figures


def measured_ceilings(device: str) -> Ceilings:
    """Measure the most that this machine does: a product of matrices in each format of policies, and a copy."""
    import torch

    from strobe.core.measure.ceiling import measure

    found = measure(torch.device(device), ["float32", "bfloat16", "float16"])
    return Ceilings(found.gflops, found.memory_gbps)


def roofline(one: dict[str, Any], foot: dict[str, Any], ceilings: Ceilings) -> float | None:
    """Return the least time that this machine's ceilings allow for the work, over the time that it took.

    The work is that of the untouched policy: what a graph or an engine holds cannot be counted, and does the same. The
    ceiling is the fastest product of matrices, and reading the weights once from memory.
    """
    gflop = sum(part["gflop"] or 0.0 for part in foot["components"] if len(part["path"]) == 1 and not part["other"])
    bytes_read = one["memory"].get("weights") or 0
    if not ceilings.gflops or not gflop:
        return None
    by_memory = bytes_read / 1e9 / ceilings.memory_gbps if ceilings.memory_gbps else 0.0
    return 1e3 * max(gflop / max(ceilings.gflops.values()), by_memory) / one["samples"]["summary"]["median"]


def write(steps: list[Step], folder: Path, asked: argparse.Namespace, seconds: float) -> None:
    """Write the summary, for people and for programs."""
    kept = [{"name": s.name, "outcome": s.outcome, "seconds": round(s.seconds, 1), **s.figures} for s in steps]
    (folder / "summary.json").write_text(
        json.dumps({"device": asked.device, "quick": asked.quick, "steps": kept}, indent=1)
    )
    head = f"`make gpu` on {asked.device}, {datetime.date.today().isoformat()}, {seconds / 60:.1f} minutes"
    lines = [f"# {head}{' (--quick: tiny policies)' if asked.quick else ''}", ""]
    lines += ["| step | outcome | took (s) | figures |", "|---|---|---|---|"]
    lines += [f"| {s.name} | {s.outcome} | {s.seconds:.0f} | {in_words(s.figures)} |" for s in steps]
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def in_words(figures: dict[str, Any]) -> str:
    """The figures of a step in a line."""
    if "foot_ms" in figures:
        shares = [figures["foot_roofline"], figures["top_roofline"]]
        share = ", ".join("?" if one is None else f"{100 * one:.0f} %" for one in shares)
        said = f"{figures['foot_ms']:.2f} → {figures['top_ms']:.2f} ms ({figures['faster']:.2f}×), roofline {share}"
        return said + (f"; refused: {', '.join(figures['refused'])}" if figures["refused"] else "")
    return ", ".join(f"{name} {value}" for name, value in figures.items() if value)


if __name__ == "__main__":
    sys.exit(main())
