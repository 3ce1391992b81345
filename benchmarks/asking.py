"""Measure how long `strobe optimize` takes to its recipe, on a machine that it has not seen before and once more.

Bars: full-size ACT reaches its recipe in at most 45 s, and in at most 25 s the second time, when what the first ladder
kept is tried together. Both ladders must reach the target, and end with the same treatments.

The command runs as a user runs it, in a process of its own, with a cache of its own that is empty at first. Its lines
are stamped as they come, and add up to the phases that are shown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _shared import finish
from rich.console import Console
from rich.table import Table

from strobe.results.answer import OptimizeResult
from strobe.runs import store

BARS_S = {"the first time": 45.0, "again": 25.0}
# Beginnings of the lines of stderr and stdout → the phase that begins with them, or that they end.
BEGINS = {
    "… importing": "imports",
    "… loading": "loading the policy",
    "… measuring what this machine": "what the machine can do",
    "… the policy as it is": "the policy as it is",
    "… how far the untouched policy's actions move by reordered": "its own rounding",
    "as it is:": "tries",
    "… the closing run": "the closing run",
    "… how far the untouched policy's actions move by": "the closer look",
    "… the same actions?": "the closer look",
    "… are its chunks in time?": "chunks in time",
}
AFTER_LOOK = "the answer"


def asked(argv: list[str], cache: Path, runs: Path) -> tuple[float, dict[str, float], OptimizeResult]:
    """Run the command: seconds to its recipe, seconds of its phases, and its result."""
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
                found = AFTER_LOOK
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
    assert reached is not None, "no recipe was written"
    return reached, phases, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Other flags are those of strobe optimize.")
    parser.add_argument("--quick", action="store_true", help="tiny ACT, without bars on time")
    arguments, argv = parser.parse_known_args()
    argv = argv or ["--policy.type=act", "--target-hz=20"]
    if arguments.quick:
        argv += ["--policy.size=tiny", "--target-hz=100000", "--time_limit=30"]
    took: dict[str, float] = {}
    phases: dict[str, dict[str, float]] = {}
    results: dict[str, OptimizeResult] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(BARS_S):
            took[name], phases[name], results[name] = asked(argv, Path(temporary), Path(temporary) / f"runs-{number}")
    table = Table("phase", *(f"{name} (s)" for name in BARS_S))
    for phase in dict.fromkeys(phase for one in phases.values() for phase in one):
        table.add_row(phase, *(f"{phases[name].get(phase, 0.0):.1f}" for name in BARS_S))
    table.add_section()
    table.add_row("to the recipe", *(f"{took[name]:.1f}" for name in BARS_S), style="bold")
    Console().print(table)
    ladders = {name: result.ladder for name, result in results.items()}
    figures = {
        "to_recipe_s": took,
        "phases_s": phases,
        "ms": {name: result.measurement(result.ladder.chosen).samples.summary.median
               for name, result in results.items() if result.ladder is not None},
        "rungs": {name: [rung.treatment for rung in one.rungs[1:]] for name, one in ladders.items() if one is not None},
    }  # fmt: skip
    met = all(one is not None and one.met for one in ladders.values())
    finish(figures, arguments.quick or (met and all(took[name] <= bar for name, bar in BARS_S.items())))


if __name__ == "__main__":
    main()
