"""Charts: what the plots of all reports are built of. No other file of this package writes Plotly's own words for one.

A `Plot` is traces (`line`, `points`, `bars`, `heat_map`) on a `layout` with two `axis`. Names go in as they are: a
`Plot` makes them harmless when it is built, and lets Plotly check every property. A name never goes into a hover
template, where Plotly would fill in its ``%{…}``: templates refer to ``%{fullData.name}`` or to ``customdata``.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strobe.core.results.data import Interval
from strobe.core.results.units import plain
from strobe.core.untrusted import JsonObject

Trace = dict[str, Any]
Place = float | str | None  # on an axis: a number, or a category

# White text on each has a contrast of at least 4.5, and each stands out from white and from near black.
PALETTE = ("#2f6fb0", "#b85c14", "#2d7d4f", "#b0416a", "#7355b5", "#1b7f88", "#8a6a14", "#5f7328", "#96563b", "#526fa6")
OTHER = "#6c747d"
MUTED = "#8a929c"  # colour of a line for comparison
DASHES = ("solid", "dash", "dot", "dashdot")
WIDE = 8  # a span of values, highest over lowest, from which a logarithm shows them better
DECADES = 12  # approximate number of labelled decades on an axis
# What Plotly shows as text; it reads some HTML in it.
SHOWN = {"name", "text", "labels", "ticktext", "customdata", "x", "y", "x0", "x1", "y0", "y1"}


@dataclass(frozen=True)
class Plot:
    """One figure: its Plotly ``data`` and ``layout``, and the words under it."""

    title: str
    caption: str
    data: list[Trace]
    layout: JsonObject

    def __post_init__(self) -> None:
        import plotly.graph_objects as go  # 40 ms, for pages alone

        data = [getattr(go, trace["type"].capitalize())(_harmless(trace)).to_plotly_json() for trace in self.data]
        made = {
            "title": plain(self.title),
            "caption": plain(self.caption),
            "data": data,
            "layout": go.Layout(_harmless(self.layout)).to_plotly_json(),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)


def _harmless(value: Any, shown: bool = False) -> object:
    match value:
        case dict():
            return {key: _harmless(inside, shown or key in SHOWN) for key, inside in value.items()}
        case list() | tuple():
            return [_harmless(inside, shown) for inside in value]
        case str() if shown and not value.isspace():  # a blank stands for a row without a name
            return html.escape(plain(value), quote=False)
    return value


class Colours:
    """The same colour for the same part in every plot; parts that differ only in a number share one."""

    def __init__(self, names: Iterable[str]) -> None:
        kinds = dict.fromkeys(self._kind(name) for name in names if name != "other")
        self._of = {kind: colour(i) for i, kind in enumerate(kinds)}

    def part_colour(self, name: str) -> str:
        """Return the colour of the part ``name``."""
        return OTHER if name == "other" else self._of.get(self._kind(name), PALETTE[0])

    @staticmethod
    def _kind(name: str) -> str:
        return re.sub(r"\d+", "#", name)


def colour(index: int) -> str:
    """Return the colour of the trace at ``index``; after the tenth they come again."""
    return PALETTE[index % len(PALETTE)]


def line(
    name: str,
    x: Sequence[Place],
    y: Sequence[float | None],
    colour: str,
    hover: str | None = None,
    *,
    points: int = 0,
    style: JsonObject | None = None,
    **more: object,
) -> Trace:
    """Return a line through points; one without a value leaves a gap.

    Args:
        points: their diameter in pixels; 0 draws none.
        style: Plotly's further properties of the line: width, dash, shape.
        more: Plotly's further properties of the trace, such as ``error_y``.
    """
    trace = _scatter(name, x, y, hover) | {"mode": "lines+markers" if points else "lines"}
    trace["line"] = {"color": colour, "width": 2} | (style or {})
    if points:
        trace["marker"] = {"color": colour, "size": points}
    return trace | more


def points(
    name: str,
    x: Sequence[Place],
    y: Sequence[Place],
    colour: str,
    hover: str | None = None,
    *,
    size: int = 9,
    symbol: str = "circle",
    **more: object,
) -> Trace:
    """Return points, for a scatter plot or on their own; ``more`` are Plotly's further properties of the trace."""
    marker = {"color": colour, "size": size, "symbol": symbol}
    return _scatter(name, x, y, hover) | {"mode": "markers", "marker": marker} | more


def crosses(name: str, x: Sequence[Place], colour: str, **more: Any) -> Trace:
    """Return crosses at the foot of a plot: moments at which something was missing."""
    return points(name, x, [0.0] * len(x), colour, size=6, symbol="x", **more)


def _scatter(name: str, x: Sequence[Place], y: Sequence[Place], hover: str | None) -> Trace:
    trace: Trace = {"type": "scatter", "name": name, "x": _round_values(x, 9), "y": _round_values(y)}
    return trace if hover is None else trace | {"hovertemplate": hover}


def bars(
    name: str,
    places: Sequence[Place],
    values: Sequence[float | None],
    colour: str | list[str],
    hover: str | None = None,
    *,
    upright: bool = False,
    labels: Sequence[str] = (),
    **more: object,
) -> Trace:
    """Return bars, which lie unless ``upright``; the layout's ``barmode`` stacks them or groups them.

    Args:
        labels: for a hover template that names the bars by ``%{text}``; they are not drawn.
        more: Plotly's further properties of the trace.
    """
    trace: Trace = {"type": "bar", "name": name, "marker": {"color": colour}}
    drawn, at = _round_values(values), list(places)
    trace |= {"x": at, "y": drawn} if upright else {"orientation": "h", "x": drawn, "y": at}
    trace |= {"text": list(labels), "textposition": "none"} if labels else {}
    trace |= {} if hover is None else {"hovertemplate": hover}
    return trace | more


def bar_text_properties(texts: Sequence[str]) -> JsonObject:
    """Return the properties of `bars` that write a text into each of them, where there is room."""
    inside = {"textposition": "inside", "insidetextanchor": "middle", "insidetextfont": {"color": "#fff"}}
    return {"text": list(texts), "textangle": 0, **inside}


ROOM = {"minsize": 9, "mode": "hide"}  # a layout's ``uniformtext``: no text where it would be smaller


def error_bars(values: Sequence[float], intervals: Sequence[Interval | None], colour: str) -> JsonObject:
    """Return the error bars of a trace, for its ``error_x`` or ``error_y``; a value without an interval has none."""
    pairs = list(zip(values, intervals, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [_round(i.high - value) if i else None for value, i in pairs],
        "arrayminus": [_round(value - i.low) if i else None for value, i in pairs],
        "color": colour,
        "thickness": 1.5,
    }


def layout(height: int, x: JsonObject, y: JsonObject, **more: object) -> JsonObject:
    """Return the layout of a plot so many pixels high, with its axes; ``more`` are Plotly's further properties."""
    return {"height": height, "xaxis": x, "yaxis": y, **more}


def layout_of_rows(height: int, titles: Sequence[str], gap: float) -> JsonObject:
    """Return the layout of plots one below the other on one x-axis, with a ``gap`` between two, of the height."""
    room = (1 - gap * (len(titles) - 1)) / len(titles)
    made: JsonObject = {"height": height, "xaxis": {"anchor": row_name(len(titles) - 1)}}
    for row, title in enumerate(titles):
        top = 1 - row * (room + gap)
        made[row_name(row).replace("y", "yaxis")] = from_zero(title, domain=[max(0.0, top - room), top])
    return made


def row_name(row: int) -> str:
    """Return what Plotly calls the y-axis of a ``row`` from the top: 'y', 'y2' and so on."""
    return f"y{row + 1 if row else ''}"


def axis(title: str | None = None, **more: object) -> JsonObject:
    """Return an axis; its title gives the unit."""
    return more if title is None else {"title": {"text": title}, **more}


def from_zero(title: str, **more: object) -> JsonObject:
    """Return an axis that begins at 0."""
    return axis(title, rangemode="tozero", **more)


def names_axis(names: Sequence[str], **more: object) -> JsonObject:
    """Return an axis with a name at each of the places 0, 1 …; a vertical one should be ``**DOWN``."""
    places = {"tickvals": list(range(len(names))), "ticktext": list(names)}
    return {**places, "showgrid": False, "fixedrange": True, **more}


LEGEND_ABOVE = {"orientation": "h", "traceorder": "normal", "y": 1.02, "yanchor": "bottom", "x": 0}
DOWN = {"autorange": "reversed"}  # the first at the top, as in a table


def log_axis(title: str, show: Callable[[float], str | None], low: float, high: float, *, fine: bool = False) -> Trace:
    """Return a logarithmic axis with its numbers written out: Plotly's own ticks say '2' for 20 and for 200.

    Args:
        show: a tick's text.
        fine: whether 2 and 5 are labelled too, where there are few decades.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if fine and len(powers) < 6 else (1,)
    every = max(1, math.ceil((len(powers) - 1) / DECADES))
    ticks = [step * 10.0**power for power in powers[::every] for step in steps]
    return axis(title, type="log", tickvals=ticks, ticktext=[show(tick) for tick in ticks])


def log_range(low: float, high: float) -> list[float]:
    """Return the range of a logarithmic axis as Plotly wants it: in powers of ten."""
    return [round(math.log10(low), 4), round(math.log10(high), 4)]


def is_wide(values: Sequence[float]) -> bool:
    """Return whether a logarithm shows ``values`` better."""
    return min(values, default=0) > 0 and max(values) / min(values) > WIDE


def dashed_line(place: Place, axis: Literal["x", "y"] = "x", **style: object) -> JsonObject:
    """Return a shape of the layout: a dashed line across the plot at ``place`` of ``axis``, such as a target."""
    other = "y" if axis == "x" else "x"
    ends = {
        f"{axis}ref": axis,
        f"{axis}0": place,
        f"{axis}1": place,
        f"{other}ref": "paper",
        f"{other}0": 0,
        f"{other}1": 1,
    }
    return {"type": "line", **ends, "line": {"dash": "dash", "width": 1.5, "color": OTHER} | style}


def _round_values(values: Iterable[Place], figures: int = 6) -> list[Place]:
    return [_round(value, figures) for value in values]


def _round(value: object, figures: int = 6) -> Any:
    return float(f"{value:.{figures}g}") if isinstance(value, float) else value
