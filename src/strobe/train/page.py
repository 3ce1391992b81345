"""Training → document: what its steps waited for, why, and what that costs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from strobe.core.report import frame, measured, memory
from strobe.core.report.document import (
    Column,
    Columns,
    Document,
    Kind,
    Row,
    Section,
    Table,
    figure,
    heads,
    listing,
    scaled_column,
    table,
    words,
)
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.traces import profiles_page as profiles
from strobe.train.results import (
    Adapter,
    Bound,
    LoaderPart,
    LoaderWorker,
    Rank,
    Stall,
    TrainedOn,
    Training,
    TrainResult,
    Utilisation,
)


def outline(result: TrainResult, depth: int | None = None) -> Document:
    """Return the document of a training; ``depth`` limits the levels of its trees."""
    training = result.training
    shown = sections(training) + measured.sections(result, depth) + memory.sections(result.measurements, depth)
    shown += profiles.python_sections(result.python)
    return measured.document(result, answers(result), shown, notes=notes(training), failure=training.error or "")


def plots(result: TrainResult, depth: int | None = None) -> Plots:
    """Return the plots of a measured answer."""
    return measured.plots(result, depth)


_LIMITED_BY: Mapping[Bound, str] = {
    "data": "waits for data",
    "compute": "is compute",
    "host": "is host work outside the policy",
    "memory": "is compute, much of it memory allocation in the kernel",
    "interruptions": "goes to checkpoints and evaluations",
}
MAX_WAITS = 0.2  # share of a step that other ranks wait for one: above it, that is what bounds the training
ENOUGH_STEPS = 100  # steps after the warm-up from which the hours of the plan need no longer run


def answers(result: TrainResult) -> list[str]:
    """Return what limits the training, its step with the MFU, what the planned steps take, and the rate."""
    training = result.training
    samples = next((m.samples for m in result.measurements if m.phase == "training step"), None)
    counted = len(samples.values) if samples is not None else 0
    share = training.shares.get("compute" if training.bound == "memory" else training.bound, 0.0)
    sentences = [_limit(training, share)]
    if bad := training.losses.count(None):
        of = f"{bad:,} of {units.count(len(training.losses), 'step')}"
        return [f"The loss is infinite or not a number in {of}: no rate is given.", *sentences]
    if samples is not None and counted:
        step = f"{100 * share:.0f} % of the {_seconds(samples.summary.mean)} step {_LIMITED_BY[training.bound]}"
        sentences.append(f"{step}{_utilisation(training.mfu)}.")
    sentences.append(_plan(training, counted))
    theirs = result.command[result.command.index("--") + 1 :] if "--" in result.command else []
    if _straggler_share(training) is not None:
        pass  # what this process waits for is another rank
    elif training.bound == "data":
        sentences.append(f"Next: strobe dataloader -- {shlex.join(theirs) or '…'}")
    elif training.bound == "compute":
        policy = frame.pick_flags(theirs, ("--policy.type", "--policy.path"))
        sentences.append(f"Next: strobe compare {shlex.join(policy) or '--policy.type=…'} --levers=auto")
    several = f" over {training.processes} processes" if training.processes > 1 else ""
    rate, ends = units.number(training.samples_per_s, 3), training.samples_interval
    shown = f" [{units.number(ends.low, 3)}, {units.number(ends.high, 3)}]" if ends is not None else ""
    return [*sentences, f"It trains on {rate} samples/s{shown}{several}."]


def _limit(training: Training, share: float) -> str:
    if (waits := _straggler_share(training)) is not None and training.straggler is not None:
        return f"Bound by rank {training.straggler[0].rank}: waiting for it takes up to {100 * waits:.0f} %."
    gain = f"at most {100 * training.data_share:.0f} %" if training.data_share >= 0.005 else "nothing"
    return {
        "data": f"Data-bound: faster data loading would gain up to {100 * training.data_share:.0f} %.",
        "compute": f"Compute-bound: faster data loading would gain {gain}.",
        "host": f"Host-bound: work outside the policy takes {100 * share:.0f} % of a step.",
        "memory": f"Limited by memory allocation: {100 * (training.kernel_share or 0.0):.0f} % of a step.",
        "interruptions": f"Checkpoints and evaluations take {100 * share:.0f} % of the time.",
    }[training.bound]


def _straggler_share(training: Training) -> float | None:
    rank, late = training.straggler or (None, 0.0)
    share = late / rank.step_ms if rank is not None else 0.0
    return share if share > max(MAX_WAITS, training.data_share) else None


def _seconds(ms: float) -> str:
    return f"{units.number(ms / 1e3, 3)} s" if ms >= 1e3 else f"{units.number(ms, 3)} ms"


def _plan(training: Training, counted: int) -> str:
    hours, ends = training.planned_hours, training.samples_interval
    if ends is None or min(training.samples_per_s, ends.low, ends.high) <= 0:
        took = _rounded_hours_text(hours)
    else:  # an interval deserves a third figure
        low, high = (_rounded_hours_text(hours * training.samples_per_s / end, 3) for end in (ends.high, ends.low))
        if (unit := low.partition(" ")[2]) == high.partition(" ")[2]:
            low, high = low.removesuffix(f" {unit}"), high.removesuffix(f" {unit}")
        took = f"{_rounded_hours_text(hours, 3)} [{low}, {high}]"
    shown = f"{training.planned_steps:,} steps (--planned_steps) take about {took}"
    more = "" if counted >= ENOUGH_STEPS else "; use --steps=100 to firm it up"
    return f"{shown} here (from {units.count(counted, 'step')}{more})."


def _utilisation(mfu: Utilisation | None) -> str:
    if mfu is None or mfu.share is None:
        return ""
    passes = "" if mfu.passes_share is None else f"; {100 * mfu.passes_share:.0f} % counting forward and backward only"
    return f"; MFU {100 * mfu.share:.0f} % (ideal step {_seconds(mfu.least_ms or 0.0)}{passes})"


def hours(value: float) -> str:
    """Return hours as people read them: 0.25 is ``15.0 min``."""
    return f"{3600 * value:.1f} s" if value < 1 / 60 else f"{60 * value:.1f} min" if value < 1 else f"{value:,.1f} h"


def _rounded_hours_text(value: float, figures: int = 2) -> str:
    """Return extrapolated hours with few figures: 0.25 is ``15 min``, and 279.5 is ``280 h``."""
    unit, size = ("s", 3600) if value < 1 / 60 else ("min", 60) if value < 1 else ("h", 1)
    return f"{units.number(size * value, figures)} {unit}"


def sections(training: Training) -> list[Section]:
    """Return the price of the planned steps, the stalls, the loader's workers, the ranks."""
    sentences = [stall.sentence for stall in training.stalls]
    shown = [
        _planned_section(training),
        *_inputs_sections(training),
        *listing("stalls", "Stalls", training.stalls, _STALLS, *sentences, whole=True),
    ]
    if training.loader_parts:
        shown.append(Section("loader", "Inside the loader", _parts(training.loader_parts), _describe_parts(training)))
    decimals = units.digits(max((worker.batch_ms for worker in training.loader), default=0.0))
    shown += listing("workers", "Workers", training.loader, _WORKERS, decimals=decimals, whole=True)
    if len(training.ranks) > 1:
        shown.append(Section("ranks", "Ranks", _ranks(training.ranks)))
    idle = table(sorted(training.idle.items(), key=lambda part: -part[1]), _IDLE, share=lambda part: part[1])
    return [*shown, Section("idle", "Idle time of the device", idle)] if training.idle else shown


def notes(training: Training) -> list[str]:
    """Return the price of watching it, and why its MFU is not judged."""
    text = f"recording took {100 * training.overhead:.3f} % of a step"
    if training.loader_overhead is not None and training.workers:
        text += f" and {100 * training.loader_overhead:.3f} % of loading in the workers"
    unjudged = [f"MFU: not judged: {training.mfu.not_judged}"] if training.mfu and training.mfu.not_judged else []
    return [f"{text}, computed from the cost of a section on this machine", *unjudged]


def _planned_section(training: Training) -> Section:
    whole = training.planned_hours or 1.0
    rows = [Row(["all", hours(training.planned_hours), units.percent(1.0)], "whole", share=1.0)]
    for name, value in sorted(training.hours.items(), key=lambda item: (item[0] == "other", -item[1])):
        kind = "other" if name == "other" else "part"
        rows.append(Row([name, hours(value), units.percent(value / whole)], kind, 1, value / whole))
    title = f"What {training.planned_steps:,} steps will cost"
    return Section("planned", title, Table(heads("<Part of the step | Time | % of all"), rows))


_STALLS: Columns[Stall] = [
    words("Stall", lambda stall: stall.cause),
    figure("Steps hit", lambda stall: stall.steps),
    figure("ms each (median)", lambda stall: stall.each_ms, units.places(1)),
    figure("% of the run", lambda stall: stall.share, units.percent),
    figure(
        "In the planned training",
        lambda stall: "once" if stall.planned_hours is None else hours(stall.planned_hours),
        str,
    ),
]
_PARTS: Columns[LoaderPart] = [
    words("Part of loading", lambda part: part.name),
    scaled_column("ms per batch (mean)", lambda part: part.ms),
    figure("% of loading", lambda part: part.share, units.percent),
    figure("Waiting", lambda part: part.waiting, units.percent),
]
_WORKERS: Columns[LoaderWorker] = [
    words("Worker", lambda worker: worker.name),
    figure("Batches", lambda worker: worker.batches),
    scaled_column("ms per batch (median)", lambda worker: worker.batch_ms),
    figure("Loading", lambda worker: worker.busy, units.percent),
    figure("CPU", lambda worker: worker.cpu, units.percent),
]
_IDLE: Columns[tuple[str, float]] = [
    words("While the host is in", lambda part: part[0]),
    figure("% of the steps", lambda part: part[1], units.percent),
]


def _describe_parts(training: Training) -> list[str]:
    about = ["Own time of each part, without the parts inside it."]
    if any(part.waiting is not None for part in training.loader_parts):
        about.append("Waiting: the worker's process used no CPU. It waited for storage, or for a free core.")
    if training.machine_cpu is not None:
        about.append(f"All cores of this machine were busy for {100 * training.machine_cpu:.0f} % of the time.")
    return about


def _parts(parts: Sequence[LoaderPart]) -> Table:
    kinds: dict[str, Kind] = {"other": "other"}
    decimals = units.digits(sum(part.ms for part in parts))
    rows = table(parts, _PARTS, decimals, kind=lambda part: kinds.get(part.name, "part"), share=lambda part: part.share)
    return rows.drop_empty_columns()


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


CHANGES_SHOWN, MODULES_SHOWN = 12, 6
_INPUTS: Columns[tuple[str, str]] = [words("Input", lambda row: row[0]), words("In this training", lambda row: row[1])]
_ABOUT_INPUTS = "Episodes, their order and the first batch are those of the recorded steps of this process."


def _inputs_sections(training: Training) -> list[Section]:
    """Return the table of what it trained on; none for a run that an older version recorded."""
    found = training.trained_on
    if found is None:
        return []
    return [
        Section(
            "trained-on", "Inputs of the training", table(list(_input_rows(found, training)), _INPUTS), [_ABOUT_INPUTS]
        )
    ]


def _input_rows(found: TrainedOn, training: Training) -> Iterator[tuple[str, str]]:
    yield "dataset", f"{found.dataset}, {'streamed' if found.streaming else 'read from files'}"
    asked = "all" if found.episodes_asked is None else f"{found.episodes_asked:,}"
    yield "episodes", f"{asked} of {found.episodes_there:,} requested, {_seen_frames_text(found)}"
    if found.in_order is not None:
        yield "order", f"{units.percent(found.in_order)} of the samples follow the frame before them"
    times = f"batch {training.batch_size:,} × {training.processes:,} process{'es' * (training.processes > 1)}"
    yield "samples per optimizer step", f"{found.samples_per_step:,} = {times}, after each batch"
    if found.first_batch_ms is not None:
        start = "" if found.startup_ms is None else f", of it {found.startup_ms:,.0f} ms until a worker loads"
        yield "first batch", f"after {found.first_batch_ms:,.0f} ms{start}"
    if training.workers:
        rate = found.loader_rate
        yield (
            "workers after that",
            "not measured" if rate is None else f"{rate:,.0f} samples/s, if nothing makes them wait",
        )
    if found.precision is not None:
        ran = training.mfu.gflop if training.mfu is not None else {}
        shares = ", ".join(f"{units.percent(part / sum(ran.values()))} in {name}" for name, part in ran.items())
        used = f"; products: {shares}" if shares else ""
        yield "mixed precision (AMP)", ("off" if found.precision == "no" else found.precision) + used
    if found.learning_rate is not None:
        yield "learning rate", f"{found.learning_rate:.3g}"
    if (gradients := found.gradients) is None:
        yield "gradients", "not judged"
    else:
        share = units.percent(gradients.without / max(1, gradients.trained))
        of = f": {units.join_names(gradients.modules, MODULES_SHOWN)}" if gradients.modules else ""
        yield "gradients", f"none, or zeros, for {share} of the {gradients.trained:,} trained weights{of}"
    yield "statistics", _statistics(found)
    yield from _resumed_rows(found)
    yield "adapter", "none" if found.adapter is None else _adapter(found.adapter)
    names = found.transforms
    idle = f"; without effect: {', '.join(found.transforms_idle)}" if found.transforms_idle else ""
    yield "image transforms", "off" if names is None else f"at most {found.transforms_each} of {', '.join(names)}{idle}"


def _seen_frames_text(found: TrainedOn) -> str:
    if found.frames_seen is None or found.frames_distinct is None or found.episodes_seen is None:
        return "unknown which were used: the batches have no indices"
    samples = f"{found.frames_seen:,} samples of {found.frames_distinct:,} frames"
    return f"{found.episodes_seen:,} found in {samples}"


def _statistics(found: TrainedOn) -> str:
    if not found.normalised_by:
        return "unknown: no normaliser of LeRobot's"
    text = found.normalised_by
    if found.statistics_off:
        off = ", ".join(f"{name} by {far:.2g}" for name, far in found.statistics_off.items())
        text += f"; distance from the data's statistics, in its own spread: {off}"
    if found.statistics_not_compared:
        text += f"; not compared, of another shape: {', '.join(found.statistics_not_compared)}"
    return text


def _resumed_rows(found: TrainedOn) -> Iterator[tuple[str, str]]:
    run = found.resumed
    if run is None:
        return
    yield (
        "continues",
        f"checkpoint {run.checkpoint}, " + ("step not known" if run.step is None else f"step {run.step:,}"),
    )
    if run.changed is None:
        yield "changed since", "not known: its train_config.json could not be read"
        return
    shown = list(run.changed.items())[:CHANGES_SHOWN]
    for name, (before, now) in shown:
        yield f"changed: {name}", f"{before} → {now}"
    if len(run.changed) > len(shown):
        yield "changed", f"{len(run.changed) - len(shown):,} more settings"
    elif not shown:
        yield "changed since", "nothing"


def _adapter(adapter: Adapter) -> str:
    if not adapter.applied:
        return f"{adapter.method} is in the checkpoint and is not applied"
    judged = adapter.layers - adapter.not_judged
    text = f"{adapter.method}, {'loaded' if adapter.loaded else 'made by this run'}, on {adapter.layers:,} layers; "
    text += f"before the first step {adapter.idle:,} of {judged:,} are bit-identical to the base's"
    return text + (f"; {adapter.not_judged:,} not judged" if adapter.not_judged else "")
