"""A search for a data loader → document: the flags first, then every candidate, how it starts, what else was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot, Trace
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.dataloader.results import Dataloader, LoaderRow, Rate, Recommendation

STEADY = (
    "Samples/s once running, with their 95 % interval over blocks of whole rounds of the workers; batches that were "
    "ready when the measurement began are left out. Samples/s at the shortest look say least: the search looks longer "
    "only at those that may win. Shared memory is what full queues hold: workers × prefetch × batch."
)


def outline(answer: Dataloader, _depth: int | None = None) -> Document:
    """Return the document of a search."""
    sections = [Section("loaders", "Loaders", loaders(answer), [STEADY])]
    if answer.start_ups:
        about = (
            "In an interpreter that has imported lerobot-train. The steady state does not depend on it. An epoch start "
            "is with --persistent_workers=true; without, every epoch begins like the first."
        )
        sections.append(Section("start", "How the chosen loader starts", start_ups(answer), [about]))
    if answer.what_ifs:
        about = (
            "Each setting runs in alternation with the chosen loader as it is. lerobot-train has no flag for "
            "these settings."
        )
        sections.append(Section("what-if", "Settings without a flag", what_ifs(answer), [about]))
    if answer.encodings:
        about = "The same episodes, read by the chosen loader. PSNR compares with the frames of the present encoding."
        sections.append(Section("encodings", "Other encodings", encodings(answer), [about]))
    return frame.document(
        answer,
        answers(answer),
        sections,
        banner="Interrupted: this search was stopped before it was done." if answer.status == "interrupted" else None,
        facts=_facts(answer),
        raw={"Machine": answer.machine.model_dump(mode="json")},
    )


def answers(answer: Dataloader) -> list[str]:
    """Return the flags for each batch size, and what they should gain."""
    sentences = []
    for best in answer.recommendations:
        sentences.append(f"Train with {' '.join(best.flags)}")
        sentences.append(f"They load {_rate(best.chosen)}. {_describe_need(answer, best)}")
        sentences += [_describe_gain(best)] if best.own is not None else []
        sentences.append(f"Found in {best.searched_s:,.0f} s; the search ended since {best.reason}.")
    return sentences or ["No search was finished. The table shows the measurements so far."]


def _describe_need(answer: Dataloader, best: Recommendation) -> str:
    need = next((need for need in answer.needs if need.batch_size == best.batch_size), None)
    if need is None:
        return "The fastest was requested."
    source = "measured" if need.source == "measured" else "as given"
    judged = "and this loader was not shown to keep up"
    if best.fed:
        judged = "and the loader keeps up"
    elif "--num_workers=0" in best.flags:
        judged = "and without workers the step waits while a batch is loaded"
    elif best.chosen.interval is not None and best.chosen.interval.high < need.samples_per_s:
        judged = "and this loader is slower"
    return f"The step takes {need.samples_per_s:,.1f} samples/s ({source}), {judged}."


def _describe_gain(best: Recommendation) -> str:
    assert best.own is not None
    now, then = best.step_ms_now, best.step_ms_then
    if now is None or then is None:
        ratio = best.chosen.samples_per_s / best.own.samples_per_s
        return f"Your flags: {_rate(best.own)}. The recommended flags are {units.change(ratio)} on that."
    if then >= 0.995 * now:
        return (
            f"Your flags: {_rate(best.own)}. A step takes {now:,.0f} ms either way, computed from the rates of "
            "loader and step."
        )
    hours = best.steps / 3.6e6
    return (
        f"A step takes {now:,.0f} ms with your flags and {then:,.0f} ms with these, computed from the rates of "
        f"loader and step: {now * hours:,.1f} h or {then * hours:,.1f} h over {best.steps:,} steps."
    )


def _rate(rate: Rate) -> str:
    decimals = units.digits(rate.samples_per_s) - 1
    between = units.span(rate.interval, decimals)
    return f"{rate.samples_per_s:,.{decimals}f} samples/s{f' ({between})' if between else ''}"


def in_order(answer: Dataloader) -> list[LoaderRow]:
    """Return the candidates by batch, backend, workers, prefetch."""
    return sorted(
        answer.rows,
        key=lambda row: (
            row.settings.batch_size,
            row.settings.video_backend,
            row.settings.num_workers,
            row.settings.prefetch_factor,
        ),
    )


def loaders(answer: Dataloader) -> Table:
    """Return one row per candidate; a candidate that could not be measured says why."""
    several = len({row.settings.batch_size for row in answer.rows}) > 1
    backends = len({row.settings.video_backend for row in answer.rows}) > 1
    needed = {need.batch_size: need.samples_per_s for need in answer.needs}
    decimals = _decimals([row.rate for row in answer.rows])
    columns = [Column("Workers", numeric=False), Column("Prefetch"), Column("Batch"), Column("Backend", numeric=False)]
    columns += [Column("Samples/s"), Column("95 % interval"), Column("Of the need"), Column("Start-up (s)")]
    columns += [
        Column("Own memory per worker"),
        Column("With its share of common pages"),
        Column("Shared memory, most"),
    ]
    columns += [Column("Seen"), Column("Rungs"), Column("", numeric=False)]
    rows, kinds = [], []
    for row in in_order(answer):
        settings, rate = row.settings, row.rate
        need = needed.get(settings.batch_size)
        shared = row.shared_most_bytes if settings.num_workers else None
        cells = [
            str(settings.num_workers),
            str(settings.prefetch_factor) if settings.num_workers else None,
            str(settings.batch_size) if several else None,
            settings.video_backend if backends else None,
            units.ms(rate and rate.samples_per_s, decimals),
            units.span(rate and rate.interval, decimals),
            f"{100 * rate.samples_per_s / need:,.0f} %" if rate and need else None,
            units.ms(row.start_up_s, 2),
            units.size(row.worker_uss_bytes),
            units.size(row.worker_pss_bytes),
            units.size(shared),
            units.size(row.shared_seen_bytes),
            str(row.rungs) if row.rungs else None,
            _mark(row),
        ]
        rows.append(Row(cells))
        kinds.append("whole" if row.chosen else "part" if row.status == "done" else "other")
    table = Table(columns, rows).without_empty_columns()
    return Table(table.columns, [replace(row, kind=kind) for row, kind in zip(table.rows, kinds, strict=True)])


def _mark(row: LoaderRow) -> str | None:
    marks = ["recommended"] if row.chosen else []
    marks += ["your flags"] if row.own else []
    if row.status != "done":
        marks.append(f"{row.status}: {row.reason}" if row.reason else row.status)
    return ", ".join(marks) or None


def start_ups(answer: Dataloader) -> Table:
    """Return each way to start workers."""
    columns = [Column("Start method", numeric=False), Column("First batch (s)"), Column("Epoch start (s)")]
    columns += [Column("Own memory per worker")]
    columns += [Column("With its share of common pages"), Column("Why", numeric=False)]
    rows = []
    for start_up in answer.start_ups:
        times = [start_up.first_batch_s, start_up.epoch_start_s]
        memory = [start_up.worker_uss_bytes, start_up.worker_pss_bytes]
        cells = [start_up.start_method, *(units.ms(t, 2) for t in times), *(units.size(m) for m in memory)]
        rows.append(Row([*cells, start_up.reason or None]))
    return Table(columns, rows).without_empty_columns()


def what_ifs(answer: Dataloader) -> Table:
    """Return each change compared with the loader without it."""
    decimals = _decimals([what_if.rate for what_if in answer.what_ifs])
    columns = [Column("Changed", numeric=False), Column("Samples/s"), Column("95 % interval"), Column("As it is")]
    columns += [Column("95 % interval"), Column("Change"), Column("", numeric=False)]
    rows = []
    for what_if in answer.what_ifs:
        rate, chosen_rate = what_if.rate, what_if.beside
        change = rate.samples_per_s / chosen_rate.samples_per_s if rate and chosen_rate else None
        cells = [
            what_if.name,
            units.ms(rate and rate.samples_per_s, decimals),
            units.span(rate and rate.interval, decimals),
            units.ms(chosen_rate and chosen_rate.samples_per_s, decimals),
            units.span(chosen_rate and chosen_rate.interval, decimals),
            units.change(change),
            (what_if.reason or what_if.note) or None,
        ]
        rows.append(Row(cells))
    return Table(columns, rows).without_empty_columns()


def encodings(answer: Dataloader) -> Table:
    """Return each encoding compared with the dataset as it is."""
    decimals = _decimals([encoding.rate for encoding in answer.encodings])
    columns = [Column("Encoding", numeric=False), Column("Samples/s"), Column("95 % interval"), Column("Change")]
    columns += [Column("On disk per hour"), Column("PSNR (dB)"), Column("Encoding (s)"), Column("Why", numeric=False)]
    as_is = answer.encodings[0].rate
    rows = []
    for encoding in answer.encodings:
        rate = encoding.rate
        change = rate.samples_per_s / as_is.samples_per_s if rate and as_is and rate is not as_is else None
        cells = [
            encoding.name,
            units.ms(rate and rate.samples_per_s, decimals),
            units.span(rate and rate.interval, decimals),
            units.change(change),
            units.size(round(encoding.bytes_per_hour)) if encoding.bytes_per_hour is not None else None,
            units.ms(encoding.psnr_db, 1),
            units.ms(encoding.encode_s, 1),
            encoding.reason or None,
        ]
        rows.append(Row(cells))
    return Table(columns, rows).without_empty_columns()


def _decimals(rates: Sequence[Rate | None]) -> int:
    return units.digits(max((rate.samples_per_s for rate in rates if rate is not None), default=0.0)) - 1


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
    """Return samples per second over workers, and how the loaders start, by the key of their section."""
    return {"loaders": _rates(answer), "start": _starts(answer)}


def _rates(answer: Dataloader) -> list[Plot]:
    """Return a plot per batch size: a line per backend and prefetch factor over workers, the need across."""
    sizes = list(dict.fromkeys(row.settings.batch_size for row in in_order(answer)))
    drawn = []
    for size in sizes:
        rows = [row for row in in_order(answer) if row.settings.batch_size == size and row.rate is not None]
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
        caption = "Bars are 95 % intervals, wide where the search looked only shortly."
        layout = charts.layout(340, x, y, showlegend=True)
        drawn.append(Plot(f"Samples per second over workers{of_size}", caption, traces, layout))
    return drawn


def _lines(rows: Sequence[LoaderRow]) -> dict[str, list[LoaderRow]]:
    """Return the rows of each line by its name; those without workers come last."""
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


def _starts(answer: Dataloader) -> list[Plot]:
    timed = [start for start in answer.start_ups if start.first_batch_s is not None]
    if not timed:
        return []
    places, hover = [start.start_method for start in timed], "%{y}: %{x:.2f} s<extra>%{fullData.name}</extra>"
    traces = [
        charts.bars("first batch", places, [start.first_batch_s for start in timed], charts.colour(0), hover),
        charts.bars("epoch start", places, [start.epoch_start_s for start in timed], charts.colour(1), hover),
    ]
    layout = charts.layout(120 + 60 * len(timed), charts.axis("s"), charts.DOWN, showlegend=True, barmode="group")
    workers = next((row.settings.num_workers for row in answer.rows if row.chosen), 0)
    return [Plot("Time to the first batch", f"With {units.count(workers, 'worker')}.", traces, layout)]
