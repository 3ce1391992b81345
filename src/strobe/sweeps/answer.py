"""The result of a sweep, from its cells' run folders: the table, how figures grow, the best cells, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import strobe
from strobe.kinds import advise
from strobe.results.subject import Machine
from strobe.results.sweep import Best, Cell, Sweep
from strobe.sweeps import grid
from strobe.sweeps.best import Wish, best
from strobe.sweeps.execute import Outcome
from strobe.sweeps.scaling import scalings
from strobe.sweeps.table import Found, collect, common_findings, tabulate, unlike


def answer(
    study: str,
    cells: Sequence[grid.Cell],
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
    found = collect(root, cells, repeats)
    found |= {place: (outcome, None) for place, outcome in (unkept or {}).items()}
    rows, machines = tabulate(cells, repeats, found, invalid)
    axes = grid.axes_of(cells)
    sweep = Sweep(
        strobe_version=strobe.__version__,
        of=study,
        title=f"{grid.subject_of(cells)}: {study} over {', '.join(axis.name for axis in axes)}",
        axes=axes,
        repeats=repeats,
        cells=rows,
        machines=machines,
        scaling=scalings(axes, rows),
        best=[one for wish in wishes for one in _best(wish, rows, machines, found)],
        notes=_notes(machines, found),
    )
    sweep.findings = [*advise(sweep), *common_findings(found)]
    return sweep


def _best(wish: Wish, rows: Sequence[Cell], machines: Sequence[Machine], found: Found) -> list[Best]:
    """Return the best cell. Unlike machines get one each, since times of two of them cannot be compared."""
    samples: dict[tuple[str, str], list[list[float]]] = {}
    for (key, _), (_, result) in sorted(found.items()):
        for measurement in result.measurements if result is not None else ():
            samples.setdefault((key, measurement.name), []).append(measurement.samples.values)
    if len(machines) < 2:
        return [best(wish, rows, samples)]
    there = [[row for row in rows if {run.machine for run in row.runs} == {index}] for index in range(len(machines))]
    return [
        best(wish, of_it, samples, f"machine {index} ({machine.device_name})")
        for index, (machine, of_it) in enumerate(zip(machines, there, strict=True), 1)
    ]


def _notes(machines: Sequence[Machine], found: Found) -> list[str]:
    notes = []
    if len(machines) > 1:
        differ = dict.fromkeys(reason for other in machines[1:] for reason in unlike(machines[0], other))
        notes.append(
            f"cells ran on unlike machines ({'; '.join(differ)}): no verdict is given between cells of different ones"
        )
    if found:
        first = min(outcome.started for outcome, _ in found.values())
        notes.append(f"the oldest of these cells was measured on {first:%Y-%m-%d at %H:%M %Z}")
    results = [result for _, result in found.values() if result is not None]
    notes += dict.fromkeys(note for result in results for note in result.notes)
    notes += dict.fromkeys(f"Stand-in: {stood}" for result in results for stood in result.subject.stand_ins)
    return notes
