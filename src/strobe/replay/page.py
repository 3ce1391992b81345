"""Replay → document: loop or policy at fault, whether the replay can be trusted, then its columns."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts, frame
from strobe.core.report.charts import OTHER, Plot, Trace
from strobe.core.report.document import Column, Columns, Document, Row, Section, Table, figure, listing
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.loops.results.motion import Jump
from strobe.replay.results import (
    FIGURES,
    Check,
    Range,
    Replayed,
    ReplayResult,
    Tried,
    figure_words,
    starved_chance_text,
)
from strobe.seams import report as seams

TITLES = {"recorded": "Recorded", "as it was": "Replayed", "as asked": "Your settings", "ideal loop": "Ideal loop"}
COLOURS = {
    "recorded": OTHER,
    "as it was": charts.colour(0),
    "as asked": charts.colour(1),
    "ideal loop": charts.colour(2),
}


def outline(result: ReplayResult, _depth: int | None = None) -> Document:
    """Return the document of a replay."""
    return frame.document(
        result,
        answers(result),
        _sections(result),
        banner="Interrupted: not all settings were replayed." if result.status == "interrupted" else None,
        facts=[("Replayed", result.run), ("Strobe", result.strobe_version)],
    )


def answers(result: ReplayResult) -> list[str]:
    """Return the verdict, the requested settings, the check of the replay, and the threshold to set."""
    first, stop, rest = result.verdict.partition(". ")
    sentences = [f"{first}{stop.rstrip()}", *([rest] if rest else [])]
    requested, own = result.column("as asked"), result.column("as it was")
    if requested is not None and own is not None:
        changed = [f"{name}={value}" for name, value in requested.settings.items() if own.settings.get(name) != value]
        named = ", ".join(changed) or "another policy"
        sentences.append(f"With {named}: {'; '.join(_describe_changes(own, requested))}.")
    sentences.append(_check(result.checks))
    raised = next((finding for finding in result.findings if finding.rule == "replay-threshold"), None)
    if raised is not None:
        sentences.append(f"Next: set --inference.queue_threshold={result.least_threshold} in lerobot-rollout.")
    return sentences


def _describe_changes(own: Replayed, requested: Replayed) -> list[str]:
    changes = []
    for name, words in (
        ("starved_ms", "time without an action"),
        ("held_hz", "loop rate"),
        ("age_ms", "observation age"),
    ):
        figures = [column.figures[name] for column in (own, requested)]
        (before, after), unit = (_range(name, figure) for figure in figures), FIGURES[name][1]
        if name == "starved_ms" and not any(figure.value or figure.high for figure in figures):
            changes.append("no control tick without an action in either replay")
        elif before != after:
            changes.append(f"{words} {after} instead of {before} {unit}")
    return changes


def _check(checks: Sequence[Check]) -> str:
    wrong = [check for check in checks if not check.agrees]
    if not wrong:
        return "With the recorded settings the replay agrees with the recording."
    differing = [
        f"{figure_words(check.figure)} {_number(check.figure, check.recorded)} recorded, "
        f"{_number(check.figure, check.low)} to {_number(check.figure, check.high)} replayed"
        for check in wrong
    ]
    return f"With the recorded settings the replay differs from the recording: {'; '.join(differing)}."


def _sections(result: ReplayResult) -> list[Section]:
    about = [
        f"Replayed {units.count(result.draws, 'time')} with latencies drawn from the recorded ones. Brackets hold 95 "
        "% of "
        "the replays; a figure without brackets was equal in all."
    ]
    shown = [Section("replay", "The run, replayed", _figures(result.columns), about)]
    shown.append(Section("settings", "Settings", _settings(result.columns)))
    if (jumps := _jumps(result.columns)) is not None:
        text = [
            "The median jump from chunk to chunk, divided by the 95th percentile of the steps inside chunks; 95 % "
            "interval."
        ]
        if (policy := result.policy) is not None:
            text.append(
                f"The policy ran {units.count(policy.calls, 'call')} on {policy.observations:,} saved observations "
                f"({policy.missing:,} were not saved). They were at most {policy.oldest_ms:,.0f} ms older than those "
                "of the run."
            )
        shown.append(Section("jumps", "Jumps between chunks", jumps, text))
    shown += seams.sections(result.causes)
    least = "No threshold is large enough: calls take too long for these chunks at this rate."
    if result.least_threshold is not None:
        least = f"With {result.least_threshold} {starved_chance_text(result.starves_chance)}."
    return [*shown, *listing("thresholds", "Smallest queue threshold", result.tried, _THRESHOLDS, least)]


def _figures(columns: Sequence[Replayed]) -> Table:
    rows = []
    for name, (about, unit, _) in FIGURES.items():
        known = [column.figures.get(name) for column in columns]
        cells = [None if of is None or of.value is None else _range(name, of) for of in known]
        if any(cell is not None for cell in cells):
            rows.append(Row([f"{about} ({unit})" if unit else about, *cells]))
    return Table(_columns("", columns), rows)


def _columns(first: str, columns: Sequence[Replayed]) -> list[Column]:
    return [Column(first, numeric=False), *(Column(TITLES[column.name]) for column in columns)]


def _range(name: str, figure: Range) -> str:
    if figure.value is None:
        return "no"
    value = _number(name, figure.value)
    if figure.low is None or figure.high is None:
        return value
    low, high = _number(name, figure.low), _number(name, figure.high)
    return value if low == high == value else f"{value} [{low}, {high}]"


def _number(name: str, value: float) -> str:
    return f"{value:,.{FIGURES[name][2] if name in FIGURES else 1}f}"


def _settings(columns: Sequence[Replayed]) -> Table:
    shown = [column for column in columns if column.name != "recorded"]
    names = list(dict.fromkeys(name for column in shown for name in column.settings))
    rows = [Row([name, *(column.settings.get(name) for column in shown)]) for name in names]
    return Table(_columns("Flag", shown), rows)


def _jumps(columns: Sequence[Replayed]) -> Table | None:
    """Return jumps over steps, joint by joint; None if only the recorded ones are known."""
    joints = list(dict.fromkeys(jump.joint for column in columns for jump in column.jumps))
    if not any(column.jumps for column in columns if column.name != "recorded"):
        return None
    of = [{jump.joint: jump for jump in column.jumps} for column in columns]
    rows = [Row([joint, *(_jump(jumps.get(joint)) for jumps in of)]) for joint in joints]
    counts = [max((jump.seams for jump in column.jumps), default=0) for column in columns]
    rows.append(Row(["seams", *(f"{number:,}" if number else None for number in counts)], "other"))
    return Table(_columns("Joint", columns), rows).drop_empty_columns()


def _jump(jump: Jump | None) -> str | None:
    ends = f" [{jump.interval.low:.1f}, {jump.interval.high:.1f}]" if jump is not None and jump.interval else ""
    return None if jump is None else f"{jump.ratio:.1f} ×{ends}"


def plots(result: ReplayResult, _depth: int | None = None) -> Plots:
    """Return actions left and ages over time, recorded and under each setting."""
    drawn = []
    if any(depth is not None for column in result.columns for depth in column.series.depth):
        crosses = "Crosses are ticks without an action."
        drawn.append(_time_plot("Actions in the queue", crosses, "actions", result.columns, "depth"))
    if any(age is not None for column in result.columns for age in column.series.age_ms):
        title = "Age of the observation behind each action"
        drawn.append(_time_plot(title, "With the recorded latencies in their order.", "ms", result.columns, "age_ms"))
    return {"replay": drawn}


_THRESHOLDS: Columns[Tried] = [
    figure("--inference.queue_threshold", lambda tried: tried.threshold, str),
    figure("Replays that starved", lambda tried: f"{tried.starved} of {tried.draws}", str),
]


def _time_plot(title: str, caption: str, unit: str, columns: Sequence[Replayed], field: str) -> Plot:
    data: list[Trace] = []
    for column in columns:
        series, colour, name = column.series, COLOURS[column.name], TITLES[column.name]
        # The ideal loop is there to be compared with, and hides the others.
        visible = "legendonly" if column.name == "ideal loop" else True
        style = {"width": 1.2, "shape": "hv"}
        data.append(charts.line(name, series.at_s, getattr(series, field), colour, style=style, visible=visible))
        starved = [at for at, none in zip(series.at_s, series.starved, strict=True) if none]
        if field == "depth" and starved:
            data.append(charts.crosses(f"{name}: no action", starved, colour))
    x, y = charts.axis("seconds from the first tick"), charts.from_zero(unit)
    return Plot(title, caption, data, charts.layout(360, x, y, hovermode="x unified", showlegend=True))
