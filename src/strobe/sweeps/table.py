"""From the cells' run folders to one table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from strobe.errors import UserError
from strobe.measure.statistics import summarise
from strobe.results import sweep as schema
from strobe.results.answer import Result
from strobe.results.finding import Finding
from strobe.results.measurement import Measurement
from strobe.results.subject import Machine
from strobe.runs import store
from strobe.sweeps.execute import Outcome, outcome_of
from strobe.sweeps.grid import Cell

# Rules on single runs that a sweep leaves out: its table and its own rules give the answer for all runs together.
SAID_BETTER = ("biggest-part", "backbone-dominates", "backbone-small", "backbone-undecided", "transformer-dominates")

Found = dict[tuple[str, int], tuple[Outcome, Result | None]]  # by the cell's key and the repeat


def folder_of(root: Path, cell: Cell, repeat: int) -> Path:
    """Return the folder of an execution of ``cell``, under the sweep's folder."""
    return root / "cells" / f"{cell.key}-{repeat}"


def collect(root: Path, cells: Sequence[Cell], repeats: int) -> Found:
    """Read the executions that have ended so far. One whose result cannot be read counts as not run."""
    found: Found = {}
    for cell in cells:
        for repeat in range(1, repeats + 1):
            folder = folder_of(root, cell, repeat)
            outcome = outcome_of(folder)
            if outcome is None:
                continue
            result = None
            if outcome.status == "done":
                try:
                    result = store.load(folder)
                except UserError:
                    continue
            found[cell.key, repeat] = outcome, result
    return found


def ended(root: Path, cell: Cell, repeat: int) -> Outcome | None:
    """Return the outcome of an execution; None if it has to be run (again)."""
    folder = folder_of(root, cell, repeat)
    outcome = outcome_of(folder)
    if outcome is not None and outcome.status == "done" and not (folder / store.RESULT).is_file():
        return None
    return outcome


def tabulate(
    cells: Sequence[Cell], repeats: int, found: Found, invalid: Mapping[str, str]
) -> tuple[list[schema.Cell], list[Machine]]:
    """Return one row per cell and measurement, also for cells that failed; and the machines, unlike ones apart.

    Args:
        invalid: cell key → why its configuration was refused before anything ran.
    """
    machines: list[Machine] = []

    def machine_of(result: Result | None) -> int | None:
        if result is None:
            return None
        for index, known in enumerate(machines):
            if not unlike(known, result.machine):
                return index
        machines.append(result.machine)
        return len(machines) - 1

    rows = []
    for cell in cells:
        if cell.key in invalid:
            rows.append(_row(cell, "invalid", invalid[cell.key], [], []))
            continue
        runs, results = [], []
        for repeat in range(1, repeats + 1):
            folder = f"cells/{cell.key}-{repeat}"
            if (cell.key, repeat) not in found:
                runs.append(schema.CellRun(repeat=repeat, status="not run", folder=folder))
                continue
            outcome, result = found[cell.key, repeat]
            runs.append(
                schema.CellRun(
                    repeat=repeat,
                    status=outcome.status,
                    reason=outcome.reason,
                    folder=folder,
                    started=outcome.started,
                    duration_s=outcome.duration_s,
                    machine=machine_of(result),
                    node=outcome.node,
                )
            )
            if result is not None:
                results.append(result)
        failed = next((run for run in runs if run.status != "done"), None)
        status, reason = (failed.status, failed.reason) if failed else ("done", "")
        rows.append(_row(cell, status, reason, runs, _measured(results)))
    return rows, machines


def unlike(one: Machine, other: Machine) -> list[str]:
    """Why times of two machines cannot be compared; empty if they can. Threads are a setting, not a machine."""
    gib = 2**30
    pairs = {
        "processor": (one.cpu, other.cpu),
        "cores": (one.cores, other.cores),
        "memory": (f"{one.memory_bytes / gib:.0f} GiB", f"{other.memory_bytes / gib:.0f} GiB"),
        "device": (one.device_name, other.device_name),
        "system": (one.system.split(" ")[0], other.system.split(" ")[0]),
        **{name: (one.versions.get(name), other.versions.get(name)) for name in ("torch", "lerobot", "cuda")},
    }
    return [f"{name}: {a} and {b}" for name, (a, b) in pairs.items() if a != b]


def common_findings(found: Found) -> list[Finding]:
    """Return the warnings of single runs, each once, with the number of runs in which it fired."""
    results = [result for _, result in found.values() if result is not None]
    by_rule: dict[str, list[Finding]] = {}
    for result in results:
        for rule in dict.fromkeys(finding.rule for finding in result.findings):
            by_rule.setdefault(rule, []).append(next(f for f in result.findings if f.rule == rule))
    shown = []
    for fired in by_rule.values():
        first = fired[0]
        if first.rule not in SAID_BETTER:
            runs = f"In {len(fired)} of {len(results)} runs. One of them: {first.seen}"
            shown.append(first.model_copy(update={"seen": runs, "gain": "", "evidence": {"runs": float(len(fired))}}))
    return shown


def _row(
    cell: Cell, status: schema.Status, reason: str, runs: list[schema.CellRun], rows: list[schema.Row]
) -> schema.Cell:
    return schema.Cell(key=cell.key, settings=dict(cell.settings), status=status, reason=reason, runs=runs, rows=rows)


def _measured(results: Sequence[Result]) -> list[schema.Row]:
    names = dict.fromkeys(measurement.name for result in results for measurement in result.measurements)
    rows = []
    for name in names:
        having = [result for result in results if any(m.name == name for m in result.measurements)]
        rows.append(_taken_together([result.measurement(name) for result in having], having[0]))
    return rows


def _taken_together(repeats: Sequence[Measurement], result: Result) -> schema.Row:
    first = repeats[0]
    summary = summarise([value for one in repeats for value in one.samples.values])
    batch = first.traits.batch_size or 1
    gflop = [part.gflop for part in first.components if part.depth == 1 and part.gflop is not None]
    memory = [m for one in repeats if (m := one.memory.peak_device or one.memory.peak_process) is not None]
    live = [one.memory.peak_activations for one in repeats if one.memory.peak_activations is not None]
    judged = next((c for c in result.judged() if c.candidate == first.name), None)
    return schema.Row(
        measurement=first.name,
        phase=first.phase,
        batch=batch,
        ms=summary,
        repeats=[one.samples.summary.median for one in repeats],
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
        same = [part for one in repeats for part in one.components if tuple(part.path) == path]
        figures.append(
            schema.PartFigure(
                path=list(path),
                other=same[0].other,
                ms=statistics.median(value for part in same for value in part.values),
                share=statistics.fmean(part.share for part in same),
            )
        )
    return figures
