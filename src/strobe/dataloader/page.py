"""A search for a data loader → document: the flags first, then every candidate, how it starts, what else was tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot, Trace
from strobe.core.report.document import Columns, Document, Section, Table, figure, listing, scaled_column, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.dataloader.results import Dataloader, Encoding, LoaderRow, Rate, Recommendation, StartUp, StepNeed, WhatIf

R = TypeVar("R")

STEADY = (
    "Samples/s in the steady state, with a 95 % interval over blocks of whole rounds of the workers; batches that were "
    "ready when the measurement began are left out. The search measures a candidate longer only if it may be the best: "
    "with one round the figure says least. USS: a worker's own memory; PSS: with its share of common pages. Shared "
    "memory, max: workers × prefetch × batch, if all queues are full."
)
START_UPS = (
    "In an interpreter that has imported lerobot-train. The steady state does not depend on the start method. Epoch "
    "start: with --persistent_workers=true; without it every epoch begins like the first."
)
WHAT_IFS = "Each setting runs in alternation with the chosen loader. lerobot-train has no flag for these settings."
CACHES = (
    "Upper bounds, each in alternation with the chosen loader. No cache of frames loads faster than samples that are "
    "neither read nor decoded, and no disk is faster than files in memory. LeRobot has no such cache; --dataset.root "
    "names a copy of the files."
)
ENCODINGS = "The same episodes, read by the chosen loader. PSNR compares with the frames of the present encoding."


def outline(answer: Dataloader, _depth: int | None = None) -> Document:
    """Return the document of a search."""
    as_is = answer.encodings[0].rate if answer.encodings else None
    sections = [Section("loaders", "Loaders", loaders(answer), [STEADY])]
    sections += listing("start", "How the chosen loader starts", answer.start_ups, _START_UPS, START_UPS)
    decimals, changed = _decimals(answer.what_ifs), answer.what_ifs
    sections += listing("what-if", "Settings without a flag", changed, _WHAT_IFS, WHAT_IFS, decimals=decimals)
    decimals = _decimals(answer.caches)
    sections += listing("caches", "What a cache would gain", answer.caches, _WHAT_IFS, CACHES, decimals=decimals)
    decimals, columns = _decimals(answer.encodings), _encodings(as_is)
    sections += listing("encodings", "Other encodings", answer.encodings, columns, ENCODINGS, decimals=decimals)
    return frame.document(
        answer,
        answers(answer),
        sections,
        banner="Interrupted: this search was stopped before it was done." if answer.status == "interrupted" else None,
        facts=_facts(answer),
        raw={"Machine": answer.machine.model_dump(mode="json")},
    )


def answers(answer: Dataloader) -> list[str]:
    """Return for each batch size whether to keep the loader, the rates, the next command, and the gain."""
    sentences = []
    for best in answer.recommendations:
        need = next((need for need in answer.needs if need.batch_size == best.batch_size), None)
        sentences += _decision(answer, best, need)
        sentences += [_describe_gain(best)] if best.own is not None and not _keeps(answer, best, need) else []
        if best is answer.recommendations[0]:
            sentences += [_describe_cache(row) for row in answer.caches[:1] if row.rate is not None]
        sentences.append(f"The search took {best.searched_s:,.0f} s and stopped: {best.reason}.")
    return sentences or ["Inconclusive: no search was finished."]


def _keeps(answer: Dataloader, best: Recommendation, need: StepNeed | None) -> bool:
    own = best.own
    fed = own is not None and own.interval is not None and need is not None and own.interval.low >= need.samples_per_s
    return (
        fed and best is answer.recommendations[0] and any(row.own and row.settings.num_workers for row in answer.rows)
    )


def _decision(answer: Dataloader, best: Recommendation, need: StepNeed | None) -> list[str]:
    batch = f" with batches of {best.batch_size}" if len(answer.recommendations) > 1 else ""
    if need is None:
        return [
            f"Train with {' '.join(best.flags)}{batch}.",
            f"These settings load {_rate(best.chosen)}, the fastest measured.",
        ]
    source = "measured" if need.source == "measured" else "from your flag"
    needs = f"the step needs {_figure(need.samples_per_s)} ({source})"
    if _keeps(answer, best, need) and best.own is not None:
        return [
            f"Keep your loader: it delivers {_figure(best.own.samples_per_s)} samples/s, the step needs "
            f"{_figure(need.samples_per_s)}.",
            f"Your flags load {_rate(best.own)}; {needs}, so the step never waits for data.",
        ]
    chosen, serial = best.chosen, "--num_workers=0" in best.flags
    slower = chosen.interval is not None and chosen.interval.high < need.samples_per_s
    if slower and not serial:
        head = (
            f"No loader feeds the step: the best delivers {_figure(chosen.samples_per_s)} of "
            f"{_figure(need.samples_per_s)} samples/s."
        )
    else:
        head = f"Train with {' '.join(best.flags)}{batch}."
    feeds = (
        "the loader keeps up" if best.fed
        else "without workers the step waits while a batch is loaded" if serial
        else "this loader is slower" if slower
        else "this loader is not shown to keep up"
    )  # fmt: skip
    return [
        head,
        f"These settings load {_rate(chosen)}; {needs}: {feeds}.",
        f"Next: lerobot-train … {' '.join(best.flags)}",
    ]


def _figure(value: float) -> str:
    return units.number(value, 3 if value >= 1 else 1) or ""


def _describe_gain(best: Recommendation) -> str:
    assert best.own is not None
    now, then = best.step_ms_now, best.step_ms_then
    if now is None or then is None:
        ratio = best.chosen.samples_per_s / best.own.samples_per_s
        return f"Your flags load {_rate(best.own)}; the recommended flags are {units.change(ratio)} vs them."
    if then >= 0.995 * now:
        return (
            f"Your flags load {_rate(best.own)}. A step takes {now:,.0f} ms with either, computed from the rates of "
            "loader and step."
        )
    hours = best.steps / 3.6e6
    return (
        f"A step takes {now:,.0f} ms with your flags and {then:,.0f} ms with these, computed from the rates of loader "
        f"and step: {units.number(now * hours, 2)} h vs {units.number(then * hours, 2)} h for {best.steps:,} steps."
    )


def _describe_cache(row: WhatIf) -> str:
    assert row.rate is not None
    change = units.change(_change(row, row.baseline))
    return f"No cache of decoded frames can deliver more than {_rate(row.rate)} here, {change} vs the loader without."


def _rate(rate: Rate) -> str:
    decimals = units.digits(rate.samples_per_s) - 1
    ends = rate.interval
    between = f" [{ends.low:,.{decimals}f}, {ends.high:,.{decimals}f}]" if ends is not None else ""
    return f"{rate.samples_per_s:,.{decimals}f} samples/s{between}"


def sorted_candidates(answer: Dataloader) -> list[LoaderRow]:
    """Return the candidates by batch, backend, workers, prefetch."""

    def place(row: LoaderRow) -> tuple[int, str, int, int]:
        settings = row.settings
        return settings.batch_size, settings.video_backend, settings.num_workers, settings.prefetch_factor

    return sorted(answer.rows, key=place)


def loaders(answer: Dataloader) -> Table:
    """Return one row per candidate; a candidate that could not be measured says why."""
    several = len({row.settings.batch_size for row in answer.rows}) > 1
    backends = len({row.settings.video_backend for row in answer.rows}) > 1
    needed = {need.batch_size: need.samples_per_s for need in answer.needs}

    def share(row: LoaderRow) -> float | None:
        need = needed.get(row.settings.batch_size)
        return row.rate.samples_per_s / need if row.rate and need else None

    columns: Columns[LoaderRow] = [
        words("Workers", lambda row: str(row.settings.num_workers)),
        figure("Prefetch", lambda row: row.settings.prefetch_factor if row.settings.num_workers else None, str),
        figure("Batch", lambda row: row.settings.batch_size if several else None, str),
        words("Backend", lambda row: row.settings.video_backend if backends else None),
        *_rate_columns(lambda row: row.rate),
        figure("% of the need", share, lambda share: f"{100 * share:,.0f} %"),
        figure("Start-up (s)", lambda row: row.start_up_s, units.ms),
        *_MEMORY,
        figure(
            "Shared memory, max", lambda row: row.shared_most_bytes if row.settings.num_workers else None, units.size
        ),
        figure("Shared memory, measured", lambda row: row.shared_seen_bytes, units.size),
        figure("Rounds", lambda row: row.rungs or None, str),
        words("", _mark),
    ]
    shown = table(sorted_candidates(answer), columns, _decimals(answer.rows)).drop_empty_columns()
    kinds = [
        "whole" if row.chosen else "part" if row.status == "done" else "other" for row in sorted_candidates(answer)
    ]
    # A row gets its kind last: 'whole' would keep its figures from holding a column.
    return Table(shown.columns, [replace(row, kind=kind) for row, kind in zip(shown.rows, kinds, strict=True)])


def _mark(row: LoaderRow) -> str | None:
    marks = ["recommended"] if row.chosen else []
    marks += ["your flags"] if row.own else []
    if row.status != "done":
        marks.append(f"{row.status}: {row.reason}" if row.reason else row.status)
    return ", ".join(marks) or None


_MEMORY: Columns[LoaderRow | StartUp] = [
    figure("USS per worker", lambda row: row.worker_uss_bytes, units.size),
    figure("PSS per worker", lambda row: row.worker_pss_bytes, units.size),
]
_START_UPS: Columns[StartUp] = [
    words("Start method", lambda start: start.start_method),
    figure("First batch (s)", lambda start: start.first_batch_s, units.ms),
    figure("Epoch start (s)", lambda start: start.epoch_start_s, units.ms),
    *_MEMORY,
    words("Why", lambda start: start.reason or None),
]


def _rate_columns(get: Callable[[R], Rate | None], title: str = "Samples/s") -> Columns[R]:
    return [
        scaled_column(title, lambda row: (rate := get(row)) and rate.samples_per_s),
        scaled_column("95 % CI", lambda row: (rate := get(row)) and rate.interval, units.span),
    ]


def _change(of: WhatIf | Encoding, before: Rate | None) -> float | None:
    return of.rate.samples_per_s / before.samples_per_s if of.rate and before and of.rate is not before else None


_WHAT_IFS: Columns[WhatIf] = [
    words("Changed", lambda what_if: what_if.name),
    *_rate_columns(lambda what_if: what_if.rate),
    *_rate_columns(lambda what_if: what_if.baseline, "Baseline"),
    figure("Change", lambda what_if: _change(what_if, what_if.baseline), units.change),
    words("", lambda what_if: (what_if.reason or what_if.note) or None),
]


def _encodings(as_is: Rate | None) -> Columns[Encoding]:
    return [
        words("Encoding", lambda encoding: encoding.name),
        *_rate_columns(lambda encoding: encoding.rate),
        figure("Change", lambda encoding: _change(encoding, as_is), units.change),
        figure("On disk per hour", lambda encoding: encoding.bytes_per_hour, lambda size: units.size(round(size))),
        figure("PSNR (dB)", lambda encoding: encoding.psnr_db, units.places(1)),
        figure("Encoding (s)", lambda encoding: encoding.encode_s, units.places(1)),
        words("Why", lambda encoding: encoding.reason or None),
    ]


def _decimals(measured: Sequence[LoaderRow | WhatIf | Encoding]) -> int:
    return units.digits(max((each.rate.samples_per_s for each in measured if each.rate is not None), default=0.0)) - 1


def _facts(answer: Dataloader) -> list[tuple[str, str | None]]:
    data = answer.dataset
    cameras = ", ".join(f"{name} {'×'.join(map(str, shape[:2]))}" for name, shape in data.cameras.items())
    stored = "video" if data.video else "images" if data.cameras else "no images"
    about = f"{data.name}: {units.count(data.episodes, 'episode')}, {units.count(data.frames, 'frame')}, {stored}"
    return [
        ("Policy", answer.policy),
        ("Dataset", f"{about}, {units.size(data.sample_bytes)} a sample"),
        ("Cameras", cameras),
        ("Machine", frame.machine(answer.machine)),
        ("Versions", frame.versions(answer, answer.machine)),
    ]


def plots(answer: Dataloader, _depth: int | None = None) -> Plots:
    """Return samples per second over workers, by the key of their section."""
    return {"loaders": _rates(answer)}


def _rates(answer: Dataloader) -> list[Plot]:
    sizes = list(dict.fromkeys(row.settings.batch_size for row in sorted_candidates(answer)))
    drawn = []
    for size in sizes:
        rows = [row for row in sorted_candidates(answer) if row.settings.batch_size == size and row.rate is not None]
        if not rows:
            continue
        traces = [_rate_line(index, name, of) for index, (name, of) in enumerate(_lines(rows).items())]
        workers = sorted({row.settings.num_workers for row in rows})
        need = next((need.samples_per_s for need in answer.needs if need.batch_size == size), None)
        if need is not None:
            hover = f"the step takes {need:,.1f} samples/s<extra></extra>"
            across, style = [0, max(workers[-1], 1)], {"dash": "dash"}
            traces.append(charts.line("the step's need", across, [need, need], charts.MUTED, hover, style=style))
        x, y = charts.axis("workers", tickvals=workers), charts.from_zero("samples/s")
        of_size = f" with batches of {size}" if len(sizes) > 1 else ""
        caption = "Bars: 95 % intervals, wide if the search measured only shortly."
        layout = charts.layout(340, x, y, showlegend=True)
        drawn.append(Plot(f"Samples per second over workers{of_size}", caption, traces, layout))
    return drawn


def _lines(rows: Sequence[LoaderRow]) -> dict[str, list[LoaderRow]]:
    backends = {row.settings.video_backend for row in rows if row.settings.num_workers}
    lines: dict[str, list[LoaderRow]] = {}
    for row in sorted(rows, key=lambda row: row.settings.num_workers == 0):
        name = f"prefetch {row.settings.prefetch_factor}"
        name += f", {row.settings.video_backend}" if len(backends) > 1 else ""
        lines.setdefault(name if row.settings.num_workers else "no workers", []).append(row)
    return lines


def _rate_line(index: int, name: str, rows: Sequence[LoaderRow]) -> Trace:
    colour, workers = charts.colour(index), [row.settings.num_workers for row in rows]
    rates = [row.rate for row in rows if row.rate is not None]
    values = [rate.samples_per_s for rate in rates]
    hover = "%{x} workers: %{y:,.1f} samples/s<extra>%{fullData.name}</extra>"
    bars = charts.error_bars(values, [rate.interval for rate in rates], colour)
    return charts.line(name, workers, values, colour, hover, points=7, error_y=bars)
