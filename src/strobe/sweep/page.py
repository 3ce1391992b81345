"""Sweep → document: the best configuration and how the figures grow, then every configuration, failed ones too."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator

from strobe.core.report import frame
from strobe.core.report.document import Column, Columns, Document, Row, Section, Table, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.sweep import sweep_plots
from strobe.sweep.results import Cell, Scaling, Sweep
from strobe.sweep.sweep_cells import cells, cells_in_grid_order, is_best, label, shorten, steps

FITS = 4  # fits of time along an axis in the opening
NAMED = 2  # failed configurations that an opening sentence names; the table has them all


def outline(sweep: Sweep, _depth: int | None = None) -> Document:
    """Return the document of a sweep."""
    sections = [Section("cells", "Configurations", cells(sweep), _describe_grid(sweep))]
    if sweep.scaling:
        sections.append(Section("scaling", "How it grows", scaling(sweep), _describe_scaling(sweep)))
    if any(cell.status != "done" for cell in sweep.cells):
        sections.append(Section("failures", "Configurations without a result", failures(sweep)))
    if len(sweep.machines) > 1:
        about = "Strobe refuses verdicts between configurations of unlike machines: the machines may differ."
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
    """Return the plots of a sweep, all next to the table of its cells."""
    return {"cells": sweep_plots.plots(sweep)}


def answers(sweep: Sweep) -> list[str]:
    """Return the best configuration or how time grows, what comes next, then the other fits and what failed."""
    fits = [fit for fit in sweep.scaling if fit.figure == "time"]
    ignored = [line for fit in fits if fit.effect == "ignored" for line in _describe_ignored(fit)]
    shown = [fit for fit in fits if fit.effect != "ignored"]
    grows = [units.capital(line) for fit in shown for line in re.split(r"(?<=\.) ", fit.sentence)][: 2 * FITS]
    best = [line for each in sweep.best for line in (each.sentence, *each.details)]
    best += _describe_chain(sweep)
    outcomes = list(_describe_outcomes(sweep))
    decision = [*ignored, *best, *grows] or list(_describe_range(sweep))
    if sum(cell.status == "done" for cell in sweep.cells) == len(sweep.cells):
        return [*decision, *outcomes]
    retry = "" if any(cell.status == "not run" for cell in sweep.cells) else " --retry"
    following = [f"Next: {shlex.join(sweep.command)}{retry}"] if sweep.command else []
    return [*decision[:2], *following, *decision[2:], *outcomes] if decision else [*outcomes, *following]


def _describe_chain(sweep: Sweep) -> Iterator[str]:
    every = steps(sweep)
    for name in dict.fromkeys(before.measurement for _, before, _ in every):
        own = [
            (change, before.ms.median, after.ms.median) for change, before, after in every if before.measurement == name
        ]
        first, last = own[0][1], own[-1][2]
        took = f"{units.number(first, 3)} → {units.number(last, 3)} ms"
        factors = "; ".join(f"{change}: {before / after:.3g} ×" for change, before, after in own)
        yield f"{name}: {took} by all steps, {first / last:.3g} × as fast."
        yield f"By step{'' if sweep.repeats > 1 else ', one run of each and so not judged'}: {factors}."


def _describe_ignored(fit: Scaling) -> tuple[str, str]:
    return fit.sentence, f"{fit.axis} applies to training only; {fit.measurement} runs one observation per call."


def _describe_range(sweep: Sweep) -> Iterator[str]:
    rows = [(row, cell) for cell in cells_in_grid_order(sweep) for row in cell.rows]
    rows = [(row, cell) for row, cell in rows if row.measurement == rows[0][0].measurement]
    if len(rows) < 2 or len(sweep.machines) > 1:
        return
    fast, slow = (pick(rows, key=lambda pair: pair[0].ms.median) for pick in (min, max))
    ends = " to ".join(f"{units.number(row.ms.median, 3)} ms" for row, _ in (fast, slow))
    yield f"{fast[0].measurement} takes {ends} per call."
    yield f"Shortest median: {label(sweep, fast[1])}; longest: {label(sweep, slow[1])}."


def _describe_outcomes(sweep: Sweep) -> Iterator[str]:
    done = sum(cell.status == "done" for cell in sweep.cells)
    count = len(sweep.cells)
    if not count:
        yield "The sweep has no configurations."
    elif done == count:
        yield "The only configuration is done." if count == 1 else f"All {count:,} configurations are done."
    else:
        yield f"{done:,} of {units.count(count, 'configuration')} {'is' if done == 1 else 'are'} done."
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
    """Return every fit: the exponent, the amount per extra unit, and the fixed part."""
    level = next((fit.interval.level for fit in sweep.scaling if fit.interval is not None), 0.95)
    columns = [
        *heads("<Along | <Figure | <Measurement | Exponent"),
        Column(f"{100 * level:.4g} % CI"),
        *heads("Per extra unit | CI per unit | Fixed part | Values | Groups | <Shape"),
    ]
    rows = []
    for fit in sweep.scaling:
        cells: list[str | None] = [fit.axis, fit.figure, fit.measurement]
        if fit.effect == "ignored":
            cells += [None] * 5
        else:
            cells += [units.ms(fit.exponent), units.span(fit.interval), *_slope(fit)]
        cells += [f"{fit.points:,}", f"{fit.groups:,}", _shape(fit)]
        rows.append(Row(cells))
    return Table(columns, rows).drop_empty_columns()


def _slope(fit: Scaling) -> list[str | None]:
    """Return what an extra unit of the axis adds, its interval, and the fixed part; None where no effect is shown."""
    if fit.slope is None or fit.effect != "shown":
        return [None, None, None]
    per, unit, ends = _readable_axis_step(fit), fit.unit, fit.slope_interval
    more = f"{_amount(fit, fit.slope * per)} per {unit.removesuffix('s') if per == 1 else f'{per:,} {unit}'}"
    between = ends and f"{_amount(fit, ends.low * per)} to {_amount(fit, ends.high * per)}"
    return [more, between, _amount(fit, fit.fixed)]


def _shape(fit: Scaling) -> str | None:
    if fit.effect == "shown":
        return "neither a power nor a line" if fit.curved else None
    return {"ignored": "not used by this phase", "none": "no measured effect"}.get(fit.effect, "inconclusive")


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
    about = ["Figure ∝ axis ^ exponent, with all other settings fixed. 1: proportional; 0: independent."]
    if any(fit.interval is None for fit in sweep.scaling):
        about.append("A fit over two values of an axis has no interval: its shape is not tested.")
    return about


def failures(sweep: Sweep) -> Table:
    """Return every cell without a whole result, and why."""

    def folder(cell: Cell) -> str | None:
        return next((run.folder or None for run in cell.runs if run.status == cell.status), None)

    columns: Columns[Cell] = [
        words("Configuration", lambda cell: label(sweep, cell)),
        words("Status", lambda cell: cell.status),
        words("Reason", lambda cell: cell.reason or None),
        words("Folder", folder),
    ]
    failed = [cell for cell in cells_in_grid_order(sweep) if cell.status != "done"]
    return table(failed, columns).drop_empty_columns()


def machines(sweep: Sweep) -> Table:
    """Return the machines that ran configurations."""
    rows = []
    for index, machine in enumerate(sweep.machines):
        runs = [run for cell in sweep.cells for run in cell.runs if run.machine == index]
        nodes = ", ".join(sorted({run.node for run in runs if run.node})) or None
        rows.append(Row([str(index + 1), frame.machine(machine), frame.ceiling(machine), nodes, f"{len(runs):,}"]))
    return Table(heads("<Machine | <Hardware | <Peak | <Nodes | Runs"), rows).drop_empty_columns()


def _banner(sweep: Sweep) -> str | None:
    if sweep.status == "complete":
        return None
    remaining = sum(cell.status == "not run" for cell in sweep.cells)
    return f"Interrupted: this sweep was stopped before it was done, {units.count(remaining, 'configuration')} not run."


def _describe_grid(sweep: Sweep) -> list[str]:
    grid = (", then " if sweep.chain else " × ").join(f"{axis.name} ({len(axis.values)})" for axis in sweep.axes)
    repeats = f"{sweep.repeats} repeats of each, pooled" if sweep.repeats > 1 else ""
    text = ["; ".join(filter(None, [grid, repeats]))] if grid or repeats else []
    if any(is_best(sweep, cell, row) for cell in sweep.cells for row in cell.rows):
        text.append("Bold: the best by --best.")
    return text


def _facts(sweep: Sweep) -> list[tuple[str, str | None]]:
    only = sweep.machines[0] if len(sweep.machines) == 1 else None
    several = f"{len(sweep.machines)} unlike ones" if sweep.machines else None
    return [
        ("Machine", frame.machine(only) if only else several),
        ("Peak", frame.ceiling(only) if only else None),
        ("Power", frame.power(only) if only else None),
        ("Versions", frame.versions(sweep, only)),
    ]
