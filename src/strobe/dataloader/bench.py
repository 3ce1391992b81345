"""The bench of a search: candidates for one batch size, each in its process, and what is measured of each."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from lerobot.configs.train import TrainPipelineConfig

from strobe.core.measure import memory
from strobe.core.measure.memory import available_bytes
from strobe.core.studies.shared.progress import Reporter
from strobe.dataloader import throughput
from strobe.dataloader.process import LoaderError, LoaderProcess
from strobe.dataloader.results import DatasetFacts, LoaderRow, LoaderSettings, Rate, WhatIf
from strobe.dataloader.settings import cost, label
from strobe.dataloader.throughput import Halved, halve

TIE = 0.03
TURNS = 4  # samplings of each of two loaders that are compared in alternation
KEPT_SHARE = 0.5  # share of free memory for loaders that wait for the next rung


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
    live: Reporter | None = None
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
        refused = _shared_memory_shortage(most, self._free)
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
        while chosen.num_workers and self.rate(chosen).low < self.needed:
            more = chosen.model_copy(update={"num_workers": 2 * chosen.num_workers})
            if more.num_workers > most or more in self.rows:
                return
            row, before, faster = self.add(more), chosen, False
            if row.status != "refused":
                try:
                    slow, fast = self.alternate(before, more, seconds)
                    faster = fast.samples_per_s > (1 + TIE) * slow.samples_per_s
                    faster = faster and fast.low > slow.high
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
            enough=lambda candidate, _: candidate.num_workers > 0 and self.rate(candidate).low >= self.needed,
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
                rates[candidate] = throughput.merge_rates(rates.get(candidate), seen)
        return rates[first], rates[second]

    def measure_alternative(
        self, name: str, other: LoaderSettings, chosen: LoaderSettings, seconds: float, note: str
    ) -> WhatIf:
        """Measure settings that are no candidate for ``seconds``, in alternation with the chosen ones as they are."""
        self.rows[other] = LoaderRow(settings=other, status="not run")
        row = WhatIf(name=name, note=note, status="done")
        try:
            row.rate, row.baseline = self.alternate(other, chosen, seconds)
        except LoaderError as error:
            row.status, row.reason = "failed", str(error)
        finally:
            self.close(other)
            del self.rows[other]
        return row

    def sample(self, candidate: LoaderSettings, seconds: float) -> Rate:
        """Sample a candidate for ``seconds`` and add that to its row; it is started where it does not run yet.

        Returns the rate in these seconds. Raises LoaderError.
        """
        process, row = self._running(candidate), self.rows[candidate]
        seen = throughput.block_rate(*process.sample(seconds))
        if row.rate is not None and row.rate.block_samples != seen.block_samples:
            row.rate = None  # its process was started again and found other blocks
        row.rate, row.status = throughput.merge_rates(row.rate, seen), "done"
        memory = process.memory()
        row.worker_pss_bytes, row.worker_uss_bytes = memory.pss_bytes, memory.uss_bytes
        row.shared_seen_bytes = memory.shared_bytes
        self._held_bytes[candidate] = candidate.num_workers * (memory.uss_bytes or 0)
        return seen

    def training_rate(self, candidate: LoaderSettings) -> TrainingRate:
        """The rate that the training reaches with the candidate: without workers, loading and step take turns."""
        rate = self.rate(candidate)
        ends = (rate.samples_per_s, rate.low, rate.high)
        if candidate.num_workers == 0 and math.isfinite(self.needed):
            ends = tuple(1 / (1 / end + 1 / self.needed) if end > 0 else 0.0 for end in ends)
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


def _shared_memory_shortage(most: int, free: int | None) -> str:
    if most and free is None and sys.platform == "linux":
        return f"there is no {memory.SHARED}, by which workers hand over their batches"
    if free is None or most <= free:
        return ""
    return (
        f"needs up to {most / 2**20:,.0f} MiB of shared memory (workers × prefetch × batch), and "
        f"{memory.SHARED} has {free / 2**20:,.0f} MiB free; a container gets more with --shm-size"
    )
