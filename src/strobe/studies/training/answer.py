"""The answer to a watched training: its steps and its loading as measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import strobe
from strobe.loops import training as loop
from strobe.measure import machine
from strobe.measure.components import Iteration, components, iterations, spans
from strobe.measure.statistics import describe, find_warmup, summarise
from strobe.policies import lerobot_policies
from strobe.policies.families.registry import registered
from strobe.policies.subject import ITERATION
from strobe.results.answer import TrainResult
from strobe.results.data import Samples
from strobe.results.measurement import Measurement, Memory, Span
from strobe.results.subject import SubjectInfo
from strobe.results.traits import LoaderTraits, Traits
from strobe.studies.training.batches import batches_of, worker_facts, worker_names
from strobe.studies.training.summary import kernel_use_of, summary_of
from strobe.timeline.timeline import Section

STEP, LOADING = "training step", "loading a batch"


def answer_of(
    watch: loop.Watch,
    sections: Sequence[Section],
    planned_steps: int,
    peak_process: int,
    ended: BaseException | None,
    reason: str,
) -> TrainResult:
    """The answer, without findings.

    Args:
        sections: all that the timeline recorded.
        planned_steps: of the training that is planned, for its hours.
        peak_process: the most memory that the process held, in bytes.
        ended: the exception that ended the run early, with its ``reason`` in a line; None and empty where none did.
    """
    assert watch.timeline is not None
    steps = iterations(sections, ITERATION)
    batches = batches_of(watch, sections)
    kept = steps[find_warmup([step.ms for step in steps]) :]
    config = watch.config
    info = _info(watch)
    result = TrainResult(
        strobe_version=strobe.__version__,
        title=f"{info.name}: what {len(steps):,} steps of lerobot-train waited for",
        subject=info,
        machine=machine.describe(watch.device),
        status="complete" if ended is None else "interrupted" if isinstance(ended, KeyboardInterrupt) else "failed",
        training=summary_of(watch, planned_steps, steps, kept, batches, reason),
    )
    lost = {f"worker {one['worker']}" for one in worker_facts(watch)}
    step = _measurement(STEP, "training step", steps, kept)
    step.memory = Memory(weights=info.weight_bytes, peak_process=peak_process, peak_device=watch.peak_device)
    step.memory.kernel_ms, step.memory.page_faults = kernel_use_of(watch, len(steps) - len(kept))
    loader = LoaderTraits(workers=config.num_workers, video_backend=config.dataset.video_backend)
    if config.num_workers:
        loader.prefetched_batches = config.prefetch_factor
        loader.start_method = config.dataloader_multiprocessing_context
    step.traits = Traits(
        device=str(watch.device),
        batch_size=config.batch_size,
        loader=loader,
        trained_share=_trained_share(watch.policy),
    )
    # What earlier runs of this process could not see is none of this one's.
    step.unseen = {name: why for name, why in watch.timeline.unseen.items() if name in watch.parts or name in lost}
    if config.num_workers and step.clock == "host":
        middle = min(kept, key=lambda run: abs(run.ms - step.samples.summary.median))
        step.spans += _worker_spans(middle, batches, worker_names(watch))
    if watch.serialised:
        step.notes.append("serialised: the device was synchronised around every part, nothing overlapped")
    result.measurements.append(step)
    if batches and config.num_workers:
        warm = find_warmup([batch.ms for batch in batches])
        result.measurements.append(_measurement(LOADING, "loading", batches, batches[warm:]))
    if watch.steps < config.steps and ended is None:
        result.notes.append(f"{watch.steps:,} of {config.steps:,} steps were recorded; the others ran without Strobe")
    return result


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


def _worker_spans(run: Iteration, batches: Sequence[Iteration], names: Mapping[str, str]) -> list[Span]:
    """Spans of the workers' loading during a step, on the step's time axis."""
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


def _trained_share(policy: torch.nn.Module | None) -> float:
    """Of the parameters, those that get a gradient."""
    every = list(policy.parameters()) if policy is not None else []
    return sum(p.numel() for p in every if p.requires_grad) / max(1, sum(p.numel() for p in every))


def _info(watch: loop.Watch) -> SubjectInfo:
    policy, config = watch.policy, watch.config.trainable_config
    assert policy is not None
    path = config.pretrained_path
    dataset = watch.dataset
    frames = f"{dataset.num_frames:,} frames in {dataset.num_episodes:,} episodes"
    family = registered(config.type)
    return SubjectInfo(
        name=config.type,
        kind=config.type,
        source="random weights" if path is None else Path(str(path)).name,
        inputs=f"the dataset {watch.config.dataset.repo_id}, {frames}",
        anatomy=family.name if family is not None and family.probes is not None else "modules",
        **lerobot_policies.count(policy),
    )
