"""The roofline plot: FLOP per byte and FLOP/s of each part, beneath what the machine was measured to reach.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

from strobe.report import units
from strobe.report.plots import OTHER, PALETTE, Plot, text
from strobe.results.limit import Limit, PartLimit
from strobe.results.machine import Ceiling

SMALL = 0.01  # parts below this share of the whole in every measurement are left out
MOST = 9  # parts that are drawn
DASHES = ("solid", "dash", "dashdot", "longdash")


def intensity(part: PartLimit) -> float | None:
    """FLOP for each byte that must be moved; None where one of them is none."""
    gflop = sum(part.gflop.values())
    return gflop * 1e9 / part.moved_bytes if gflop > 0 and part.moved_bytes else None


def rate(part: PartLimit) -> float | None:
    """GFLOP/s that the part reaches; None where it has no FLOP."""
    gflop = sum(part.gflop.values())
    return gflop / part.ms * 1e3 if gflop > 0 and part.ms > 0 else None


def plot(named: Sequence[tuple[str, Limit]], ceiling: Ceiling) -> Plot | None:
    """Parts as points, from one measurement to the next as arrows; None where there is nothing to draw.

    Args:
        named: measurements by their labels, in the order of the arrows.
    """
    points = _points(named)
    if not points:
        return None
    traces = [
        trace
        for i, (name, steps) in enumerate(points.items())
        for trace in _traces(name, PALETTE[i % len(PALETTE)], steps)
    ]
    x = [point["x"] for steps in points.values() for point in steps]
    y = [point["y"] for steps in points.values() for point in steps]
    left, right = min(x) / 3, max(x) * 3
    roofs = _roofs(ceiling, left, right)
    top = max([max(y), *(max(roof["y"]) for roof in roofs)])
    layout: dict[str, Any] = {
        "height": 460,
        "showlegend": True,
        "hovermode": "closest",
        "xaxis": {"type": "log", "title": {"text": "FLOP per byte that must be moved"}, "range": _span(left, right)},
        "yaxis": {"type": "log", "title": {"text": "GFLOP/s"}, "range": _span(min(y) / 2, top * 1.6)},
    }
    caption = (
        "Grey lines are what this machine was measured to reach: flat where arithmetic is the limit, sloped where "
        "memory is. A point below its line has that much left; a logarithmic step up is a factor in time."
    )
    if len(named) > 1:
        labels = [units.plain(label) for label, _ in named]
        caption += f" Arrows go from {labels[0]} to {labels[-1]}, measurement by measurement."
    return Plot("Roofline", caption, [*roofs, *traces], layout)


def _points(named: Sequence[tuple[str, Limit]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    shares: dict[str, float] = {}
    for label, limit in named:
        whole = sum(part.ms for part in limit.parts)
        for part in limit.parts:
            per_byte, reached = intensity(part), rate(part)
            if per_byte is None or reached is None or not (_drawable(per_byte) and _drawable(reached)):
                continue
            shares[part.part] = max(shares.get(part.part, 0.0), part.ms / whole if whole > 0 else 0.0)
            told = f"{text(part.part)}, {text(label)}: {units.ms(part.ms)} ms, at least {units.ms(part.least_ms)}"
            bound = f", bound by {part.bound}" if part.bound else ""
            found.setdefault(part.part, []).append({"x": per_byte, "y": reached, "told": f"{told}{bound}"})
    shown = sorted((name for name, share in shares.items() if share >= SMALL), key=lambda name: -shares[name])[:MOST]
    return {name: found[name] for name in shown}


def _drawable(value: float) -> bool:
    return 1e-12 < value < 1e15  # what was measured is, and has a logarithm


def _traces(name: str, colour: str, steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where the part began as a circle and, of several measurements, the way that it went as arrows."""

    def scatter(shown: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "type": "scatter",
            "legendgroup": name,
            "name": text(name),
            "x": [float(f"{step['x']:.6g}") for step in shown],
            "y": [float(f"{step['y']:.6g}") for step in shown],
            "customdata": [step["told"] for step in shown],
            "hovertemplate": "%{customdata}<br>%{x:.3~g} FLOP/byte, %{y:,.3~g} GFLOP/s<extra></extra>",
            **more,
        }

    begin = scatter(steps[:1], mode="markers", marker={"color": colour, "size": 10})
    if len(steps) == 1:
        return [begin]
    # The head of each arrow is where it ends. A first point has no direction, and Plotly draws none.
    arrows = {"color": colour, "symbol": "arrow", "size": 13, "angleref": "previous", "opacity": 1}
    line = {"color": colour, "width": 1.5}
    return [begin, scatter(steps, mode="lines+markers", marker=arrows, line=line, showlegend=False)]


def _roofs(ceiling: Ceiling, left: float, right: float) -> list[dict[str, Any]]:
    found = []
    for index, (dtype, gflops) in enumerate(ceiling.gflops.items()):
        if _drawable(gflops):
            label = f"{text(dtype)}: {units.rate(gflops)} GFLOP/s"
            found.append(_roof(label, gflops, ceiling.memory_gbps, left, right, DASHES[index % len(DASHES)]))
    if found and ceiling.vector_gflops and _drawable(ceiling.vector_gflops):
        label = f"elementwise float32: {units.rate(ceiling.vector_gflops)} GFLOP/s"
        found.append(_roof(label, ceiling.vector_gflops, ceiling.memory_gbps, left, right, "dot"))
    return found


def _roof(label: str, gflops: float, gbps: float | None, left: float, right: float, dash: str) -> dict[str, Any]:
    gbps = gbps if gbps and _drawable(gbps) else None
    ridge = gflops / gbps if gbps else left
    x = sorted({left, min(max(ridge, left), right), right})
    y = [min(gflops, at * gbps) if gbps else gflops for at in x]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": [float(f"{at:.6g}") for at in x],
        "y": [float(f"{at:.6g}") for at in y],
        "line": {"color": OTHER, "width": 1.5, "dash": dash},
        "hovertemplate": f"{label}<extra></extra>",
    }


def _span(low: float, high: float) -> list[float]:
    """A range of a logarithmic axis, as Plotly wants it: in powers of ten."""
    return [round(log10(low), 4), round(log10(high), 4)]
