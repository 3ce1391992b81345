"""A document on the terminal: whole, or on one screen."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from strobe.core.report.document import Document, Row, Section, Table
from strobe.core.results import units
from strobe.core.results.finding import Finding

FINDINGS, ANSWERS, ROWS, ASKED_ROWS = 4, 8, 14, 6  # on one screen
FEWEST_BLOCKS = 4  # that become one row
_NUMBER = re.compile(r"([\d.,]+)( %)?")
FACTS = ("Subject", "Machine")  # facts without which no figure means anything
MARKS = {"warning": ("!", "yellow"), "info": ("i", "cyan"), "good": ("✓", "green")}


def render(document: Document, console: Console) -> None:
    """Print the answer first, then findings, tables and notes."""
    _opening(document, document.answers, console)
    for finding in document.findings:
        console.print()
        _finding(finding, console)
    for section in document.sections:
        if not section.detail:
            _section(section, console)
    console.print()
    for note in document.notes:
        console.print(_hanging("· ", note, "dim"))
    for name, text in document.facts:
        console.print(Text(f"{name}: {text}", style="dim"))


def render_brief(document: Document, console: Console, whole: str = "--full") -> None:
    """Print the answers, the first findings with what to do, the first tables, and what was left out.

    Args:
        whole: the flag, or the call, that prints all of it.
    """
    _opening(document, document.answers[:ANSWERS], console)
    tables = first_tables(document)
    most, rows = (FINDINGS, ROWS) if len(tables) < 2 else (FINDINGS // 2, ROWS // 2)
    if document.findings:
        console.print()
    for finding in document.findings[:most]:
        mark, colour = MARKS[finding.level]
        console.print(_hanging(f"{mark} ", finding.title, f"bold {colour}"))
        if finding.do and finding.level != "good":
            console.print(_hanging("  → ", finding.do, ""))
    hidden = 0
    for index, (title, table) in enumerate(tables):
        shown = truncate_rows(table, ASKED_ROWS if index else rows)
        hidden += len(table.rows) - len(shown.rows)
        console.print()
        console.print(Text(title.upper(), style="bold"))
        print_table(shown, console)
    console.print()
    for name, text in document.facts:
        if name in FACTS:
            console.print(Text(f"{name}: {text}", style="dim"))
    if more := _left_out(document, hidden, tables, most):
        console.print(Text(f"More: {more}. {whole} prints all of it; the report shows it with plots.", style="dim"))


def first_tables(document: Document) -> list[tuple[str, Table]]:
    """Return the tables that a reader looks at first, with their titles: the first one, and what was asked for."""
    tables = [(each.title, each.table, each.asked) for each in document.sections if each.table and not each.detail]
    return [(title, table) for index, (title, table, asked) in enumerate(tables) if asked or not index]


def truncate_rows(whole: Table, limit: int) -> Table:
    """Return at most ``limit`` rows, in their order.

    Parts with a share go by it, the smallest first, and each before what it is a part of; the first level's 'other'
    stays. Equal blocks are one part then. Of other trees the deepest parts go first, then the last rows.
    """
    if _has_shares(whole):
        rows = whole.rows if len(whole.rows) <= limit else _join_blocks(whole)
        return Table(whole.columns, _largest(rows, limit))
    deepest = max((row.depth for row in whole.rows), default=0)
    rows = whole.rows
    while len(rows) > limit and deepest > 0:
        deepest -= 1
        rows = [row for row in whole.rows if row.depth <= deepest]
    return Table(whole.columns, rows[:limit])


def _join_blocks(whole: Table) -> list[Row]:
    """Return the rows with successive equal blocks (block 0, block 1 …) as one part, and their slowest inside it."""
    titles = [column.title for column in whole.columns]
    work = titles.index("GFLOP") if "GFLOP" in titles else None
    joined: list[Row] = []
    for (name, *_), run in groupby(
        whole.rows, lambda row: (re.sub(r" \d+$", " ", str(row.cells[0])), row.depth, work and row.cells[work])
    ):
        blocks = list(run)
        if not name.endswith(" ") or len(blocks) < FEWEST_BLOCKS:
            joined += blocks
            continue
        slowest = max(blocks, key=lambda row: row.share or 0.0)
        share = sum(row.share or 0.0 for row in blocks)
        label = f"{blocks[0].cells[0]} to {str(blocks[-1].cells[0]).removeprefix(name)}, each"
        each = [_span_cells([row.cells[index] for row in blocks]) for index in range(1, len(titles))]
        together = [units.percent(share) if title == "% of whole" else None for title in titles[1:]]
        joined.append(replace(blocks[0], cells=[label, *each], share=share))
        joined.append(Row(["together", *together], depth=slowest.depth + 1, share=share))
        cells = [f"slowest: {slowest.cells[0]}", *slowest.cells[1:]]
        joined.append(replace(slowest, cells=cells, depth=slowest.depth + 1))
    return joined


def _span_cells(cells: Sequence[str | None]) -> str | None:
    """Return the least and the largest of cells that are numbers, or what all of them say; None for other texts."""
    numbers = {float(found[1].replace(",", "")): found for cell in cells if (found := _NUMBER.fullmatch(cell or ""))}
    span = f"{numbers[min(numbers)][1]} to {numbers[max(numbers)][0]}" if len(numbers) > 1 else None
    return cells[0] if len(set(cells)) == 1 else span


def _largest(rows: Sequence[Row], limit: int) -> list[Row]:
    parents: list[int | None] = []
    open_rows: list[int] = []  # from the root to the last row
    for row in rows:
        while open_rows and rows[open_rows[-1]].depth >= row.depth:
            open_rows.pop()
        parents.append(open_rows[-1] if open_rows else None)
        open_rows.append(len(parents) - 1)
    kept = dict.fromkeys(range(len(rows)))
    always = {i for i, row in enumerate(rows) if row.kind == "whole" or (row.kind == "other" and row.depth <= 1)}
    while len(kept) > limit:
        inner = {parents[index] for index in kept}
        leaves = [index for index in kept if index not in inner | always]
        del kept[min(leaves or kept, key=lambda index: (rows[index].share or 0.0, -index))]
    return [rows[index] for index in kept]


def _has_shares(table: Table) -> bool:
    return any(row.share is not None and row.kind != "whole" for row in table.rows)


def _left_out(document: Document, rows: int, first: Sequence[tuple[str, Table]], findings: int) -> str:
    """Return in words how much a brief view leaves out."""
    tables = sum(section.table is not None and not section.detail for section in document.sections)
    counts = {
        "answer": len(document.answers) - ANSWERS,
        "finding": len(document.findings) - findings,
        "smaller row" if first and _has_shares(first[0][1]) else "row": rows,
        "table": tables - len(first),
        "note": len(document.notes),
    }
    return ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items() if count > 0)


def _opening(document: Document, answers: Sequence[str], console: Console) -> None:
    # Text objects, never markup: names come from outside, and '[' must stay '['.
    console.print(Text(f"{document.kind}  {document.title}", style="dim"))
    if document.banner:
        console.print(Text(document.banner, style="bold yellow"))
    console.print()
    for index, sentence in enumerate(answers):
        console.print(Text(sentence, style="" if index else "bold"))


def _hanging(mark: str, text: str, style: str) -> RichTable:
    grid = RichTable.grid(padding=0)
    grid.add_row(Text(mark, style=style), Text(text, style=style))
    return grid


def _finding(finding: Finding, console: Console) -> None:
    mark, colour = MARKS[finding.level]
    console.print(_hanging(f"{mark} ", finding.title, f"bold {colour}"))
    gain = f"Gain: {finding.gain}" if finding.gain else ""
    for lead, text in (("  ", finding.found), ("  ", finding.why), ("→ ", finding.do), ("  ", gain)):
        if text:
            console.print(Padding(_hanging(lead, text, ""), (0, 0, 0, 2)))


def _section(section: Section, console: Console) -> None:
    console.print()
    console.print(Text(section.title.upper(), style="bold"))
    for text in section.text:
        console.print(Text(text, style="dim" if section.table else ""))
    if section.table is not None:
        print_table(section.table, console)


def print_table(whole: Table, console: Console) -> None:
    """Print a table whole. A terminal too narrow for it loses the columns on the right, and a line says so."""
    fitting = whole
    while _width(fitting, console) > console.width and console.is_terminal and len(fitting.columns) > 3:
        fitting = fitting.select_columns(range(len(fitting.columns) - 1))
    shown = _rich(fitting, console.is_terminal)
    if _width(fitting, console) > console.width:
        # Rich takes columns away until the rest fits, unless the table itself says how wide it is.
        shown.width = _width(fitting, console)
    console.print(shown, crop=False)
    if left_out := [column.title for column in whole.columns[len(fitting.columns) :]]:
        console.print(Text(f"(no room here for: {', '.join(left_out)})", style="dim"))


def _width(table: Table, console: Console) -> int:
    wide = console.options.update(width=10_000)
    return Measurement.get(console, wide, _rich(table, console.is_terminal)).minimum


def _rich(table: Table, folds: bool) -> RichTable:
    """Return Rich's table; ``folds`` says whether the labels of rows may break, as on a terminal that is narrow."""
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, column in enumerate(table.columns):
        cells = [cell_len(_cell(row, index)) for row in table.rows]
        # Numbers broken over two lines cannot be compared: headings, labels and long texts give way instead.
        widest = max([1, *cells, *map(cell_len, column.title.split())])
        shown.add_column(
            Text(column.title if index == 0 else textwrap.fill(column.title, widest)),
            justify="right" if column.numeric else "left",
            no_wrap=index > 0 and column.numeric,
            overflow="fold",
            min_width=widest if column.numeric or not (index or folds) else min(widest, 24),
        )
    for row in table.rows:
        style = {"whole": "bold", "other": "dim", "part": ""}[row.kind]
        shown.add_row(*(Text(_cell(row, index), style=style) for index in range(len(table.columns))))
    return shown


def _cell(row: Row, index: int) -> str:
    cell = row.cells[index]
    return 2 * row.depth * " " + (cell or "") if index == 0 else units.NONE if cell is None else cell
