"""Causes of a watched training's waits: its bound, shares, stalls, hours, its loader's batches, and this rank."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import torch
from lerobot.configs.train import TrainPipelineConfig

from strobe.core.findings.machine import MIN_PAGE_FAULTS
from strobe.core.measure.components import Iteration, empty_section_ms, iterations
from strobe.core.measure.statistics import find_warmup, summarise
from strobe.core.results.subject import Ceiling
from strobe.core.subjects.subject import ITERATION
from strobe.core.timeline import Timeline
from strobe.core.timeline.timeline import Section
from strobe.lerobot.datasets.images import find_idle_transforms
from strobe.train import figures as measure
from strobe.train import loader_probes
from strobe.train.figures import loader_parts, loader_workers
from strobe.train.results import Bound, Rank, TrainedOn, Training, Utilisation
from strobe.train.utilisation import step_utilisation
from strobe.train.watch import TrainingWatch

MEMORY_BOUND = 0.25  # share of the steps in the kernel, handing out memory
BATCHES_SHOWN = 5000  # batches of the loader shown with their sections


@dataclass(frozen=True)
class WatchedTraining:
    """A watched training: its steps, those after the warm-up, and the batches of its loader."""

    watch: TrainingWatch
    steps: list[Iteration]
    steady: list[Iteration]
    batches: list[Iteration]

    @property
    def warmup(self) -> int:
        """How many steps come before the steady ones."""
        return len(self.steps) - len(self.steady)


def training_record(watch: TrainingWatch, sections: Sequence[Section]) -> WatchedTraining:
    """Return the training that ``watch`` recorded as ``sections``."""
    steps = iterations(sections, ITERATION)
    warmup = max(find_warmup([step.ms for step in steps]), watch.counted.warmup)
    steady = steps[min(warmup, len(steps) - 1) :]
    return WatchedTraining(watch, steps, steady, _batches(watch, sections))


def training_summary(recorded: WatchedTraining, planned_steps: int, reason: str | None = None) -> Training:
    """Summarise a watched training.

    Args:
        planned_steps: of the training that is planned, for its hours.
        reason: of a run that ended early, in a line.
    """
    watch, steps, steady, batches = recorded.watch, recorded.steps, recorded.steady, recorded.batches
    config = watch.config
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    plan = _plan(config, planned_steps)
    shares = measure.shares(steady)
    per_second, interval = measure.rate([step.ms for step in steady], config.batch_size * processes)
    step_ms = fmean(step.ms for step in steady)
    kernel_ms, faults = step_kernel_use(recorded)  # other calls of the kernel, such as reads, are not memory's
    churns = kernel_ms is not None and (faults or 0) >= MIN_PAGE_FAULTS
    kernel = min(1.0, (kernel_ms or 0.0) / torch.get_num_threads() / step_ms) if churns else None
    on_device = steady[0].whole.device_ms is not None
    hours = planned_hours(steady, steps, plan)
    training = Training(
        batch_size=config.batch_size,
        processes=processes,
        workers=config.num_workers,
        steps=len(steps),
        run_steps=config.steps,
        planned_steps=plan.steps,
        samples_per_s=per_second,
        samples_interval=interval,
        planned_hours=sum(hours.values()),
        hours=hours,
        bound=_classify_bound(shares, None if on_device else kernel, steady),
        data_share=shares["data"],
        shares=shares,
        kernel_share=kernel,
        idle=_idle(steady) if on_device else {},
        machine_cpu=watch.machine_cpu,
        stalls=measure.stalls(steps, plan),
        loader=loader_workers(batches, worker_names(watch)) if config.num_workers else [],
        loader_parts=loader_parts(batches),
        losses=[loss if math.isfinite(loss) else None for loss in watch.losses[: len(steps)]],
        # On a device a section is marked there too, which takes longer; workers mark theirs on the host alone.
        overhead=section_price_ms(watch.timeline) * _mean_section_count(steady) / step_ms,
        loader_overhead=section_price_ms() * _mean_section_count(batches) / fmean(each.ms for each in batches)
        if batches
        else None,
        error=reason,
    )
    training.ranks = [_rank(recorded)]
    began = sum(part.name == measure.EPOCH for step in steps for part in step.parts)
    training.trained_on = record_inputs(watch, measure.waits(steps[:1])[0], batches, began, processes)
    return training


def training_mfu(recorded: WatchedTraining, ceiling: Ceiling) -> Utilisation:
    """Return the model FLOP utilisation of the steady steps; ``ceiling`` has the peak of each dtype."""
    forward, backward = (measure.part_ms(recorded.steady, name) for name in (measure.FORWARD, measure.BACKWARD))
    passes = [a + b for a, b in zip(forward, backward, strict=True)]
    return step_utilisation(recorded.watch.counted, recorded.steady, passes, ceiling)


def _plan(config: TrainPipelineConfig, planned_steps: int) -> measure.Plan:
    every = {
        measure.CHECKPOINT: config.save_freq if config.save_checkpoint and config.save_freq > 0 else 0,
        measure.EVALUATION: config.eval_steps,
        measure.ROLLOUTS: config.env_eval_freq if config.env else 0,
    }
    return measure.Plan(planned_steps, every)


def _mean_section_count(runs: Sequence[Iteration]) -> float:
    return fmean(len(run.parts) + 1 for run in runs)


def step_kernel_use(recorded: WatchedTraining) -> tuple[float | None, int | None]:
    """Return mean milliseconds in the kernel and page faults of a steady step; None if they are not known."""
    used = recorded.watch.uses[recorded.warmup :]
    if not any(use.faults for use in used):
        return None, None
    return fmean(use.ms for use in used), round(fmean(use.faults for use in used))


def section_price_ms(like: Timeline | None = None, many: int = 5000) -> float:
    """Measure the price of one section here, in milliseconds.

    Args:
        like: sections are marked on the clocks that this one has; None for the host's alone.
    """
    recorded = Timeline() if like is None else Timeline(like.device, serialised=like.serialised)
    return empty_section_ms(recorded, many // 10)


def _classify_bound(shares: Mapping[str, float], kernel: float | None, steady: Sequence[Iteration]) -> Bound:
    largest = max(("data", "compute", "host", "interruptions"), key=lambda kind: shares[kind])
    if largest != "compute":
        return largest
    if kernel is not None and kernel >= MEMORY_BOUND:
        return "memory"
    device = [
        part for step in steady for part in step.parts if part.name in measure.COMPUTE and part.device_ms is not None
    ]
    if device and sum(part.host_ms for part in device) >= 0.95 * sum(part.ms for part in device):
        return "host"  # the device waits for the host to launch work
    return "compute"


def planned_hours(steady: Sequence[Iteration], steps: Sequence[Iteration], plan: measure.Plan) -> dict[str, float]:
    """Return the hours of the planned training by part: steady steps as they are, interruptions as often as planned.

    A short run that ends with a checkpoint must not be taken for a training that writes one every few steps.
    """
    names = list(dict.fromkeys(part.name for step in steps for part in step.parts if len(part.path) == 2))
    hours = {}
    for name in names:
        if name in measure.INTERRUPTIONS:
            each = [ms for ms in measure.part_ms(steps, name) if ms > 0]
            every = plan.every.get(name, 0)
            many = plan.steps / every if every else 1.0
            hours[name] = median(each) * many / 3.6e6
        else:
            hours[name] = fmean(measure.part_ms(steady, name)) * plan.steps / 3.6e6
    named = {name: measure.part_ms(steady, name) for name in names}
    rest = [step.ms - sum(values[i] for values in named.values()) for i, step in enumerate(steady)]
    hours["other"] = max(0.0, fmean(rest)) * plan.steps / 3.6e6
    return hours


def _idle(steady: Sequence[Iteration]) -> dict[str, float]:
    busy = {*measure.COMPUTE, measure.PREPROCESSING, measure.FLOATS}
    whole = sum(step.ms for step in steady)
    causes: dict[str, float] = {}
    for step in steady:
        for part in step.parts:
            if len(part.path) == 2 and part.name not in busy:
                causes[part.name] = causes.get(part.name, 0.0) + part.ms / whole
    return causes


def _rank(recorded: WatchedTraining) -> Rank:
    steady, exposed = recorded.steady, recorded.watch.communication_ms[recorded.warmup : len(recorded.steps)]
    backward = exposed or [0.0] * len(steady)
    waited = [a + b for a, b in zip(measure.part_ms(steady, measure.OTHERS), backward, strict=False)]
    own = [max(step.ms - wait, 0.0) for step, wait in zip(steady, waited, strict=False)]
    names = dict.fromkeys(part.name for step in steady for part in step.parts if len(part.path) == 2)
    return Rank(
        rank=int(os.environ.get("RANK", "0")),
        steps=len(steady),
        step_ms=fmean(step.ms for step in steady),
        own_ms=fmean(own),
        own_interval=summarise(own).interval,
        communication_ms=fmean(waited),
        exposed_ms=fmean(backward),
        parts={name: fmean(measure.part_ms(steady, name)) for name in names},
    )


# The loader's batches, from the sections of whichever process loaded them.


def worker_facts(watch: TrainingWatch) -> list[dict[str, object]]:
    """Return facts that the loader's workers handed over about themselves; see `timeline.workers.tell`."""
    return watch.timeline.worker_facts if watch.timeline is not None else []


def worker_names(watch: TrainingWatch) -> dict[str, str]:
    """Return for the timeline's thread of each worker 'worker' and its number in the loader."""
    facts = worker_facts(watch)
    return {f"worker {worker['worker']}": f"worker {worker['index']}" for worker in facts if "index" in worker}


def _batches(watch: TrainingWatch, sections: Sequence[Section]) -> list[Iteration]:
    facts = worker_facts(watch)
    others = {f"worker {worker['worker']}" for worker in facts if worker.get("loader") not in (None, "", "training")}
    ours = [part for part in sections if part.path[0] == loader_probes.BATCH and part.thread not in others]
    if not ours:  # the training process loads itself: as deep as the step's own parts
        inside = [part for part in sections if loader_probes.BATCH in part.path and measure.WAIT in part.path]
        ours = [_cut_to_batch(part) for part in inside]
    return iterations(ours, loader_probes.BATCH)[:BATCHES_SHOWN]


def _cut_to_batch(part: Section) -> Section:
    at = part.path.index(loader_probes.BATCH)
    return Section(part.name, part.path[at:], part.start_ns, part.end_ns, part.thread)


def record_inputs(
    watch: TrainingWatch, waited_ms: float, batches: Sequence[Iteration], epochs: int, processes: int
) -> TrainedOn:
    """Return the record.

    Args:
        waited_ms: the first step's wait for its batch.
        batches: of the training's loader, as far as they were recorded.
        epochs: that began in the recorded steps.
        processes: that train together.
    """
    config, inputs, dataset = watch.config, watch.inputs, watch.dataset
    given, transforms = config.dataset, dataset.image_transforms
    asked = dataset.episodes
    found = TrainedOn(
        dataset=str(given.repo_id),
        streaming=given.streaming,
        episodes_there=dataset.meta.total_episodes,
        episodes_asked=None if asked is None else len(asked),
        first_batch_ms=waited_ms,
        samples_per_step=config.batch_size * processes,  # lerobot-train takes an optimizer step after each batch
        accumulation=inputs.accumulation,
        precision=inputs.precision,
        amp_asked=bool(getattr(config.trainable_config, "use_amp", False)),
        learning_rate=inputs.rate,
        gradients=inputs.gradients,
        statistics_off=inputs.off,
        statistics_not_compared=inputs.not_compared,
        resumed=inputs.resumed,
        adapter=inputs.adapter,
    )
    if inputs.normalises:
        found.normalised_by = "the checkpoint's statistics" if config.resume else "the data's statistics"
    if batches and config.num_workers:
        in_turn = sorted(batches, key=lambda batch: batch.whole.start_ns)
        found.startup_ms = max(0.0, waited_ms - in_turn[0].ms)
        at_work = len({batch.whole.thread for batch in batches})  # of a streamed set with one file, one worker reads
        if steady := in_turn[at_work:]:  # the first of each opens files, and fills a stream's buffer
            found.loader_rate = 1e3 * at_work * config.batch_size / fmean(batch.ms for batch in steady)
    if transforms is not None:
        found.transforms = list(getattr(transforms, "transforms", {})) or [type(transforms).__name__]
        chosen = getattr(given.image_transforms, "max_num_transforms", len(found.transforms))
        found.transforms_each = min(chosen, len(found.transforms))
        found.transforms_idle = find_idle_transforms(dataset)
    _add_frames(found, watch, None if asked is None else {int(episode) for episode in asked}, epochs)
    return found


def _add_frames(found: TrainedOn, watch: TrainingWatch, asked: set[int] | None, epochs: int) -> None:
    if not watch.inputs.seen:
        return
    frames, episodes = (
        torch.cat([each.flatten().cpu() for each in one]) for one in zip(*watch.inputs.seen, strict=True)
    )
    came = {int(episode) for episode in episodes.unique()}
    found.frames_seen, found.frames_distinct = len(frames), len(frames.unique())
    found.episodes_seen = len(came)
    if len(frames) > 1:
        found.in_order = float((frames.diff() == 1).float().mean())
    if asked is not None:
        found.not_asked = sorted(came - asked)
    if epochs > 1 and found.streaming:
        found.never_came = sorted((asked or set(range(found.episodes_there))) - came)
