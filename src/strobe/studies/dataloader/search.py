"""Which settings of lerobot-train's data loader feed the policy's training step?

The step's need is measured, then successive halving (`measure.halving`) looks among the settings for those that meet
it, each loader in a process of its own (`studies.loading`).
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lerobot.configs.train import TrainPipelineConfig

import strobe
from strobe.errors import UserError
from strobe.measure import throughput
from strobe.measure.halving import Halved, halve
from strobe.measure.memory import available_bytes
from strobe.results.dataloader import (
    Dataloader,
    DatasetFacts,
    LoaderRow,
    Need,
    Rate,
    Recommendation,
    Settings,
    StartUp,
    WhatIf,
)
from strobe.studies.dataloader import process as loading
from strobe.studies.dataloader.process import LoaderFailed, LoaderProcess
from strobe.subjects import dataset_faults
from strobe.subjects.train_data import backends_here, settings_of

PREFETCH = (2, 4, 8)
MOST_PER_CORE = 2  # workers; beyond, they only wait for one another's core
TIE = 0.03
TURNS = 4  # looks at each of two loaders that are compared in alternation
KEPT_SHARE = 0.5  # of free memory, for loaders that wait for the next rung


class Progress(Protocol):
    """Where the study says what it does."""

    def stage(self, what: str) -> None: ...


@dataclass(frozen=True)
class Options:
    """What to search, and how long to look.

    ``needed``: samples per second that the step takes; None to measure it, infinity for the fastest loader.
    ``workers``, ``prefetch``: values to try; None for a choice by this machine's cores.
    ``first_s``, ``last_s``: seconds for which a candidate is measured in the first rung, and at most.
    """

    needed: float | None = None
    batch_sizes: Sequence[int] = ()
    workers: Sequence[int] | None = None
    prefetch: Sequence[int] | None = None
    first_s: float = 0.75
    last_s: float = 12.0
    start_ups: bool = True
    what_ifs: bool = True


@dataclass(frozen=True)
class _Effective:
    """What a loader lets the training reach, in samples per second."""

    value: float
    low: float
    high: float


@dataclass
class Bench:
    """Candidates for one batch size, their processes and what is known of each."""

    config: TrainPipelineConfig
    facts: DatasetFacts
    candidates: list[Settings]
    own: Settings
    needed: float = math.inf
    live: Progress | None = None
    rows: dict[Settings, LoaderRow] = field(default_factory=dict)
    spent: dict[Settings, float] = field(default_factory=dict)
    alive: dict[Settings, LoaderProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        free = dataset_faults.shared_free()
        for candidate in self.candidates:
            most = candidate.num_workers * candidate.prefetch_factor * candidate.batch_size * self.facts.sample_bytes
            refused = _too_little_shared(most, free)
            self.rows[candidate] = LoaderRow(
                settings=candidate,
                status="refused" if refused else "not run",
                reason=refused,
                shared_most_bytes=most,
                own=candidate == self.own,
            )
        self._memory = available_bytes() * KEPT_SHARE
        self._held: dict[Settings, int] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for candidate in list(self.alive):
            self.close(candidate)

    def search(self, first_s: float, last_s: float) -> Halved[Settings]:
        """Successive halving over the candidates that are not refused, the cheapest first."""
        open_to = [one for one in self.candidates if self.rows[one].status != "refused"]
        return halve(
            sorted(open_to, key=_cost),
            self.measure,
            first=first_s,
            last=last_s,
            tie=TIE,
            enough=lambda one, reaches: one.num_workers > 0 and throughput.low(self.rate(one)) >= self.needed,
            dropped=self.close,
        )

    def measure(self, candidate: Settings, budget_s: float) -> _Effective | None:
        """Measure a candidate until it has had ``budget_s`` seconds in all; None where it fails."""
        row = self.rows[candidate]
        self._say(f"{_label(candidate)}, {budget_s:.3g} s")
        try:
            process = self.opened(candidate)
            self.look(candidate, process, max(0.0, budget_s - self.spent.get(candidate, 0.0)))
        except LoaderFailed as error:
            row.status, row.reason = "failed", str(error)
            self.close(candidate)
            return None
        self.spent[candidate] = budget_s
        row.rungs += 1
        if sum(self._held.values()) > self._memory:
            self.close(candidate)
        return self.effective(candidate)

    def opened(self, candidate: Settings) -> LoaderProcess:
        """The candidate's process, started unless it waits from before. Raises LoaderFailed."""
        if candidate not in self.alive:
            self.alive[candidate] = process = LoaderProcess(self.config, candidate)
            seconds = process.start()
            row = self.rows[candidate]
            row.start_up_s = row.start_up_s if row.start_up_s is not None else seconds
        return self.alive[candidate]

    def look(self, candidate: Settings, process: LoaderProcess, seconds: float) -> Rate:
        """Sample a running candidate and add that to its row. Raises LoaderFailed."""
        row = self.rows[candidate]
        seen = throughput.rate_of(*process.sample(seconds))
        if row.rate is not None and row.rate.block_samples != seen.block_samples:
            row.rate = None  # its process was started anew and found other blocks
        row.rate, row.status = throughput.merged(row.rate, seen), "done"
        memory = process.memory()
        row.worker_pss_bytes, row.worker_uss_bytes = memory.pss_bytes, memory.uss_bytes
        row.shared_seen_bytes = memory.shared_bytes
        self._held[candidate] = candidate.num_workers * (memory.uss_bytes or 0)
        return seen

    def effective(self, candidate: Settings) -> _Effective:
        """What the training reaches with the candidate: without workers, loading and step take turns."""
        rate = self.rate(candidate)
        ends = (rate.samples_per_s, throughput.low(rate), throughput.high(rate))
        if candidate.num_workers == 0 and math.isfinite(self.needed):
            ends = tuple(_in_turn(end, self.needed) for end in ends)
        return _Effective(*ends)

    def rate(self, candidate: Settings) -> Rate:
        """The candidate's rate by now; it must have been measured."""
        rate = self.rows[candidate].rate
        assert rate is not None
        return rate

    def cheapest(self, found: Halved[Settings]) -> Settings | None:
        """The one to take: of those that practically equal the best, the one with fewest workers."""
        if not found.left:
            return None
        if "enough" in found.reason:
            return found.left[0]
        best = self.effective(found.left[0])
        equal = [
            one
            for one in found.left
            if self.effective(one).value >= (1 - TIE) * best.value and self.effective(one).high >= best.low
        ]
        return min(equal, key=_cost)

    def alternate(self, one: Settings, other: Settings, seconds: float) -> tuple[Rate, Rate]:
        """Measure two candidates in turn, ``seconds`` each in all. Raises LoaderFailed."""
        rates: dict[Settings, Rate] = {}
        pair = [one, other]
        for turn in range(TURNS):
            for candidate in pair if turn % 2 == 0 else pair[::-1]:
                seen = self.look(candidate, self.opened(candidate), seconds / TURNS)
                rates[candidate] = throughput.merged(rates.get(candidate), seen)
        return rates[one], rates[other]

    def close(self, candidate: Settings) -> None:
        """End a candidate's process, if it has one."""
        process = self.alive.pop(candidate, None)
        self._held.pop(candidate, None)
        if process is not None:
            process.close()

    def _say(self, what: str) -> None:
        if self.live is not None:
            self.live.stage(what)


def candidates(own: Settings, backends: Sequence[str], cores: int, options: Options) -> list[Settings]:
    """The settings to choose from, the user's own first among them; start method and persistence are not searched.

    Workers are started by fork where the machine has it: the steady state is the same, and it is there in no time.
    """
    workers = sorted({*_doubling(MOST_PER_CORE * cores), cores, own.num_workers})
    if options.workers is not None:
        workers = sorted({*options.workers, own.num_workers})
    prefetch = sorted({*(options.prefetch or PREFETCH), own.prefetch_factor})
    found = [own]
    for backend in dict.fromkeys([own.video_backend, *backends]):
        for count in workers:
            for ahead in prefetch if count else [own.prefetch_factor]:
                update = {"num_workers": count, "prefetch_factor": ahead, "video_backend": backend}
                found.append(own.model_copy(update=update))
    return list(dict.fromkeys(found))


def searched(own: Settings) -> Settings:
    """The user's settings as the search starts them."""
    return own.model_copy(update={"start_method": "fork"}) if _can_fork() else own


def flags_of(settings: Settings) -> list[str]:
    """What lerobot-train is to be given for these settings."""
    flags = [f"--num_workers={settings.num_workers}"]
    if settings.num_workers:
        flags.append(f"--prefetch_factor={settings.prefetch_factor}")
    return [*flags, f"--batch_size={settings.batch_size}", f"--dataset.video_backend={settings.video_backend}"]


def step_ms(rate: float, needed: float, settings: Settings) -> float | None:
    """Milliseconds from one training step to the next, loading included; None where the need is not known."""
    if not math.isfinite(needed):
        return None
    load, step = 1000 * settings.batch_size / rate, 1000 * settings.batch_size / needed
    return max(load, step) if settings.num_workers else load + step


def facts_of(config: TrainPipelineConfig, settings: Settings) -> tuple[DatasetFacts, Path]:
    """What the dataset is like, and its folder; one sample of it is decoded. Raises UserError."""
    try:
        with LoaderProcess(config, settings.model_copy(update={"num_workers": 0})) as process:
            told = process.facts()
    except LoaderFailed as error:
        raise UserError(str(error)) from None
    root = Path(told.pop("root"))
    return DatasetFacts(name=config.dataset.repo_id, **told), root


def read_through(root: Path) -> str | None:
    """Have the dataset in the page cache, as it is from the second epoch on; a note where it is too large for that."""
    files = [path for path in root.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if size > KEPT_SHARE * available_bytes():
        return (
            f"the dataset's {size / 2**30:.1f} GiB do not fit into memory beside the training: reading from storage "
            "is part of what was measured"
        )
    for path in files:
        with path.open("rb") as file:
            while file.read(2**24):
                pass
    return None


def search_one(
    result: Dataloader, bench: Bench, options: Options, live: Progress
) -> tuple[Recommendation, Settings] | None:
    """Search one batch size and put what was found into ``result``; None where every candidate failed."""
    began = time.perf_counter()
    found = bench.search(options.first_s, options.last_s)
    searched_s = time.perf_counter() - began
    chosen = bench.cheapest(found)
    if chosen is None:
        return None
    if bench.own == chosen:
        bench.measure(chosen, options.last_s)
    own_rate, chosen_rate = bench.rows[bench.own].rate, bench.rate(chosen)
    if bench.own != chosen and bench.rows[bench.own].status not in ("refused", "failed"):
        live.stage("your loader and the chosen one in turn")
        with contextlib.suppress(LoaderFailed):
            own_rate, chosen_rate = bench.alternate(bench.own, chosen, options.last_s)
    bench.rows[chosen].chosen = True
    fed = math.isfinite(bench.needed) and chosen.num_workers > 0 and throughput.low(chosen_rate) >= bench.needed
    now = step_ms(own_rate.samples_per_s, bench.needed, bench.own) if own_rate is not None else None
    said = Recommendation(
        batch_size=chosen.batch_size,
        flags=flags_of(chosen),
        own=own_rate,
        chosen=chosen_rate,
        fed=fed,
        reason="the step is fed no slower than it eats" if "enough" in found.reason else found.reason,
        step_ms_now=now,
        step_ms_then=step_ms(chosen_rate.samples_per_s, bench.needed, chosen),
        steps=bench.config.steps,
        searched_s=searched_s,
    )
    result.recommendations.append(said)
    return said, chosen


def start_ups(config: TrainPipelineConfig, chosen: Settings, live: Progress) -> Iterator[StartUp]:
    """How the chosen loader starts by each method, in an interpreter that has just imported lerobot-train."""
    import multiprocessing

    kept = chosen.model_copy(update={"persistent_workers": True})
    with LoaderProcess(config, kept, like_lerobot_train=True) as process:
        for method in multiprocessing.get_all_start_methods() if chosen.num_workers else []:
            live.stage(f"starting {chosen.num_workers} workers by {method}, as lerobot-train would")
            row = StartUp(start_method=method, status="done")
            try:
                row.first_batch_s, row.epoch_start_s = process.start_epochs(method)
                memory = process.memory()
                row.worker_pss_bytes, row.worker_uss_bytes = memory.pss_bytes, memory.uss_bytes
            except LoaderFailed as error:
                row.status, row.reason = "failed", str(error)
            yield row


def what_ifs(bench: Bench, chosen: Settings, seconds: float, transforms: bool, live: Progress) -> Iterator[WhatIf]:
    """The chosen loader with what lerobot-train has no flag for, each in alternation with it as it is."""
    changes: list[tuple[str, dict[str, Any], str]] = []
    if chosen.num_workers:
        changes += [
            ("one decoder thread in each worker", {"decoder_threads": 1}, "PyAV only") if chosen.video_backend == "pyav"
            and bench.facts.video else ("", {}, ""),
            ("two torch threads in each worker", {"torch_threads": 2}, "DataLoader sets one"),
        ]  # fmt: skip
    if transforms:
        note = "a bound: moving them to the device adds their time there to the step"
        changes.append(("no image transforms in the loader", {"transforms": False}, note))
    if chosen.pin_memory:
        changes.append(("memory that is not pinned", {"pin_memory": False}, ""))
    for name, update, note in changes:
        if not name:
            continue
        live.stage(f"what if: {name}")
        other = chosen.model_copy(update=update)
        bench.rows[other] = LoaderRow(settings=other, status="not run")
        row = WhatIf(name=name, note=note, status="done")
        try:
            row.rate, row.beside = bench.alternate(other, chosen, seconds)
        except LoaderFailed as error:
            row.status, row.reason = "failed", str(error)
        finally:
            bench.close(other)
            del bench.rows[other]
        yield row


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def empty(config: TrainPipelineConfig, facts: DatasetFacts, own: Settings, machine: Any) -> Dataloader:
    """The answer before anything was searched."""
    kind = config.trainable_config.type
    return Dataloader(
        strobe_version=strobe.__version__,
        title=f"a loader for {kind} on {facts.name}",
        policy=kind,
        dataset=facts,
        own=own,
        machine=machine,
    )


def study(
    config: TrainPipelineConfig,
    options: Options,
    machine: Any,
    need: Callable[[int], Need | None],
    live: Progress,
    *,
    pin_memory: bool = False,
    more: Callable[[Dataloader, Settings], None] = lambda result, chosen: None,
) -> Dataloader:
    """Search, and say what was found. Ctrl-C keeps what was measured by then.

    Args:
        need: what a step of so many samples takes from the loader; None for as fast as it goes.
        more: called with the answer and the chosen settings, to measure what else was asked for.

    Raises:
        UserError: the dataset cannot be read, or no candidate could be measured.
        KeyboardInterrupt: before anything was measured.
    """
    loading.warm_up()
    given = settings_of(config, pin_memory=pin_memory)
    own = searched(given)
    live.stage("opening the dataset")
    facts, root = facts_of(config, own)
    note = read_through(root) if root.is_dir() else None
    result = empty(config, facts, given, machine)
    result.notes += [note] if note else []
    try:
        for size in dict.fromkeys([own.batch_size, *options.batch_sizes]):
            _one_batch_size(result, config, own.model_copy(update={"batch_size": size}), options, need, live, more)
    except KeyboardInterrupt:
        if not any(row.rate for row in result.rows):
            raise
        result.status = "interrupted"
    return result


def _one_batch_size(
    result: Dataloader,
    config: TrainPipelineConfig,
    own: Settings,
    options: Options,
    need: Callable[[int], Need | None],
    live: Progress,
    more: Callable[[Dataloader, Settings], None],
) -> None:
    wants = need(own.batch_size)
    if wants is not None:
        result.needs.append(wants)
    first = not result.recommendations
    choice = candidates(own, backends_here() if result.dataset.video else [], cores_here(), options)
    needed = wants.samples_per_s if wants is not None else math.inf
    with Bench(config, result.dataset, choice, own, needed, live) as bench:
        result.rows += bench.rows.values()
        found = search_one(result, bench, options, live)
        if found is None:
            reasons = dict.fromkeys(row.reason for row in bench.rows.values() if row.reason)
            raise UserError(f"no loader could be measured: {'; '.join(reasons)[:400]}")
        if not first:
            return
        _, chosen = found
        if options.what_ifs:
            transforms = config.dataset.image_transforms.enable
            for what_if in what_ifs(bench, chosen, options.last_s / 2, transforms, live):
                result.what_ifs.append(what_if)
    more(result, chosen)
    if options.start_ups:
        for start_up in start_ups(config, chosen, live):
            result.start_ups.append(start_up)


def _doubling(most: int) -> Iterator[int]:
    yield 0
    count = 1
    while count <= most:
        yield count
        count *= 2


def _can_fork() -> bool:
    import multiprocessing

    return "fork" in multiprocessing.get_all_start_methods()


def _cost(settings: Settings) -> tuple[int, int]:
    return settings.num_workers, settings.prefetch_factor


def _in_turn(rate: float, needed: float) -> float:
    return 1 / (1 / rate + 1 / needed) if rate > 0 else 0.0


def _label(settings: Settings) -> str:
    workers = f"{settings.num_workers} worker{'' if settings.num_workers == 1 else 's'}"
    ahead = f", prefetch {settings.prefetch_factor}" if settings.num_workers else ""
    return f"{workers}{ahead}, {settings.video_backend}"


def _too_little_shared(most: int, free: int | None) -> str:
    if free is None or most <= free:
        return ""
    return (
        f"needs up to {most / 2**20:,.0f} MiB of shared memory (workers × prefetch × batch), and "
        f"{dataset_faults.SHARED} has {free / 2**20:,.0f} MiB free; a container gets more with --shm-size"
    )
