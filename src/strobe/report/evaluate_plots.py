"""Success against latency, with intervals: the plot of an evaluation."""

from __future__ import annotations

from typing import Any

from strobe.report import evaluate_realtime
from strobe.report.plots import PALETTE, Plot, text
from strobe.results.evaluate import EvaluateResult


def plots(result: EvaluateResult, _depth: int | None = None) -> dict[str, list[Plot]]:
    """A point for each variant, by the key of the section that it belongs to."""
    if evaluate_realtime.is_timed(result):
        return evaluate_realtime.plots(result)  # what calls took here says nothing of the clock's latency
    return {"variants": [_success(result)]} if result.variants else {}


def _success(result: EvaluateResult) -> Plot:
    traces: list[dict[str, Any]] = []
    for index, one in enumerate(result.variants):
        success, colour = one.together.success, PALETTE[index % len(PALETTE)]
        rate, ends = 100 * success.rate, success.interval
        bar = {"type": "data", "symmetric": False, "color": colour, "thickness": 1.5}
        bar |= {"array": [round(100 * ends.high - rate, 3)], "arrayminus": [round(rate - 100 * ends.low, 3)]}
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": text(one.name),
                "text": [text(one.name)],
                "textposition": "middle right",
                "x": [round(one.calls.median_ms, 4)],
                "y": [round(rate, 3)],
                "error_y": bar,
                "marker": {"color": colour, "size": 9},
                "customdata": [[success.successes, success.episodes]],
                "hovertemplate": "%{x:.4~g} ms, %{customdata[0]} of %{customdata[1]}<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "height": 380,
        "showlegend": len(result.variants) > 1,
        "xaxis": {"title": {"text": "ms per call of the policy (median)"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "success (%)"}, "range": [-4, 104]},
    }
    return Plot("Success against latency", "Bars are the exact 95 % intervals of the success rates.", traces, layout)
