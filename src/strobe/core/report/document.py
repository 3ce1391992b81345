"""A report before any renderer gives it a shape: the answer first, then findings, then the detail.

Names, notes and reasons come from outside. Each class here makes its text one printable line when it is built, so that
whoever fills in a document need not think of it. Each renderer then escapes what its own form reads as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Literal, TypeVar

from strobe.core.results import units
from strobe.core.results.finding import Finding
from strobe.core.results.units import plain

R = TypeVar("R")
Seen = TypeVar("Seen", contravariant=True)
V = TypeVar("V")
S = TypeVar("S")


class _PlainText:
    """Base of records whose text becomes one printable line each, but for the fields in ``AS_IT_IS``."""

    VERBATIM: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name not in self.VERBATIM):  # type: ignore[arg-type]
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


Kind = Literal["whole", "part", "other"]  # of a row


@dataclass(frozen=True)
class Column(_PlainText):
    """The head of a column; ``numeric`` columns are aligned to the right."""

    title: str
    numeric: bool = True


@dataclass(frozen=True)
class Row(_PlainText):
    """One line of a table; the first cell is the label and ``depth`` its place in the tree."""

    cells: list[str | None]
    kind: Kind = "part"
    depth: int = 0
    share: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells below their columns."""

    columns: list[Column]
    rows: list[Row]

    def drop_empty_columns(self) -> Table:
        """Return the table without the columns in which no part has anything."""
        parts = [row for row in self.rows if row.kind != "whole"] or self.rows
        return self.select_columns(
            [i for i in range(len(self.columns)) if any(row.cells[i] is not None for row in parts)]
        )

    def select_columns(self, places: Sequence[int]) -> Table:
        """Return the table with the columns at ``places`` only."""
        rows = [Row([row.cells[i] for i in places], row.kind, row.depth, row.share) for row in self.rows]
        return Table([self.columns[i] for i in places], rows)


def heads(*titles: str) -> list[Column]:
    """Return the heads of columns such as ``"<Part | <What it is | ms"``: below ``<`` is text, else numbers."""
    named = [title for line in titles for title in line.split(" | ")]
    return [Column(title.removeprefix("<"), numeric=not title.startswith("<")) for title in named]


@dataclass(frozen=True)
class ColumnOf(Generic[Seen]):
    """A column of records: its head, and what stands there of a record, with so many decimals."""

    head: Column
    cell: Callable[[Seen, int], str | None]


Columns = Sequence[ColumnOf[Seen]]


def words(title: str, get: Callable[[R], str | None]) -> ColumnOf[R]:
    """Return a column of text."""
    return ColumnOf(Column(title, numeric=False), lambda record, _: get(record))


def figure(title: str, get: Callable[[R], V | None], show: Callable[[V], str | None] = "{:,}".format) -> ColumnOf[R]:
    """Return a column of numbers; ``show`` writes one, and what a record does not have is None."""
    return ColumnOf(Column(title), lambda record, _: None if (value := get(record)) is None else show(value))


def scaled_column(
    title: str, get: Callable[[R], V | None], show: Callable[[V | None, int], str | None] = units.ms
) -> ColumnOf[R]:
    """Return a column of numbers that ``show`` writes with the decimals of their table."""
    return ColumnOf(Column(title), lambda record, decimals: show(get(record), decimals))


def figures(show: Callable[[V], str | None], *columns: tuple[str, Callable[[R], V | None]]) -> Columns[R]:
    """Return several columns of numbers that ``show`` writes, by title and getter."""
    return [figure(title, get, show) for title, get in columns]


def lift_columns(get: Callable[[R], S], columns: Columns[S]) -> Columns[R]:
    """Return the columns of what ``get`` takes out of a record."""
    return [
        ColumnOf(each.head, lambda record, decimals, each=each: each.cell(get(record), decimals)) for each in columns
    ]


def table(
    records: Iterable[R],
    columns: Columns[R],
    decimals: int = 2,
    *,
    kind: Callable[[R], Kind] = lambda _: "part",
    depth: Callable[[R], int] = lambda _: 0,
    share: Callable[[R], float | None] = lambda _: None,
) -> Table:
    """Return a row for each record."""
    rows = [
        Row([column.cell(record, decimals) for column in columns], kind(record), depth(record), share(record))
        for record in records
    ]
    return Table([column.head for column in columns], rows)


@dataclass(frozen=True)
class Clip(_PlainText):
    """One video: whose, how it ended in words, and its files within the run's folder."""

    VERBATIM = ("file", "poster")

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

    ``key`` says which plots belong to it. A ``detail`` is left out of the console; what was ``asked`` for by a flag is
    on its first screen. ``clips`` are videos, which only a page shows.
    """

    VERBATIM = ("key",)

    key: str
    title: str
    table: Table | None = None
    text: list[str] = field(default_factory=list)
    detail: bool = False
    clips: Sequence[ClipRow] = ()
    asked: bool = False


def listing(
    key: str,
    title: str,
    records: Sequence[R],
    columns: Columns[R],
    *text: str,
    decimals: int = 2,
    detail: bool = False,
    whole: bool = False,
) -> list[Section]:
    """Return a section with a row for each record; [] without records.

    Args:
        whole: with the columns in which no record has anything.
    """
    if not records:
        return []
    rows = table(records, columns, decimals)
    return [Section(key, title, rows if whole else rows.drop_empty_columns(), list(text), detail)]


@dataclass(frozen=True)
class Document(_PlainText):
    """All that a report says; ``raw`` are titled blocks of several lines, which only a page shows."""

    VERBATIM = ("raw",)

    kind: str
    title: str
    banner: str | None
    answers: list[str]
    findings: list[Finding]
    sections: list[Section]
    notes: list[str]
    facts: list[tuple[str, str]]
    raw: list[tuple[str, str]]
