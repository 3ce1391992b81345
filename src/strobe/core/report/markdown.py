"""A document as GitHub-flavoured Markdown, for an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from strobe.core.report.document import Document, Section, Table
from strobe.core.results import units
from strobe.core.results.finding import Finding

INDENT = "\u2003"  # an em space: Markdown trims ordinary ones at the start of a cell


def render(document: Document) -> str:
    """Return the answer first, then findings, tables and notes."""
    first, *others = document.answers
    blocks = [f"# {escape(document.title)}", f"*{escape(document.kind)}*"]
    blocks += [f"> **{escape(document.banner)}**"] if document.banner else []
    blocks += [f"**{escape(first)}**"]
    blocks += ["\n".join(f"- {escape(sentence)}" for sentence in others)] if others else []
    if document.findings:
        blocks += ["## Findings", *map(_finding, document.findings)]
    blocks += [block for section in document.sections for block in _section(section)]
    if document.notes:
        blocks += ["## Notes", "\n".join(f"- {escape(note)}" for note in document.notes)]
    blocks += [
        "## Where this comes from",
        "\n".join(f"- {escape(name)}: {escape(text)}" for name, text in document.facts),
    ]
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Return text that shows unchanged: no markup, HTML or cell borders. Underscores inside words are harmless."""
    text = re.sub(r"([\\`*<>\[\]|~])", r"\\\1", units.plain(text))
    text = re.sub(r"&(?=#?\w+;)", r"\&", text)
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\_", text)
    return re.sub(r"^([#+-]|\d+[.)])(?=\s|$)", r"\\\1", text)


def _finding(finding: Finding) -> str:
    lines = [f"**{escape(finding.title)}** ({finding.level})", escape(finding.found), escape(finding.why)]
    lines += [f"→ {escape(finding.do)}"] if finding.do else []
    lines += [f"Gain: {escape(finding.gain)}"] if finding.gain else []
    return "  \n".join(line for line in lines if line)


def _section(section: Section) -> list[str]:
    blocks = [f"## {escape(section.title)}", *map(escape, section.text)]
    return [*blocks, _table(section.table)] if section.table is not None else blocks


def grid(titles: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[bool] = ()) -> str:
    """Return a table of cells that are Markdown already; ``numeric`` columns stand on the right."""
    sides = ["--:" if right else ":--" for right in numeric or [False] * len(titles)]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(sides)}|", *lines[1:]])


def _table(table: Table) -> str:
    rows = []
    for row in table.rows:
        label, *cells = row.cells
        name = escape(label or "")
        shown = [INDENT * row.depth + (f"**{name}**" if row.kind == "whole" and name else name)]
        shown += [units.NONE if cell is None else escape(cell) for cell in cells]
        rows.append(shown)
    return grid([escape(column.title) for column in table.columns], rows, [column.numeric for column in table.columns])
