"""Measure the price of a sweep for a cell, beyond the cell itself.

Bars: at most 0.2 s beyond process start and model build; a cell's own start, model build included, in at most 1 s after
the first; twelve cells of a tiny ACT in at most 40 s.

Runs a real sweep of tiny cells and adds up, per cell, everything that is the sweep's own doing: checking the cell's
flags, keeping its result, noticing that its process has ended and starting the next, and its row of the answer. What is
paid once however many cells there are (the driver's imports, the report) is shown beside it. A cell's start is from
its process's begin to where it begins to measure: imports, flags, the policy.

Cells are forked from a server that has done their imports (on Linux); `forked_cells.py` shows whether that changes what
a cell measures.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from common.shared import finish
from rich.console import Console
from rich.table import Table

from strobe.commands import breakdown
from strobe.core.cli.live import Live
from strobe.core.cli.runner import finish as finish_study
from strobe.core.kinds import page
from strobe.core.runs import store
from strobe.sweep import command as sweep
from strobe.sweep.execute import Outcome, read_outcome, write_outcome
from strobe.sweep.run import launch
from strobe.sweep.table import answer, execution_folder

BAR_S = 0.2
START_BAR_S = 1.0
COMMAND_BAR_S = 40.0  # of twelve cells
FLAGS = ["--policy.type=act", "--policy.size=tiny", "--iterations=2", "--skip_counting"]


def keeping(root: Path, repeats: int) -> float:
    """Seconds that a cell's process spends on keeping its result, once the study has ended (median)."""
    config = breakdown.read(FLAGS)
    with Live() as live:
        found = breakdown.study(config, live)
    took = []
    for number in range(repeats):
        folder = root / f"kept-{number}"
        start = time.perf_counter()
        trace = finish_study(found, FLAGS, time.monotonic())
        store.save(found.result, folder, trace)
        write_outcome(folder, Outcome(status="done", started=found.result.started, duration_s=0))
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 cells instead of 12: under a minute on an idle machine")
    quick = parser.parse_args().quick
    count = 3 if quick else 12
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        asked = ["breakdown", *FLAGS, f"--grid=seed={','.join(str(seed) for seed in range(count))}"]
        config = sweep.read(asked)
        sweep.check_cells(config.study, config.cells)  # brings LeRobot in, once
        once = {"the driver's start": time.time() - psutil.Process().create_time()}

        start = time.perf_counter()
        config = sweep.read(asked)
        study, cells = config.study, config.cells
        invalid, _ = sweep.check_cells(study, cells)
        checking = (time.perf_counter() - start) / count
        assert not invalid

        start = time.perf_counter()
        kept = keeping(root, 10)
        aside = time.perf_counter() - start  # not the sweep's

        start = time.perf_counter()
        complete, _ = launch(config, invalid, root)
        assert complete
        whole = time.perf_counter() - start
        order = sorted((execution_folder(root, cell, 1) for cell in cells), key=lambda folder: _outcome(folder).started)
        # From the cell's last write but one (its result) to the start of the next cell's process.
        starts = [(store.load(folder).started - _outcome(folder).started).total_seconds() for folder in order]
        gaps = [
            _outcome(following).started.timestamp() - (folder / store.RESULT).stat().st_mtime
            for folder, following in itertools.pairwise(order)
        ]

        start = time.perf_counter()
        found = answer(study, cells, 1, invalid, root)
        answered = (time.perf_counter() - start) / count
        start = time.perf_counter()
        store.save(found, root)
        store.replace(root / store.REPORT, page(found).encode())
        once["report"] = time.perf_counter() - start
        once["the first cell's start"] = starts[0]
        command = time.time() - psutil.Process().create_time() - aside

    parts = {
        "checking its flags": checking,
        "keeping its result": kept,
        "from its end to the next one's start": statistics.median(gaps),
        "its row of the answer": answered,
    }
    total = sum(parts.values())
    table = Table("per cell", "s", title=f"{count} cells, {whole / count:.1f} s each in all")
    for name, seconds in parts.items():
        table.add_row(name, f"{seconds:.3f}")
    table.add_row("all of it", f"{total:.3f}", style="bold")
    table.add_section()
    for name, seconds in once.items():
        table.add_row(f"once: {name}", f"{seconds:.3f}")
    table.add_section()
    table.add_row("a later cell's start, median", f"{statistics.median(starts[1:]):.3f}")
    table.add_row("the same, most", f"{max(starts[1:]):.3f}")
    table.add_row("all of the command", f"{command:.1f}", style="bold")
    Console().print(table)
    figures = {
        "overhead_s": total,
        "start_s": statistics.median(starts[1:]),
        "start_most_s": max(starts[1:]),
        "command_s": command,
        "cell_s": whole / count,
        "cells": count,
        "parts": parts,
        "once": once,
    }
    bar = COMMAND_BAR_S if count == 12 else float("inf")
    finish(figures, total <= BAR_S and statistics.median(starts[1:]) <= START_BAR_S and command <= bar)


def _outcome(folder: Path) -> Outcome:
    found = read_outcome(folder)
    assert found is not None, folder
    return found


if __name__ == "__main__":
    main()
