"""Sweep → plots: the figures of its cells as lines over one axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strobe.core.report import charts
from strobe.core.report.charts import Plot, Trace
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.sweep.results import Axis, Cell, Row, Sweep
from strobe.sweep.sweep_cells import cells_in_grid_order, machine_numbers


@dataclass(frozen=True)
class _Figure:
    """A figure of a row in a plot, in the unit of its axis."""

    title: str
    unit: str
    of: Callable[[Row], float | None]
    interval: Callable[[Row], Interval | None] = lambda row: None


def _figures(rows: Sequence[Row]) -> list[_Figure]:
    largest = max((row.memory_bytes for row in rows if row.memory_bytes is not None), default=0)
    unit, scale = ("GiB", 2**30) if largest >= 2**30 else ("MiB", 2**20)

    def rates(row: Row) -> Interval | None:
        between = row.ms.interval
        if between is None or between.low <= 0 or between.high <= 0:
            return None
        low, high = (row.throughput * (row.ms.median / ms) for ms in (between.high, between.low))
        return Interval(low=low, high=high) if math.isfinite(high) else None

    return [
        _Figure("Time per call", "ms", lambda row: row.ms.median, lambda row: row.ms.interval),
        _Figure("Throughput", "samples/s", lambda row: row.throughput, rates),
        _Figure("Memory", unit, lambda row: None if row.memory_bytes is None else row.memory_bytes / scale),
    ]


def plots(sweep: Sweep) -> list[Plot]:
    """Return a plot of each figure over the longest axis, with a line for each combination of the others."""
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
        for cell in cells_in_grid_order(sweep):
            for row in cell.rows:
                if row.phase == phase:
                    name = _line(sweep, cell, along, row.measurement if several else None)
                    lines.setdefault(name, {})[cell.settings.get(along.name, "")] = row
        for figure in _figures(rows):
            traces = [_trace(i, name, line, along, figure) for i, (name, line) in enumerate(lines.items())]
            if any(y is not None for trace in traces for y in trace["y"]):
                drawn.append(_axis_plot(along, figure, of_phase, traces, sweep))
    return drawn


def _longest(axes: Sequence[Axis]) -> Axis | None:
    numeric = [axis for axis in axes if axis.numbers is not None and len(axis.numbers) == len(axis.values)]
    return max(numeric, key=lambda axis: len(axis.values)) if numeric else next(iter(axes), None)


def _line(sweep: Sweep, cell: Cell, along: Axis, measurement: str | None) -> str:
    others = [axis for axis in sweep.axes if axis.name != along.name]
    words = [] if measurement is None else [measurement]
    words += [f"{axis.name} {cell.settings.get(axis.name, units.NONE)}" for axis in others]
    # A line from one machine to an unlike one would show the machines, not the axis.
    words += [f"machine {machine_numbers(cell)}"] if len(sweep.machines) > 1 else []
    return ", ".join(words)


def _places(axis: Axis) -> list[float]:
    if axis.numbers is not None and len(axis.numbers) == len(axis.values):
        return list(axis.numbers)
    return [float(place) for place in range(len(axis.values))]


def _trace(index: int, name: str, line: Mapping[str, Row], along: Axis, figure: _Figure) -> Trace:
    rows = [(place, value, line.get(value)) for place, value in sorted(zip(_places(along), along.values, strict=True))]
    points = [(place, value, row and figure.of(row), row and figure.interval(row)) for place, value, row in rows]
    colour, ys = charts.colour(index), [y for _, _, y, _ in points]
    trace = charts.line(
        name or "all",
        [place for place, _, _, _ in points],
        ys,
        colour,
        "%{customdata[0]}: %{customdata[1]}<extra>%{fullData.name}</extra>",
        points=7,
        style={"dash": charts.DASHES[index // len(charts.PALETTE) % len(charts.DASHES)]},
        customdata=[[f"{along.name} {value}", _value_text(y, ends, figure)] for _, value, y, ends in points],
    )
    if any(ends for _, _, _, ends in points):
        known = [ends if y is not None else None for _, _, y, ends in points]
        trace["error_y"] = charts.error_bars([y or 0.0 for y in ys], known, colour)
    return trace


def _value_text(value: float | None, interval: Interval | None, figure: _Figure) -> str:
    if value is None:
        return units.NONE
    decimals = units.digits(value)
    spread = f" ({units.span(interval, decimals)})" if interval else ""
    return f"{units.ms(value, decimals)} {figure.unit}{spread}"


def _axis_plot(along: Axis, figure: _Figure, of_phase: str, traces: list[Trace], sweep: Sweep) -> Plot:
    places = _places(along)
    ticks: dict[float, list[str]] = {}
    for place, value in zip(places, along.values, strict=True):
        ticks.setdefault(place, []).append(value)
    legend = sum(len(trace["name"]) + 8 for trace in traces) // 110 + 1 if len(traces) > 1 else 0
    x = charts.axis(along.name, tickvals=list(ticks), ticktext=[" / ".join(values) for values in ticks.values()])
    y = charts.from_zero(figure.unit)
    if along.numbers is not None and charts.is_wide(places):
        x["type"] = "log"
        # Growth in proportion is then a straight line on both, and a curve on either alone.
        drawn = [y for trace in traces for y in trace["y"] if y is not None]
        if charts.is_wide(drawn):
            title = f"{figure.unit}, logarithmic"
            y = charts.log_axis(title, units.number, min(drawn), max(drawn), fine=True)
    bars = "Bars are the intervals of the medians." if any("error_y" in trace for trace in traces) else ""
    gaps = "Cells without a result have no point." if any(not cell.rows for cell in sweep.cells) else ""
    layout = charts.layout(320 + 20 * legend, x, y, showlegend=len(traces) > 1)
    return Plot(f"{figure.title} over {along.name}{of_phase}", f"{bars} {gaps}".strip(), traces, layout)
