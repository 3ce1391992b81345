"""Run a sweep in its folder: which cells have ended and which are to run, and the progress of those."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import TaskID
from rich.table import Table
from typing_extensions import Self

from strobe.core.cli.live import Bar
from strobe.core.errors import UserError, os_error_reason
from strobe.core.measure.memory import available_bytes
from strobe.core.processes.command import CommandLimits
from strobe.sweep import grid
from strobe.sweep.execute import Job, Outcome, read_outcome, run_here, run_on_ray
from strobe.sweep.flags import SweepConfig
from strobe.sweep.grid import Cell, requested_device, swept_subject
from strobe.sweep.table import execution_folder, read_cell_outcome

START_S = 15.0  # a cell's start, where none has shown it yet: imports, building the policy


class CellsLive(Bar):
    """The progress of a sweep: cells done, running and left, and the time that they will take.

    ``cells`` is None if what comes next depends on what has ended.
    """

    def __init__(self, cells: int | None, known: int) -> None:
        super().__init__(1)
        self._cells, self._known = cells, known
        self._done, self._failed = 0, 0
        self._took: list[float] = []
        self._afresh: set[str] = set()
        self._running: dict[tuple[str, int], str] = {}
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        known = f", {self._known} already done" if self._known else ""
        if self._cells is not None:
            self._print(f"{self._cells} runs to go{known}")
        if self.console.is_terminal and self._cells != 0:
            self._start()
            assert self._bar is not None
            self._task = self._bar.add_task("", total=self._cells)
        return self

    def began(self, job: Job, node: str = "") -> None:
        """A cell's process is about to start."""
        self._running[job.key, job.repeat] = f"{job.label}{f' on {node}' if node else ''}"
        self._update("")

    def say(self, job: Job, line: str) -> None:
        """A running cell has printed ``line`` last."""
        self._update(line)

    def report_lost(self, job: Job, why: str) -> None:
        """A cell was lost with its node and waits to run again."""
        self._running.pop((job.key, job.repeat), None)
        self._print(f"lost  {job.label}: {why}; Strobe runs it again")

    def report_ended(self, job: Job, outcome: Outcome) -> None:
        """A cell has ended, whatever became of it."""
        self._running.pop((job.key, job.repeat), None)
        self._done += 1
        self._failed += outcome.status != "done"
        self._took.append(outcome.duration_s)
        if outcome.afresh and outcome.node not in self._afresh:
            self._afresh.add(outcome.node)
            where = f" on {outcome.node}" if outcome.node else ""
            self._print(f"each cell{where} is a process of its own, with imports of its own: {outcome.afresh}")
        reason = f": {outcome.reason}" if outcome.reason else ""
        self._print(f"{self._place()}  {job.label}  {outcome.status}, {outcome.duration_s:.0f} s{reason}")
        self._update("")

    def _place(self) -> str:
        return str(self._done) if self._cells is None else f"{self._done}/{self._cells}"

    def _update(self, line: str) -> None:
        if self._bar is None:
            return
        failed = f", {self._failed} failed" if self._failed else ""
        time_left = ""
        if self._took and self._cells is not None:
            remaining = self._cells - self._done
            seconds = remaining * sum(self._took) / len(self._took) / max(1, len(self._running))
            time_left = f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
        running = "; ".join(self._running.values())
        detail = f" ({line.removeprefix('… ')[:60]})" if line else ""
        self._bar.update(
            self._task,
            completed=self._done,
            description=f"{self._place()} cells{failed}{time_left}; {running}{detail}",
        )

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)


def sweep_name(study: str, cells: Sequence[Cell]) -> str:
    """Return the name of the sweep's folder."""
    return re.sub(r"[^a-z0-9_.]+", "-", f"sweep_{study}_{swept_subject(cells)}".lower())


@contextlib.contextmanager
def lock_sweep(root: Path) -> Iterator[None]:
    """Make the sweep's folder and lock it. Raises UserError if another sweep has it, or it cannot be made."""
    lock = FileLock(root / ".lock", timeout=0)
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise UserError(f"another sweep is running in {root}: wait for it, or name another --sweep_dir") from None
    except OSError as error:
        raise UserError(f"cannot use {root}: {os_error_reason(error)}; name another folder with --sweep_dir") from None
    with lock:
        yield


def launch(config: SweepConfig, invalid: dict[str, str], root: Path) -> tuple[bool, dict[tuple[str, int], Outcome]]:
    """Run the sweep's cells that have not ended yet.

    Returns:
        False if Ctrl-C stopped it; and the outcomes of runs that could not be saved, by cell key and repeat.
    """
    gib = config.memory_gib
    allowed = int(gib * 2**30) if gib is not None else int(0.9 * available_bytes())
    limits = CommandLimits(config.timeout, allowed)
    jobs, known = [], []
    unsaved: dict[tuple[str, int], Outcome] = {}
    for cell, repeat in grid.shuffle_in_blocks(
        [c for c in config.cells if c.key not in invalid], config.repeats, config.order_seed
    ):
        if (outcome := _earlier_outcome(config, root, cell, repeat)) is not None:
            known.append(outcome)
            continue
        folder = execution_folder(root, cell, repeat)
        on_cpu = requested_device(cell.argv) == "cpu"
        jobs.append(Job(cell.key, repeat, config.study, cell.argv, cell.label, folder, limits, on_cpu=on_cpu))
    with CellsLive(len(jobs), len(known)) as live:
        try:
            for job, outcome in _launcher(config, jobs, live):
                live.report_ended(job, outcome)
                if read_outcome(job.folder) is None:
                    unsaved[job.key, job.repeat] = outcome
        except KeyboardInterrupt:
            return False, unsaved
    return True, unsaved


def _earlier_outcome(config: SweepConfig, root: Path, cell: Cell, repeat: int) -> Outcome | None:
    """Return the outcome of an execution that is not run again; None for one that is to run."""
    outcome = None if config.fresh else read_cell_outcome(root, cell, repeat)
    return outcome if outcome is not None and (outcome.status == "done" or not config.retry) else None


def _launcher(config: SweepConfig, jobs: Sequence[Job], live: CellsLive) -> Iterator[tuple[Job, Outcome]]:
    return run_on_ray(jobs, live, config.ray.address) if config.launcher == "ray" else run_here(jobs, live)


def dry_run(config: SweepConfig, invalid: dict[str, str], root: Path, flags: Mapping[str, object]) -> None:
    """Print the runs in their order, and how long they will take.

    Args:
        flags: cell key → the study's config.
    """
    cells = config.cells
    expected, basis = _estimate_durations(config, cells, root, flags)
    table = Table(box=None, pad_edge=False, show_edge=False)
    for title in ("", "cell", "repeat", "state", "time"):
        table.add_column(title, justify="right" if title in ("", "repeat", "time") else "left")
    total, unknown, waiting = 0.0, False, 0
    for place, (cell, repeat) in enumerate(grid.shuffle_in_blocks(cells, config.repeats, config.order_seed), 1):
        if cell.key in invalid:
            state, seconds = f"refused: {invalid[cell.key]}", 0.0
        elif (outcome := _earlier_outcome(config, root, cell, repeat)) is not None:
            state, seconds = f"ended before: {outcome.status}", 0.0
        else:
            state, seconds = "to run", expected.get(cell.key)
            waiting += 1
        unknown |= seconds is None
        total += seconds or 0.0
        shown = "?" if seconds is None else f"{seconds:,.0f} s" if seconds else ""
        table.add_row(str(place), cell.label, str(repeat), state, shown)
    console = Console()
    console.print(table, width=max(console.width, 120))
    took = f"about {total / 60:.1f} min, {basis}"
    if unknown:
        took = "in an unknown time: no cell has run, and --iterations sets no limit of time (--seconds does)"
    print(f"\n{len(cells)} configurations × {config.repeats}: {waiting} runs to go{f', {took}' if waiting else ''}")
    print(f"folder   {root}")


def _estimate_durations(
    config: SweepConfig, cells: Sequence[Cell], root: Path, flags: Mapping[str, Any]
) -> tuple[dict[str, float | None], str]:
    """Return the seconds of each cell, and in words where they come from."""
    took: dict[str, float] = {}
    for cell in cells:
        for repeat in range(1, config.repeats + 1):
            outcome = read_cell_outcome(root, cell, repeat)
            if outcome is not None and outcome.status == "done":
                took[cell.key] = outcome.duration_s
    if took:
        usual = median(took.values())
        return {cell.key: took.get(cell.key, usual) for cell in cells}, "by the cells that have run"
    expected: dict[str, float | None] = {}
    for cell in cells:
        own = flags.get(cell.key)
        if own is None or (own.iterations is not None and own.seconds is None):
            expected[cell.key] = None
        else:
            expected[cell.key] = START_S + len(getattr(own, "phases", ["one"])) * (own.seconds or 30.0)
    return expected, f"by --seconds, and {START_S:.0f} s a cell to start; looks and counting come on top"
