"""A search for a data loader → plots: samples per second over workers, and how the loaders start."""

from __future__ import annotations

from typing import Any

from strobe.report import units
from strobe.report.dataloader import in_order
from strobe.report.plots import PALETTE, Plot, text
from strobe.results.dataloader import Dataloader, LoaderRow


def plots(answer: Dataloader) -> dict[str, list[Plot]]:
    """The plots of each section, by its key."""
    return {"loaders": _rates(answer), "start": _starts(answer)}


def _rates(answer: Dataloader) -> list[Plot]:
    """A plot per batch size: a line per backend and prefetch factor over workers, the need across."""
    drawn = []
    for size in dict.fromkeys(row.settings.batch_size for row in in_order(answer)):
        rows = [row for row in in_order(answer) if row.settings.batch_size == size and row.rate is not None]
        if not rows:
            continue
        lines: dict[tuple[str, int], list[LoaderRow]] = {}
        serial = [row for row in rows if row.settings.num_workers == 0]
        for row in rows:
            if row.settings.num_workers:
                lines.setdefault((row.settings.video_backend, row.settings.prefetch_factor), []).append(row)
        several = len({backend for backend, _ in lines}) > 1
        traces = [
            _line(index, f"prefetch {ahead}{f', {text(backend)}' if several else ''}", line)
            for index, ((backend, ahead), line) in enumerate(lines.items())
        ]
        traces += [_line(len(lines), "no workers", serial)] if serial else []
        most = max(row.settings.num_workers for row in rows)
        need = next((one.samples_per_s for one in answer.needs if one.batch_size == size), None)
        if need is not None:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": "the step's need",
                    "x": [0, max(most, 1)],
                    "y": [need, need],
                    "marker": {"color": "#8a929c"},
                    "line": {"color": "#8a929c", "width": 2, "dash": "dash"},
                    "hovertemplate": f"the step takes {need:,.1f} samples/s<extra></extra>",
                }
            )
        layout = {
            "height": 340,
            "showlegend": True,
            "xaxis": {
                "title": {"text": "workers"},
                "tickvals": sorted({row.settings.num_workers for row in rows}),
            },
            "yaxis": {"title": {"text": "samples/s"}, "rangemode": "tozero"},
        }
        of = f" with batches of {size}" if len({row.settings.batch_size for row in answer.rows}) > 1 else ""
        caption = "Bars are 95 % intervals, wide where the search looked only shortly."
        drawn.append(Plot(f"Samples per second over workers{of}", caption, traces, layout))
    return drawn


def _line(index: int, name: str, rows: list[LoaderRow]) -> dict[str, Any]:
    colour = PALETTE[index % len(PALETTE)]
    rates = [row.rate for row in rows if row.rate is not None]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [row.settings.num_workers for row in rows],
        "y": [round(rate.samples_per_s, 2) for rate in rates],
        "marker": {"color": colour, "size": 7},
        "line": {"color": colour, "width": 2},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [round(rate.interval.high - rate.samples_per_s, 2) if rate.interval else None for rate in rates],
            "arrayminus": [
                round(rate.samples_per_s - rate.interval.low, 2) if rate.interval else None for rate in rates
            ],
            "color": colour,
            "thickness": 1.5,
        },
        "hovertemplate": "%{x} workers: %{y:,.1f} samples/s<extra>%{fullData.name}</extra>",
    }


def _starts(answer: Dataloader) -> list[Plot]:
    timed = [one for one in answer.start_ups if one.first_batch_s is not None]
    if not timed:
        return []
    named = [
        ("first batch", [one.first_batch_s for one in timed]),
        ("epoch start", [one.epoch_start_s for one in timed]),
    ]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [text(one.start_method) for one in timed],
            "x": [None if value is None else round(value, 3) for value in values],
            "marker": {"color": PALETTE[index % len(PALETTE)]},
            "hovertemplate": "%{y}: %{x:.2f} s<extra>%{fullData.name}</extra>",
        }
        for index, (name, values) in enumerate(named)
    ]
    layout = {
        "height": 120 + 60 * len(timed),
        "showlegend": True,
        "barmode": "group",
        "xaxis": {"title": {"text": "s"}},
        "yaxis": {"autorange": "reversed"},
    }
    workers = next((row.settings.num_workers for row in answer.rows if row.chosen), 0)
    return [Plot("Time to the first batch", f"With {units.count(workers, 'worker')}.", traces, layout)]
