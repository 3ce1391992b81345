"""History → document: what changed last and where, then each trend with its runs, and its lines over time."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot, Trace
from strobe.core.report.document import Columns, Document, Section, figure, scaled_column, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Summary
from strobe.history.results import History, Point, Trend

SHOWN = 0.02  # share of the whole: smaller parts have no line


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def outline(history: History, _depth: int | None = None) -> Document:
    """Return the document of a history."""
    named = _name_trends(history.trends)
    sections = [Section("trends", "Trends", table(named, _TRENDS))]
    for index, (name, trend) in enumerate(named):
        decimals = units.digits(max(point.summary.median for point in trend.points))
        rows = table(trend.points, _RUNS, decimals, kind=lambda point: "whole" if point.changes else "part")
        sections.append(Section(f"trend-{index}", name, rows, [_describe_trend(trend)]))
    return frame.document(
        history,
        answers(history),
        sections,
        notes=[*(f"not judged: {run}" for run in history.not_judged), *history.notes],
        facts=[("Strobe", history.strobe_version)],
    )


def answers(history: History) -> list[str]:
    """Return of each trend whether its last run is slower, and since which run, then the times."""
    return [line for name, trend in _name_trends(history.trends) for line in _describe_course(history, name, trend)]


def plots(history: History, _depth: int | None = None) -> Plots:
    """Return for each trend the whole and its larger parts over the runs, with intervals."""
    return {f"trend-{index}": [_plot(trend)] for index, trend in enumerate(history.trends)}


def _name_trends(trends: Sequence[Trend]) -> list[tuple[str, Trend]]:
    named = []
    for trend in trends:
        same = [t.settings for t in trends if (t.measured, t.subject) == (trend.measured, trend.subject)]
        differing = [name for name, value in trend.settings.items() if any(other.get(name) != value for other in same)]
        words = ", ".join(f"{name} {trend.settings[name]}" for name in differing)
        name = f"{trend.subject}, {trend.measured}"
        named.append((f"{name} ({words})" if words else name, trend))
    return named


def _describe_course(history: History, name: str, trend: Trend) -> list[str]:
    first, last = trend.points[0], trend.points[-1]
    medians = f"{units.rate(first.summary.median)} → {units.rate(last.summary.median)} ms"
    went = f"{name}: {medians} over {units.count(len(trend.points), 'run')}"
    what = f"{trend.measured.rpartition(': ')[2]} of {trend.subject}"
    if last.standing is not None:
        before, now = units.rate(last.summary.median / last.standing), units.rate(last.summary.median)
        noise = f" Run-to-run noise: {_percent(trend.between_runs)}." if trend.between_runs is not None else ""
        return [
            f"{what} is {100 * (last.standing - 1):.2g} % slower since {last.shown_in}.",
            f"About {before} ms before, {now} ms now, {units.rate(first.summary.median)} ms in the first of "
            f"{units.count(len(trend.points), 'run')}.{noise}",
            *_diff_command(history, trend, last.shown_in),
        ]
    if trend.doubt:
        return [f"Inconclusive: {what} may be slower than before.", f"{went}; {trend.doubt}."]
    changed = [(point, point.verdict.ratio) for point in trend.points if point.changes and point.verdict is not None]
    if changed:
        latest, ratio = changed[-1]
        by = f"{abs(100 * (ratio - 1)):.2g} %"
        how = "no longer slower" if latest.change == "fixed" else f"{by} {latest.change}"
        return [f"{what} is {how} since {latest.run}.", f"{went}.", *_diff_command(history, trend, latest.run)]
    if last.alone is None:
        return [f"Inconclusive: the last run of {what} is not judged.", f"{went}."]
    most = f"{100 * max(last.alone.high - 1, 0.0):.2g} %"
    return [f"{what} is at most {most} slower than before.", f"{went}; no change is shown; 95 % CI."]


def _diff_command(history: History, trend: Trend, run: str | None) -> list[str]:
    """Return the command that compares a run with the one before it; none for commits, which are no folders."""
    runs = [point.run for point in trend.points]
    if run not in runs[1:] or history.config.get("git"):
        return []
    folder = Path(str(history.config.get("folder") or "."))
    before, after = (str(folder / name) for name in (runs[runs.index(run) - 1], run))
    return [f"Next: {shlex.join(['strobe', 'diff', before, after])}"]


_TRENDS: Columns[tuple[str, Trend]] = [
    words("Trend", lambda named: named[0]),
    figure("Runs", lambda named: len(named[1].points), str),
    figure("First (ms)", lambda named: named[1].points[0].summary.median, units.rate),
    figure("Last (ms)", lambda named: named[1].points[-1].summary.median, units.rate),
    figure("Changes", lambda named: sum(point.changes for point in named[1].points), str),
    figure("Run-to-run noise", lambda named: named[1].between_runs, _percent),
    figure("Smallest detectable change", lambda named: named[1].visible, _percent),
    words("Machine", lambda named: named[1].machine),
]


def _describe_trend(trend: Trend) -> str:
    where = f"On {trend.machine}."
    if trend.between_runs is None:
        return where
    known = f"measured in {units.count(trend.known, 'run')}" if trend.known else "assumed: too few runs"
    spread = f"Runs differ by {_percent(trend.between_runs)} among themselves (standard deviation, {known})."
    return f"{where} {spread} Reference of the last run: {', '.join(trend.reference)}."


_RUNS: Columns[Point] = [
    words("Run", lambda point: point.run),
    words("Started", lambda point: f"{point.started:%Y-%m-%d %H:%M}"),
    scaled_column("ms (median)", lambda point: point.summary.median),
    scaled_column("95 % CI", lambda point: point.summary.interval, units.span),
    figure("Samples", lambda point: point.summary.n),
    words("vs the reference", lambda point: _point_verdict(point)),
    figure("Change", lambda point: point.verdict and point.verdict.ratio, units.change),
    figure("CI", lambda point: point.verdict and point.verdict.interval, units.change_span),
    words("Notes", lambda point: ", ".join([*_together(point), *point.differs]) or None),
]


def _together(point: Point) -> list[str]:
    return [f"with the {point.together - 1} before it"] if point.together > 1 else []


def _point_verdict(point: Point) -> str | None:
    if point.verdict is None:
        return None
    stands = " (stands)" if point.standing is not None and not point.changes else ""
    return f"{point.change or point.verdict.kind}{stands}"


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
    labels = [point.run for point in trend.points]
    traces = [_line(name, labels, of, charts.colour(index)) for index, (name, of) in enumerate(lines)]
    y = charts.from_zero("ms (median, 95 % interval)")
    changed = [charts.dashed_line(point.run, dash="dot", width=1) for point in trend.points if point.changes]
    layout = charts.layout(360, {"type": "category"}, y, shapes=changed)
    return Plot("From run to run", "A dotted line is a run in which a change is shown.", traces, layout)


def _line(name: str, labels: Sequence[str], of: Sequence[Summary | None], colour: str) -> Trace:
    known = [(label, summary) for label, summary in zip(labels, of, strict=True) if summary is not None]
    medians = [summary.median for _, summary in known]
    bars = charts.error_bars(medians, [summary.interval for _, summary in known], colour)
    hover = "%{x}<br>%{y:.4g} ms<extra>%{fullData.name}</extra>"
    return charts.line(name, [label for label, _ in known], medians, colour, hover, points=6, error_y=bars)
