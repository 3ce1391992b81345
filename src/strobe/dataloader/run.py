"""Which settings of lerobot-train's data loader feed the policy's training step?

The step's need is measured, then successive halving (`measure.throughput.halve`) looks among the `candidates` for
those that meet it, each loader in a process of its own (`bench`, `process`). The chosen one is then measured in
alternation with the user's own (`what_ifs`: also with one thing changed that has no flag), and started in each way
(`start_ups`).
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lerobot.configs.train import TrainPipelineConfig

from strobe.core.errors import UserError
from strobe.core.studies.shared.progress import Reporter
from strobe.dataloader import process
from strobe.dataloader.bench import Bench, Stages
from strobe.dataloader.caches import caches
from strobe.dataloader.preparation import (
    dataset_faults,
    explain_unreadable_dataset,
    fill_page_cache,
    read_dataset_facts,
)
from strobe.dataloader.process import LoaderError, LoaderProcess
from strobe.dataloader.results import (
    Dataloader,
    DatasetFacts,
    LoaderSettings,
    Recommendation,
    StartUp,
    StepNeed,
    WhatIf,
)
from strobe.dataloader.settings import (
    MOST_WAITING,
    SearchOptions,
    candidates,
    cores_here,
    loader_flags,
    started_by_fork,
)
from strobe.dataloader.train_loader import backends_here, loader_settings
from strobe.version import __version__


def study(
    config: TrainPipelineConfig,
    options: SearchOptions,
    machine: object,
    need: Callable[[int], StepNeed | None],
    live: Reporter,
    *,
    pin_memory: bool = False,
    more: Callable[[Dataloader, LoaderSettings], None] = lambda result, chosen: None,
) -> Dataloader:
    """Search a loader for every batch size. Ctrl-C keeps what was measured by then.

    Args:
        need: the need of a step with so many samples; None for as fast as it goes.
        more: called with the answer and the chosen settings, to measure what else was requested.

    Raises:
        UserError: the dataset cannot be read, or no candidate could be measured.
        KeyboardInterrupt: before anything was measured.
    """
    process.warm_up()
    given = loader_settings(config, pin_memory=pin_memory)
    own = started_by_fork(given)
    live.stage("opening the dataset")
    facts, root = read_dataset_facts(config, own)
    wrong = dataset_faults(config, root)
    note = fill_page_cache(root) if root.is_dir() else None
    answer = _answer_unsearched(config, facts, given, machine)
    answer.caveats += wrong
    answer.notes += [note] if note else []
    try:
        for size in dict.fromkeys([own.batch_size, *options.batch_sizes]):
            _search(answer, config, root, own.model_copy(update={"batch_size": size}), options, need, live, more)
    except KeyboardInterrupt:
        if not any(row.rate for row in answer.rows):
            raise
        answer.status = "interrupted"
    return answer


def step_ms(rate: float, needed: float, settings: LoaderSettings) -> float | None:
    """Milliseconds from one training step to the next, loading included; None if the need is not known.

    ``rate`` and ``needed`` are in samples per second: of the loader, and of the step alone.
    """
    if not math.isfinite(needed):
        return None
    load, step = 1000 * settings.batch_size / rate, 1000 * settings.batch_size / needed
    return max(load, step) if settings.num_workers else load + step


def _answer_unsearched(
    config: TrainPipelineConfig, facts: DatasetFacts, own: LoaderSettings, machine: Any
) -> Dataloader:
    kind = config.trainable_config.type
    return Dataloader(
        strobe_version=__version__,
        title=f"a loader for {kind} on {facts.name}",
        policy=kind,
        dataset=facts,
        own=own,
        machine=machine,
    )


def _search(
    answer: Dataloader,
    config: TrainPipelineConfig,
    root: Path,
    own: LoaderSettings,
    options: SearchOptions,
    need: Callable[[int], StepNeed | None],
    live: Reporter,
    more: Callable[[Dataloader, LoaderSettings], None],
) -> None:
    """Search the batch size of ``own`` and add to ``answer``; further requests are measured for the first size only."""
    step = need(own.batch_size)
    if step is not None:
        answer.needs.append(step)
    first = not answer.recommendations
    choice = candidates(own, backends_here() if answer.dataset.video else [], cores_here(), options)
    needed = step.samples_per_s if step is not None else math.inf
    with Bench(config, answer.dataset, choice, own, needed, live) as bench:
        answer.rows += bench.rows.values()
        chosen = _recommend(answer, bench, options, live)
        if chosen is None:
            reasons = dict.fromkeys(row.reason for row in bench.rows.values() if row.reason)
            raise UserError(
                explain_unreadable_dataset(config, f"no loader could be measured: {'; '.join(reasons)[:400]}")
            )
        if not first:
            return
        if options.what_ifs:
            transforms = config.dataset.image_transforms.enable
            for what_if in measure_what_ifs(bench, chosen, options.last_s / 2, transforms, live):
                answer.what_ifs.append(what_if)
            for cached in caches(bench, chosen, root, options.last_s / 2, live):
                answer.caches.append(cached)
    more(answer, chosen)
    if options.start_ups:
        for start_up in start_ups(config, chosen, live):
            answer.start_ups.append(start_up)


def _recommend(answer: Dataloader, bench: Bench, options: SearchOptions, live: Stages) -> LoaderSettings | None:
    """Search the bench's candidates and add the recommendation. Returns its settings; None if all failed."""
    began = time.perf_counter()
    halved = bench.search(options.first_s, options.last_s)
    chosen, reason = bench.cheapest(halved), halved.reason or ""
    if chosen is None:
        return None
    edge = max(row.settings.num_workers for row in bench.rows.values() if row.rate is not None)
    if not options.workers and not halved.good_enough and chosen.num_workers == edge:
        live.stage("more workers, as long as they are faster")
        for row, faster in bench.grow(chosen, MOST_WAITING * cores_here(), options.last_s):
            answer.rows.append(row)
            reason = "more workers are not shown to be faster"
            if faster:
                chosen, reason = row.settings, f"{MOST_WAITING} workers for each core are the most that are tried"
    searched_s = time.perf_counter() - began
    if bench.own == chosen:
        bench.measure(chosen, options.last_s)
    own_rate, chosen_rate = bench.rows[bench.own].rate, bench.rate(chosen)
    if bench.own != chosen and bench.rows[bench.own].status not in ("refused", "failed"):
        live.stage("your loader and the chosen one in turn")
        with contextlib.suppress(LoaderError):
            own_rate, chosen_rate = bench.alternate(bench.own, chosen, options.last_s)
    bench.rows[chosen].chosen = True
    fed = math.isfinite(bench.needed) and chosen.num_workers > 0 and chosen_rate.low >= bench.needed
    now = step_ms(own_rate.samples_per_s, bench.needed, bench.own) if own_rate is not None else None
    recommendation = Recommendation(
        batch_size=chosen.batch_size,
        flags=loader_flags(chosen),
        own=own_rate,
        chosen=chosen_rate,
        fed=fed,
        reason="the step never waits for this loader" if halved.good_enough or fed else reason,
        step_ms_now=now,
        step_ms_then=step_ms(chosen_rate.samples_per_s, bench.needed, chosen),
        steps=bench.config.steps,
        searched_s=searched_s,
    )
    answer.recommendations.append(recommendation)
    return chosen


@dataclass(frozen=True)
class Change:
    """One change to the chosen settings, with a note for whoever reads its row."""

    name: str
    settings: LoaderSettings
    note: str = ""


def changes(chosen: LoaderSettings, *, video: bool, transforms: bool) -> list[Change]:
    """Return the changes that can matter for ``chosen``.

    Args:
        video: the dataset holds videos, so there is a decoder.
        transforms: the training has image transforms.
    """
    changes = []
    if chosen.num_workers and chosen.video_backend == "pyav" and video:
        one_thread = chosen.model_copy(update={"decoder_threads": 1})
        changes.append(Change("one decoder thread in each worker", one_thread, "PyAV only"))
    if chosen.num_workers:
        two_threads = chosen.model_copy(update={"torch_threads": 2})
        changes.append(Change("two torch threads in each worker", two_threads, "DataLoader sets one"))
    if transforms:
        without = chosen.model_copy(update={"transforms": False})
        note = "a bound: moving them to the device adds their time there to the step"
        changes.append(Change("no image transforms in the loader", without, note))
    if chosen.pin_memory:
        changes.append(Change("memory that is not pinned", chosen.model_copy(update={"pin_memory": False})))
    return changes


def measure_what_ifs(
    bench: Bench, chosen: LoaderSettings, seconds: float, transforms: bool, live: Stages
) -> Iterator[WhatIf]:
    """Yield a row per change, each measured for ``seconds`` in alternation with the chosen loader."""
    for change in changes(chosen, video=bench.facts.video, transforms=transforms):
        live.stage(f"what if: {change.name}")
        yield bench.measure_alternative(change.name, change.settings, chosen, seconds, change.note)


def start_ups(config: TrainPipelineConfig, chosen: LoaderSettings, live: Stages) -> Iterator[StartUp]:
    """Yield a row per start method of this machine, in an interpreter that has just imported lerobot-train.

    Nothing without workers.
    """
    if not chosen.num_workers:
        return
    persistent = chosen.model_copy(update={"persistent_workers": True})
    with LoaderProcess(config, persistent, like_lerobot_train=True) as process:
        for method in multiprocessing.get_all_start_methods():
            live.stage(f"starting {chosen.num_workers} workers by {method}, as lerobot-train would")
            row = StartUp(start_method=method, status="done")
            try:
                row.first_batch_s, row.epoch_start_s = process.start_epochs(method)
                memory = process.memory()
                row.worker_pss_bytes, row.worker_uss_bytes = memory.pss_bytes, memory.uss_bytes
            except LoaderError as error:
                row.status, row.reason = "failed", str(error)
            yield row
