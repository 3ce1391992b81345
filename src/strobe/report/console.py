"""A result on the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from strobe.report import units
from strobe.report.document import Section, Table
from strobe.report.outline import outline
from strobe.results.schema import Difference, Finding, Result

MARKS = {"warning": ("!", "yellow"), "info": ("i", "cyan"), "good": ("✓", "green")}


def render(answer: Result | Difference, console: Console, depth: int | None = None) -> None:
    """Print the answer first, then findings, tables and notes. ``depth`` limits the levels of trees."""
    page = outline(answer, depth)
    # Text objects, never markup: names come from outside, and '[' must stay '['.
    console.print(Text(f"{page.kind}  {page.title}", style="dim"))
    if page.banner:
        console.print(Text(page.banner, style="bold yellow"))
    console.print()
    for index, sentence in enumerate(page.answers):
        console.print(Text(sentence, style="" if index else "bold"))
    for finding in page.findings:
        console.print()
        _finding(finding, console)
    for section in page.sections:
        if not section.detail:
            _section(section, console)
    console.print()
    for note in page.notes:
        console.print(_hanging("· ", note, "dim"))
    for name, text in page.facts:
        console.print(Text(f"{name}: {text}", style="dim"))


def _hanging(mark: str, text: str, style: str) -> RichTable:
    grid = RichTable.grid(padding=0)
    grid.add_row(Text(mark, style=style), Text(text, style=style))
    return grid


def _finding(finding: Finding, console: Console) -> None:
    mark, colour = MARKS[finding.level]
    console.print(_hanging(f"{mark} ", finding.title, f"bold {colour}"))
    gain = f"Gain: {finding.gain}" if finding.gain else ""
    for lead, text in (("  ", finding.seen), ("  ", finding.why), ("→ ", finding.do), ("  ", gain)):
        if text:
            console.print(Padding(_hanging(lead, text, ""), (0, 0, 0, 2)))


def _section(section: Section, console: Console) -> None:
    console.print()
    console.print(Text(section.title.upper(), style="bold"))
    for text in section.text:
        console.print(Text(text, style="dim" if section.table else ""))
    if section.table is not None:
        console.print(_table(section.table))


def _table(table: Table) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns:
        shown.add_column(Text(column.title), justify="right" if column.numeric else "left", overflow="fold")
    for row in table.rows:
        style = {"whole": "bold", "other": "dim", "part": ""}[row.kind]
        label, *cells = row.cells
        first = Padding(Text(label or "", style=style), (0, 0, 0, 2 * row.depth))
        # Numbers broken over two lines cannot be compared: headings and labels give way instead.
        whole = [units.NONE if cell is None else cell.replace(" ", "\u00a0") for cell in cells]
        shown.add_row(first, *(Text(cell, style=style) for cell in whole))
    return shown
