"""The cells of a sweep: their order, their names, their parts, and the table that has a row for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from strobe.core.report.document import Column, Row, Table
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.sweep import results as data
from strobe.sweep.results import Cell, Sweep

OPENED = ("policy", "forward")  # parts whose own parts say more than they do
LEAST_SHARE = 0.1  # share of the whole from which a part has a column
COLUMNS = 6

Figures = Mapping[str, float]


def cells_in_grid_order(sweep: Sweep) -> list[Cell]:
    """Return the cells in the order of the grid, whatever order they ran in."""
    places = [{value: place for place, value in enumerate(axis.values)} for axis in sweep.axes]

    def place(cell: Cell) -> list[int]:
        values = zip(sweep.axes, places, strict=True)
        return [at.get(cell.settings.get(axis.name, ""), len(at)) for axis, at in values]

    return sorted(sweep.cells, key=place)


def label(sweep: Sweep, cell: Cell) -> str:
    """Return a cell in words, such as ``batch_size 8, image_size 240x320``."""
    return ", ".join(f"{a.name} {cell.settings.get(a.name, units.NONE)}" for a in sweep.axes) or "the configuration"


def machine_numbers(cell: Cell) -> str:
    """Return the machines that ran a cell, numbered from 1."""
    return ", ".join(str(n + 1) for n in sorted({run.machine for run in cell.runs if run.machine is not None}))


def shares(sweep: Sweep) -> list[dict[str, float]]:
    """Return the top parts' shares, for each row of each cell in the order of the grid.

    A part that holds nearly everything says nothing, so its own parts stand in for it: in all cells, if it does in one,
    since a column must mean the same in each.
    """
    rows = [row for cell in cells_in_grid_order(sweep) for row in cell.rows]
    opened = {p.path[0] for row in rows for p in row.parts if len(p.path) == 1 and not p.other and p.share > 0.9}
    opened |= set(OPENED)
    return [_shares(row, opened) for row in rows]


def _shares(row: data.Row, opened: set[str]) -> dict[str, float]:
    inside = {part.path[0] for part in row.parts if len(part.path) == 2} & opened
    shares_of_parts: dict[str, float] = {}
    for part in row.parts:
        if (len(part.path) == 1 and part.path[0] not in inside) or (len(part.path) == 2 and part.path[0] in inside):
            # What is in no named part, of the whole or of an opened part, is one remainder.
            name = "other" if part.other else part.path[-1]
            shares_of_parts[name] = shares_of_parts.get(name, 0.0) + part.share
    return shares_of_parts


def top_parts(of_rows: Sequence[Figures]) -> list[str]:
    """Return the parts with a column, in tree order: the largest six that reach a tenth in some cell."""
    largest: dict[str, float] = {}
    for figures in of_rows:
        for name, share in figures.items():
            largest[name] = max(share, largest.get(name, 0.0))
    shown = sorted((n for n in largest if largest[n] >= LEAST_SHARE), key=lambda n: -largest[n])[:COLUMNS]
    return sorted(shown, key=lambda name: (name == "other", list(largest).index(name)))


def steps(sweep: Sweep) -> list[tuple[str, data.Row, data.Row]]:
    """Return each step of a chain: the value that it changes, and the rows of one measurement before and after it."""
    ordered = cells_in_grid_order(sweep) if sweep.chain and len(sweep.machines) < 2 else []
    return [
        (data.label(dict(after.settings.items() - before.settings.items())), row_before, row_after)
        for before, after in itertools.pairwise(ordered)
        for row_before in before.rows
        for row_after in after.rows
        if row_before.measurement == row_after.measurement
    ]


def cells(sweep: Sweep) -> Table:
    """Return one row per cell and measurement, with all its figures; a failed cell says why instead."""
    of_rows = shares(sweep)
    figures = _figures([row for cell in sweep.cells for row in cell.rows], top_parts(of_rows))
    # The first column is a label in every renderer.
    columns = [Column(axis.name, axis.numbers is not None and i > 0) for i, axis in enumerate(sweep.axes)]
    columns += [Column("Measurement", numeric=False), *(column for column, _ in figures)]
    columns += [Column("× step before"), Column("Predicted memory"), Column("Machine"), Column("Why", numeric=False)]
    factors = {id(after): before.ms.median / after.ms.median for _, before, after in steps(sweep)}
    held = iter(of_rows)
    rows: list[Row] = []
    kinds = []
    for cell in cells_in_grid_order(sweep):
        settings: list[str | None] = [cell.settings.get(axis.name, "") or None for axis in sweep.axes]
        predicted = units.size(cell.predicted_bytes)
        machine = (machine_numbers(cell) or None) if len(sweep.machines) > 1 else None
        why = None if cell.status == "done" else shorten(cell.reason) or cell.status
        if not cell.rows:
            became = "no figures" if cell.status == "done" else cell.status
            rows.append(Row([*settings, became, *(None for _ in figures), None, predicted, machine, why]))
            kinds.append("other")
        for row in cell.rows:
            of_row = next(held)
            shown = [figure(row, of_row) for _, figure in figures]
            partly = f"{cell.status}: {why}" if why and cell.reason else why
            factor = f"{factors[id(row)]:.3g}" if id(row) in factors else None
            rows.append(Row([*settings, row.measurement, *shown, factor, predicted, machine, partly]))
            kinds.append("whole" if is_best(sweep, cell, row) else "part")
    # A row gets its kind last: 'whole' would keep its figures from holding a column.
    table = Table(columns, rows).drop_empty_columns()
    return Table(table.columns, [replace(row, kind=kind) for row, kind in zip(table.rows, kinds, strict=True)])


def _figures(
    rows: Sequence[data.Row], parts: Sequence[str]
) -> list[tuple[Column, Callable[[data.Row, Figures], str | None]]]:
    """Return the columns of figures, each with what it shows of a row and its parts' shares."""
    ms, rate = _decimals([row.ms.median for row in rows]), _decimals([row.throughput for row in rows])
    level = next((row.ms.interval.level for row in rows if row.ms.interval is not None), 0.95)
    batched = any(row.batch > 1 for row in rows)

    def repeats(row: data.Row, _: Figures) -> str | None:
        several = len(row.repeats) > 1
        return units.span(Interval(low=min(row.repeats), high=max(row.repeats)), ms) if several else None

    def each(row: data.Row, _: Figures) -> str | None:
        return units.ms(row.ms.median / row.batch, ms) if batched and row.batch > 0 else None

    return [
        (Column("ms (median)"), lambda row, _: units.ms(row.ms.median, ms)),
        (Column(f"{100 * level:.4g} % CI"), lambda row, _: units.span(row.ms.interval, ms)),
        (Column("Repeats' medians (ms)"), repeats),
        (Column("Samples/s"), lambda row, _: units.ms(row.throughput, rate)),
        (Column("ms per sample"), each),
        *((Column(f"{part} %"), lambda _, held, part=part: units.percent(held.get(part))) for part in parts),
        (Column("Memory"), lambda row, _: units.size(row.memory_bytes)),
        (Column("Live tensors"), lambda row, _: units.size(row.activation_bytes)),
        (Column("GFLOP"), lambda row, _: units.gflop(row.gflop)),
        (Column("vs baseline", numeric=False), lambda row, _: row.verdict and row.verdict.kind),
        (Column("Change"), lambda row, _: units.change(row.verdict and row.verdict.ratio)),
        (Column("99 % CI"), lambda row, _: units.change_span(row.verdict and row.verdict.interval)),
        (Column("Cosine of actions"), lambda row, _: row.agreement and f"{row.agreement.cosine:.6f}"),
    ]


def is_best(sweep: Sweep, cell: Cell, row: data.Row) -> bool:
    """Return whether ``row`` of ``cell`` is the best one by any measure of the sweep."""
    return any(best.key == cell.key and best.measurement in ("", row.measurement) for best in sweep.best)


def _decimals(figures: Sequence[float]) -> int:
    largest, smallest = max(figures, default=0.0), min((f for f in figures if f > 0), default=0.0)
    return max(units.digits(largest), min(units.digits(smallest), 2))


def shorten(text: str, room: int = 60) -> str:
    """Return ``text`` with at most ``room`` characters, the last of them an ellipsis where it is cut."""
    return text if len(text) <= room else f"{text[: room - 1].rstrip()}…"
