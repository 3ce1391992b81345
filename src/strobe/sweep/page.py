"""Sweep → document: the best configuration and how the figures grow, then every configuration, failed ones too.

The figures of the cells are also drawn as lines over one axis.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot, Trace
from strobe.core.report.document import Column, Columns, Document, Row, Section, Table, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.sweep.results import Axis, Cell, Scaling, Sweep
from strobe.sweep.results import Row as CellRow
from strobe.sweep.sweep_cells import cells, cells_in_grid_order, is_best, label, machine_numbers, shorten, steps

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
    return {"cells": _axis_plots(sweep)}


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


@dataclass(frozen=True)
class _Figure:
    """A figure of a row in a plot, in the unit of its axis."""

    title: str
    unit: str
    of: Callable[[CellRow], float | None]
    interval: Callable[[CellRow], Interval | None] = lambda row: None


def _figures(rows: Sequence[CellRow]) -> list[_Figure]:
    largest = max((row.memory_bytes for row in rows if row.memory_bytes is not None), default=0)
    unit, scale = ("GiB", 2**30) if largest >= 2**30 else ("MiB", 2**20)

    def rates(row: CellRow) -> Interval | None:
        between = row.ms.interval
        if between is None or between.low <= 0 or between.high <= 0:
            return None
        low, high = (row.throughput * (row.ms.median / ms) for ms in (between.high, between.low))
        return Interval(low=low, high=high) if math.isfinite(high) else None

    return [
        _Figure("Time per call", "ms", lambda row: row.ms.median, lambda row: row.ms.interval),
        _Figure("Throughput", "samples/s", lambda row: row.throughput, rates),
        _Figure("Memory", unit, lambda row: None if row.memory_bytes is None else row.memory_bytes / scale),
    ]


def _axis_plots(sweep: Sweep) -> list[Plot]:
    """Return a plot of each figure over the longest axis, with a line for each combination of the others."""
    rows = [row for cell in sweep.cells for row in cell.rows]
    along = _longest(sweep.axes)
    if along is None or len(along.values) < 2:
        return []
    phases = list(dict.fromkeys(row.phase for row in rows))
    drawn = []
    for phase in phases:
        several = len({row.measurement for row in rows if row.phase == phase}) > 1
        of_phase = f" ({phase})" if len(phases) > 1 else ""
        lines: dict[str, dict[str, CellRow]] = {}
        for cell in cells_in_grid_order(sweep):
            for row in cell.rows:
                if row.phase == phase:
                    name = _line(sweep, cell, along, row.measurement if several else None)
                    lines.setdefault(name, {})[cell.settings.get(along.name, "")] = row
        for figure in _figures(rows):
            traces = [_trace(i, name, line, along, figure) for i, (name, line) in enumerate(lines.items())]
            if any(y is not None for trace in traces for y in trace["y"]):
                drawn.append(_axis_plot(along, figure, of_phase, traces, sweep))
    return drawn


def _longest(axes: Sequence[Axis]) -> Axis | None:
    numeric = [axis for axis in axes if axis.numbers is not None and len(axis.numbers) == len(axis.values)]
    return max(numeric, key=lambda axis: len(axis.values)) if numeric else next(iter(axes), None)


def _line(sweep: Sweep, cell: Cell, along: Axis, measurement: str | None) -> str:
    others = [axis for axis in sweep.axes if axis.name != along.name]
    words = [] if measurement is None else [measurement]
    words += [f"{axis.name} {cell.settings.get(axis.name, units.NONE)}" for axis in others]
    # A line from one machine to an unlike one would show the machines, not the axis.
    words += [f"machine {machine_numbers(cell)}"] if len(sweep.machines) > 1 else []
    return ", ".join(words)


def _places(axis: Axis) -> list[float]:
    if axis.numbers is not None and len(axis.numbers) == len(axis.values):
        return list(axis.numbers)
    return [float(place) for place in range(len(axis.values))]


def _trace(index: int, name: str, line: Mapping[str, CellRow], along: Axis, figure: _Figure) -> Trace:
    rows = [(place, value, line.get(value)) for place, value in sorted(zip(_places(along), along.values, strict=True))]
    points = [(place, value, row and figure.of(row), row and figure.interval(row)) for place, value, row in rows]
    colour, ys = charts.colour(index), [y for _, _, y, _ in points]
    trace = charts.line(
        name or "all",
        [place for place, _, _, _ in points],
        ys,
        colour,
        "%{customdata[0]}: %{customdata[1]}<extra>%{fullData.name}</extra>",
        points=7,
        style={"dash": charts.DASHES[index // len(charts.PALETTE) % len(charts.DASHES)]},
        customdata=[[f"{along.name} {value}", _value_text(y, ends, figure)] for _, value, y, ends in points],
    )
    if any(ends for _, _, _, ends in points):
        known = [ends if y is not None else None for _, _, y, ends in points]
        trace["error_y"] = charts.error_bars([y or 0.0 for y in ys], known, colour)
    return trace


def _value_text(value: float | None, interval: Interval | None, figure: _Figure) -> str:
    if value is None:
        return units.NONE
    decimals = units.digits(value)
    spread = f" ({units.span(interval, decimals)})" if interval else ""
    return f"{units.ms(value, decimals)} {figure.unit}{spread}"


def _axis_plot(along: Axis, figure: _Figure, of_phase: str, traces: list[Trace], sweep: Sweep) -> Plot:
    places = _places(along)
    ticks: dict[float, list[str]] = {}
    for place, value in zip(places, along.values, strict=True):
        ticks.setdefault(place, []).append(value)
    legend = sum(len(trace["name"]) + 8 for trace in traces) // 110 + 1 if len(traces) > 1 else 0
    x = charts.axis(along.name, tickvals=list(ticks), ticktext=[" / ".join(values) for values in ticks.values()])
    y = charts.from_zero(figure.unit)
    if along.numbers is not None and charts.is_wide(places):
        x["type"] = "log"
        # Growth in proportion is then a straight line on both, and a curve on either alone.
        drawn = [y for trace in traces for y in trace["y"] if y is not None]
        if charts.is_wide(drawn):
            title = f"{figure.unit}, logarithmic"
            y = charts.log_axis(title, units.number, min(drawn), max(drawn), fine=True)
    bars = "Bars are the intervals of the medians." if any("error_y" in trace for trace in traces) else ""
    gaps = "Cells without a result have no point." if any(not cell.rows for cell in sweep.cells) else ""
    layout = charts.layout(320 + 20 * legend, x, y, showlegend=len(traces) > 1)
    return Plot(f"{figure.title} over {along.name}{of_phase}", f"{bars} {gaps}".strip(), traces, layout)
