"""An answer as GitHub-flavoured Markdown, for an issue or a pull request."""

from __future__ import annotations

import re

from strobe.report import units
from strobe.report.document import Answer, Section, Table
from strobe.report.outline import outline
from strobe.results.finding import Finding

INDENT = "\u2003"  # an em space: Markdown trims ordinary ones at the start of a cell


def render(answer: Answer, depth: int | None = None) -> str:
    """The answer first, then findings, tables and notes. ``depth`` limits the levels of trees."""
    page = outline(answer, depth)
    first, *others = page.answers
    blocks = [f"# {escape(page.title)}", f"*{escape(page.kind)}*"]
    blocks += [f"> **{escape(page.banner)}**"] if page.banner else []
    blocks += [f"**{escape(first)}**"]
    blocks += ["\n".join(f"- {escape(sentence)}" for sentence in others)] if others else []
    if page.findings:
        blocks += ["## Findings", *map(_finding, page.findings)]
    blocks += [block for section in page.sections for block in _section(section)]
    if page.notes:
        blocks += ["## Notes", "\n".join(f"- {escape(note)}" for note in page.notes)]
    blocks += [
        "## Where this comes from",
        "\n".join(f"- {name}: {escape(text)}" for name, text in page.facts),
    ]
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Text that shows as it is: no markup, no HTML, no cell borders. Underscores inside words are harmless."""
    text = re.sub(r"([\\`*<>\[\]|~])", r"\\\1", units.plain(text))
    text = re.sub(r"&(?=#?\w+;)", r"\&", text)
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\_", text)
    return re.sub(r"^([#+-]|\d+[.)])(?=\s|$)", r"\\\1", text)


def _finding(finding: Finding) -> str:
    lines = [f"**{escape(finding.title)}** ({finding.level})", escape(finding.seen), escape(finding.why)]
    lines += [f"→ {escape(finding.do)}"] if finding.do else []
    lines += [f"Gain: {escape(finding.gain)}"] if finding.gain else []
    return "  \n".join(line for line in lines if line)


def _section(section: Section) -> list[str]:
    blocks = [f"## {escape(section.title)}", *map(escape, section.text)]
    return [*blocks, _table(section.table)] if section.table is not None else blocks


def _table(table: Table) -> str:
    lines = ["| " + " | ".join(escape(column.title) for column in table.columns) + " |"]
    lines += ["|" + "|".join("--:" if column.numeric else ":--" for column in table.columns) + "|"]
    for row in table.rows:
        label, *cells = row.cells
        name = escape(label or "")
        shown = [INDENT * row.depth + (f"**{name}**" if row.kind == "whole" and name else name)]
        shown += [units.NONE if cell is None else escape(cell) for cell in cells]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)
