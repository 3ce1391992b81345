"""From the cells' run folders to one table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from strobe.core.errors import UserError
from strobe.core.kinds import advise
from strobe.core.measure.statistics import summarise
from strobe.core.results.answer import Result
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Machine
from strobe.core.runs import store
from strobe.sweep import results as schema
from strobe.sweep.best import Wish, best
from strobe.sweep.execute import Outcome, read_outcome
from strobe.sweep.grid import Cell, grid_axes, swept_subject
from strobe.sweep.results import Best, Sweep
from strobe.sweep.scaling import scalings
from strobe.version import __version__


def answer(
    study: str,
    cells: Sequence[Cell],
    repeats: int,
    invalid: Mapping[str, str],
    root: Path,
    wishes: Sequence[Wish] = (),
    unkept: Mapping[tuple[str, int], Outcome] | None = None,
) -> Sweep:
    """Return all that the cells under ``root`` show so far; those that have not run are rows as well.

    Args:
        unkept: outcomes of runs that left no folder, by cell key and repeat.
    """
    executions = collect(root, cells, repeats)
    executions |= {place: (outcome, None) for place, outcome in (unkept or {}).items()}
    rows, machines = tabulate(cells, repeats, executions, invalid)
    axes = grid_axes(cells)
    sweep = Sweep(
        strobe_version=__version__,
        of=study,
        title=f"{swept_subject(cells)}: {study} over {', '.join(axis.name for axis in axes)}",
        axes=axes,
        repeats=repeats,
        cells=rows,
        machines=machines,
        scaling=scalings(axes, rows),
        best=[winner for wish in wishes for winner in _best(wish, rows, machines, executions)],
        notes=_notes(machines, executions),
    )
    sweep.findings = [*advise(sweep), *common_findings(executions)]
    return sweep


def _best(wish: Wish, rows: Sequence[schema.Cell], machines: Sequence[Machine], executions: Executions) -> list[Best]:
    """Return the best cell. Unlike machines get one each, because times of two of them cannot be compared."""
    samples: dict[tuple[str, str], list[list[float]]] = {}
    for (key, _), (_, result) in sorted(executions.items()):
        for measurement in result.measurements if result is not None else ():
            samples.setdefault((key, measurement.name), []).append(measurement.samples.values)
    if len(machines) < 2:
        return [best(wish, rows, samples)]
    there = [[row for row in rows if {run.machine for run in row.runs} == {index}] for index in range(len(machines))]
    return [
        best(wish, of_it, samples, f"machine {index} ({machine.device_name})")
        for index, (machine, of_it) in enumerate(zip(machines, there, strict=True), 1)
    ]


def _notes(machines: Sequence[Machine], executions: Executions) -> list[str]:
    notes = []
    if len(machines) > 1:
        differ = dict.fromkeys(reason for other in machines[1:] for reason in unlike(machines[0], other))
        notes.append(
            f"cells ran on unlike machines ({'; '.join(differ)}): no verdict is given between cells of different ones"
        )
    if executions:
        first = min(outcome.started for outcome, _ in executions.values())
        notes.append(f"the oldest of these cells was measured on {first:%Y-%m-%d at %H:%M %Z}")
    results = [result for _, result in executions.values() if result is not None]
    notes += dict.fromkeys(note for result in results for note in result.notes)
    notes += dict.fromkeys(f"Placeholder: {stood}" for result in results for stood in result.subject.stand_ins)
    return notes


# Rules on single runs that a sweep leaves out: its table and its own rules give the answer for all runs together.
SAID_BETTER = ("biggest-part", "backbone-dominates", "backbone-small", "backbone-undecided")

Executions = dict[tuple[str, int], tuple[Outcome, Result | None]]  # by the cell's key and the repeat


def execution_folder(root: Path, cell: Cell, repeat: int) -> Path:
    """Return the folder of an execution of ``cell``, under the sweep's folder."""
    return root / "cells" / f"{cell.key}-{repeat}"


def collect(root: Path, cells: Sequence[Cell], repeats: int) -> Executions:
    """Read the executions that have ended so far. One whose result cannot be read counts as not run."""
    executions: Executions = {}
    for cell in cells:
        for repeat in range(1, repeats + 1):
            folder = execution_folder(root, cell, repeat)
            outcome = read_outcome(folder)
            if outcome is None:
                continue
            result = None
            if outcome.status == "done":
                try:
                    result = store.load(folder)
                except UserError:
                    continue
            executions[cell.key, repeat] = outcome, result
    return executions


def read_cell_outcome(root: Path, cell: Cell, repeat: int) -> Outcome | None:
    """Return the outcome of an execution; None if it has to be run (again)."""
    folder = execution_folder(root, cell, repeat)
    outcome = read_outcome(folder)
    if outcome is not None and outcome.status == "done" and not (folder / store.RESULT).is_file():
        return None
    return outcome


def tabulate(
    cells: Sequence[Cell], repeats: int, executions: Executions, invalid: Mapping[str, str]
) -> tuple[list[schema.Cell], list[Machine]]:
    """Return one row per cell and measurement, also for cells that failed; and the machines, unlike ones apart.

    Args:
        invalid: cell key → why its configuration was refused before anything ran.
    """
    machines: list[Machine] = []

    def machine_index(result: Result | None) -> int | None:
        if result is None:
            return None
        for index, known in enumerate(machines):
            if not unlike(known, result.machine):
                return index
        machines.append(result.machine)
        return len(machines) - 1

    rows = []
    for cell in cells:
        runs, results = [], []
        for repeat in range(1, repeats + 1) if cell.key not in invalid else ():
            folder = f"cells/{cell.key}-{repeat}"
            if (cell.key, repeat) not in executions:
                runs.append(schema.CellRun(repeat=repeat, status="not run", folder=folder))
                continue
            outcome, result = executions[cell.key, repeat]
            runs.append(
                schema.CellRun(
                    repeat=repeat,
                    status=outcome.status,
                    reason=outcome.reason,
                    folder=folder,
                    started=outcome.started,
                    duration_s=outcome.duration_s,
                    machine=machine_index(result),
                    node=outcome.node,
                )
            )
            if result is not None:
                results.append(result)
        failed = next((run for run in runs if run.status != "done"), None)
        status, reason = (failed.status, failed.reason) if failed else ("done", "")
        if cell.key in invalid:
            status, reason = "invalid", invalid[cell.key]
        about = {"key": cell.key, "settings": dict(cell.settings), "status": status, "reason": reason}
        rows.append(schema.Cell(**about, runs=runs, rows=_measured_rows(results)))
    return rows, machines


def unlike(machine: Machine, other: Machine) -> list[str]:
    """Why times of two machines cannot be compared; empty if they can. Threads are a setting, not a machine."""
    gib = 2**30
    pairs = {
        "processor": (machine.cpu, other.cpu),
        "cores": (machine.cores, other.cores),
        "memory": (f"{machine.memory_bytes / gib:.0f} GiB", f"{other.memory_bytes / gib:.0f} GiB"),
        "device": (machine.device_name, other.device_name),
        "system": (machine.system.split(" ")[0], other.system.split(" ")[0]),
        **{name: (machine.versions.get(name), other.versions.get(name)) for name in ("torch", "lerobot", "cuda")},
    }
    return [f"{name}: {a} and {b}" for name, (a, b) in pairs.items() if a != b]


def common_findings(executions: Executions) -> list[Finding]:
    """Return the warnings of single runs, each once, with the number of runs in which it fired."""
    results = [result for _, result in executions.values() if result is not None]
    by_rule: dict[str, list[Finding]] = {}
    for result in results:
        for rule in dict.fromkeys(finding.rule for finding in result.findings):
            by_rule.setdefault(rule, []).append(next(f for f in result.findings if f.rule == rule))
    shown = []
    for fired in by_rule.values():
        first = fired[0]
        if first.rule not in SAID_BETTER:
            runs = f"In {len(fired)} of {len(results)} runs. One of them: {first.found}"
            shown.append(first.model_copy(update={"found": runs, "gain": "", "evidence": {"runs": float(len(fired))}}))
    return shown


def _measured_rows(results: Sequence[Result]) -> list[schema.Row]:
    names = dict.fromkeys(measurement.name for result in results for measurement in result.measurements)
    rows = []
    for name in names:
        having = [result for result in results if any(m.name == name for m in result.measurements)]
        rows.append(_taken_together([result.measurement(name) for result in having], having[0]))
    return rows


def _taken_together(repeats: Sequence[Measurement], result: Result) -> schema.Row:
    first = repeats[0]
    summary = summarise([value for repeat in repeats for value in repeat.samples.values])
    batch = first.traits.batch_size or 1
    gflop = [part.gflop for part in first.components if part.depth == 1 and part.gflop is not None]
    memory = [m for repeat in repeats if (m := repeat.memory.peak_device or repeat.memory.peak_process) is not None]
    live = [repeat.memory.peak_activations for repeat in repeats if repeat.memory.peak_activations is not None]
    judged = next((c for c in result.judged_comparisons() if c.candidate == first.name), None)
    return schema.Row(
        measurement=first.name,
        phase=first.phase,
        batch=batch,
        ms=summary,
        repeats=[repeat.samples.summary.median for repeat in repeats],
        throughput=1e3 * batch / summary.median,
        memory_bytes=max(memory, default=None),
        activation_bytes=max(live, default=None),
        gflop=sum(gflop) if gflop else None,
        parts=_parts(repeats),
        verdict=judged.verdict if judged else None,
        agreement=judged.agreement if judged else None,
    )


def _parts(repeats: Sequence[Measurement]) -> list[schema.PartFigure]:
    paths = dict.fromkeys(tuple(part.path) for part in repeats[0].components)
    figures = []
    for path in paths:
        same = [part for repeat in repeats for part in repeat.components if tuple(part.path) == path]
        figures.append(
            schema.PartFigure(
                path=list(path),
                other=same[0].other,
                ms=statistics.median(value for part in same for value in part.values),
                share=statistics.fmean(part.share for part in same),
            )
        )
    return figures
