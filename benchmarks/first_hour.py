"""Run a newcomer's first commands, at rest and beside other work: does each end in its time, and say something?

The tour, and a breakdown, a comparison and a verification of a tiny ACT, each in a process of its own: first on the
machine at rest, then beside busy loops, one for each core. Bars, in seconds from start to end:

- the tour at rest: 180, and every stop runs; beside the loops: 480, and its first three stops run,
- breakdown and compare: what --help says, four times --seconds and a minute, and START_S to import and load,
- verify: three times its --seconds, and START_S,
- no command is silent for more than SILENT_S,
- beside the loops each command's first lines name the busy cores; at rest none does,
- each answer says something: measurements and comparisons with an interval, actions that were judged.

--quick: a tour of tiny policies, and shorter commands.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.shared import finish
from rich.console import Console
from rich.table import Table

from strobe.core.measure.verdicts import FEWEST_PAIRS

TOUR = str(Path(__file__).resolve().parents[1] / "scripts" / "tour.py")
TOUR_S = {"rest": 180.0, "busy": 480.0}
STOPS = {
    "rest": ("breakdown", "compare", "train", "rollout", "evaluate", "tune", "preflight"),
    "busy": ("breakdown", "compare"),
}
START_S = {"rest": 30.0, "busy": 120.0}  # to import LeRobot and to load a policy
SILENT_S = 45.0
NAMED = "busy with other work"
RECIPE = "policy: act\ntreatments:\n  - channels_last: true\n"
ACT = ["--policy.type=act", "--policy.size=tiny", "--device=cpu"]


@dataclass
class Ran:
    """One command: seconds to its end, its longest silence and the line before that, its exit code, lines, answers."""

    seconds: float
    silent: float
    silent_after: str
    code: int
    lines: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def busy_named(self) -> bool:
        """Whether it said that other work keeps the machine busy."""
        return any(NAMED in line for line in self.lines)


def run(argv: list[str], folder: Path) -> Ran:
    """Run a command of Strobe, or the tour, whose runs go to ``folder``."""
    program = argv if argv[0] == TOUR else ["-m", "strobe", *argv]
    command = [sys.executable, "-u", *program, f"--output_dir={folder}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    start = last = time.perf_counter()
    silences, lines = [], ["its start"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now = time.perf_counter()
            silences.append((now - last, lines[-1]))
            last = now
            lines.append(line.rstrip())
    seconds = time.perf_counter() - start
    answers = [json.loads(file.read_text()) for file in sorted(folder.rglob("result.json"))]
    silent, after = max([*silences, (start + seconds - last, lines[-1])])
    return Ran(seconds, silent, after, process.returncode, lines, answers)


@contextlib.contextmanager
def busy_loops() -> Iterator[None]:
    """Keep every core busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(1.0)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def list_faults(name: str, ran: Ran, bar_s: float, when: str) -> list[str]:
    """Return what a command did wrong, in words; none for one that holds."""
    faults = []
    if ran.code not in (0, 3):
        faults.append(f"exit code {ran.code}: {ran.lines[-1]}")
    if ran.seconds > bar_s:
        faults.append(f"{ran.seconds:.0f} s > {bar_s:.0f} s")
    if ran.silent > SILENT_S and name != "tour":  # LeRobot's loops write their own log to a file
        faults.append(f"silent for {ran.silent:.0f} s after '{ran.silent_after[:60]}'")
    if ran.busy_named != (when == "busy"):
        faults.append("does not name the busy cores" if when == "busy" else "names busy cores on a machine at rest")
    missing = [study for study in command_studies(name, when) if not any(says_something(a, study) for a in ran.answers)]
    return [*faults, *(f"{study} says nothing" for study in missing)]


def command_studies(name: str, when: str) -> tuple[str, ...]:
    """Return the studies whose answers a command leaves."""
    return STOPS[when] if name == "tour" else (name,)


def says_something(answer: dict[str, Any], study: str) -> bool:
    """Return whether a run's answer is one of ``study``, and has the figures that it was run for."""
    if answer["study"] != study:
        return False
    if study == "breakdown":
        return all(one["samples"]["summary"]["interval"] for one in answer["measurements"])
    if study == "compare":
        return all(one["verdict"]["pairs"] >= FEWEST_PAIRS and not one["unjudged"] for one in answer["comparisons"])
    if study == "verify":
        return all(not check["unjudged"] for check in answer["checks"])
    return True


def plan_commands(recipe: Path, *, quick: bool) -> dict[str, tuple[list[str], float]]:
    """Return each command by name, with the seconds that it may take once its policy is there."""
    seconds = 4.0 if quick else 10.0
    verify_s = 20.0 if quick else 60.0
    timed = [*ACT, f"--seconds={seconds:g}"]
    return {
        "breakdown": (["breakdown", *timed], 4 * seconds + 60),
        "compare": (["compare", *timed, "--variant", "kept: memory=kept"], 4 * seconds + 60),
        "verify": (["verify", *ACT, f"--recipe={recipe}", f"--seconds={verify_s:g}"], 3 * verify_s),
        "tour": ([TOUR, "--tiny=true"] if quick else [TOUR], 0.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tour of tiny policies, and shorter commands")
    parser.add_argument("--only", default="", help="these commands alone, such as breakdown,verify")
    asked = parser.parse_args()
    table = Table(box=None, pad_edge=False)
    for title in ("", "beside", "seconds", "bar", "silent for", "faults"):
        table.add_column(title, justify="left" if title in ("", "beside", "faults") else "right")
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as made:
        recipe = Path(made) / "recipe.yaml"
        recipe.write_text(RECIPE)
        commands = plan_commands(recipe, quick=asked.quick)
        chosen = [name for name in commands if name in (asked.only.split(",") if asked.only else commands)]
        for when, beside in (("rest", contextlib.nullcontext()), ("busy", busy_loops())):
            with beside:
                for name in chosen:
                    argv, work_s = commands[name]
                    ran = run(argv, Path(made) / when / name)
                    bar_s = TOUR_S[when] if name == "tour" else work_s + START_S[when]
                    faults = list_faults(name, ran, bar_s, when)
                    left_out = sum(line.startswith("left out:") for line in ran.lines)
                    figures[f"{name}, {when}"] = {
                        "seconds": round(ran.seconds, 1),
                        "bar": bar_s,
                        "silent": round(ran.silent, 1),
                        "left_out": left_out,
                        "faults": faults,
                    }
                    shown = "two loops" if when == "busy" else "nothing"
                    row = (name, shown, f"{ran.seconds:.1f}", f"{bar_s:.0f}", f"{ran.silent:.1f}", "; ".join(faults))
                    table.add_row(*row)
    Console(width=150).print(table)
    holds = not any(one["faults"] for one in figures.values())
    finish({"quick": asked.quick, "cores": os.cpu_count(), **figures}, holds)


if __name__ == "__main__":
    main()
