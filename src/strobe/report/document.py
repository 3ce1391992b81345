"""A report before any renderer gives it a shape: the answer first, then findings, then the detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from strobe.report.clips import ClipRow
from strobe.results.finding import Finding


@dataclass(frozen=True)
class Column:
    title: str
    numeric: bool = True


@dataclass(frozen=True)
class Row:
    """One line of a table; the first cell is the label and ``depth`` its place in the tree."""

    cells: list[str | None]
    kind: Literal["whole", "part", "other"] = "part"
    depth: int = 0
    share: float | None = None


@dataclass(frozen=True)
class Table:
    columns: list[Column]
    rows: list[Row]

    def without_empty_columns(self) -> Table:
        """The same table less the columns in which no part has anything."""
        parts = [row for row in self.rows if row.kind != "whole"] or self.rows
        columns = range(len(self.columns))
        return self._only([i for i in columns if any(row.cells[i] is not None for row in parts)])

    def left(self, columns: int) -> Table:
        """Its first ``columns``."""
        return self._only(range(columns))

    def _only(self, kept: Sequence[int]) -> Table:
        rows = [Row([row.cells[i] for i in kept], row.kind, row.depth, row.share) for row in self.rows]
        return Table([self.columns[i] for i in kept], rows)


@dataclass(frozen=True)
class Section:
    """A titled table. ``key`` says which plots belong to it; a ``detail`` is left out of the console.

    ``clips`` are videos, which only a page shows.
    """

    key: str
    title: str
    table: Table | None = None
    text: list[str] = field(default_factory=list)
    detail: bool = False
    clips: Sequence[ClipRow] = ()


@dataclass(frozen=True)
class Document:
    kind: str
    title: str
    banner: str | None
    answers: list[str]
    findings: list[Finding]
    sections: list[Section]
    notes: list[str]
    facts: list[tuple[str, str]]
    raw: list[tuple[str, str]]
