"""Errors along the chunk as plots: a line for each dimension, with the yardsticks as bands behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from strobe.report import units
from strobe.report.plots import OTHER, PALETTE, Plot, text
from strobe.report.sameness import KEY, Candidate, focus
from strobe.results.agreement import Agreement, DimensionAgreement, Yardstick

LEAST, LARGEST = 1e-9, 1e12  # σ: nothing below is drawn apart from 0, and nothing above apart from the largest
MOST = 6  # dimensions with a colour of their own, the worst ones
LONGEST = 28  # letters of a name in the legend
TICKS = 12  # decades that are labelled, about
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


def plots(
    candidates: Sequence[Candidate], yardsticks: Sequence[Yardstick], closely: Sequence[str] | None = None
) -> dict[str, list[Plot]]:
    """A plot for each of the candidates that deserve a closer look, by the key of their section; see `sections`."""
    drawn = [
        _along(one.name, one.agreement, yardsticks, several=len(candidates) > 1)
        for one in focus(candidates, closely)
        if one.agreement is not None and any(dimension.along for dimension in one.agreement.dimensions)
    ]
    return {KEY: drawn} if drawn else {}


def _along(name: str, same: Agreement, yardsticks: Sequence[Yardstick], *, several: bool) -> Plot:
    dimensions = [one for one in same.dimensions if one.along]
    moved = [one for one in dimensions if any(value > 0 for value in one.along)]
    bands = [band for one in yardsticks if (band := _edges(one)) is not None]
    every = [value for one in moved for value in one.along]
    every += [value for _, least, most in bands for value in (*least, *most)]
    low, high = _span(every)
    length = max(len(one.along) for one in dimensions)
    traces = [trace for band in bands for trace in _band(*band, low)]
    named = sorted(moved, key=lambda one: -one.rms)[:MOST]
    grey = [one for one in moved if one not in named]
    if len(grey) < 3:  # hardly shorter than their names
        named, grey = [*named, *grey], []
    for index, one in enumerate(grey):
        # One entry of the legend for all of them.
        shared = {"legendgroup": "others", "showlegend": index == 0, "name": f"{len(grey)} others", "opacity": 0.6}
        traces.append(_line(one, OTHER, low) | shared)
    traces += [
        _line(one, PALETTE[index % len(PALETTE)], low)
        for index, one in enumerate(sorted(named, key=lambda one: dimensions.index(one)))
    ]
    ticks = _decades(low, high)
    layout: dict[str, Any] = {
        "height": 460,
        "showlegend": True,
        "hovermode": "closest",
        "xaxis": {"title": {"text": "action of the chunk"}, "range": [0.5, length + 0.5]},
        "yaxis": {
            "title": {"text": "error (RMS, σ)"},
            "type": "log",
            "range": [math.log10(low) - 0.1, math.log10(high) + 0.7],
            "tickvals": ticks,
            "ticktext": [str(units.sigma(tick)) for tick in ticks],
        },
    }
    if same.executed is not None and same.executed < length:
        place = same.executed + 0.5
        layout["shapes"] = [
            {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": place, "x1": place}
            | {"line": {"dash": "dot", "width": 1.5, "color": OTHER}}
        ]
        layout["annotations"] = [
            {"x": place, "y": 0.98, "yref": "paper", "xanchor": "left", "showarrow": False, "xshift": 4}
            | {"text": f"executed: the first {same.executed}"}
        ]
    title = f"Error along the chunk: {name}" if several else "Error along the chunk"
    return Plot(title, _caption(dimensions, moved, bool(bands)), traces, layout)


def _short(name: str) -> str:
    """A name for the legend: of a long one both ends, which tell it from its neighbours."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 3]}…{name[-LONGEST // 2 :]}"


def _caption(dimensions: Sequence[DimensionAgreement], moved: Sequence[DimensionAgreement], banded: bool) -> str:
    said = ["A line for each dimension."]
    if banded:
        said.append("Bands are yardsticks, from the dimension that moves least to the one that moves most.")
    still = [units.plain(one.name) for one in dimensions if one not in moved]
    if len(still) == len(dimensions):
        said = ["No action moved at all: 0, not drawn.", *said[1:]]
    elif still:
        said.append(f"0, not drawn: {', '.join(still)}.")
    return " ".join(said)


def _line(one: DimensionAgreement, colour: str, low: float) -> dict[str, Any]:
    steps = range(1, len(one.along) + 1)
    return {
        "type": "scatter",
        "mode": "lines" if len(one.along) > 1 else "markers",
        "name": text(_short(one.name)),
        "x": list(steps),
        "y": [_drawn(value, low) for value in one.along],
        "customdata": [
            [f"{units.sigma(value)} σ", f"{units.number(value * one.spread, 2)}", text(one.name)] for value in one.along
        ],
        "marker": {"color": colour, "size": 7},
        "line": {"color": colour, "width": 1.8},
        "hovertemplate": "%{customdata[2]}, action %{x}<br>%{customdata[0]} "
        "(%{customdata[1]} in its own units)<extra></extra>",
    }


def _edges(one: Yardstick) -> tuple[str, list[float], list[float]] | None:
    """The least and the largest of its dimensions at each action; None where none moves, or none was kept."""
    along = [dimension.along for dimension in one.dimensions if dimension.along]
    if not any(value > 0 for values in along for value in values):
        return None
    steps = list(zip(*along, strict=False))
    return one.name, [min(filter(None, values), default=0.0) for values in steps], [max(values) for values in steps]


def _band(name: str, least: Sequence[float], most: Sequence[float], low: float) -> list[dict[str, Any]]:
    dash, ground = BANDS[name]
    colour = EDGES[name]
    shared: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" if len(most) > 1 else "markers",
        "x": list(range(1, len(most) + 1)),
        "legendgroup": name,
        "legendrank": 2000,  # drawn first, named last
        "marker": {"color": colour, "size": 7, "symbol": "line-ew-open"},
    }
    bottom = {"y": [_drawn(value, low) for value in least], "line": {"color": colour, "width": 0}}
    top = {"y": [_drawn(value, low) for value in most], "line": {"color": colour, "width": 1, "dash": dash}}
    return [
        shared | bottom | {"name": name, "showlegend": False, "hoverinfo": "skip"},
        shared
        | top
        | {
            "name": name,
            "fill": "tonexty",
            "fillcolor": ground,
            "customdata": [f"{units.sigma(value)} σ" for value in most],
            "hovertemplate": f"yardstick: {name}<br>action %{{x}}, largest dimension: %{{customdata}}<extra></extra>",
        },
    ]


def _drawn(value: float, low: float) -> float:
    return float(f"{min(max(value, low), LARGEST):.4g}")


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the axis: that of 0 is a decade under the least that is drawn apart from it."""
    drawn = [value for value in values if value >= LEAST]
    low, high = min(drawn, default=LEAST), max(drawn, default=1.0)
    if any(value < low for value in values):
        low = max(low / 10, LEAST / 10)
    low = min(low, LARGEST / 10)
    return low, min(max(high, 10 * low), LARGEST)


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, math.ceil((last - first) / TICKS))
    return [10.0**power for power in range(first, last + 1, step)]
