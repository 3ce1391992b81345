"""A report before any renderer gives it a shape: the answer first, then findings, then the detail.

Names, notes and reasons come from outside. Each class here makes its text one printable line when it is built, so that
whoever fills in a document need not think of it. Each renderer then escapes what its own form reads as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from strobe.core.results.finding import Finding
from strobe.core.results.units import plain


class _PlainText:
    """Base of records whose text becomes one printable line each, but for the fields in ``AS_IT_IS``."""

    AS_IT_IS: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name not in self.AS_IT_IS):  # type: ignore[arg-type]
            object.__setattr__(self, name, _made_plain(getattr(self, name)))


def _made_plain(value: Any) -> object:
    match value:
        case str():
            return plain(value)
        case list() | tuple():
            return type(value)(map(_made_plain, value))
        case Finding():
            return value.model_copy(update={name: _made_plain(text) for name, text in value if isinstance(text, str)})
    return value


@dataclass(frozen=True)
class Column(_PlainText):
    """The head of a column; ``numeric`` columns are aligned to the right."""

    title: str
    numeric: bool = True


@dataclass(frozen=True)
class Row(_PlainText):
    """One line of a table; the first cell is the label and ``depth`` its place in the tree."""

    cells: list[str | None]
    kind: Literal["whole", "part", "other"] = "part"
    depth: int = 0
    share: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells below their columns."""

    columns: list[Column]
    rows: list[Row]

    def without_empty_columns(self) -> Table:
        """Return the table without the columns in which no part has anything."""
        parts = [row for row in self.rows if row.kind != "whole"] or self.rows
        columns = range(len(self.columns))
        return self._select([i for i in columns if any(row.cells[i] is not None for row in parts)])

    def first_columns(self, count: int) -> Table:
        """Return the table with its first ``count`` columns only."""
        return self._select(range(count))

    def _select(self, places: Sequence[int]) -> Table:
        rows = [Row([row.cells[i] for i in places], row.kind, row.depth, row.share) for row in self.rows]
        return Table([self.columns[i] for i in places], rows)


@dataclass(frozen=True)
class Clip(_PlainText):
    """One video: whose, how it ended in words, and its files within the run's folder."""

    AS_IT_IS = ("file", "poster")

    title: str
    ending: str
    good: bool
    file: str
    poster: str | None = None

    @property
    def moves(self) -> bool:
        """Whether it is a video for the browser's player, rather than an animated image."""
        return self.file.endswith(".mp4")


@dataclass(frozen=True)
class ClipRow(_PlainText):
    """Videos that stand side by side."""

    title: str
    clips: Sequence[Clip]


@dataclass(frozen=True)
class Section(_PlainText):
    """A titled table.

    ``key`` says which plots belong to it. A ``detail`` is left out of the console. ``clips`` are videos, which only a
    page shows.
    """

    AS_IT_IS = ("key",)

    key: str
    title: str
    table: Table | None = None
    text: list[str] = field(default_factory=list)
    detail: bool = False
    clips: Sequence[ClipRow] = ()


@dataclass(frozen=True)
class Document(_PlainText):
    """All that a report says; ``raw`` are titled blocks of several lines, which only a page shows."""

    AS_IT_IS = ("raw",)

    kind: str
    title: str
    banner: str | None
    answers: list[str]
    findings: list[Finding]
    sections: list[Section]
    notes: list[str]
    facts: list[tuple[str, str]]
    raw: list[tuple[str, str]]
