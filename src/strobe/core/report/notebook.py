"""A document in a notebook's cell: HTML that stands by itself, without scripts, style sheets or links.

Notebooks take out of an output what they do not trust: JupyterLab the scripts, Colab and VS Code style sheets as well.
What is left here is text, a table and a plot of lines and boxes, in the page's own colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from strobe.core.report.console import ANSWERS, FACTS, FINDINGS, MARKS, ROWS, first_tables, truncate_rows
from strobe.core.report.document import Column, Document, Table
from strobe.core.report.html import template
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.comparison import Comparison
from strobe.core.results.measurement import Measurement

MOST_BYTES = 100_000
CUTS = (1000, 200, 40)  # characters of a text; the first with which it all fits
_WIDTH, _LEFT, _RIGHT, _ROW = 640, 190, 110, 24  # pixels
_NAME = 28  # characters of a name in the plot
_BLUE = "#4878d0"


@dataclass(frozen=True)
class LineBetween:
    """A line; pixels."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str = "currentColor"
    width: float = 1


@dataclass(frozen=True)
class Box:
    """A filled box; pixels."""

    x: float
    y: float
    width: float
    height: float
    colour: str = _BLUE


@dataclass(frozen=True)
class TextAt:
    """A text at a point; pixels. ``anchor`` is SVG's: start, middle or end."""

    x: float
    y: float
    words: str
    anchor: str = "start"


@dataclass(frozen=True)
class Picture:
    """A static plot."""

    title: str
    height: float
    lines: list[LineBetween] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    texts: list[TextAt] = field(default_factory=list)
    width: float = _WIDTH


def render(document: Document, plot: Picture | None = None) -> str:
    """Return the document's answers, first findings and first table, with ``plot``, in at most `MOST_BYTES`."""
    page = ""
    for most in CUTS:
        page = _page(document, plot, most)
        if len(page.encode()) <= MOST_BYTES:
            break
    return page


def result_picture(result: Result) -> Picture | None:
    """Return the changes of a comparison with their intervals, else the parts of the first measurement.

    None if there is neither.
    """
    if judged := [pair for pair in result.judged_comparisons() if pair.verdict.pairs][:ROWS]:
        return _changes(judged)
    first = next((m for m in result.advised_measurements() if m.components), None)
    return _parts(first) if first is not None else None


def _page(document: Document, plot: Picture | None, most: int) -> str:
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
        plot=plot,
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


def _changes(judged: Sequence[Comparison]) -> Picture:
    ends = [(pair.verdict.interval.low, pair.verdict.ratio, pair.verdict.interval.high) for pair in judged]
    low, high = min(1.0, *(end[0] for end in ends)), max(1.0, *(end[2] for end in ends))
    room = (high - low) * 0.05 or 0.01
    low, high = low - room, high + room

    def x_position(ratio: float) -> float:
        return round(_LEFT + (ratio - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT), 1)

    bottom = 24 + _ROW * len(judged)
    picture = Picture("Change of time against the first variant, with its interval", bottom + 22)
    picture.lines.append(LineBetween(x_position(1.0), 20, x_position(1.0), bottom, width=0.5))
    picture.texts.append(TextAt(x_position(1.0), bottom + 14, "no change", "middle"))
    for index, (pair, (least, ratio, most)) in enumerate(zip(judged, ends, strict=True)):
        y = 24 + _ROW * index + _ROW / 2
        picture.texts.append(TextAt(_LEFT - 10, y + 4, _cut(units.plain(pair.candidate), _NAME), "end"))
        picture.lines.append(LineBetween(x_position(least), y, x_position(most), y, _BLUE, 3))
        picture.boxes.append(Box(x_position(ratio) - 3, y - 6, 6, 12))
        picture.texts.append(TextAt(_WIDTH - _RIGHT + 10, y + 4, units.change(pair.verdict.ratio) or ""))
    return picture


def _parts(measurement: Measurement) -> Picture:
    parts = [part for part in measurement.components if part.depth == 1]
    least = sorted((part.share for part in parts), reverse=True)[:ROWS][-1:]
    parts = [part for part in parts if part.share >= least[0]][:ROWS]
    decimals = units.digits(measurement.samples.summary.median)
    picture = Picture("Share of all calls' time, and median in ms", 28 + _ROW * len(parts))
    for index, part in enumerate(parts):
        y = 24 + _ROW * index
        long = max(0.0, min(part.share, 1.0)) * (_WIDTH - _LEFT - _RIGHT)
        picture.boxes.append(Box(_LEFT, y + 4, round(long, 1), _ROW - 8, "#999999" if part.other else _BLUE))
        picture.texts.append(TextAt(_LEFT - 10, y + 16, _cut(units.plain(part.name), _NAME), "end"))
        figures = f"{units.percent(part.share)}, {units.ms(part.summary.median, decimals)}"
        picture.texts.append(TextAt(round(_LEFT + long + 6, 1), y + 16, figures))
    return picture
