"""How does Strobe grow: with the runs of a folder, with the length of a rollout, with the cells of a sweep?

Each command runs in a process of its own, whose wall time, CPU time and largest memory are taken. n, 2n and 4n of

- runs: copies of the saved runs in docs/examples, at other times. `strobe report FOLDER` for the first time (no
  summaries), again, and `strobe history FOLDER`. Bars at the most runs: 5 s for the first index of 1,000, 1 s again,
  5 s for the history.
- minutes of a rollout: made-up events at 30 Hz with two cameras and six joints, `strobe rollout --events=FILE`. Bars
  for an hour: 30 s, 1 GB beyond what importing torch and LeRobot takes, a page of 5 MB.
- cells of a sweep: batch sizes × cameras of a tiny ACT. `strobe sweep … --dry-run` plans them; `strobe report` makes
  the table and the page of a sweep whose cells are copies of those in docs/examples. Bars at the most cells: 30 s for
  the plan, which imports LeRobot, 10 s for table and page, a page of 5 MB.

    python benchmarks/scale.py                 1,000 runs, an hour, 1,000 cells
    python benchmarks/scale.py --runs=10000    more of them
    python benchmarks/scale.py --quick         200 runs, 15 minutes, 200 cells: the same bars

Bars are of CPU time, since wall time depends on what else the machine does. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from common.shared import finish

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
MADE = str(
    Path(__file__).parent / "common" / "made_rollout.py"
)  # not imported: a large parent makes a child look large
FIRST_S, AGAIN_S, HISTORY_S, ROLLOUT_S = 5.0, 1.0, 5.0, 30.0  # of CPU; the first index: of 1,000 runs
ROLLOUT_GB, PAGE_MB = 1.0, 5.0
PLAN_S, TABLE_S = 30.0, 10.0
CAMERAS = 10  # of the sweep's cells


def measure_command(*arguments: str, code: int = 0) -> dict[str, float]:
    """Run Strobe, or Python where the first argument is ``-c``; return its seconds and its largest memory.

    Args:
        code: the exit code of a run that did its work.
    """
    own = list(arguments) if arguments[0] in ("-c", MADE) else ["-m", "strobe", *arguments]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *own], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **ENVIRONMENT}
    )
    _, errors = process.communicate()
    wall = time.monotonic() - began
    if process.returncode != code:
        sys.exit(f"{own} ended with {process.returncode}: {errors.decode()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # The largest of all children so far: of one that is smaller than those before it nothing is known.
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "max_mb": round(after.ru_maxrss / 1024)}


ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def copies(folder: Path, count: int) -> None:
    """Fill ``folder`` with ``count`` runs, an hour after one another, which have their pages and no summaries."""
    answers = [json.loads(file.read_text()) for file in sorted(EXAMPLES.glob("*/result.json"))]
    for number in range(count):
        answer = dict(answers[number % len(answers)])
        answer["started"] = (datetime.fromisoformat(answer["started"]) + timedelta(hours=number)).isoformat()
        run = folder / f"run-{number:05d}"
        run.mkdir(parents=True)
        (run / "result.json").write_text(json.dumps(answer, indent=1))
        (run / "report.html").write_text("")


def measure_runs(work: Path, count: int) -> dict[str, dict[str, float]]:
    folder = work / f"runs-{count}"
    copies(folder, count)
    figures = {
        "first": measure_command("report", str(folder)),
        "again": measure_command("report", str(folder)),
        "history": measure_command("history", str(folder), "--output_dir=null"),
    }
    figures["again"]["page_mb"] = round((folder / "index.html").stat().st_size / 1e6, 2)
    return figures


def measure_rollout(work: Path, minutes: float) -> dict[str, float]:
    file = work / f"{minutes:g}.events"
    measure_command(MADE, str(file), str(60 * minutes))
    figures = measure_command(
        "rollout", f"--events={file}", f"--output_dir={work / 'rollouts'}", code=1
    )  # of a killed run
    page = max((work / "rollouts").glob("*/report.html"), key=lambda page: page.stat().st_mtime)
    return figures | {"events_mb": round(file.stat().st_size / 1e6), "page_mb": round(page.stat().st_size / 1e6, 2)}


def measure_sweep(work: Path, count: int) -> dict[str, dict[str, float]]:
    sizes, cameras = [str(size) for size in range(1, count // CAMERAS + 1)], [str(n) for n in range(1, CAMERAS + 1)]
    grid = [f"--grid=batch_size={','.join(sizes)}", f"--grid=cameras={','.join(cameras)}"]
    tiny = ["--policy.type=act", "--policy.size=tiny"]
    planned = measure_command("sweep", "breakdown", *tiny, *grid, f"--sweep_dir={work / 'sweep'}", "--dry-run")
    sweep = json.loads((EXAMPLES / "act-variations" / "result.json").read_text())
    done = [cell for cell in sweep["cells"] if cell["status"] == "done"]
    sweep["axes"] = [
        {"name": "batch_size", "values": sizes, "numbers": [float(size) for size in sizes], "unit": "samples"},
        {"name": "cameras", "values": cameras, "numbers": [float(each) for each in cameras], "unit": "cameras"},
    ]
    places = [{"batch_size": size, "cameras": each} for size in sizes for each in cameras]
    sweep["cells"] = [
        done[number % len(done)] | {"key": f"{number:016x}", "settings": settings}
        for number, settings in enumerate(places)
    ]
    folder = work / f"cells-{count}"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(sweep))
    shown = measure_command("report", str(folder))
    return {"plan": planned, "page": shown | {"page_mb": round((folder / "report.html").stat().st_size / 1e6, 2)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    runs, minutes, cells = (200, 15.0, 200) if arguments.quick else (arguments.runs, arguments.minutes, arguments.cells)
    figures: dict[str, Any] = {"runs": {}, "rollout_minutes": {}, "cells": {}}
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for count in (runs // 4, runs // 2, runs):
            figures["runs"][count] = measure_runs(work, count)
            print(f"{count:,} runs: {figures['runs'][count]}", flush=True)
        for count in (cells // 4, cells // 2, cells):
            figures["cells"][count] = measure_sweep(work, count)
            print(f"{count:,} cells: {figures['cells'][count]}", flush=True)
        imported = measure_command("-c", "import strobe.rollout.run")
        figures["imported"] = imported
        for length in (minutes / 4, minutes / 2, minutes):
            figures["rollout_minutes"][length] = measure_rollout(work, length)
            print(f"{length:g} minutes: {figures['rollout_minutes'][length]}", flush=True)
    of_most, longest, widest = figures["runs"][runs], figures["rollout_minutes"][minutes], figures["cells"][cells]
    missed = [
        what
        for what, held in {
            f"first index in {FIRST_S:g} s for 1,000 runs": of_most["first"]["cpu_s"] <= FIRST_S * max(1, runs / 1000),
            f"index again in {AGAIN_S:g} s": of_most["again"]["cpu_s"] <= AGAIN_S,
            f"history in {HISTORY_S:g} s": of_most["history"]["cpu_s"] <= HISTORY_S,
            f"rollout in {ROLLOUT_S:g} s": longest["cpu_s"] <= ROLLOUT_S,
            f"rollout in {ROLLOUT_GB:g} GB": longest["max_mb"] - imported["max_mb"] <= 1000 * ROLLOUT_GB,
            f"page of {PAGE_MB:g} MB": max(longest["page_mb"], widest["page"]["page_mb"]) <= PAGE_MB,
            f"plan of a sweep in {PLAN_S:g} s": widest["plan"]["cpu_s"] <= PLAN_S,
            f"table of a sweep in {TABLE_S:g} s": widest["page"]["cpu_s"] <= TABLE_S,
        }.items()
        if not held
    ]
    finish({**figures, "missed": missed}, holds=not missed)


if __name__ == "__main__":
    main()
