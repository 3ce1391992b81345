"""Success against latency, with intervals: the plot of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.report import evaluate_realtime, rates
from strobe.report.plots import PALETTE, Plot, text
from strobe.results.budget import Line
from strobe.results.evaluate import EvaluateResult
from strobe.results.evaluation import EvaluatedVariant


def plots(result: EvaluateResult, _depth: int | None = None) -> dict[str, list[Plot]]:
    """A point for each variant, by the key of the section that it belongs to."""
    if evaluate_realtime.is_timed(result):
        return evaluate_realtime.plots(result)  # what calls took here says nothing of the clock's latency
    if not result.variants:
        return {}
    drawn = [_against_latency(result)]
    if sum(_steps(one) is not None for one in result.variants) > 1:
        drawn.append(_against_steps(result))
    found = {"variants": drawn}
    if result.line is not None:
        found["latency"] = [_line(result, result.line)]
    return found


def _steps(one: EvaluatedVariant) -> int | None:
    """Denoising steps of a variant that has no recipe."""
    return None if one.recipe else one.steps


def _against_latency(result: EvaluateResult) -> Plot:
    apart = all(one.chunk is not None for one in result.variants)
    at = [one.chunk.ms.median if apart and one.chunk is not None else one.calls.median_ms for one in result.variants]
    title = "ms per chunk, apart from the episodes (median)" if apart else "ms per call of the policy (median)"
    axis = {"title": {"text": title}, "rangemode": "tozero"}
    return _success("Success against latency", result, at, axis, " ms")


def _against_steps(result: EvaluateResult) -> Plot:
    axis = {"title": {"text": "denoising steps"}, "rangemode": "tozero"}
    return _success("Success against steps", result, [_steps(one) for one in result.variants], axis, " steps")


def _line(result: EvaluateResult, line: Line) -> Plot:
    points = [(one, one.steps, one.chunk.ms) for one in result.variants if _steps(one) is not None and one.chunk]
    bar: dict[str, Any] = {"type": "data", "symmetric": False, "thickness": 1.5}
    ends = [ms.interval for _, _, ms in points]
    bar["array"] = [end.high - ms.median if end else 0 for (_, _, ms), end in zip(points, ends, strict=True)]
    bar["arrayminus"] = [ms.median - end.low if end else 0 for (_, _, ms), end in zip(points, ends, strict=True)]
    steps = [0, *sorted(line.predicted)]
    straight = [round(line.fixed_ms + line.per_step_ms * count, 4) for count in steps]
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "x": steps, "y": straight, "name": "a + b × steps",
         "line": {"color": PALETTE[1], "dash": "dot"}, "hovertemplate": "%{y:.4~g} ms<extra>%{x} steps</extra>"},
        {"type": "scatter", "mode": "markers", "x": [count for _, count, _ in points],
         "y": [round(ms.median, 4) for _, _, ms in points], "error_y": bar, "name": "measured",
         "marker": {"color": PALETTE[0], "size": 9}, "hovertemplate": "%{y:.4~g} ms<extra>%{x} steps</extra>"},
    ]  # fmt: skip
    layout = {
        "height": 320,
        "xaxis": {"title": {"text": "denoising steps"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "ms per chunk (median)"}, "rangemode": "tozero"},
    }
    return Plot("Latency over denoising steps", "The line is by least squares on the medians.", traces, layout)


def _success(title: str, result: EvaluateResult, at: Sequence[float | None], axis: dict[str, Any], unit: str) -> Plot:
    """A point for each variant at its place ``at``, left out where that is None."""
    traces: list[dict[str, Any]] = []
    for index, (one, place) in enumerate(zip(result.variants, at, strict=True)):
        if place is None:
            continue
        success, colour = one.together.success, PALETTE[index % len(PALETTE)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": text(one.name),
                "text": [text(one.name)],
                "textposition": "middle right",
                "x": [round(place, 4)],
                "y": [round(100 * success.rate, 3)],
                "error_y": rates.bars([success], colour),
                "marker": {"color": colour, "size": 9},
                "customdata": [[success.successes, success.episodes]],
                "hovertemplate": f"%{{x:.4~g}}{unit}, {rates.OF}",
            }
        )
    layout = {
        "height": 380,
        "showlegend": len(result.variants) > 1,
        "xaxis": axis,
        "yaxis": rates.AXIS,
    }
    return Plot(title, rates.BARS, traces, layout)
