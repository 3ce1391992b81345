"""Sweep → plots: lines over one axis, the parts' shares as stacked bars, heat maps over two axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strobe.report import sweep as tables
from strobe.report import units
from strobe.report.plots import OTHER, PALETTE, Colours, Plot, text
from strobe.results.data import Interval
from strobe.results.sweep import Axis, Cell, Row, Sweep

BARS = 80  # cells in one stacked plot; more only make the page long
MAPS = 4
WIDE = 8  # a span of values, highest over lowest, from which a logarithm shows them better
# One hue each, light enough from end to end for dark text, on a light page and on a dark one.
SCALES = {
    "throughput": [[0, "#edf4fc"], [1, "#7cb0e6"]],
    "time": [[0, "#fdf2e6"], [1, "#e8a25c"]],
}
INK = "#12181f"
DASHES = ("solid", "dash", "dot", "dashdot")

Setting = Mapping[str, str]


@dataclass(frozen=True)
class _Figure:
    """A figure of a row in a line plot or a heat map, in the unit of its axis."""

    name: Literal["time", "throughput", "memory"]
    title: str
    unit: str
    of: Callable[[Row], float | None]
    interval: Callable[[Row], Interval | None] = lambda row: None


def plots(sweep: Sweep) -> dict[str, list[Plot]]:
    """The plots of a sweep, all beside the table of its cells."""
    return {"cells": [*_lines(sweep), *_shares(sweep), *_heat_maps(sweep)]}


def _figures(rows: Sequence[Row]) -> list[_Figure]:
    largest = max((row.memory_bytes for row in rows if row.memory_bytes is not None), default=0)
    unit, scale = ("GiB", 2**30) if largest >= 2**30 else ("MiB", 2**20)

    def rates(row: Row) -> Interval | None:
        between = row.ms.interval
        if between is None or between.low <= 0 or between.high <= 0:
            return None
        low, high = (row.throughput * (row.ms.median / ms) for ms in (between.high, between.low))
        return Interval(low=low, high=high) if math.isfinite(high) else None

    def memory(row: Row) -> float | None:
        return None if row.memory_bytes is None else row.memory_bytes / scale

    return [
        _Figure("time", "Time per call", "ms", lambda row: row.ms.median, lambda row: row.ms.interval),
        _Figure("throughput", "Throughput", "samples/s", lambda row: row.throughput, rates),
        _Figure("memory", "Memory", unit, memory),
    ]


def _lines(sweep: Sweep) -> list[Plot]:
    """A plot per figure and phase: a line for each combination of what is not on its axis."""
    rows = [row for cell in sweep.cells for row in cell.rows]
    along = _longest(sweep.axes)
    if along is None or len(along.values) < 2:
        return []
    phases = list(dict.fromkeys(row.phase for row in rows))
    drawn = []
    for phase in phases:
        several = len({row.measurement for row in rows if row.phase == phase}) > 1
        of_phase = f" ({phase})" if len(phases) > 1 else ""
        lines: dict[str, dict[str, Row]] = {}
        for cell in tables.in_order(sweep):
            for row in cell.rows:
                if row.phase == phase:
                    name = _line(sweep, cell, along, row.measurement if several else None)
                    lines.setdefault(name, {})[cell.settings.get(along.name, "")] = row
        for figure in _figures(rows):
            traces = [_trace(i, name, line, along, figure) for i, (name, line) in enumerate(lines.items())]
            if any(y is not None for trace in traces for y in trace["y"]):
                drawn.append(_over(along, figure, of_phase, traces, sweep))
    return drawn


def _longest(axes: Sequence[Axis]) -> Axis | None:
    """The numeric axis with most values, or the first of any kind."""
    numeric = [axis for axis in axes if axis.numbers is not None and len(axis.numbers) == len(axis.values)]
    return max(numeric, key=lambda axis: len(axis.values)) if numeric else next(iter(axes), None)


def _line(sweep: Sweep, cell: Cell, along: Axis, measurement: str | None) -> str:
    others = [axis for axis in sweep.axes if axis.name != along.name]
    said = [] if measurement is None else [measurement]
    said += [f"{axis.name} {cell.settings.get(axis.name, units.NONE)}" for axis in others]
    # A line from one machine to an unlike one would show the machines, not the axis.
    said += [f"machine {tables.ran_on(cell)}"] if len(sweep.machines) > 1 else []
    return ", ".join(said)


def _places(axis: Axis) -> list[float]:
    """Where the axis' values are drawn: at their numbers, or one beside the other."""
    if axis.numbers is not None and len(axis.numbers) == len(axis.values):
        return list(axis.numbers)
    return [float(place) for place in range(len(axis.values))]


def _trace(index: int, name: str, line: Mapping[str, Row], along: Axis, figure: _Figure) -> dict[str, Any]:
    points = sorted(zip(_places(along), along.values, strict=True))
    rows = [line.get(value) for _, value in points]
    ys = [row and figure.of(row) for row in rows]
    between = [row and figure.interval(row) for row in rows]
    colour = PALETTE[index % len(PALETTE)]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": text(name) or "all",
        "x": [x for x, _ in points],
        "y": [None if y is None else _round(y) for y in ys],
        "marker": {"color": colour, "size": 7},
        "line": {"color": colour, "width": 2, "dash": DASHES[index // len(PALETTE) % len(DASHES)]},
        # Names go in as data: in a template, '%{x}' in a name would be filled in.
        "customdata": [
            [text(f"{along.name} {value}"), _said(y, i, figure)]
            for (_, value), y, i in zip(points, ys, between, strict=True)
        ],
        "hovertemplate": "%{customdata[0]}: %{customdata[1]}<extra>%{fullData.name}</extra>",
    }
    if any(between):
        pairs = list(zip(ys, between, strict=True))
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [_round(i.high - y) if i and y is not None else None for y, i in pairs],
            "arrayminus": [_round(y - i.low) if i and y is not None else None for y, i in pairs],
            "color": colour,
            "thickness": 1.5,
        }
    return trace


def _said(value: float | None, interval: Interval | None, figure: _Figure) -> str:
    if value is None:
        return units.NONE
    decimals = units.digits(value)
    spread = f" ({units.span(interval, decimals)})" if interval else ""
    return f"{units.ms(value, decimals)} {figure.unit}{spread}"


def _over(along: Axis, figure: _Figure, of_phase: str, traces: list[dict[str, Any]], sweep: Sweep) -> Plot:
    places = _places(along)
    ticks: dict[float, list[str]] = {}
    for place, value in zip(places, along.values, strict=True):
        ticks.setdefault(place, []).append(text(value))
    legend = sum(len(trace["name"]) + 8 for trace in traces) // 110 + 1 if len(traces) > 1 else 0
    x: dict[str, Any] = {
        "title": {"text": text(along.name)},
        "tickvals": list(ticks),
        "ticktext": [" / ".join(values) for values in ticks.values()],
    }
    y: dict[str, Any] = {"title": {"text": figure.unit}, "rangemode": "tozero"}
    if along.numbers is not None and _wide(places):
        x["type"] = "log"
        # Growth in proportion is then a straight line on both, and a curve on either alone.
        drawn = [y for trace in traces for y in trace["y"] if y is not None]
        if _wide(drawn):
            y = {"title": {"text": f"{figure.unit}, logarithmic"}, "type": "log", **_decades(min(drawn), max(drawn))}
    layout = {
        "height": 320 + 20 * legend,
        "showlegend": len(traces) > 1,
        "xaxis": x,
        "yaxis": y,
    }
    bars = "Bars are the intervals of the medians." if any("error_y" in trace for trace in traces) else ""
    gaps = "Cells without a result have no point." if any(not cell.rows for cell in sweep.cells) else ""
    title = f"{figure.title} over {units.plain(along.name)}{of_phase}"
    return Plot(title, f"{bars} {gaps}".strip(), traces, layout)


def _shares(sweep: Sweep) -> list[Plot]:
    """The top parts' shares as stacked bars, a plot for each measurement and a bar for each cell."""
    shares = tables.shares(sweep)
    parts = tables.top_parts(shares)
    if not parts:
        return []
    found = iter(shares)
    held = [(cell, {row.measurement: next(found) for row in cell.rows}) for cell in tables.in_order(sweep)]
    measured = list(dict.fromkeys(name for _, rows in held for name in rows))
    colours = Colours(parts)
    drawn = []
    for measurement in measured:
        of_cells = [(cell, rows.get(measurement, {})) for cell, rows in held if measurement in rows or not cell.rows]
        named = [part for part in parts if part != "other" and any(part in rows for _, rows in of_cells)]
        if named:
            of = f" ({units.plain(measurement)})" if len(measured) > 1 else ""
            drawn.append(_stacked(sweep, of, of_cells, named, colours))
    return drawn


def _stacked(
    sweep: Sweep, of: str, of_cells: Sequence[tuple[Cell, tables.Figures]], parts: list[str], colours: Colours
) -> Plot:
    bars = of_cells[:BARS]
    places = list(range(len(bars)))
    names = [text(_bar(sweep, cell)) for cell, _ in bars]
    stacks = [(part, [rows.get(part) for _, rows in bars]) for part in parts]
    # The whole is 100 %: what the named parts leave is drawn, and never negative by rounding.
    left = [max(0.0, 1 - sum(rows.get(part, 0.0) for part in parts)) if rows else None for _, rows in bars]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": text(part),
            "y": places,
            "x": [None if share is None else round(100 * share, 3) for share in values],
            "text": [units.percent(share) or "" for share in values],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "insidetextfont": {"color": "#fff"},
            "textangle": 0,
            "customdata": names,
            "marker": {"color": OTHER if values is left else colours.of(part)},
            "hovertemplate": "%{customdata}<br>%{text}<extra>%{fullData.name}</extra>",
        }
        for part, values in [*stacks, ("the rest", left)]
    ]
    layout = {
        "height": 110 + 26 * len(bars),
        "barmode": "stack",
        "bargap": 0.25,
        "uniformtext": {"minsize": 9, "mode": "hide"},
        "xaxis": {"title": {"text": "% of the whole"}, "range": [0, 100]},
        "yaxis": {
            "tickvals": places,
            "ticktext": names,
            "autorange": "reversed",
            "showgrid": False,
            "fixedrange": True,
        },
    }
    caption = f"The first {BARS} of {len(of_cells)} cells; the table has all." if len(of_cells) > BARS else ""
    return Plot(f"Where the time goes in each cell{of}", caption, traces, layout)


def _bar(sweep: Sweep, cell: Cell) -> str:
    values = ", ".join(cell.settings.get(axis.name, units.NONE) for axis in sweep.axes)
    return values if cell.rows else f"{values}: {cell.status}"


def _heat_maps(sweep: Sweep) -> list[Plot]:
    """Throughput and time over the first two axes that vary; of what else varies, what comes first."""
    varied = [axis for axis in sweep.axes if len(axis.values) > 1]
    rows = [row for cell in sweep.cells for row in cell.rows]
    if len(varied) < 2 or not rows:
        return []
    down, across, *others = varied
    combinations = list(dict.fromkeys(_rest(cell, others) for cell in tables.in_order(sweep)))
    measured = list(dict.fromkeys(row.measurement for row in rows))
    throughput_first = sorted(_figures(rows)[:2], key=lambda figure: figure.name != "throughput")
    wanted = [(m, rest, figure) for m in measured for rest in combinations for figure in throughput_first]
    drawn = []
    for measurement, rest, figure in wanted[:MAPS]:
        of = [measurement] if len(measured) > 1 else []
        of += [f"{axis.name} {value}" for axis, value in zip(others, rest, strict=True)]
        inside = [cell for cell in sweep.cells if _rest(cell, others) == rest]
        unlike = len({tables.ran_on(cell) for cell in inside} - {""}) > 1  # a cell that failed has no machine
        left_out = f"The table has what the other {len(wanted) - MAPS:,} maps would show." if len(wanted) > MAPS else ""
        axes = f"{units.plain(down.name)} by {units.plain(across.name)}."
        said = [axes, "From unlike machines: see the table." if unlike else ""]
        said += [left_out] if len(drawn) == MAPS - 1 else []
        caption = " ".join(filter(None, said))
        title = f"{figure.title} ({figure.unit}){': ' if of else ''}{units.plain(', '.join(of))}"
        drawn.append(_heat_map(title, caption, down, across, inside, measurement, figure))
    return drawn


def _rest(cell: Cell, others: Sequence[Axis]) -> tuple[str, ...]:
    return tuple(cell.settings.get(axis.name, units.NONE) for axis in others)


def _heat_map(
    title: str, caption: str, down: Axis, across: Axis, inside: Sequence[Cell], measurement: str, figure: _Figure
) -> Plot:
    at = {(cell.settings.get(down.name), cell.settings.get(across.name)): cell for cell in inside}
    grid = [[at.get((y, x)) for x in across.values] for y in down.values]

    def value(cell: Cell | None) -> float | None:
        row = next((row for row in cell.rows if row.measurement == measurement), None) if cell else None
        return row and figure.of(row)

    values = [[value(cell) for cell in row] for row in grid]
    failed = [[cell is not None and value(cell) is None for cell in row] for row in grid]
    known = [v for row in values for v in row if v is not None]
    logarithmic = _wide(known)
    decimals = units.digits(max(known, default=0.0))
    shared = {
        "type": "heatmap",
        "x": list(range(len(across.values))),
        "y": list(range(len(down.values))),
        "texttemplate": "%{text}",
        "hovertemplate": "%{customdata}<br>%{text}<extra></extra>",
        "customdata": [[text(f"{down.name} {y}, {across.name} {x}") for x in across.values] for y in down.values],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }
    colour = [[None if v is None else math.log10(v) if logarithmic else v for v in row] for row in values]
    traces = [
        {
            **shared,
            "z": colour,
            "text": [[units.ms(v, decimals) or "" for v in row] for row in values],
            "colorscale": SCALES[figure.name],
            "textfont": {"color": INK},
        }
    ]
    if any(map(any, failed)):
        # A cell without a result is grey and says why, so that it is not taken for one that was never asked for.
        traces.append(
            {
                **shared,
                "z": [[0 if f else None for f in row] for row in failed],
                "text": [[text(c.status) if c and f else "" for c, f in zip(r, fs, strict=True)]
                         for r, fs in zip(grid, failed, strict=True)],
                "colorscale": [[0, OTHER], [1, OTHER]],
                "textfont": {"color": "#fff"},
            }
        )  # fmt: skip
    layout = {
        "height": 112 + 44 * len(down.values),
        "margin": {"t": 28, "b": 44, "l": 24, "r": 12},  # room above for the camera, which would hide a cell
        "xaxis": {**_categories(across), "title": {"text": text(across.name)}},
        "yaxis": {**_categories(down), "autorange": "reversed"},
    }
    return Plot(title, caption, traces, layout)


def _categories(axis: Axis) -> dict[str, Any]:
    ticktext = [text(value) for value in axis.values]
    return {"tickvals": list(range(len(ticktext))), "ticktext": ticktext, "showgrid": False, "fixedrange": True}


def _decades(low: float, high: float) -> dict[str, list[Any]]:
    """Ticks of a logarithmic axis, each with its whole number: Plotly's own say '2' for 20 and for 200."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) < 6 else (1,)
    ticks = [(step * 10.0**power, max(0, -power)) for power in powers for step in steps]
    return {"tickvals": [v for v, _ in ticks], "ticktext": [units.ms(v, decimals) for v, decimals in ticks]}


def _wide(values: Sequence[float]) -> bool:
    return min(values, default=0) > 0 and max(values) / min(values) > WIDE


def _round(value: float) -> float:
    return float(f"{value:.6g}")
