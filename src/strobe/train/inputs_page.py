"""What a training trained on → a table."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.report.document import Columns, Section, table, words
from strobe.core.results import units
from strobe.train.results import Adapter, TrainedOn, Training

CHANGES_SHOWN = 12
_COLUMNS: Columns[tuple[str, str]] = [words("Input", lambda row: row[0]), words("In this training", lambda row: row[1])]
_ABOUT = "Episodes, their order and the first batch are those of the recorded steps of this process."


def sections(training: Training) -> list[Section]:
    """Return the table of what it trained on; none for a run that an older version recorded."""
    found = training.trained_on
    if found is None:
        return []
    return [Section("trained-on", "Inputs of the training", table(list(_rows(found, training)), _COLUMNS), [_ABOUT])]


def _rows(found: TrainedOn, training: Training) -> Iterator[tuple[str, str]]:
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
    yield "statistics", _statistics(found)
    yield from _resumed_rows(found)
    yield "adapter", "none" if found.adapter is None else _adapter(found.adapter)
    names = found.transforms
    yield "image transforms", "off" if names is None else f"at most {found.transforms_each} of {', '.join(names)}"


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
