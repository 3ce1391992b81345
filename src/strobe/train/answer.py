"""The answer to a watched training: its steps and its loading as measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from strobe.core.measure import machine
from strobe.core.measure.components import Iteration, components, spans
from strobe.core.measure.statistics import describe, find_warmup, summarise
from strobe.core.results.data import Samples
from strobe.core.results.measurement import MeasuredPhase, Measurement, Memory, Span
from strobe.core.results.subject import SubjectInfo
from strobe.core.results.traits import LoaderTraits, Traits
from strobe.lerobot.policies import lerobot_policies
from strobe.rollout.loops.header import subject_of
from strobe.train.results import TrainResult
from strobe.train.summary import WatchedTraining, kernel_use_of, summary_of, worker_facts, worker_names
from strobe.train.watch import TrainingWatch
from strobe.version import __version__

STEP, LOADING = "training step", "loading a batch"


def answer_of(
    recorded: WatchedTraining, planned_steps: int, peak_process: int, ended: BaseException | None, reason: str
) -> TrainResult:
    """Return the answer, without findings.

    Args:
        planned_steps: of the training that is planned, for its hours.
        peak_process: the most memory that the process held, in bytes.
        ended: the exception that ended the run early, with its ``reason`` in a line; None and empty where none did.
    """
    watch, steps, batches = recorded.watch, recorded.steps, recorded.batches
    config, info = watch.config, _info(watch)
    result = TrainResult(
        strobe_version=__version__,
        title=f"{info.name}: what {len(steps):,} steps of lerobot-train waited for",
        subject=info,
        machine=machine.describe(watch.device),
        status="complete" if ended is None else "interrupted" if isinstance(ended, KeyboardInterrupt) else "failed",
        training=summary_of(recorded, planned_steps, reason),
        measurements=[_step(recorded, info, peak_process)],
    )
    if batches and config.num_workers:
        warm = find_warmup([batch.ms for batch in batches])
        result.measurements.append(_measurement(LOADING, "loading", batches, batches[warm:]))
    if watch.steps < config.steps and ended is None:
        result.notes.append(f"{watch.steps:,} of {config.steps:,} steps were recorded; the others ran without Strobe")
    return result


def _step(recorded: WatchedTraining, info: SubjectInfo, peak_process: int) -> Measurement:
    watch, steady = recorded.watch, recorded.steady
    config = watch.config
    step = _measurement(STEP, "training step", recorded.steps, steady)
    step.memory = Memory(weights=info.weight_bytes, peak_process=peak_process, peak_device=watch.peak_device)
    step.memory.kernel_ms, step.memory.page_faults = kernel_use_of(recorded)
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
    lost = {f"worker {worker['worker']}" for worker in worker_facts(watch)}
    unseen = {} if watch.timeline is None else watch.timeline.unseen
    step.unseen = {name: why for name, why in unseen.items() if name in watch.parts or name in lost}
    if config.num_workers and step.clock == "host":
        middle = min(steady, key=lambda run: abs(run.ms - step.samples.summary.median))
        step.spans += _worker_spans(middle, recorded.batches, worker_names(watch))
    if watch.serialised:
        step.notes.append("serialised: the device was synchronised around every part, nothing overlapped")
    return step


def _measurement(
    name: str, phase: MeasuredPhase, runs: Sequence[Iteration], steady: Sequence[Iteration]
) -> Measurement:
    values = [run.ms for run in steady]
    summary = summarise(values)
    return Measurement(
        name=name,
        phase=phase,
        clock="host" if runs[0].whole.device_ms is None else "device",
        samples=Samples(
            warmup=[run.ms for run in runs[: len(runs) - len(steady)]],
            values=values,
            summary=summary,
            notes=describe(values) if phase == "training step" else [],
        ),
        components=components(steady),
        spans=spans(min(steady, key=lambda run: abs(run.ms - summary.median))),
    )


def _worker_spans(run: Iteration, batches: Sequence[Iteration], names: Mapping[str, str]) -> list[Span]:
    """Return spans of the workers' loading during a step, on the step's time axis."""
    start, end = run.whole.start_ns, run.whole.end_ns
    shown = []
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
                shown.append(span)
    return shown


def _trained_share(policy: torch.nn.Module | None) -> float:
    """Return the share of the parameters that get a gradient."""
    every = list(policy.parameters()) if policy is not None else []
    return sum(p.numel() for p in every if p.requires_grad) / max(1, sum(p.numel() for p in every))


def _info(watch: TrainingWatch) -> SubjectInfo:
    policy, config, dataset = watch.policy, watch.config.trainable_config, watch.dataset
    assert policy is not None
    path = config.pretrained_path
    frames = f"{dataset.num_frames:,} frames in {dataset.num_episodes:,} episodes"
    return subject_of(
        config.type,
        "random weights" if path is None else Path(str(path)).name,
        f"the dataset {watch.config.dataset.repo_id}, {frames}",
        **lerobot_policies.count(policy),
    )
