"""Sweep → document: the best cell and how the figures grow first, then every cell, whatever became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from strobe.report import facts, units
from strobe.report.document import Column, Document, Row, Section, Table
from strobe.results import sweep as data
from strobe.results.data import Interval
from strobe.results.sweep import Cell, Scaling, Sweep

OPENED = ("policy", "forward")  # parts whose own parts say more than they do
LEAST_SHARE = 0.1  # of a part that has a column
COLUMNS = 6
FITS = 4  # of time along an axis, that the opening tells
NAMED = 2  # failed cells that an opening sentence names; the table has them all

Figures = Mapping[str, float]


def outline(sweep: Sweep) -> Document:
    """The document of a sweep."""
    sections = [Section("cells", "Cells", cells(sweep), _about(sweep))]
    if sweep.scaling:
        sections.append(Section("scaling", "How it grows", scaling(sweep), _about_scaling(sweep)))
    if any(cell.status != "done" for cell in sweep.cells):
        sections.append(Section("failures", "Cells without a result", failures(sweep)))
    if len(sweep.machines) > 1:
        said = "Verdicts between cells of unlike machines are refused: their difference may be the machines'."
        sections.append(Section("machines", "Machines", machines(sweep), [said]))
    return Document(
        kind=f"strobe sweep of {units.plain(sweep.of)}",
        title=units.plain(sweep.title),
        banner=_banner(sweep),
        answers=[units.plain(text) for text in answers(sweep)],
        findings=facts.findings(sweep.findings),
        sections=sections,
        notes=[units.plain(text) for text in dict.fromkeys(sweep.notes)],
        facts=_facts(sweep),
        raw=facts.raw(
            sweep.command,
            {"Config": sweep.config, "Machines": [machine.model_dump(mode="json") for machine in sweep.machines]},
        ),
    )


def answers(sweep: Sweep) -> list[str]:
    """The best cells, then how time grows (the table has memory as well), then what became of the cells."""
    grows = [fit.sentence for fit in sweep.scaling if fit.figure == "time"][:FITS]
    return [*(best.sentence for best in sweep.best), *grows, *_became(sweep)]


def _became(sweep: Sweep) -> Iterator[str]:
    done = sum(cell.status == "done" for cell in sweep.cells)
    every = len(sweep.cells)
    if not every:
        yield "The sweep has no cells."
    elif done == every:
        yield "The only cell is done." if every == 1 else f"All {every:,} cells are done."
    else:
        yield f"{done:,} of {units.count(every, 'cell')} {'is' if done == 1 else 'are'} done."
    for status in dict.fromkeys(cell.status for cell in in_order(sweep) if cell.status != "done"):
        failed = [cell for cell in in_order(sweep) if cell.status == status]
        reasons = {cell.reason for cell in failed}
        shared = _in_brackets(failed[0].reason) if len(reasons) == 1 else ""
        named = [label(sweep, cell) + ("" if shared else _in_brackets(cell.reason)) for cell in failed[:NAMED]]
        more = [f"and {len(failed) - NAMED:,} more"] if len(failed) > NAMED else []
        yield f"{len(failed):,} {status}: {'; '.join([*named, *more])}{shared}."


def _in_brackets(reason: str) -> str:
    return f" ({_short(reason, 120)})" if reason else ""


def in_order(sweep: Sweep) -> list[Cell]:
    """The cells in the order of the grid, whatever order they ran in."""
    places = [{value: place for place, value in enumerate(axis.values)} for axis in sweep.axes]

    def place(cell: Cell) -> list[int]:
        values = zip(sweep.axes, places, strict=True)
        return [at.get(cell.settings.get(axis.name, ""), len(at)) for axis, at in values]

    return sorted(sweep.cells, key=place)


def label(sweep: Sweep, cell: Cell) -> str:
    """A cell in words, such as ``batch_size 8, image_size 240x320``."""
    return units.plain(", ".join(f"{a.name} {cell.settings.get(a.name, units.NONE)}" for a in sweep.axes)) or "the cell"


def ran_on(cell: Cell) -> str:
    """The machines that ran a cell, numbered from 1."""
    return ", ".join(str(n + 1) for n in sorted({run.machine for run in cell.runs if run.machine is not None}))


def shares(sweep: Sweep) -> list[dict[str, float]]:
    """The top parts' shares, for each row of each cell in the order of the grid.

    A part that holds nearly everything says nothing, so its own parts stand in for it: in all cells, if it does in one,
    since a column must mean the same in each.
    """
    rows = [row for cell in in_order(sweep) for row in cell.rows]
    opened = {p.path[0] for row in rows for p in row.parts if len(p.path) == 1 and not p.other and p.share > 0.9}
    opened |= set(OPENED)
    return [_shares(row, opened) for row in rows]


def _shares(row: data.Row, opened: set[str]) -> dict[str, float]:
    inside = {part.path[0] for part in row.parts if len(part.path) == 2} & opened
    found: dict[str, float] = {}
    for part in row.parts:
        if (len(part.path) == 1 and part.path[0] not in inside) or (len(part.path) == 2 and part.path[0] in inside):
            # What is in no named part, of the whole or of an opened part, is one remainder.
            name = "other" if part.other else part.path[-1]
            found[name] = found.get(name, 0.0) + part.share
    return found


def top_parts(of_rows: Sequence[Figures]) -> list[str]:
    """The parts that have a column, in tree order: those that reach a tenth in some cell, the largest six of them."""
    largest: dict[str, float] = {}
    for found in of_rows:
        for name, share in found.items():
            largest[name] = max(share, largest.get(name, 0.0))
    shown = sorted((n for n in largest if largest[n] >= LEAST_SHARE), key=lambda n: -largest[n])[:COLUMNS]
    return sorted(shown, key=lambda name: (name == "other", list(largest).index(name)))


def cells(sweep: Sweep) -> Table:
    """One row per cell and measurement, with everything that has a figure; a failed cell says why instead."""
    of_rows = shares(sweep)
    figures = _figures([row for cell in sweep.cells for row in cell.rows], top_parts(of_rows))
    # The first column is a label in every renderer.
    columns = [Column(units.plain(axis.name), axis.numbers is not None and i > 0) for i, axis in enumerate(sweep.axes)]
    columns += [Column("Measurement", numeric=False), *(column for column, _ in figures)]
    columns += [Column("Memory foretold"), Column("Machine"), Column("Why", numeric=False)]
    held = iter(of_rows)
    rows: list[Row] = []
    kinds = []
    for cell in in_order(sweep):
        settings: list[str | None] = [units.plain(cell.settings.get(axis.name, "")) or None for axis in sweep.axes]
        foretold = units.size(cell.predicted_bytes)
        machine = (ran_on(cell) or None) if len(sweep.machines) > 1 else None
        why = None if cell.status == "done" else _short(cell.reason) or cell.status
        if not cell.rows:
            became = "no figures" if cell.status == "done" else cell.status
            rows.append(Row([*settings, became, *(None for _ in figures), foretold, machine, why]))
            kinds.append("other")
        for row in cell.rows:
            found = next(held)
            shown = [figure(row, found) for _, figure in figures]
            partly = f"{cell.status}: {why}" if why and cell.reason else why
            rows.append(Row([*settings, units.plain(row.measurement), *shown, foretold, machine, partly]))
            kinds.append("whole" if _is_best(sweep, cell, row) else "part")
    # A row gets its kind last: 'whole' would keep its figures from holding a column.
    table = Table(columns, rows).without_empty_columns()
    return Table(table.columns, [replace(row, kind=kind) for row, kind in zip(table.rows, kinds, strict=True)])


def _figures(
    rows: Sequence[data.Row], parts: Sequence[str]
) -> list[tuple[Column, Callable[[data.Row, Figures], str | None]]]:
    """The columns of figures, each with what it shows of a row and its parts' shares."""
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
        (Column(f"{100 * level:.4g} % interval"), lambda row, _: units.span(row.ms.interval, ms)),
        (Column("Repeats' medians (ms)"), repeats),
        (Column("Samples/s"), lambda row, _: units.ms(row.throughput, rate)),
        (Column("ms per sample"), each),
        *(
            (Column(f"{units.plain(part)} %"), lambda _, held, part=part: units.percent(held.get(part)))
            for part in parts
        ),
        (Column("Memory"), lambda row, _: units.size(row.memory_bytes)),
        (Column("Live tensors"), lambda row, _: units.size(row.activation_bytes)),
        (Column("GFLOP"), lambda row, _: units.gflop(row.gflop)),
        (Column("Against baseline", numeric=False), lambda row, _: row.verdict and row.verdict.kind),
        (Column("Change"), lambda row, _: units.change(row.verdict and row.verdict.ratio)),
        (Column("Interval of it"), lambda row, _: units.change_span(row.verdict and row.verdict.interval)),
        (Column("Cosine of actions"), lambda row, _: row.agreement and f"{row.agreement.cosine:.6f}"),
    ]


def _is_best(sweep: Sweep, cell: Cell, row: data.Row) -> bool:
    return any(best.key == cell.key and best.measurement in ("", row.measurement) for best in sweep.best)


def _decimals(figures: Sequence[float]) -> int:
    """Decimals for a column: as its largest deserves, and up to two for the sake of its smallest."""
    largest, smallest = max(figures, default=0.0), min((f for f in figures if f > 0), default=0.0)
    return max(units.digits(largest), min(units.digits(smallest), 2))


def _short(text: str, room: int = 60) -> str:
    whole = units.plain(text)
    return whole if len(whole) <= room else f"{whole[: room - 1].rstrip()}…"


def scaling(sweep: Sweep) -> Table:
    """Every fit: the exponent, what one more unit adds, and what is there at zero."""
    level = next((fit.interval.level for fit in sweep.scaling if fit.interval is not None), 0.95)
    columns = [Column("Along", numeric=False), Column("Figure", numeric=False), Column("Measurement", numeric=False)]
    columns += [Column("Exponent"), Column(f"{100 * level:.4g} % interval"), Column("One more adds")]
    columns += [Column("Interval of it"), Column("Fixed part"), Column("Values"), Column("Groups")]
    columns += [Column("Shape", numeric=False)]
    rows = []
    for fit in sweep.scaling:
        exponent, slope, fixed = fit.interval, fit.slope_interval, _amount(fit, fit.fixed)
        per, unit = _per(fit), units.plain(fit.unit)
        more = None
        if fit.slope is not None:
            more = f"{_amount(fit, fit.slope * per)} per {unit.removesuffix('s') if per == 1 else f'{per:,} {unit}'}"
        cells: list[str | None] = [units.plain(fit.axis), fit.figure, units.plain(fit.measurement)]
        cells += [f"{fit.exponent:.2f}"]
        cells += [exponent and f"{exponent.low:.2f} to {exponent.high:.2f}", more]
        cells += [slope and f"{_amount(fit, slope.low * per)} to {_amount(fit, slope.high * per)}", fixed]
        cells += [f"{fit.points:,}", f"{fit.groups:,}", "neither a power nor a line" if fit.curved else None]
        rows.append(Row(cells))
    return Table(columns, rows).without_empty_columns()


def _per(fit: Scaling) -> int:
    """As many units of the axis as make the slope readable: one pixel adds nanoseconds."""
    least = 0.01 if fit.figure == "time" else 1
    return next((n for n in (1, 1000) if abs(fit.slope or 0.0) * n >= least), 1_000_000)


def _amount(fit: Scaling, value: float | None) -> str | None:
    if value is None:
        return None
    if fit.figure != "time":
        return units.size(round(value))
    return f"{units.ms(value, units.digits(value) - 1)} ms"


def _about_scaling(sweep: Sweep) -> list[str]:
    said = ["Figure ∝ axis ^ exponent, with all other settings held: 1 is in proportion, 0 is not at all."]
    if any(fit.interval is None for fit in sweep.scaling):
        said.append("A fit over two values of an axis has no interval: its shape could not be tested.")
    return said


def failures(sweep: Sweep) -> Table:
    """Every cell without a whole result, and why."""
    columns = [Column(title, numeric=False) for title in ("Cell", "Status", "Reason", "Folder")]
    rows = []
    for cell in in_order(sweep):
        if cell.status != "done":
            failed = next((run for run in cell.runs if run.status == cell.status), None)
            folder = units.plain(failed.folder) or None if failed else None
            reason = units.plain(cell.reason) or None
            rows.append(Row([label(sweep, cell), cell.status, reason, folder]))
    return Table(columns, rows).without_empty_columns()


def machines(sweep: Sweep) -> Table:
    """The machines that ran cells."""
    columns = [Column("Machine", numeric=False), Column("What it is", numeric=False)]
    columns += [Column("Ceiling", numeric=False), Column("Nodes", numeric=False), Column("Runs")]
    rows = []
    for index, machine in enumerate(sweep.machines):
        runs = [run for cell in sweep.cells for run in cell.runs if run.machine == index]
        nodes = units.plain(", ".join(sorted({run.node for run in runs if run.node}))) or None
        rows.append(Row([str(index + 1), facts.machine(machine), facts.ceiling(machine), nodes, f"{len(runs):,}"]))
    return Table(columns, rows).without_empty_columns()


def _banner(sweep: Sweep) -> str | None:
    if sweep.status == "complete":
        return None
    left = sum(cell.status == "not run" for cell in sweep.cells)
    return f"Interrupted: this sweep was stopped before it was done, {units.count(left, 'cell')} not run."


def _about(sweep: Sweep) -> list[str]:
    grid = " × ".join(f"{axis.name} ({len(axis.values)})" for axis in sweep.axes)
    repeats = f"{sweep.repeats} repeats of each, taken together" if sweep.repeats > 1 else ""
    text = [units.plain("; ".join(filter(None, [grid, repeats])))] if grid or repeats else []
    if any(_is_best(sweep, cell, row) for cell in sweep.cells for row in cell.rows):
        text.append("Bold: the best that was asked for.")
    return text


def _facts(sweep: Sweep) -> list[tuple[str, str]]:
    alone = sweep.machines[0] if len(sweep.machines) == 1 else None
    versions = {"strobe": sweep.strobe_version, **(alone.versions if alone else {})}
    pairs = [
        (
            "Machine",
            facts.machine(alone) if alone else f"{len(sweep.machines)} unlike ones" if sweep.machines else None,
        ),
        ("Ceiling", facts.ceiling(alone) if alone else None),
        ("Power", ", ".join(f"{k} {v}" for k, v in alone.power.items()) if alone else None),
        ("Versions", ", ".join(f"{k} {v}" for k, v in versions.items())),
    ]
    return [(name, units.plain(text)) for name, text in pairs if text] + facts.run(sweep)
