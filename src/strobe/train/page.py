"""Training → document: what its steps waited for, why, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import measured, memory
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.traces.pages import profiles
from strobe.train.results import LoaderPart, LoaderWorker, Rank, Stall, Training, TrainResult


def outline(result: TrainResult, depth: int | None = None) -> Document:
    """Return the document of a training; ``depth`` limits the levels of its trees."""
    training = result.training
    shown = sections(training) + measured.sections(result, depth) + memory.sections(result.measurements, depth)
    shown += profiles.sections(None, result.python)
    return measured.document(result, answers(training), shown, notes=notes(training), failure=training.error)


def plots(result: TrainResult, depth: int | None = None) -> Plots:
    """Return the plots of a measured answer."""
    return measured.plots(result, depth)


def answers(training: Training) -> list[str]:
    """Return the verdict, then the rate and what it makes of the planned training."""
    rate = f"{units.number(training.samples_per_s, 4)} samples/s"
    if (ends := training.samples_interval) is not None:
        rate += f" [{units.number(ends.low, 4)}, {units.number(ends.high, 4)}]"
    several = f" over {training.processes} processes" if training.processes > 1 else ""
    plan = f"{training.planned_steps:,} steps take {hours(training.planned_hours)}"
    return [training.sentence, f"{rate}{several}; {plan} at this rate."]


def hours(value: float) -> str:
    """Return hours as people read them: 0.25 is ``15 min``."""
    if value < 1 / 60:
        return f"{3600 * value:.1f} s"
    return f"{60 * value:.1f} min" if value < 1 else f"{value:,.1f} h"


def sections(training: Training) -> list[Section]:
    """Return the price of the planned steps, the stalls, the loader's workers, the ranks."""
    shown = [_planned(training)]
    if training.stalls:
        shown.append(
            Section("stalls", "Stalls", _stalls(training.stalls), [stall.sentence for stall in training.stalls])
        )
    if training.loader_parts:
        shown.append(Section("loader", "Inside the loader", _parts(training.loader_parts), _about(training)))
    if training.loader:
        shown.append(Section("workers", "Workers", _workers(training.loader)))
    if len(training.ranks) > 1:
        shown.append(Section("ranks", "Ranks", _ranks(training.ranks)))
    if training.idle:
        shown.append(Section("idle", "Idle time of the device", _idle(training.idle)))
    return shown


def notes(training: Training) -> list[str]:
    """Return the price of watching it."""
    text = f"recording took {_fraction(training.overhead)} of a step"
    if training.loader_overhead is not None and training.workers:
        text += f" and {_fraction(training.loader_overhead)} of loading in the workers"
    return [f"{text}, computed from the price of a section on this machine"]


def _fraction(share: float) -> str:
    return f"{100 * share:.3f} %"


def _planned(training: Training) -> Section:
    title = f"What {training.planned_steps:,} steps will cost"
    columns = [Column("Part of the step", numeric=False), Column("Time"), Column("% of it")]
    whole = training.planned_hours or 1.0
    rows = [Row(["all", hours(training.planned_hours), units.percent(1.0)], "whole", share=1.0)]
    for name, value in sorted(training.hours.items(), key=lambda item: (item[0] == "other", -item[1])):
        share = value / whole
        kind = "other" if name == "other" else "part"
        rows.append(Row([name, hours(value), units.percent(share)], kind, 1, share))
    return Section("planned", title, Table(columns, rows))


def _stalls(stalls: Sequence[Stall]) -> Table:
    columns = [Column("Stall", numeric=False), Column("Steps hit"), Column("ms each (median)"), Column("% of the run")]
    columns += [Column("In the planned training")]
    rows = []
    for stall in stalls:
        planned = hours(stall.planned_hours) if stall.planned_hours is not None else "once"
        cells = [stall.cause, f"{stall.steps:,}", units.ms(stall.each_ms, 1), units.percent(stall.share), planned]
        rows.append(Row(cells))
    return Table(columns, rows)


def _about(training: Training) -> list[str]:
    about = ["Each part's own time, without the parts inside it."]
    if any(part.waiting is not None for part in training.loader_parts):
        about.append("Waiting: the worker's process used no CPU. It waited for storage, or for a free core.")
    if training.machine_cpu is not None:
        about.append(f"All cores of this machine were busy for {100 * training.machine_cpu:.0f} % of the time.")
    return about


def _parts(parts: Sequence[LoaderPart]) -> Table:
    columns = [Column("Part of loading", numeric=False), Column("ms per batch (mean)"), Column("% of loading")]
    columns += [Column("Waiting")]
    decimals = units.digits(sum(part.ms for part in parts))
    rows = [
        Row(
            [part.name, units.ms(part.ms, decimals), units.percent(part.share), units.percent(part.waiting)],
            "other" if part.name == "other" else "part",
            share=part.share,
        )
        for part in parts
    ]
    return Table(columns, rows).without_empty_columns()


def _workers(workers: Sequence[LoaderWorker]) -> Table:
    columns = [Column("Worker", numeric=False), Column("Batches"), Column("ms per batch (median)"), Column("Loading")]
    columns += [Column("CPU")]
    decimals = units.digits(max(worker.batch_ms for worker in workers))
    rows = []
    for worker in workers:
        cells = [worker.name, f"{worker.batches:,}", units.ms(worker.batch_ms, decimals), units.percent(worker.busy)]
        rows.append(Row([*cells, units.percent(worker.cpu)]))
    return Table(columns, rows)


def _ranks(ranks: Sequence[Rank]) -> Table:
    names = list(dict.fromkeys(name for rank in ranks for name in rank.parts))
    decimals = units.digits(max(rank.step_ms for rank in ranks))
    columns = [Column("Milliseconds per step (mean)", numeric=False), *(Column(f"rank {rank.rank}") for rank in ranks)]
    rows = [Row(["step", *(units.ms(rank.step_ms, decimals) for rank in ranks)], "whole")]
    rows.append(Row(["its own work", *(units.ms(rank.own_ms, decimals) for rank in ranks)]))
    rows.append(Row(["waiting for others", *(units.ms(rank.communication_ms, decimals) for rank in ranks)]))
    for name in names:
        rows.append(Row([name, *(units.ms(rank.parts.get(name), decimals) for rank in ranks)], depth=1))
    return Table(columns, rows)


def _idle(idle: dict[str, float]) -> Table:
    columns = [Column("While the host is in", numeric=False), Column("% of the steps")]
    ordered = sorted(idle.items(), key=lambda item: -item[1])
    return Table(columns, [Row([name, units.percent(share)], share=share) for name, share in ordered])
