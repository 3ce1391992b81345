"""Which settings of lerobot-train's data loader feed the policy's training step?

The step's need is measured, then successive halving (`measure.throughput.halve`) looks among the `candidates` for
those that meet it, each loader in a process of its own (`bench`, `process`). The chosen one is then measured in
alternation with the user's own (`what_ifs`: also with one thing changed that has no flag), and started in each way
(`start_ups`). What would a cache buy it (`caches`)? It runs on samples that are decoded already, and on a copy of the
files in memory. Both are bounds: no cache of frames delivers more than a loader that neither reads nor decodes, and no
place of the files is faster than memory. What is written for them is removed, whatever happens.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lerobot.configs.train import TrainPipelineConfig

from strobe.core.errors import UserError
from strobe.core.measure import memory
from strobe.core.measure.other_work import usable_processors
from strobe.core.results.units import size as in_words
from strobe.core.studies.shared.progress import Reporter, Steps
from strobe.dataloader import process
from strobe.dataloader.bench import Bench
from strobe.dataloader.preparation import explain_unreadable_dataset, fill_page_cache, read_dataset_facts
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
    loader_flags,
    started_by_fork,
)
from strobe.dataloader.train_loader import backends_here, loader_settings
from strobe.lerobot.datasets.finder import note_dataset_faults
from strobe.version import __version__

DECODED = "samples decoded beforehand, in memory"
COPIED = "the data set in /dev/shm"
SHARE = 0.25  # share of what is free that samples or a copy may take: batches and workers need the rest
MOST_BYTES = 2 << 30  # decoded samples in memory: far more than a processor's caches hold
COPIED_AT_ONCE = 16 << 20  # bytes


class NoRoomError(Exception):
    """A bound that this machine cannot measure, with the reason in a line."""


def caches(
    bench: Bench,
    chosen: LoaderSettings,
    root: Path,
    seconds: float,
    live: Reporter,
    shared: Path = memory.SHARED,
) -> Iterator[WhatIf]:
    """Yield a row for each bound, measured in alternation with the chosen loader.

    Args:
        root: the data set's folder.
        seconds: for which each is measured, and for which samples are decoded.
        shared: a folder that lies in memory.
    """
    with tempfile.TemporaryDirectory(prefix="strobe-samples-") as folder:
        try:
            settings, note = _decode_samples_to_file(bench, chosen, Path(folder), seconds, live)
            live.stage(f"what if: {DECODED}")
            row = bench.measure_alternative(DECODED, settings, chosen, seconds, note)
        except (LoaderError, NoRoomError, OSError) as error:
            row = _refused_what_if(DECODED, error)
    yield row
    try:
        size = _size_to_copy(root, shared)
        with tempfile.TemporaryDirectory(prefix="strobe-data-", dir=shared) as folder:
            live.stage(f"copying the data set into {shared}, {in_words(size)}")
            _copy(root, Path(folder), size, live)
            live.stage(f"what if: {COPIED}")
            note = f"{in_words(size)} of files; the baseline reads them from the page cache where they fit"
            row = bench.measure_alternative(COPIED, chosen.model_copy(update={"root": folder}), chosen, seconds, note)
    except (NoRoomError, OSError) as error:
        row = _refused_what_if(COPIED, error)
    yield row


def _refused_what_if(name: str, error: Exception) -> WhatIf:
    return WhatIf(name=name, status="refused", reason=f"not judged: {error}")


def _decode_samples_to_file(
    bench: Bench, chosen: LoaderSettings, folder: Path, seconds: float, live: Reporter
) -> tuple[LoaderSettings, str]:
    """Decode samples into a file in ``folder``. Returns settings that read it, and a note on how many samples it has.

    A process that decodes must not fork workers, so another one reads the file, which stays in the page cache.

    Raises:
        LoaderError: they cannot be decoded.
        NoRoomError: the batch of a loader does not fit into the memory or the folder.
    """
    room = min(MOST_BYTES, int(SHARE * min(memory.available_bytes(), shutil.disk_usage(folder).free)))
    least = chosen.batch_size * bench.facts.sample_bytes
    if least > room:
        raise NoRoomError(f"a batch of {in_words(least)} is more than the {in_words(room)} of memory that it may take")
    live.stage(f"decoding samples into memory, for up to {seconds:.3g} s")
    file = folder / "samples.pt"
    with LoaderProcess(bench.config, chosen.model_copy(update={"num_workers": 0, "transforms": False})) as process:
        count, whole = process.keep(file, room, seconds)
    note = f"a bound for each cache: nothing is read or decoded; {count:,} of {whole:,} samples, again and again"
    return chosen.model_copy(update={"samples": str(file)}), note


def _size_to_copy(root: Path, shared: Path) -> int:
    """Return the bytes of the files below ``root``. Raises NoRoomError where no copy can be in ``shared``."""
    free = memory.shared_free(shared)
    if free is None:
        raise NoRoomError(f"this machine has no {shared}")
    if not root.is_dir():
        raise NoRoomError("the data set's folder is not on this machine")
    if root.resolve().is_relative_to(shared.resolve()):
        raise NoRoomError(f"the data set lies in {shared} already")
    size, room = sum(file.stat().st_size for file in _files(root)), int(SHARE * min(free, memory.available_bytes()))
    if size > room:
        raise NoRoomError(
            f"its {in_words(size)} are more than {in_words(room)}, a quarter of what is free in {shared} and in memory"
        )
    return size


def _copy(root: Path, folder: Path, size: int, live: Reporter) -> None:
    """Copy the files below ``root``, ``size`` bytes, into ``folder``. Links are followed: a hub's cache has them."""
    steps, done = Steps(live, "MiB"), 0
    for file in _files(root):
        target = folder / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as read, target.open("wb") as written:
            while block := read.read(COPIED_AT_ONCE):
                written.write(block)
                done += len(block)
                steps(done >> 20, max(size, done) >> 20)


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


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
    wrong = note_dataset_faults(root, config.dataset.repo_id, config.dataset.episodes, tolerance_s=config.tolerance_s)
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
    choice = candidates(own, backends_here() if answer.dataset.video else [], len(usable_processors()), options)
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


def _recommend(answer: Dataloader, bench: Bench, options: SearchOptions, live: Reporter) -> LoaderSettings | None:
    """Search the bench's candidates and add the recommendation. Returns its settings; None if all failed."""
    began = time.perf_counter()
    halved = bench.search(options.first_s, options.last_s)
    chosen, reason = bench.cheapest(halved), halved.reason or ""
    if chosen is None:
        return None
    edge = max(row.settings.num_workers for row in bench.rows.values() if row.rate is not None)
    if not options.workers and not halved.good_enough and chosen.num_workers == edge:
        live.stage("more workers, as long as they are faster")
        for row, faster in bench.grow(chosen, MOST_WAITING * len(usable_processors()), options.last_s):
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
    bench: Bench, chosen: LoaderSettings, seconds: float, transforms: bool, live: Reporter
) -> Iterator[WhatIf]:
    """Yield a row per change, each measured for ``seconds`` in alternation with the chosen loader."""
    for change in changes(chosen, video=bench.facts.video, transforms=transforms):
        live.stage(f"what if: {change.name}")
        yield bench.measure_alternative(change.name, change.settings, chosen, seconds, change.note)


def start_ups(config: TrainPipelineConfig, chosen: LoaderSettings, live: Reporter) -> Iterator[StartUp]:
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
