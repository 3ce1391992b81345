"""Sweep → document: the best cell and how the figures grow first, then every cell, whatever became of it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from strobe.core.report import frame
from strobe.core.report.document import Column, Columns, Document, Row, Section, Table, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.sweep import sweep_plots
from strobe.sweep.results import Cell, Scaling, Sweep
from strobe.sweep.sweep_cells import cells, cells_in_grid_order, is_best, label, shorten

FITS = 4  # fits of time along an axis in the opening
NAMED = 2  # failed cells that an opening sentence names; the table has them all


def outline(sweep: Sweep, _depth: int | None = None) -> Document:
    """Return the document of a sweep."""
    sections = [Section("cells", "Cells", cells(sweep), _describe_grid(sweep))]
    if sweep.scaling:
        sections.append(Section("scaling", "How it grows", scaling(sweep), _describe_scaling(sweep)))
    if any(cell.status != "done" for cell in sweep.cells):
        sections.append(Section("failures", "Cells without a result", failures(sweep)))
    if len(sweep.machines) > 1:
        about = (
            "Strobe refuses verdicts between cells of unlike machines, since the difference may come from the machines."
        )
        sections.append(Section("machines", "Machines", machines(sweep), [about]))
    return frame.document(
        sweep,
        answers(sweep),
        sections,
        kind=f"sweep of {sweep.of}",
        banner=_banner(sweep),
        facts=_facts(sweep),
        raw={"Machines": [machine.model_dump(mode="json") for machine in sweep.machines]},
    )


def plots(sweep: Sweep, _depth: int | None = None) -> Plots:
    """Return the plots of a sweep, all beside the table of its cells."""
    return {"cells": sweep_plots.plots(sweep)}


def answers(sweep: Sweep) -> list[str]:
    """Return the best cells, then how time grows (the table has memory as well), then what became of the cells."""
    grows = [fit.sentence for fit in sweep.scaling if fit.figure == "time"][:FITS]
    return [*(best.sentence for best in sweep.best), *grows, *_describe_outcomes(sweep)]


def _describe_outcomes(sweep: Sweep) -> Iterator[str]:
    done = sum(cell.status == "done" for cell in sweep.cells)
    count = len(sweep.cells)
    if not count:
        yield "The sweep has no cells."
    elif done == count:
        yield "The only cell is done." if count == 1 else f"All {count:,} cells are done."
    else:
        yield f"{done:,} of {units.count(count, 'cell')} {'is' if done == 1 else 'are'} done."
    for status in dict.fromkeys(cell.status for cell in cells_in_grid_order(sweep) if cell.status != "done"):
        failed = [cell for cell in cells_in_grid_order(sweep) if cell.status == status]
        reasons = {cell.reason for cell in failed}
        shared = _bracket_reason(failed[0].reason) if len(reasons) == 1 else ""
        named = [label(sweep, cell) + ("" if shared else _bracket_reason(cell.reason)) for cell in failed[:NAMED]]
        more = [f"and {len(failed) - NAMED:,} more"] if len(failed) > NAMED else []
        yield f"{len(failed):,} {status}: {'; '.join([*named, *more])}{shared}."


def _bracket_reason(reason: str) -> str:
    return f" ({shorten(reason, 120)})" if reason else ""


def scaling(sweep: Sweep) -> Table:
    """Return every fit: the exponent, what one more unit adds, and what is there at zero."""
    level = next((fit.interval.level for fit in sweep.scaling if fit.interval is not None), 0.95)
    columns = [
        *heads("<Along | <Figure | <Measurement | Exponent"),
        Column(f"{100 * level:.4g} % interval"),
        *heads("One more adds | Interval of it | Fixed part | Values | Groups | <Shape"),
    ]
    rows = []
    for fit in sweep.scaling:
        exponent, slope, fixed = fit.interval, fit.slope_interval, _amount(fit, fit.fixed)
        per, unit = _readable_axis_step(fit), fit.unit
        more = None
        if fit.slope is not None:
            more = f"{_amount(fit, fit.slope * per)} per {unit.removesuffix('s') if per == 1 else f'{per:,} {unit}'}"
        cells: list[str | None] = [fit.axis, fit.figure, fit.measurement]
        cells += [units.ms(fit.exponent), units.span(exponent), more]
        cells += [slope and f"{_amount(fit, slope.low * per)} to {_amount(fit, slope.high * per)}", fixed]
        cells += [f"{fit.points:,}", f"{fit.groups:,}", "neither a power nor a line" if fit.curved else None]
        rows.append(Row(cells))
    return Table(columns, rows).drop_empty_columns()


def _readable_axis_step(fit: Scaling) -> int:
    """Return as many units of the axis as make the slope readable: one pixel adds nanoseconds."""
    least = 0.01 if fit.figure == "time" else 1
    return next((n for n in (1, 1000) if abs(fit.slope or 0.0) * n >= least), 1_000_000)


def _amount(fit: Scaling, value: float | None) -> str | None:
    if value is None or not math.isfinite(value):
        return None
    if fit.figure != "time":
        return units.size(round(value))
    return f"{units.ms(value, units.digits(value) - 1)} ms"


def _describe_scaling(sweep: Sweep) -> list[str]:
    about = ["Figure ∝ axis ^ exponent, with all other settings fixed. 1: in proportion; 0: independent."]
    if any(fit.interval is None for fit in sweep.scaling):
        about.append("A fit over two values of an axis has no interval: its shape could not be tested.")
    return about


def failures(sweep: Sweep) -> Table:
    """Return every cell without a whole result, and why."""

    def folder(cell: Cell) -> str | None:
        return next((run.folder or None for run in cell.runs if run.status == cell.status), None)

    columns: Columns[Cell] = [
        words("Cell", lambda cell: label(sweep, cell)),
        words("Status", lambda cell: cell.status),
        words("Reason", lambda cell: cell.reason or None),
        words("Folder", folder),
    ]
    failed = [cell for cell in cells_in_grid_order(sweep) if cell.status != "done"]
    return table(failed, columns).drop_empty_columns()


def machines(sweep: Sweep) -> Table:
    """Return the machines that ran cells."""
    rows = []
    for index, machine in enumerate(sweep.machines):
        runs = [run for cell in sweep.cells for run in cell.runs if run.machine == index]
        nodes = ", ".join(sorted({run.node for run in runs if run.node})) or None
        rows.append(Row([str(index + 1), frame.machine(machine), frame.ceiling(machine), nodes, f"{len(runs):,}"]))
    return Table(heads("<Machine | <What it is | <Ceiling | <Nodes | Runs"), rows).drop_empty_columns()


def _banner(sweep: Sweep) -> str | None:
    if sweep.status == "complete":
        return None
    remaining = sum(cell.status == "not run" for cell in sweep.cells)
    return f"Interrupted: this sweep was stopped before it was done, {units.count(remaining, 'cell')} not run."


def _describe_grid(sweep: Sweep) -> list[str]:
    grid = " × ".join(f"{axis.name} ({len(axis.values)})" for axis in sweep.axes)
    repeats = f"{sweep.repeats} repeats of each, taken together" if sweep.repeats > 1 else ""
    text = ["; ".join(filter(None, [grid, repeats]))] if grid or repeats else []
    if any(is_best(sweep, cell, row) for cell in sweep.cells for row in cell.rows):
        text.append("Bold: the best by --best.")
    return text


def _facts(sweep: Sweep) -> list[tuple[str, str | None]]:
    only = sweep.machines[0] if len(sweep.machines) == 1 else None
    several = f"{len(sweep.machines)} unlike ones" if sweep.machines else None
    return [
        ("Machine", frame.machine(only) if only else several),
        ("Ceiling", frame.ceiling(only) if only else None),
        ("Power", frame.power(only) if only else None),
        ("Versions", frame.versions(sweep, only)),
    ]
