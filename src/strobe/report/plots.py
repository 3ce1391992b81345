"""Plots of samples, parts and spans: plain Plotly figures without a ground of their own, which the page gives light or
dark."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.report import units
from strobe.results.data import Samples
from strobe.results.measurement import Measurement, Span

# White text on each has a contrast of at least 4.5, and each stands out from white and from near black.
PALETTE = (
    "#2f6fb0",
    "#b85c14",
    "#2d7d4f",
    "#b0416a",
    "#7355b5",
    "#1b7f88",
    "#8a6a14",
    "#5f7328",
    "#96563b",
    "#526fa6",
)
OTHER = "#6c747d"
MANY = 4000  # spans and samples in one plot; more only make the page heavy


@dataclass(frozen=True)
class Plot:
    """One figure: its Plotly ``data`` and ``layout``, and the words under it."""

    title: str
    caption: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]


class Colours:
    """The same colour for the same part in every plot; parts that differ only in a number share one."""

    def __init__(self, names: Iterable[str]) -> None:
        kinds = dict.fromkeys(self._kind(name) for name in names if name != "other")
        self._of = {kind: PALETTE[i % len(PALETTE)] for i, kind in enumerate(kinds)}

    def of(self, name: str) -> str:
        return OTHER if name == "other" else self._of.get(self._kind(name), PALETTE[0])

    @staticmethod
    def _kind(name: str) -> str:
        return re.sub(r"\d+", "#", name)


def text(name: str) -> str:
    """A name as Plotly shall show it: Plotly reads some HTML, and a name is never meant as such."""
    return html.escape(units.plain(name), quote=False)


def icicle(m: Measurement, colours: Colours) -> Plot:
    """Parts as nested boxes, as wide as their share of the whole."""
    mean = m.samples.summary.mean
    decimals = units.digits(m.samples.summary.median)
    parts = {tuple(c.path): c for c in m.components}
    totals = {(): mean} | {path: c.share * mean for path, c in parts.items()}
    inside = dict.fromkeys(totals, 0.0)
    for path, value in totals.items():
        if path and path[:-1] in inside:
            inside[path[:-1]] += value
    ids = {path: str(index) for index, path in enumerate(totals)}
    shares = [1.0, *(c.share for c in parts.values())]
    names = [m.name, *(c.name for c in parts.values())]
    trace = {
        "type": "icicle",
        "ids": list(ids.values()),
        "labels": [text(name) for name in names],
        "parents": ["" if not path else ids.get(path[:-1], ids[()]) for path in totals],
        # Plotly refuses a tree whose children add up to more than their parent, if only by rounding: it is given
        # what each part spends outside its children and does the sums itself.
        "values": [max(0.0, round(value - inside[path], 9)) for path, value in totals.items()],
        "branchvalues": "remainder",
        "sort": False,
        "customdata": [
            [f"{units.ms(total, decimals)} ms", units.percent(share)]
            for total, share in zip(totals.values(), shares, strict=True)
        ],
        "texttemplate": "%{label}<br>%{customdata[1]}",
        "hovertemplate": "%{label}<br>%{customdata[0]} (mean), %{customdata[1]}<extra></extra>",
        "leaf": {"opacity": 1},
        "marker": {"colors": ["rgba(0,0,0,0)", *(OTHER if c.other else colours.of(c.name) for c in parts.values())]},
        "tiling": {"orientation": "v", "pad": 1},
        "pathbar": {"visible": False},
    }
    levels = 1 + max(c.depth for c in m.components)
    layout = {"height": 60 + 58 * min(levels, 8), "margin": {"t": 8, "b": 8, "l": 4, "r": 4}}
    layout |= {"uniformtext": {"minsize": 9, "mode": "hide"}}
    return Plot("Where the time goes", "Click a part to enter it, its parent to leave.", [trace], layout)


def timeline(spans: Sequence[Span], colours: Colours) -> Plot:
    """One iteration on a time axis: a row per depth of each thread, threads below each other."""
    drawn = sorted(spans, key=lambda s: s.duration_ms, reverse=True)[:MANY]
    threads = list(dict.fromkeys(span.thread for span in sorted(drawn, key=lambda s: s.start_ms)))
    rows = sorted({(threads.index(s.thread), s.depth) for s in drawn})
    places = {row: index for index, row in enumerate(rows)}
    ticks = {min(p for (t, _), p in places.items() if t == i): name for i, name in enumerate(threads)}
    end = max(s.start_ms + s.duration_ms for s in drawn)
    decimals = units.digits(end)
    trace = {
        "type": "bar",
        "orientation": "h",
        "base": [round(s.start_ms, 6) for s in drawn],
        "x": [round(s.duration_ms, 6) for s in drawn],
        "y": [places[threads.index(s.thread), s.depth] for s in drawn],
        "text": [text(s.name) for s in drawn],
        "customdata": [[text(s.thread), f"{units.ms(s.duration_ms, decimals)} ms"] for s in drawn],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": "#fff"},
        "textangle": 0,
        "width": 0.92,
        "marker": {"color": [colours.of(s.name) for s in drawn]},
        "hovertemplate": "%{text}<br>%{customdata[1]}, from %{base:.3f} ms<br>%{customdata[0]}<extra></extra>",
    }
    layout = {
        "height": 96 + 34 * len(rows),
        "showlegend": False,
        "bargap": 0,
        "uniformtext": {"minsize": 9, "mode": "hide"},
        "xaxis": {"title": {"text": "ms from the start of the iteration"}, "range": [0, end]},
        "yaxis": {
            "autorange": "reversed",
            "showgrid": False,
            "tickvals": list(ticks),
            "ticktext": [text(name) for name in ticks.values()],
            "visible": len(threads) > 1,
            "fixedrange": True,
        },
    }
    left_out = f" The {units.count(len(spans) - MANY, 'shortest section')} are left out." if len(spans) > MANY else ""
    return Plot("One iteration in time", f"The iteration nearest the median.{left_out}", [trace], layout)


def spread(title: str, group: Sequence[tuple[str, Samples]], *, split: bool = False) -> Plot:
    """Every sample as a point, beside its violin and box; ``split`` lays two of them back to back on one row."""
    traces = []
    for index, (name, samples) in enumerate(group):
        colour = PALETTE[index % len(PALETTE)]
        few = len(samples.values) < 8
        trace: dict[str, Any] = {
            "type": "box" if few else "violin",
            "orientation": "h",
            "x": _round(samples.values),
            "y0": " " if split and not few else text(name),
            "name": text(name),
            "marker": {"color": colour, "size": 4, "opacity": 0.55},
            "line": {"color": colour, "width": 1.5},
            "hovertemplate": "%{x:.4~g} ms<extra></extra>",
            "hoveron": "points",
        }
        if few:
            trace |= {"boxpoints": "all"}
        else:
            trace |= {
                "points": "all",
                "box": {"visible": True, "width": 0.2},
                "spanmode": "hard",
                "width": 0.9,
            }
            trace |= {"jitter": 0.35, "pointpos": -0.55, "side": "positive"}
            if split:
                trace |= {"side": ("positive", "negative")[index % 2], "pointpos": (0.5, -0.5)[index % 2]}
                trace |= {"box": {"visible": False}, "meanline": {"visible": True}}
        traces.append(trace)
    rows = 2 if split else len(group)
    layout = {
        "height": 110 + 74 * rows,
        "showlegend": split,
        "violinmode": "overlay",
        "xaxis": {"title": {"text": "ms"}},
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False, "fixedrange": True},
    }
    caption = "Each point is one sample; warm-up is not among them."
    return Plot(title, caption, traces, layout)


def in_order(title: str, group: Sequence[tuple[str, Samples]]) -> Plot:
    """Samples over the course of the run, with those of the warm-up drawn hollow."""
    traces = []
    for index, (name, samples) in enumerate(group):
        colour = PALETTE[index % len(PALETTE)]
        left_out = len(samples.warmup)
        shared = {"type": "scatter", "hovertemplate": "%{x}: %{y:.4~g} ms<extra>%{fullData.name}</extra>"}
        shared |= {"legendgroup": str(index)}
        if left_out:
            hollow = {"color": colour, "symbol": "circle-open", "size": 7}
            traces.append(
                {**shared, "mode": "markers", "name": f"{text(name)}: warm-up", "marker": hollow}
                | {"x": list(range(1, left_out + 1)), "y": _round(samples.warmup)}
            )
        traces.append(
            {**shared, "mode": "lines+markers", "name": text(name), "marker": {"color": colour, "size": 4}}
            | {"line": {"color": colour, "width": 1}}
            | {"x": list(range(left_out + 1, left_out + 1 + len(samples.values))), "y": _round(samples.values)}
        )
    kept = [v for _, s in group for v in s.values]
    warm = [v for _, s in group for v in s.warmup]
    low, high = min(kept + warm), max(kept)
    layout: dict[str, Any] = {
        "height": 300,
        "showlegend": len(traces) > 1,
        "xaxis": {"title": {"text": "sample"}},
        "yaxis": {"title": {"text": "ms"}},
    }
    caption = "Hollow points are warm-up, cut from every figure." if warm else "No warm-up was found."
    if warm and max(warm) > 2 * high:
        # One slow first call would press all others flat.
        above = sum(v > 1.25 * high for v in warm)
        layout["yaxis"]["range"] = [max(0.0, low - 0.1 * (high - low)), 1.25 * high]
        caption += f" {units.count(above, 'warm-up sample')} above the axis, up to {units.ms(max(warm))} ms."
    return Plot(title, caption, traces, layout)


def _round(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values[:MANY]]
