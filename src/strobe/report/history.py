"""History → document: what changed last and where, then each trend with its runs, and its lines over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.report import facts, units
from strobe.report.document import Column, Document, Row, Section, Table
from strobe.report.plots import PALETTE, Plot, text
from strobe.results.data import Summary
from strobe.results.history import History, Point, Trend

SHOWN = 0.02  # of the whole: smaller parts have no line
COLUMNS = (
    Column("Run", numeric=False),
    Column("Started", numeric=False),
    Column("ms (median)"),
    Column("95 % interval"),
    Column("Samples"),
    Column("Against the runs since the last change", numeric=False),
    Column("Change"),
)


def outline(history: History) -> Document:
    """The document of a history."""
    return Document(
        kind="strobe history",
        title=units.plain(history.title),
        banner=None,
        answers=[_answer(trend) for trend in history.trends],
        findings=facts.findings(history.findings),
        sections=[Section("trends", "Trends", _overview(history.trends)), *_each(history.trends)],
        notes=[units.plain(note) for note in history.notes],
        facts=[("Strobe", history.strobe_version), *facts.run(history)],
        raw=facts.raw(history.command, {"Config": history.config}),
    )


def plots(history: History) -> dict[str, list[Plot]]:
    """For each trend the whole and its larger parts over the runs, with intervals."""
    return {f"trend-{index}": [_plot(trend)] for index, trend in enumerate(history.trends)}


def _name(trend: Trend) -> str:
    return units.plain(f"{trend.subject}, {trend.measured}")


def _answer(trend: Trend) -> str:
    first, last = trend.points[0], trend.points[-1]
    runs = units.count(len(trend.points), "run")
    went = f"{units.rate(first.summary.median)} → {units.rate(last.summary.median)} ms over {runs}"
    changed = [point for point in trend.points if point.changes]
    if not changed:
        return f"{_name(trend)}: {went}; no change is shown."
    latest = changed[-1]
    assert latest.verdict is not None
    how = f"{latest.verdict.kind} by {abs(100 * (latest.verdict.ratio - 1)):.3g} %"
    return f"{_name(trend)}: {went}; the last change, in {units.plain(latest.run)}: {how}."


def _overview(trends: Sequence[Trend]) -> Table:
    columns = [Column("Trend", numeric=False), Column("Runs"), Column("First (ms)"), Column("Last (ms)")]
    columns += [Column("Changes"), Column("Machine", numeric=False)]
    rows = []
    for trend in trends:
        ends = [units.rate(point.summary.median) for point in (trend.points[0], trend.points[-1])]
        changes = str(sum(point.changes for point in trend.points))
        rows.append(Row([_name(trend), str(len(trend.points)), *ends, changes, units.plain(trend.machine)]))
    return Table(columns, rows)


def _each(trends: Sequence[Trend]) -> list[Section]:
    return [
        Section(f"trend-{index}", _name(trend), _runs(trend), [f"On {units.plain(trend.machine)}."])
        for index, trend in enumerate(trends)
    ]


def _runs(trend: Trend) -> Table:
    decimals = units.digits(max(point.summary.median for point in trend.points))
    return Table(list(COLUMNS), [_row(point, decimals) for point in trend.points])


def _row(point: Point, decimals: int) -> Row:
    summary, verdict = point.summary, point.verdict
    cells = [units.plain(point.run), f"{point.started:%Y-%m-%d %H:%M}", units.ms(summary.median, decimals)]
    cells += [units.span(summary.interval, decimals), f"{summary.n:,}"]
    cells += [None, None] if verdict is None else [verdict.kind, units.change(verdict.ratio)]
    return Row(cells, "whole" if point.changes else "part")


def _plot(trend: Trend) -> Plot:
    largest = max(point.summary.median for point in trend.points)
    names = dict.fromkeys(
        name
        for point in trend.points
        for name, summary in point.parts.items()
        if summary.median >= SHOWN * largest and " / " in name
    )
    lines = [("whole", [point.summary for point in trend.points])]
    lines += [(name.split(" / ")[-1], [point.parts.get(name) for point in trend.points]) for name in names]
    labels = [units.plain(point.run) for point in trend.points]
    traces = [_line(name, labels, of, PALETTE[index % len(PALETTE)]) for index, (name, of) in enumerate(lines)]
    marks = [label for label, point in zip(labels, trend.points, strict=True) if point.changes]
    layout: dict[str, Any] = {
        "height": 360,
        "xaxis": {"type": "category", "automargin": True},
        "yaxis": {"title": {"text": "ms (median, 95 % interval)"}, "rangemode": "tozero"},
        "shapes": [
            {"type": "line", "xref": "x", "yref": "paper", "x0": label, "x1": label, "y0": 0, "y1": 1,
             "line": {"dash": "dot", "width": 1, "color": "#888"}}
            for label in marks
        ],
    }  # fmt: skip
    return Plot("From run to run", "A dotted line is a run in which a change is shown.", traces, layout)


def _line(name: str, labels: Sequence[str], of: Sequence[Summary | None], colour: str) -> dict[str, Any]:
    there = [(label, one) for label, one in zip(labels, of, strict=True) if one is not None]
    above = [one.interval.high - one.median if one.interval else 0.0 for _, one in there]
    below = [one.median - one.interval.low if one.interval else 0.0 for _, one in there]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": text(name),
        "x": [text(label) for label, _ in there],
        "y": [one.median for _, one in there],
        "error_y": {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "color": colour},
        "marker": {"color": colour},
        "line": {"color": colour},
        "hovertemplate": "%{x}<br>%{y:.4g} ms<extra>" + text(name) + "</extra>",
    }
