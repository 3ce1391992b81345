"""Measure how long `strobe optimize` takes to its recipe, on a machine that it has not seen before and once more.

Bars, of each of full-size ACT, SmolVLA and V-JEPA 2: the recipe is there within 25 s and the usual time limit: 80 s, or
250 chunks up to 240 s, or 100 chunks of a slow policy, and 180 s more for SmolVLA's program of all steps. The second
time the limit is the same, because what was left undecided is tried then. Where no treatment gains, the word that none
does is what must be there by then. Both ladders must end with the same treatments.

The command runs as a user runs it, in a process of its own, with a cache of its own that is empty at first. Its lines
are stamped as they come, and add up to the phases that are shown.

    python benchmarks/asking.py                       about half an hour
    python benchmarks/asking.py --cases=act           one of them
    python benchmarks/asking.py --quick               tiny ones, without bars on time
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common.shared import finish, need
from rich.console import Console
from rich.table import Table

from strobe.core.runs import store
from strobe.ladder.candidates import ALL_STEPS_S
from strobe.ladder.results import OptimizeResult

BARS = {"the first time": 25.0, "again": 25.0}  # seconds beside the time limit
CASES = {
    "act": ["--policy.type=act"],
    "smolvla": ["--policy.type=smolvla"],
    "vjepa2": ["--model.type=vjepa2"],
}
# Beginnings of the lines of stderr and stdout → the phase that begins with them, or that they end.
BEGINS = {
    "… importing": "imports",
    "… loading": "loading the policy",
    "… measuring what this machine": "what the machine can do",
    "… the baseline": "the baseline",
    "… how far the baseline's actions move by reordered": "its own rounding",
    "as it is:": "tries",
    "… the closing run": "the closing run",
    "… how far the baseline's actions move by": "the closer look",
    "… the same actions?": "the closer look",
    "… are its chunks in time?": "chunks in time",
}
AFTER_LOOK = "the answer"


def time_command(argv: list[str], cache: Path, runs: Path) -> tuple[float, dict[str, float], OptimizeResult]:
    """Run the command: seconds to its recipe, or to its word that there is none; seconds of its phases; its result."""
    # As a user has it: with bytecode, which some machines are told not to keep.
    unusual = ("STROBE_CACHE", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in unusual}
    environment |= {"XDG_CACHE_HOME": str(cache), "COLUMNS": "200"}
    command = [sys.executable, "-u", "-m", "strobe", "optimize", *argv, f"--output_dir={runs}"]
    began = then = time.perf_counter()
    phases: dict[str, float] = {}
    phase, reached = "start", None
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now = time.perf_counter()
            print(f"{now - began:6.1f} s  {line.rstrip()[:150]}", file=sys.stderr)
            found = next((name for begin, name in BEGINS.items() if line.startswith(begin)), None)
            if line.startswith("strobe optimize"):
                found, reached = AFTER_LOOK, now - began
            if line.startswith("recipe   "):
                reached = now - began
            if found is not None and found != phase:
                phases[phase] = phases.get(phase, 0.0) + now - then
                phase, then = found, now
    phases[phase] = phases.get(phase, 0.0) + time.perf_counter() - then
    assert process.returncode == 0, f"exit code {process.returncode}"
    (file,) = runs.rglob(store.RESULT)
    result = store.load(file)
    assert isinstance(result, OptimizeResult)
    return reached if reached is not None else float("inf"), phases, result


def case(name: str, argv: list[str]) -> dict[str, Any]:
    """Ask twice with a fresh cache. Returns figures, with what misses its bar."""
    took: dict[str, float] = {}
    phases: dict[str, dict[str, float]] = {}
    results: dict[str, OptimizeResult] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number, time_of in enumerate(BARS):
            folder = Path(temporary) / f"runs-{number}"
            took[time_of], phases[time_of], results[time_of] = time_command(argv, Path(temporary), folder)
    ladders = [result.ladder for result in results.values() if result.ladder is not None]
    chunk_ms = min(result.measurements[0].samples.summary.median for result in results.values())
    _print(name, chunk_ms, took, phases)
    rungs = [[rung.treatment for rung in ladder.rungs[1:]] for ladder in ladders]
    bars = {time_of: seconds + limit_s(name, chunk_ms / 1e3) for time_of, seconds in BARS.items()}
    missed = [
        f"{time_of}: {f'{took[time_of]:.0f} s' if math.isfinite(took[time_of]) else 'no answer'}, bar {bar:.0f} s"
        for time_of, bar in bars.items()
        if took[time_of] > bar
    ]
    return {
        "chunk_ms": round(chunk_ms, 1),
        "to_recipe_s": {time_of: _round_finite(seconds, 1) for time_of, seconds in took.items()},
        "bars_s": {time_of: round(bar, 1) for time_of, bar in bars.items()},
        "phases_s": {of: {phase: round(took, 1) for phase, took in each.items()} for of, each in phases.items()},
        "rungs": rungs,
        "same_rungs": len(rungs) == len(BARS) and rungs[0] == rungs[-1],
        "missed": missed,
    }


def limit_s(name: str, chunk_s: float) -> float:
    """Return the usual time limit of a search on a CPU, or more for a slow policy, whose treatments go by groups."""
    return max(80.0, min(250 * chunk_s, 240.0), 100 * chunk_s) + (ALL_STEPS_S if name == "smolvla" else 0.0)


def _round_finite(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _print(name: str, chunk_ms: float, took: dict[str, float], phases: dict[str, dict[str, float]]) -> None:
    table = Table("phase", *(f"{each} (s)" for each in BARS), title=f"{name}: {chunk_ms:.0f} ms per chunk as it is")
    for phase in dict.fromkeys(phase for each in phases.values() for phase in each):
        table.add_row(phase, *(f"{phases[each].get(phase, 0.0):.1f}" for each in BARS))
    table.add_section()
    table.add_row("to the recipe", *(f"{took[each]:.1f}" for each in BARS), style="bold")
    bars = (f"{seconds + limit_s(name, chunk_ms / 1e3):.1f}" for seconds in BARS.values())
    table.add_row("bar", *bars)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Other flags are those of strobe optimize.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--cases", default=",".join(CASES), help="of act, smolvla and vjepa2")
    parser.add_argument("--quick", action="store_true", help="tiny ones, without bars on time")
    arguments, argv = parser.parse_known_args()
    names = arguments.cases.split(",")
    if unknown := set(names) - CASES.keys():
        parser.error(f"--cases: {', '.join(sorted(unknown))}: they are {', '.join(CASES)}")
    need("smolvla")
    figures: dict[str, Any] = {}
    for name in names:
        flags = [*CASES[name], *argv]
        if arguments.quick:
            flags += [f"{CASES[name][0].partition('.')[0]}.size=tiny", "--target-hz=100000", "--time_limit=30"]
        figures[name] = case(name, flags)
    held = all(each["same_rungs"] and not each["missed"] for each in figures.values())
    finish(figures, arguments.quick or held)


if __name__ == "__main__":
    main()
