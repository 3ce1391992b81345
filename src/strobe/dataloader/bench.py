"""The bench of a search: workers, prefetch and video backend to search among, and what is measured of each.

The settings lie in a sensible range for this machine. Each candidate runs in a process of its own.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lerobot.configs.train import TrainPipelineConfig

from strobe.core.measure import memory
from strobe.core.measure.memory import available_bytes
from strobe.dataloader import throughput
from strobe.dataloader.process import LoaderError, LoaderProcess
from strobe.dataloader.results import DatasetFacts, LoaderRow, LoaderSettings, Rate
from strobe.dataloader.throughput import Halved, halve

PREFETCH = (2, 4, 8)
MOST_PER_CORE = 2  # workers; beyond, those that compute only wait for one another's core
MOST_WAITING = 16  # workers for each core, where more are faster: those wait for something else


@dataclass(frozen=True)
class SearchOptions:
    """Which settings to search, and for how long a candidate is measured.

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


def candidates(
    own: LoaderSettings, backends: Sequence[str], cores: int, options: SearchOptions
) -> list[LoaderSettings]:
    """The settings to choose from, the user's own first among them; start method and persistence are not searched.

    Workers are started by fork where the machine has it: the steady state is the same, and it is there in no time.
    """
    workers = sorted({*_doubling(MOST_PER_CORE * cores), cores, own.num_workers})
    if options.workers is not None:
        workers = sorted({*options.workers, own.num_workers})
    prefetch = sorted({*(options.prefetch or PREFETCH), own.prefetch_factor})
    searched = [own]
    for backend in dict.fromkeys([own.video_backend, *backends]):
        for count in workers:
            for ahead in prefetch if count else [own.prefetch_factor]:
                update = {"num_workers": count, "prefetch_factor": ahead, "video_backend": backend}
                searched.append(own.model_copy(update=update))
    return list(dict.fromkeys(searched))


def started_by_fork(own: LoaderSettings) -> LoaderSettings:
    """The user's settings as the search starts them: by fork, where the machine has it."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return own
    return own.model_copy(update={"start_method": "fork"})


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cost(settings: LoaderSettings) -> tuple[int, int]:
    """Order by what a loader holds on to: fewer workers first, then fewer batches ahead."""
    return settings.num_workers, settings.prefetch_factor


def label(settings: LoaderSettings) -> str:
    """The settings in a few words: '2 workers, prefetch 4, pyav'."""
    workers = f"{settings.num_workers} worker{'' if settings.num_workers == 1 else 's'}"
    ahead = f", prefetch {settings.prefetch_factor}" if settings.num_workers else ""
    return f"{workers}{ahead}, {settings.video_backend}"


def flags_of(settings: LoaderSettings) -> list[str]:
    """lerobot-train's flags for these settings."""
    flags = [f"--num_workers={settings.num_workers}"]
    if settings.num_workers:
        flags.append(f"--prefetch_factor={settings.prefetch_factor}")
    return [*flags, f"--batch_size={settings.batch_size}", f"--dataset.video_backend={settings.video_backend}"]


def _doubling(most: int) -> Iterator[int]:
    yield 0
    count = 1
    while count <= most:
        yield count
        count *= 2


TIE = 0.03
TURNS = 4  # samplings of each of two loaders that are compared in alternation
KEPT_SHARE = 0.5  # share of free memory for loaders that wait for the next rung


class Stages(Protocol):
    """Where a study of the loader says what it is doing."""

    def stage(self, what: str) -> None:
        """A new piece of work begins."""


@dataclass(frozen=True)
class TrainingRate:
    """Samples per second that a loader lets the training reach, with the ends of their interval."""

    value: float
    low: float
    high: float


@dataclass
class Bench:
    """Candidates for one batch size, their processes and their rows. Use it in a ``with``: it ends the processes.

    Args:
        own: the candidate that the user's flags describe.
        needed: samples per second that the training step takes; infinity for as fast as it goes.
    """

    config: TrainPipelineConfig
    facts: DatasetFacts
    candidates: list[LoaderSettings]
    own: LoaderSettings
    needed: float = math.inf
    live: Stages | None = None
    rows: dict[LoaderSettings, LoaderRow] = field(default_factory=dict)
    spent: dict[LoaderSettings, float] = field(default_factory=dict)
    alive: dict[LoaderSettings, LoaderProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._free = memory.shared_free()
        for candidate in self.candidates:
            self.add(candidate)
        self._memory = available_bytes() * KEPT_SHARE
        self._held_bytes: dict[LoaderSettings, int] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for candidate in list(self.alive):
            self.close(candidate)

    def add(self, candidate: LoaderSettings) -> LoaderRow:
        """Add a candidate; return its row, which says why where this machine cannot run it."""
        most = candidate.num_workers * candidate.prefetch_factor * candidate.batch_size * self.facts.sample_bytes
        refused = _too_little_shared(most, self._free)
        self.rows[candidate] = LoaderRow(
            settings=candidate,
            status="refused" if refused else "not run",
            reason=refused,
            shared_most_bytes=most,
            own=candidate == self.own,
        )
        return self.rows[candidate]

    def grow(self, chosen: LoaderSettings, most: int, seconds: float) -> Iterator[tuple[LoaderRow, bool]]:
        """Double the workers of ``chosen`` as long as that is shown to be faster, and the step is not fed.

        Workers that wait, for a disk or a network, use no core: the cores do not say how many of them help.

        Args:
            most: workers.
            seconds: for which each number and the one before it are measured, in alternation.

        Yields:
            The row of each number that was tried, and whether it was faster than the one before.
        """
        while chosen.num_workers and throughput.low(self.rate(chosen)) < self.needed:
            more = chosen.model_copy(update={"num_workers": 2 * chosen.num_workers})
            if more.num_workers > most or more in self.rows:
                return
            row, before, faster = self.add(more), chosen, False
            if row.status != "refused":
                try:
                    slow, fast = self.alternate(before, more, seconds)
                    faster = fast.samples_per_s > (1 + TIE) * slow.samples_per_s
                    faster = faster and throughput.low(fast) > throughput.high(slow)
                except LoaderError as error:
                    row.status, row.reason = "failed", str(error)
            yield row, faster
            self.close(before if faster else more)
            if not faster:
                return
            chosen = more

    def search(self, first_s: float, last_s: float) -> Halved[LoaderSettings]:
        """Search by successive halving among the candidates that are not refused, the cheapest first."""
        searched = [candidate for candidate in self.candidates if self.rows[candidate].status != "refused"]
        return halve(
            sorted(searched, key=cost),
            self.measure,
            first=first_s,
            last=last_s,
            tie=TIE,
            enough=lambda candidate, _: (
                candidate.num_workers > 0 and throughput.low(self.rate(candidate)) >= self.needed
            ),
            dropped=self.close,
        )

    def cheapest(self, halved: Halved[LoaderSettings]) -> LoaderSettings | None:
        """Of the candidates that practically equal the best one found, that with the fewest workers.

        One that is good enough ended the search, and is it. None if every candidate failed.
        """
        if not halved.remaining:
            return None
        if halved.good_enough:
            return halved.remaining[0]
        best = self.training_rate(halved.remaining[0])
        equal = [
            candidate
            for candidate in halved.remaining
            if self.training_rate(candidate).value >= (1 - TIE) * best.value
            and self.training_rate(candidate).high >= best.low
        ]
        return min(equal, key=cost)

    def measure(self, candidate: LoaderSettings, budget_s: float) -> TrainingRate | None:
        """Measure a candidate until it has had ``budget_s`` seconds in all; None if it fails."""
        row = self.rows[candidate]
        if self.live is not None:
            self.live.stage(f"{label(candidate)}, {budget_s:.3g} s")
        try:
            self.sample(candidate, max(0.0, budget_s - self.spent.get(candidate, 0.0)))
        except LoaderError as error:
            row.status, row.reason = "failed", str(error)
            self.close(candidate)
            return None
        self.spent[candidate] = budget_s
        row.rungs += 1
        if sum(self._held_bytes.values()) > self._memory:
            self.close(candidate)
        return self.training_rate(candidate)

    def alternate(self, first: LoaderSettings, second: LoaderSettings, seconds: float) -> tuple[Rate, Rate]:
        """Measure two candidates in turn, ``seconds`` each in all. Raises LoaderError."""
        rates: dict[LoaderSettings, Rate] = {}
        pair = [first, second]
        for turn in range(TURNS):
            for candidate in pair if turn % 2 == 0 else pair[::-1]:
                seen = self.sample(candidate, seconds / TURNS)
                rates[candidate] = throughput.merged(rates.get(candidate), seen)
        return rates[first], rates[second]

    def sample(self, candidate: LoaderSettings, seconds: float) -> Rate:
        """Sample a candidate for ``seconds`` and add that to its row; it is started where it does not run yet.

        Returns the rate in these seconds. Raises LoaderError.
        """
        process, row = self._running(candidate), self.rows[candidate]
        seen = throughput.rate_of(*process.sample(seconds))
        if row.rate is not None and row.rate.block_samples != seen.block_samples:
            row.rate = None  # its process was started again and found other blocks
        row.rate, row.status = throughput.merged(row.rate, seen), "done"
        memory = process.memory()
        row.worker_pss_bytes, row.worker_uss_bytes = memory.pss_bytes, memory.uss_bytes
        row.shared_seen_bytes = memory.shared_bytes
        self._held_bytes[candidate] = candidate.num_workers * (memory.uss_bytes or 0)
        return seen

    def training_rate(self, candidate: LoaderSettings) -> TrainingRate:
        """The rate that the training reaches with the candidate: without workers, loading and step take turns."""
        rate = self.rate(candidate)
        ends = (rate.samples_per_s, throughput.low(rate), throughput.high(rate))
        if candidate.num_workers == 0 and math.isfinite(self.needed):
            ends = tuple(_in_turn(end, self.needed) for end in ends)
        return TrainingRate(*ends)

    def rate(self, candidate: LoaderSettings) -> Rate:
        """The candidate's rate by now; it must have been measured."""
        rate = self.rows[candidate].rate
        assert rate is not None
        return rate

    def close(self, candidate: LoaderSettings) -> None:
        """End a candidate's process, if it has one."""
        process = self.alive.pop(candidate, None)
        self._held_bytes.pop(candidate, None)
        if process is not None:
            process.close()

    def _running(self, candidate: LoaderSettings) -> LoaderProcess:
        if candidate not in self.alive:
            self.alive[candidate] = process = LoaderProcess(self.config, candidate)
            seconds = process.start()
            row = self.rows[candidate]
            row.start_up_s = row.start_up_s if row.start_up_s is not None else seconds
        return self.alive[candidate]


def _in_turn(rate: float, needed: float) -> float:
    return 1 / (1 / rate + 1 / needed) if rate > 0 else 0.0


def _too_little_shared(most: int, free: int | None) -> str:
    if free is None or most <= free:
        return ""
    return (
        f"needs up to {most / 2**20:,.0f} MiB of shared memory (workers × prefetch × batch), and "
        f"{memory.SHARED} has {free / 2**20:,.0f} MiB free; a container gets more with --shm-size"
    )
