"""A rollout over time: ticks, the queue, inference calls and the age of observations, on one time axis."""

from __future__ import annotations

from typing import Any

from strobe.report import bench, measured
from strobe.report.plots import OTHER, PALETTE, Plot
from strobe.results.rollout import RolloutResult, Series

GAP = 0.05  # between two rows, of the height


def plots(result: RolloutResult, depth: int | None = None) -> dict[str, list[Plot]]:
    """The course of the run, then the parts of a tick and of a call, by the key of their section."""
    found = {key: drawn for key, drawn in measured.plots(result, depth).items() if key != "samples"}
    found |= bench.plots(result.rollout.bench)
    course = result.rollout.series
    if course.at_s and result.rollout.pace is not None:
        found["pace"] = [_course(course, 1e3 / result.rollout.pace.asked_hz)]
    return found


def _course(course: Series, asked_ms: float) -> Plot:
    rows: list[tuple[str, list[dict[str, Any]]]] = [
        (
            "tick (ms)",
            [
                _line("from tick to tick", course.at_s, course.period_ms, PALETTE[0]),
                _line("work", course.at_s, course.work_ms, PALETTE[1]),
            ],
        )
    ]
    if any(depth is not None for depth in course.depth):
        rows.append(("actions left", [_line("actions left", course.at_s, course.depth, PALETTE[2], shape="hv")]))
    if course.call_at_s:
        rows.append(("call (ms)", [_calls(course)]))
    if any(age is not None for age in course.age_ms):
        rows.append(("age (ms)", [_line("age of the observation", course.at_s, course.age_ms, PALETTE[4])]))
    height = (1 - GAP * (len(rows) - 1)) / len(rows)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"height": 120 + 150 * len(rows), "showlegend": True, "hovermode": "x unified"}
    for index, (title, traces) in enumerate(rows):
        axis = "" if index == 0 else str(index + 1)
        top = 1 - index * (height + GAP)
        layout[f"yaxis{axis}"] = {
            "title": {"text": title},
            "domain": [max(0.0, top - height), top],
            "rangemode": "tozero",
        }
        data += [trace | {"yaxis": f"y{axis}", "xaxis": "x"} for trace in traces]
    last = "y" if len(rows) == 1 else f"y{len(rows)}"
    layout["xaxis"] = {"title": {"text": "seconds from the first tick"}, "anchor": last}
    layout["shapes"] = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": asked_ms, "y1": asked_ms}
        | {"line": {"dash": "dash", "width": 1.5, "color": OTHER}}
    ]
    caption = f"The dashed line is the period asked for, {asked_ms:.1f} ms."
    if starved := [at for at, none in zip(course.at_s, course.starved, strict=True) if none]:
        data.append(
            {"type": "scatter", "mode": "markers", "name": "no action", "x": starved, "y": [0.0] * len(starved)}
            | {"marker": {"color": PALETTE[3], "symbol": "x", "size": 6}, "xaxis": "x", "yaxis": "y"}
        )
        caption += " Crosses are ticks without an action."
    return Plot("Course of the run", caption, data, layout)


def _line(name: str, at: list[float], values: Any, colour: str, shape: str = "linear") -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [round(one, 4) for one in at],
        "y": [None if value is None else float(f"{value:.5g}") for value in values],
        "line": {"color": colour, "width": 1.2, "shape": shape},
    }


def _calls(course: Series) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": "inference call",
        "x": [round(at, 4) for at in course.call_at_s],
        "width": [max(ms / 1e3, 0.005) for ms in course.call_ms],
        "offset": 0,
        "y": [float(f"{ms:.5g}") for ms in course.call_ms],
        "marker": {"color": PALETTE[5], "opacity": 0.7},
    }
