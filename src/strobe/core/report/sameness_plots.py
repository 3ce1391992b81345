"""Errors along the chunk as plots: a line for each dimension, with the yardsticks as bands behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from strobe.core.report import charts
from strobe.core.report.charts import OTHER, PALETTE, Plot, Trace
from strobe.core.report.frame import Plots
from strobe.core.report.sameness import KEY, NAMES, focus
from strobe.core.results import units
from strobe.core.results.agreement import Agreement, DimensionAgreement, Yardstick, YardstickName
from strobe.core.results.answer import Held

LEAST, LARGEST = 1e-9, 1e12  # σ: nothing below is drawn apart from 0, and nothing above apart from the largest
MOST = 6  # dimensions with a colour of their own, the worst ones
LONGEST = 28  # letters of a name in the legend
# Yardstick → how its upper edge is drawn, and its ground: each shows on white and on near black, and none of their
# colours is that of a dimension.
BANDS = {
    "reordered sums": ("dot", "rgba(108,116,125,0.22)"),
    "another noise draw": ("dash", "rgba(82,111,166,0.20)"),
    "neighbouring frame": ("dashdot", "rgba(95,115,40,0.22)"),
    "another observation": ("longdash", "rgba(150,86,59,0.20)"),
}
EDGES = {
    "reordered sums": OTHER,
    "another noise draw": PALETTE[9],
    "neighbouring frame": PALETTE[7],
    "another observation": PALETTE[8],
}


def plots(candidates: Sequence[Held], yardsticks: Sequence[Yardstick], closely: Sequence[str] | None = None) -> Plots:
    """Return a plot for each candidate that deserves a closer look, by the key of their section; see `sections`."""
    drawn = [
        _plot_along(candidate.name, candidate.agreement, yardsticks, several=len(candidates) > 1)
        for candidate in focus(candidates, closely)
        if candidate.agreement is not None and any(dimension.along for dimension in candidate.agreement.dimensions)
    ]
    return {KEY: drawn} if drawn else {}


def _plot_along(name: str, same: Agreement, yardsticks: Sequence[Yardstick], *, several: bool) -> Plot:
    dimensions = [dimension for dimension in same.dimensions if dimension.along]
    moved = [dimension for dimension in dimensions if any(value > 0 for value in dimension.along)]
    bands = [band for yardstick in yardsticks if (band := _edges(yardstick)) is not None]
    values = [value for dimension in moved for value in dimension.along]
    values += [value for _, least, most in bands for value in (*least, *most)]
    low, high = _span(values)
    length = max(len(dimension.along) for dimension in dimensions)
    traces = [trace for band in bands for trace in _band(*band, low)]
    traces += _lines(dimensions, moved, low)
    y = charts.log_axis("error (RMS, σ)", units.sigma, low, high)
    y["range"] = [math.log10(low) - 0.1, math.log10(high) + 0.7]
    layout = charts.layout(
        460, charts.axis("action of the chunk", range=[0.5, length + 0.5]), y, showlegend=True, hovermode="closest"
    )
    if same.executed is not None and same.executed < length:
        place = same.executed + 0.5
        layout["shapes"] = [charts.dashed_line(place, dash="dot")]
        layout["annotations"] = [
            {"x": place, "y": 0.98, "yref": "paper", "xanchor": "left", "showarrow": False, "xshift": 4}
            | {"text": f"executed: the first {same.executed}"}
        ]
    title = f"Error along the chunk: {name}" if several else "Error along the chunk"
    return Plot(title, _caption(dimensions, moved, bool(bands)), traces, layout)


def _lines(dimensions: Sequence[DimensionAgreement], moved: Sequence[DimensionAgreement], low: float) -> list[Trace]:
    named = sorted(moved, key=lambda dimension: -dimension.rms)[:MOST]
    grey = [dimension for dimension in moved if dimension not in named]
    if len(grey) < 3:  # hardly shorter than their names
        named, grey = [*named, *grey], []
    lines = []
    for index, dimension in enumerate(grey):
        # One entry of the legend for all of them.
        shared = {"legendgroup": "others", "showlegend": index == 0, "name": f"{len(grey)} others", "opacity": 0.6}
        lines.append(_line(dimension, OTHER, low) | shared)
    in_order = sorted(named, key=dimensions.index)
    return lines + [_line(dimension, charts.colour(index), low) for index, dimension in enumerate(in_order)]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 3]}…{name[-LONGEST // 2 :]}"


def _caption(dimensions: Sequence[DimensionAgreement], moved: Sequence[DimensionAgreement], banded: bool) -> str:
    sentences = ["A line for each dimension."]
    if banded:
        sentences.append(
            "Bands are yardsticks, from the dimension that changes least to the dimension that changes most."
        )
    still = [dimension.name for dimension in dimensions if dimension not in moved]
    if len(still) == len(dimensions):
        sentences = ["No action changed: 0 is not drawn.", *sentences[1:]]
    elif still:
        sentences.append(f"0, not drawn: {', '.join(still)}.")
    return " ".join(sentences)


def _line(dimension: DimensionAgreement, colour: str, low: float) -> Trace:
    steps, values = list(range(1, len(dimension.along) + 1)), [_clip(value, low) for value in dimension.along]
    hover = "%{customdata[2]}, action %{x}<br>%{customdata[0]} (%{customdata[1]} in its own units)<extra></extra>"
    words = [
        [f"{units.sigma(value)} σ", units.number(value * dimension.spread, 2), dimension.name]
        for value in dimension.along
    ]
    drawn = {"style": {"width": 1.8}, "mode": _mode(values), "customdata": words}
    return charts.line(_short(dimension.name), steps, values, colour, hover, points=7, **drawn)


def _mode(values: Sequence[float]) -> str:
    return "lines" if len(values) > 1 else "markers"


def _edges(yardstick: Yardstick) -> tuple[YardstickName, list[float], list[float]] | None:
    """Return the least and the largest of its dimensions at each action; None if none changes, or none was kept."""
    along = [dimension.along for dimension in yardstick.dimensions if dimension.along]
    if not any(value > 0 for values in along for value in values):
        return None
    steps = list(zip(*along, strict=False))
    return (
        yardstick.name,
        [min(filter(None, values), default=0.0) for values in steps],
        [max(values) for values in steps],
    )


def _band(name: YardstickName, least: Sequence[float], most: Sequence[float], low: float) -> list[Trace]:
    dash, ground = BANDS[name]
    colour = EDGES[name]

    def edge(values: Sequence[float], hover: str | None = None, **more: Any) -> Trace:
        steps, drawn = list(range(1, len(values) + 1)), [_clip(value, low) for value in values]
        marker = {"color": colour, "size": 7, "symbol": "line-ew-open"}
        shared = {"mode": _mode(values), "legendgroup": name, "legendrank": 2000}  # drawn first, named last
        return charts.line(NAMES.get(name, name), steps, drawn, colour, hover, marker=marker, **(shared | more))

    hover = "yardstick: %{fullData.name}<br>action %{x}, largest dimension: %{customdata}<extra></extra>"
    words = [f"{units.sigma(value)} σ" for value in most]
    return [
        edge(least, style={"width": 0}, showlegend=False, hoverinfo="skip"),
        edge(most, hover, style={"width": 1, "dash": dash}, fill="tonexty", fillcolor=ground, customdata=words),
    ]


def _clip(value: float, low: float) -> float:
    return float(f"{min(max(value, low), LARGEST):.4g}")


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis: that of 0 is a decade under the least that is drawn apart from it."""
    drawn = [value for value in values if value >= LEAST]
    low, high = min(drawn, default=LEAST), max(drawn, default=1.0)
    if any(value < low for value in values):
        low = max(low / 10, LEAST / 10)
    low = min(low, LARGEST / 10)
    return low, min(max(high, 10 * low), LARGEST)
