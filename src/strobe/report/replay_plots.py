"""A replay over time: the queue of actions and the observations' ages, recorded and under each setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.report.plots import OTHER, PALETTE, Plot
from strobe.report.replay import TITLES
from strobe.results.replay import Replayed, ReplayResult

COLOURS = {"recorded": OTHER, "as it was": PALETTE[0], "as asked": PALETTE[1], "ideal loop": PALETTE[2]}


def plots(result: ReplayResult) -> dict[str, list[Plot]]:
    """Actions left and ages over time, by the key of their section."""
    drawn = []
    if any(depth is not None for column in result.columns for depth in column.series.depth):
        crosses = "Crosses are ticks without an action."
        drawn.append(_over_time("Actions left in the queue", crosses, "actions", result.columns, "depth"))
    if any(age is not None for column in result.columns for age in column.series.age_ms):
        title = "Age of the observation behind each action"
        drawn.append(_over_time(title, "With the recorded latencies in their order.", "ms", result.columns, "age_ms"))
    return {"replay": drawn}


def _over_time(title: str, caption: str, unit: str, columns: Sequence[Replayed], field: str) -> Plot:
    data: list[dict[str, Any]] = []
    for column in columns:
        series, colour = column.series, COLOURS[column.name]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": TITLES[column.name],
                "x": [round(at, 4) for at in series.at_s],
                "y": [None if value is None else float(f"{value:.5g}") for value in getattr(series, field)],
                "line": {"color": colour, "width": 1.2, "shape": "hv"},
                # The ideal loop is there to be compared with, and hides the others.
                "visible": "legendonly" if column.name == "ideal loop" else True,
            }
        )
        starved = [at for at, none in zip(series.at_s, series.starved, strict=True) if none]
        if field == "depth" and starved:
            data.append(
                {"type": "scatter", "mode": "markers", "name": f"{TITLES[column.name]}: no action", "x": starved}
                | {"y": [0.0] * len(starved), "marker": {"color": colour, "symbol": "x", "size": 6}}
            )
    layout = {
        "height": 360,
        "hovermode": "x unified",
        "showlegend": True,
        "xaxis": {"title": {"text": "seconds from the first tick"}},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
    }
    return Plot(title, caption, data, layout)
