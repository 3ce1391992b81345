"""Causes of a watched training's waits: its bound, shares, stalls, hours, and this rank beside the others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import torch

from strobe.loops import training as loop
from strobe.measure import training as measure
from strobe.measure.components import Iteration, empty_section_ms
from strobe.measure.statistics import summarise
from strobe.measure.training import loader_parts, loader_workers, mean_ms
from strobe.results.training import Rank, Training
from strobe.studies.training.batches import worker_names
from strobe.timeline import Timeline

NAMES = measure.Names(
    wait=loop.WAIT,
    epoch=loop.EPOCH,
    compute=(loop.FORWARD, loop.BACKWARD, loop.CLIPPING, loop.OPTIMIZER, loop.SCHEDULER, "policy update"),
    interruptions=(loop.CHECKPOINT, loop.EVALUATION, loop.ROLLOUTS),
)
MEMORY_BOUND = 0.25  # share of the steps in the kernel, handing out memory


def summary_of(
    watch: loop.Watch,
    planned_steps: int,
    steps: Sequence[Iteration],
    kept: Sequence[Iteration],
    batches: Sequence[Iteration],
    reason: str,
) -> Training:
    """Summarise a watched training.

    Args:
        planned_steps: of the training that is planned, for its hours.
        steps: all that were recorded; ``kept``: those after the warm-up.
        batches: of the training's loader.
        reason: of a run that ended early, in a line; else empty.
    """
    config = watch.config
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    every = {
        loop.CHECKPOINT: config.save_freq if config.save_checkpoint and config.save_freq > 0 else 0,
        loop.EVALUATION: config.eval_steps,
        loop.ROLLOUTS: config.env_eval_freq if config.env else 0,
    }
    plan = measure.Plan(planned_steps, every)
    shares = measure.shares(kept, NAMES)
    per_second, interval = measure.rate([step.ms for step in kept], config.batch_size * processes)
    kernel_ms, _ = kernel_use_of(watch, len(steps) - len(kept))
    threads = torch.get_num_threads()
    kernel = None if kernel_ms is None else min(1.0, kernel_ms / threads / fmean(step.ms for step in kept))
    on_device = kept[0].whole.device_ms is not None
    bound = _bound(shares, None if on_device else kernel, kept)
    hours = planned_hours(kept, steps, plan)
    # On a device a section is marked there too, which takes longer; workers mark theirs on the host alone.
    price, worker_price = section_price_ms(watch.timeline), section_price_ms()
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
        loader=loader_workers(batches, worker_names(watch)) if config.num_workers else [],
        loader_parts=loader_parts(batches),
        losses=watch.losses[: len(steps)],
        overhead=price * recorded / fmean(step.ms for step in kept),
        loader_overhead=worker_price * fmean(len(b.parts) + 1 for b in batches) / mean_ms(batches) if batches else None,
        error=reason,
    )
    found.sentence = _sentence(found)
    found.ranks = [_rank(watch, kept, steps)]
    return found


def kernel_use_of(watch: loop.Watch, skip: int) -> tuple[float | None, int | None]:
    """Mean milliseconds in the kernel and page faults per step, without the first ``skip``; None where not known."""
    used = watch.uses[skip:]
    if not any(use.faults for use in used):
        return None, None
    return fmean(use.ms for use in used), round(fmean(use.faults for use in used))


def section_price_ms(like: Timeline | None = None, many: int = 5000) -> float:
    """Price of one section here, in milliseconds.

    Args:
        like: sections are marked on the clocks that this one has; None for the host's alone.
    """
    recorded = Timeline() if like is None else Timeline(like.device, serialised=like.serialised)
    return empty_section_ms(recorded, many // 10)


def _bound(shares: Mapping[str, float], kernel: float | None, kept: Sequence[Iteration]) -> Any:
    largest = max(("data", "compute", "host", "interruptions"), key=lambda kind: shares[kind])
    if largest != "compute":
        return largest
    if kernel is not None and kernel >= MEMORY_BOUND:
        return "memory"
    device = [part for step in kept for part in step.parts if part.name in NAMES.compute and part.device_ms is not None]
    if device and sum(part.host_ms for part in device) >= 0.95 * sum(part.ms for part in device):
        return "host"  # the device waits for the host to launch work
    return "compute"


def _sentence(training: Training) -> str:
    limit, what = {
        "data": ("data", "of a step waits for data"),
        "compute": ("compute", "of a step computes"),
        "host": ("the host", "of a step is work on the host, beside the policy"),
        "memory": ("memory", "of a step computes, much of it fetching memory from the kernel"),
        "interruptions": ("interruptions", "of the time goes to checkpoints and evaluations"),
    }[training.bound]
    share = training.shares.get("compute" if training.bound == "memory" else training.bound, 0.0)
    win = f"up to {100 * training.data_share:.0f} % of the time" if training.data_share >= 0.005 else "nothing"
    return f"The training is limited by {limit}: {100 * share:.0f} % {what}. Faster loading would gain {win}."


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
