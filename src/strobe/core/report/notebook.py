"""A document in a notebook's cell: HTML that stands by itself, without scripts, style sheets or links.

Notebooks take out of an output what they do not trust: JupyterLab the scripts, Colab and VS Code style sheets as well.
What is left here is text and a table, in the page's own colours.
"""

from __future__ import annotations

from dataclasses import replace

from strobe.core.report.console import ANSWERS, FACTS, FINDINGS, MARKS, ROWS, first_tables, truncate_rows
from strobe.core.report.document import Column, Document, Table
from strobe.core.report.html import template
from strobe.core.results import units

MOST_BYTES = 100_000
CUTS = (1000, 200, 40)  # characters of a text; the first with which it all fits


def render(document: Document) -> str:
    """Return the document's answers, first findings and first table, in at most `MOST_BYTES`."""
    page = ""
    for most in CUTS:
        page = _page(document, most)
        if len(page.encode()) <= MOST_BYTES:
            break
    return page


def _page(document: Document, most: int) -> str:
    shown = next((_cut_table(truncate_rows(table, ROWS), most) for _, table in first_tables(document)), None)
    facts = [(name, _cut(text, most)) for name, text in document.facts if name in FACTS]
    short = replace(
        document,
        title=_cut(document.title, most),
        banner=None if document.banner is None else _cut(document.banner, most),
        answers=[_cut(text, most) for text in document.answers[:ANSWERS]],
        findings=[
            each.model_copy(update={name: _cut(getattr(each, name), most) for name in ("title", "found", "do")})
            for each in document.findings[:FINDINGS]
        ],
    )
    hidden = len(document.findings) - FINDINGS
    more = f"{hidden} more finding{'s' * (hidden != 1)}; " if hidden > 0 else ""
    return template("notebook.html.j2").render(
        page=short,
        table=shown,
        facts=facts,
        marks={level: mark for level, (mark, _) in MARKS.items()},
        more=f"{more}show(full=True) prints all of it, save(FOLDER) writes a report with plots.",
        NONE=units.NONE,
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cut_table(table: Table, most: int) -> Table:
    rows = [
        replace(row, cells=[None if cell is None else _cut(cell, most // 4) for cell in row.cells])
        for row in table.rows
    ]
    return Table([Column(_cut(column.title, most // 4), column.numeric) for column in table.columns], rows)
