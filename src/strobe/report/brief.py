"""A document on one screen: the answer, what to do first, the table that matters most; and what else there is."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from strobe.report.console import MARKS, hanging, opening, table
from strobe.report.document import Document, Section, Table
from strobe.results.finding import Finding

FINDINGS, ANSWERS, ROWS = 4, 8, 14
FACTS = ("Subject", "Machine")  # of whatever was measured, on whatever: what a figure is worth nothing without


def render(document: Document, console: Console) -> None:
    """Print the answers, the first findings with what to do, the first table, and what was left out."""
    opening(document, document.answers[:ANSWERS], console)
    if document.findings:
        console.print()
    for finding in document.findings[:FINDINGS]:
        _finding(finding, console)
    section = first_table(document)
    hidden = 0
    if section is not None and section.table is not None:
        shown = shallow(section.table, ROWS)
        hidden = len(section.table.rows) - len(shown.rows)
        console.print()
        console.print(Text(section.title.upper(), style="bold"))
        table(shown, console)
    console.print()
    for name, text in document.facts:
        if name in FACTS:
            console.print(Text(f"{name}: {text}", style="dim"))
    if more := left_out(document, hidden):
        console.print(Text(f"More: {more}. --full prints all of it; the report shows it with plots.", style="dim"))


def first_table(document: Document) -> Section | None:
    """Return the section that a reader looks at first: the first one with a table."""
    return next((one for one in document.sections if one.table is not None and not one.detail), None)


def shallow(whole: Table, limit: int) -> Table:
    """Return at most ``limit`` rows: the deepest parts go first, then the last rows."""
    deepest = max((row.depth for row in whole.rows), default=0)
    rows = whole.rows
    while len(rows) > limit and deepest > 0:
        deepest -= 1
        rows = [row for row in whole.rows if row.depth <= deepest]
    return Table(whole.columns, rows[:limit])


def left_out(document: Document, rows: int) -> str:
    """Return in words how much a brief view leaves out; '' where that is nothing."""
    tables = sum(one.table is not None and not one.detail for one in document.sections)
    tables -= first_table(document) is not None
    counts = {
        "answer": len(document.answers) - ANSWERS,
        "finding": len(document.findings) - FINDINGS,
        "row": rows,
        "table": tables,
        "note": len(document.notes),
    }
    return ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items() if count > 0)


def _finding(finding: Finding, console: Console) -> None:
    mark, colour = MARKS[finding.level]
    console.print(hanging(f"{mark} ", finding.title, f"bold {colour}"))
    if finding.do and finding.level != "good":
        console.print(hanging("  → ", finding.do, ""))
