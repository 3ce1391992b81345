"""Train: what do the steps of a real ``lerobot-train`` wait for?"""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

import strobe
from strobe.errors import UserError
from strobe.measure import machine
from strobe.measure import training as measure
from strobe.measure.components import Iteration, components, iterations, spans
from strobe.measure.kernel import kernel_use
from strobe.measure.loader import loader_parts, loader_workers, mean_ms
from strobe.measure.memory import peak_process
from strobe.measure.statistics import describe, find_warmup, summarise
from strobe.results.answer import TrainResult
from strobe.results.data import Samples
from strobe.results.measurement import Measurement, Memory, Span
from strobe.results.subject import SubjectInfo
from strobe.results.training import Rank, Training
from strobe.subjects import loader, policies
from strobe.subjects import training_loop as loop
from strobe.subjects.dataset_faults import broken_table, broken_video, require_shared_memory
from strobe.subjects.subject import ITERATION
from strobe.subjects.train_config import lent
from strobe.timeline import Timeline, section
from strobe.timeline.timeline import Section

NAMES = measure.Names(
    wait=loop.WAIT,
    epoch=loop.EPOCH,
    compute=(loop.FORWARD, loop.BACKWARD, loop.CLIPPING, loop.OPTIMIZER, loop.SCHEDULER, "policy update"),
    interruptions=(loop.CHECKPOINT, loop.EVALUATION, loop.ROLLOUTS),
)
STEP, LOADING = "training step", "loading a batch"
MEMORY_BOUND = 0.25  # share of the steps in the kernel, handing out memory
BATCHES_KEPT = 5000  # of the loader, with their sections


@dataclass(frozen=True)
class Options:
    """How to watch a training.

    Args:
        depth: levels of the policy's parts.
        most_steps: steps that are recorded; the run goes on without Strobe after them.
        planned_steps: of the training that is planned, for its hours.
        profiler: runs the training and returns what it returned, under a profiler of Python.
    """

    depth: int = 1
    most_steps: int = 1000
    planned_steps: int = 100_000
    serialised: bool = False
    profiler: Callable[[Callable[[], None]], None] | None = None


@dataclass
class Trained:
    """The result, without findings, and the sections of its last steps."""

    result: TrainResult
    sections: list[Section] = field(default_factory=list)


def train(arguments: Sequence[str], options: Options, progress: Callable[[int, int], None] | None = None) -> Trained:
    """Run ``lerobot-train`` with ``arguments`` in this process, and watch it.

    A run that fails, or that Ctrl-C ends, keeps what was recorded.

    Raises:
        UserError: the run ended before its second step, with what ended it; a broken dataset is named.
        KeyboardInterrupt: it was interrupted before its second step.
    """
    watch = loop.Watch(options.depth, options.most_steps, options.serialised, progress)
    watch.used = kernel_use
    watch.before_loading = lambda _: _require_memory(watch)
    ended: BaseException | None = None
    with ExitStack() as stack:
        held = stack.enter_context(peak_process())
        stack.enter_context(lent(arguments))
        try:
            with watch:
                (options.profiler or _plainly)(loop.loop.main)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            ended = error
            traceback.clear_frames(error.__traceback__)  # they hold the workers, which report when they end
    gc.collect()
    if watch.timeline is not None:
        watch.timeline.stop()
    reason = _reason(ended, watch) if ended is not None else ""
    if watch.timeline is None or watch.steps < 2:
        if isinstance(ended, KeyboardInterrupt):
            raise ended
        raise UserError(reason or "the run ended before its second step: nothing to show") from ended
    return _trained(watch, options, held.bytes, ended, reason)


def _plainly(run: Callable[[], None]) -> None:
    run()


def _require_memory(watch: loop.Watch) -> None:
    config = watch.config
    if not config.dataset.streaming:
        require_shared_memory(watch.dataset, config.batch_size, config.num_workers, config.prefetch_factor)


def _reason(error: BaseException, watch: loop.Watch) -> str:
    """In a line, what ended the run."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    root = Path(watch.config.dataset.root) if watch.config is not None and watch.config.dataset.root else None
    if watch.dataset is not None:
        root = Path(watch.dataset.root)
    told = [*watch.broken, *(said["broken"] for said in _told(watch.timeline) if "broken" in said)]
    if told and root is not None:
        return broken_video(told[0], root)
    if watch.timeline is None and root is not None and (table := broken_table(root)) is not None:
        return f"the dataset {root} is broken: {table}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"lerobot-train failed: {type(error).__name__}: {lines[-1] if lines else 'it says nothing more'}"[:400]


def _told(timeline: Timeline | None) -> list[dict[str, Any]]:
    return timeline.told if timeline is not None else []


def _trained(watch: loop.Watch, options: Options, held: int, ended: BaseException | None, reason: str) -> Trained:
    assert watch.timeline is not None
    sections = watch.timeline.sections()
    steps = iterations(sections, ITERATION)
    batches = _batches(watch, sections)
    kept = steps[find_warmup([step.ms for step in steps]) :]
    config = watch.config
    info = _info(watch)
    result = TrainResult(
        strobe_version=strobe.__version__,
        title=f"{info.name}: what {len(steps):,} steps of lerobot-train waited for",
        subject=info,
        machine=machine.describe(watch.device),
        status="complete" if ended is None else "interrupted" if isinstance(ended, KeyboardInterrupt) else "failed",
        training=_training(watch, options, steps, kept, batches, reason),
    )
    lost = {f"worker {told['worker']}" for told in _told(watch.timeline)}
    step = _measurement(STEP, "training step", steps, kept)
    step.memory = Memory(weights=info.weight_bytes, peak_process=held)
    if watch.device.type == "cuda":
        step.memory.peak_device = torch.cuda.max_memory_allocated(watch.device)
    step.memory.kernel_ms, step.memory.page_faults = _kernel(watch, len(steps) - len(kept))
    step.facts = {
        "batch size": config.batch_size,
        "workers": config.num_workers,
        "prefetched batches per worker": config.prefetch_factor if config.num_workers else None,
        "start method": config.dataloader_multiprocessing_context if config.num_workers else None,
        "video backend": config.dataset.video_backend,
        "device": str(watch.device),
        "trained share": _trained_share(watch.policy),
    }
    # What earlier runs of this process could not see is none of this one's.
    step.unseen = {name: why for name, why in watch.timeline.unseen.items() if name in watch.parts or name in lost}
    if config.num_workers and step.clock == "host":
        middle = min(kept, key=lambda run: abs(run.ms - step.samples.summary.median))
        step.spans += _beside(middle, batches, _worker_names(watch))
    if options.serialised:
        step.notes.append("serialised: the device was synchronised around every part, nothing overlapped")
    result.measurements.append(step)
    if batches and config.num_workers:
        warm = find_warmup([batch.ms for batch in batches])
        result.measurements.append(_measurement(LOADING, "loading", batches, batches[warm:]))
    if watch.steps < config.steps and ended is None:
        result.notes.append(f"{watch.steps:,} of {config.steps:,} steps were recorded; the others ran without Strobe")
    return Trained(result, sections)


def _measurement(name: str, phase: Any, runs: Sequence[Iteration], kept: Sequence[Iteration]) -> Measurement:
    values = [run.ms for run in kept]
    summary = summarise(values)
    return Measurement(
        name=name,
        phase=phase,
        clock="host" if runs[0].whole.device_ms is None else "device",
        samples=Samples(
            warmup=[run.ms for run in runs[: len(runs) - len(kept)]],
            values=values,
            summary=summary,
            notes=describe(values) if phase == "training step" else [],
        ),
        components=components(kept),
        spans=spans(min(kept, key=lambda run: abs(run.ms - summary.median))),
    )


def _beside(run: Iteration, batches: Sequence[Iteration], names: Mapping[str, str]) -> list[Span]:
    """What the workers did during a step, on the step's time axis."""
    start, end = run.whole.start_ns, run.whole.end_ns
    found = []
    for batch in batches:
        for part in (batch.whole, *batch.parts):
            begin, until = max(part.start_ns, start), min(part.end_ns, end)
            if begin < until and part.depth <= 2:
                span = Span(
                    name=part.name,
                    start_ms=(begin - start) / 1e6,
                    duration_ms=(until - begin) / 1e6,
                    depth=part.depth,
                    thread=names.get(part.thread, part.thread),
                )
                found.append(span)
    return found


def _training(
    watch: loop.Watch,
    options: Options,
    steps: Sequence[Iteration],
    kept: Sequence[Iteration],
    batches: Sequence[Iteration],
    reason: str,
) -> Training:
    config = watch.config
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    every = {
        loop.CHECKPOINT: config.save_freq if config.save_checkpoint and config.save_freq > 0 else 0,
        loop.EVALUATION: config.eval_steps,
        loop.ROLLOUTS: config.env_eval_freq if config.env else 0,
    }
    plan = measure.Plan(options.planned_steps, every)
    shares = measure.shares(kept, NAMES)
    per_second, interval = measure.rate([step.ms for step in kept], config.batch_size * processes)
    kernel_ms, _ = _kernel(watch, len(steps) - len(kept))
    threads = torch.get_num_threads()
    kernel = None if kernel_ms is None else min(1.0, kernel_ms / threads / fmean(step.ms for step in kept))
    on_device = kept[0].whole.device_ms is not None
    bound = _bound(shares, None if on_device else kernel, kept)
    hours = planned_hours(kept, steps, plan)
    price = section_price_ms()
    recorded = fmean(len(step.parts) + 1 for step in kept)
    found = Training(
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
        bound=bound,
        sentence="",
        data_share=shares["data"],
        shares=shares,
        kernel_share=kernel,
        idle=_idle(kept) if on_device else {},
        machine_cpu=watch.machine_cpu,
        stalls=measure.stalls(steps, NAMES, config.num_workers, plan),
        loader=loader_workers(batches, _worker_names(watch)) if config.num_workers else [],
        loader_parts=loader_parts(batches),
        losses=watch.losses[: len(steps)],
        overhead=price * recorded / fmean(step.ms for step in kept),
        loader_overhead=price * fmean(len(b.parts) + 1 for b in batches) / mean_ms(batches) if batches else None,
        error=reason,
    )
    found.sentence = _sentence(found)
    found.ranks = [_rank(watch, kept, steps)]
    return found


def _bound(shares: Mapping[str, float], kernel: float | None, kept: Sequence[Iteration]) -> Any:
    largest = max(("data", "compute", "host", "interruptions"), key=lambda kind: shares[kind])
    if largest != "compute":
        return largest
    if kernel is not None and kernel >= MEMORY_BOUND:
        return "memory"
    device = [part for step in kept for part in step.parts if part.name in NAMES.compute and part.device_ms is not None]
    if device and sum(part.host_ms for part in device) >= 0.95 * sum(part.ms for part in device):
        return "host"  # the device waits to be told what to do
    return "compute"


def _sentence(training: Training) -> str:
    what = {
        "data": "waits for data",
        "compute": "computes",
        "host": "is busy on the host, beside the policy",
        "memory": "computes, and spends much of that fetching memory from the kernel",
        "interruptions": "is interrupted by checkpoints and evaluations",
    }[training.bound]
    share = training.shares.get("compute" if training.bound == "memory" else training.bound, 0.0)
    win = f"could win up to {100 * training.data_share:.0f} %" if training.data_share >= 0.005 else "would win nothing"
    return (
        f"{training.bound[:1].upper()}{training.bound[1:]}-bound: a step {what} for {100 * share:.0f} % of its time; "
        f"better loading {win}."
    )


def planned_hours(kept: Sequence[Iteration], steps: Sequence[Iteration], plan: measure.Plan) -> dict[str, float]:
    """Hours of the planned training by part of the step: steady steps as they are, interruptions as often as planned.

    A short run that ends with a checkpoint must not be taken for a training that writes one every few steps.
    """
    names = list(dict.fromkeys(part.name for step in steps for part in step.parts if len(part.path) == 2))
    found = {}
    for name in names:
        if name in NAMES.interruptions:
            each = [ms for ms in measure.part_ms(steps, name) if ms > 0]
            every = plan.every.get(name, 0)
            many = plan.steps / every if every else 1.0
            found[name] = median(each) * many / 3.6e6
        else:
            found[name] = fmean(measure.part_ms(kept, name)) * plan.steps / 3.6e6
    named = {name: measure.part_ms(kept, name) for name in names}
    rest = [step.ms - sum(values[i] for values in named.values()) for i, step in enumerate(kept)]
    found["other"] = max(0.0, fmean(rest)) * plan.steps / 3.6e6
    return found


def _trained_share(policy: torch.nn.Module | None) -> float:
    """Of the parameters, those that get a gradient."""
    every = list(policy.parameters()) if policy is not None else []
    return sum(p.numel() for p in every if p.requires_grad) / max(1, sum(p.numel() for p in every))


def _kernel(watch: loop.Watch, skip: int) -> tuple[float | None, int | None]:
    used = watch.uses[skip:]
    if not any(use.faults for use in used):
        return None, None
    return fmean(use.ms for use in used), round(fmean(use.faults for use in used))


def _idle(kept: Sequence[Iteration]) -> dict[str, float]:
    """While the host loads, logs or writes it gives the device nothing to do; gaps inside compute are not seen here."""
    busy = {*NAMES.compute, loop.PREPROCESSING, loop.FLOATS}
    whole = sum(step.ms for step in kept)
    causes: dict[str, float] = {}
    for step in kept:
        for part in step.parts:
            if len(part.path) == 2 and part.name not in busy:
                causes[part.name] = causes.get(part.name, 0.0) + part.ms / whole
    return causes


def _batches(watch: loop.Watch, sections: Sequence[Section]) -> list[Iteration]:
    """What the training's own loader loaded, without the evaluation's."""
    others = {
        f"worker {told['worker']}" for told in _told(watch.timeline) if told.get("loader") not in (None, "", "training")
    }
    ours = [one for one in sections if one.path[0] == loader.BATCH and one.thread not in others]
    if not ours:  # the training process loads itself: as deep as the step's own parts
        inside = [one for one in sections if loader.BATCH in one.path and loop.WAIT in one.path]
        ours = [_lifted(one) for one in inside]
    return iterations(ours, loader.BATCH)[:BATCHES_KEPT]


def _lifted(one: Section) -> Section:
    at = one.path.index(loader.BATCH)
    return Section(one.name, one.path[at:], one.start_ns, one.end_ns, one.thread)


def _worker_names(watch: loop.Watch) -> dict[str, str]:
    return {f"worker {told['worker']}": f"worker {told['index']}" for told in _told(watch.timeline) if "index" in told}


def _rank(watch: loop.Watch, kept: Sequence[Iteration], steps: Sequence[Iteration]) -> Rank:
    """This process, among those that train together."""
    skip = len(steps) - len(kept)
    backward = watch.communication_ms[skip : len(steps)] or [0.0] * len(kept)
    waited = [a + b for a, b in zip(measure.part_ms(kept, loop.OTHERS), backward, strict=False)]
    own = [max(step.ms - wait, 0.0) for step, wait in zip(kept, waited, strict=False)]
    names = dict.fromkeys(part.name for step in kept for part in step.parts if len(part.path) == 2)
    return Rank(
        rank=int(os.environ.get("RANK", "0")),
        steps=len(kept),
        step_ms=fmean(step.ms for step in kept),
        own_ms=fmean(own),
        own_interval=summarise(own).interval,
        communication_ms=fmean(waited),
        exposed_ms=fmean(backward),
        parts={name: fmean(measure.part_ms(kept, name)) for name in names},
    )


def section_price_ms(many: int = 5000) -> float:
    """What one section costs here, in milliseconds: the median of batches of empty ones."""
    took = []
    with Timeline():
        for _ in range(9):
            start = time.perf_counter()
            for _ in range(many // 10):
                with section("price"):
                    pass
            took.append((time.perf_counter() - start) * 1e3 / (many // 10))
    return median(took)


def _info(watch: loop.Watch) -> SubjectInfo:
    policy, config = watch.policy, watch.config.trainable_config
    assert policy is not None
    path = config.pretrained_path
    dataset = watch.dataset
    frames = f"{dataset.num_frames:,} frames in {dataset.num_episodes:,} episodes"
    return SubjectInfo(
        name=config.type,
        kind=config.type,
        source="random weights" if path is None else Path(str(path)).name,
        inputs=f"the dataset {watch.config.dataset.repo_id}, {frames}",
        anatomy=config.type if loop.registered(config.type) is not None else "modules",
        **policies.known(config),
        **policies.count(policy),
    )
