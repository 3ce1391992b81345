"""Shares, stalls and rate of a training's steps, from their sections, scaled to the training that is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from strobe.core.measure.components import OTHER, Iteration
from strobe.core.results.data import Interval
from strobe.core.timeline.timeline import Section
from strobe.train.results import LoaderPart, LoaderWorker, Stall

# Names of the sections of a training's loop.
DATA, WAIT, EPOCH, TRANSFER = "data", "wait for the loader", "start of an epoch", "to the device"
FLOATS, PREPROCESSING = "images to floats", "preprocessing"
FORWARD, BACKWARD, CLIPPING = "forward", "backward", "gradient clipping"
OPTIMIZER, SCHEDULER = "optimizer", "scheduler"
OTHERS = "wait for other ranks"
LOGGING, EVALUATION, ROLLOUTS, CHECKPOINT = "logging", "evaluation", "environment evaluation", "checkpoint"
COMPUTE = (FORWARD, BACKWARD, CLIPPING, OPTIMIZER, SCHEDULER, "policy update")
INTERRUPTIONS = (CHECKPOINT, EVALUATION, ROLLOUTS)


@dataclass(frozen=True)
class Plan:
    """The training that is planned: its steps, and how often what interrupts them comes (in steps; 0 for never)."""

    steps: int
    every: Mapping[str, int]


def part_ms(steps: Sequence[Iteration], name: str, *, depth: int = 1) -> list[float]:
    """Milliseconds of the parts called ``name``, ``depth`` levels below each step."""
    return [sum(part.ms for part in step.parts if part.name == name and len(part.path) == depth + 1) for step in steps]


def waits(steps: Sequence[Iteration]) -> list[float]:
    """Milliseconds that each step waited for its batch."""
    starting = part_ms(steps, EPOCH, depth=2)
    return [a + b for a, b in zip(part_ms(steps, WAIT, depth=2), starting, strict=True)]


def shares(steps: Sequence[Iteration]) -> dict[str, float]:
    """'data', 'compute', 'interruptions' and 'host' (all else) as shares of ``steps``, which add up to 1."""
    whole = sum(step.ms for step in steps)
    if whole <= 0:
        return {}
    shares = {
        "data": sum(waits(steps)) / whole,
        "compute": sum(sum(part_ms(steps, name)) for name in COMPUTE) / whole,
        "interruptions": sum(sum(part_ms(steps, name)) for name in INTERRUPTIONS) / whole,
    }
    shares["host"] = max(0.0, 1 - sum(shares.values()))
    return shares


def rate(step_ms: Sequence[float], samples: int) -> tuple[float, Interval | None]:
    """Samples per second and its 95 % interval, from the means of up to twenty blocks of consecutive steps.

    Blocks, because neighbouring steps share what the loader had ready (the method of batch means: Conway, "Some
    tactical problems in digital simulation", Management Science 10, 1963). None with fewer than eight steps.
    """
    from scipy import stats

    values = np.asarray(step_ms, dtype=np.float64)
    mean = float(values.mean())
    if len(values) < 8:
        return 1e3 * samples / mean, None
    blocks = np.array([block.mean() for block in np.array_split(values, min(20, len(values) // 2))])
    half = float(stats.t.ppf(0.975, len(blocks) - 1) * blocks.std(ddof=1) / np.sqrt(len(blocks)))
    fastest, slowest = max(mean - half, mean * 1e-3), mean + half
    return 1e3 * samples / mean, Interval(low=1e3 * samples / slowest, high=1e3 * samples / fastest)


def stalls(steps: Sequence[Iteration], plan: Plan) -> list[Stall]:
    """Why some steps took longer than others, the costliest cause first; ``steps`` are all, warm-up too."""
    if not steps:
        return []
    whole = sum(step.ms for step in steps)
    waited = waits(steps)
    usual = median(waited)
    begins = [any(part.name == EPOCH for part in step.parts) for step in steps]
    stalls = []

    def add(cause: str, each: list[float], planned: float | None, sentence: str) -> None:
        share = sum(each) / whole
        if share >= 0.001:
            ms = median(each)
            hours = None if planned is None else ms * planned / 3.6e6
            stalls.append(
                Stall(
                    cause=cause,
                    steps=len(each),
                    each_ms=ms,
                    share=share,
                    planned_hours=hours,
                    sentence=sentence.format(ms=f"{ms:,.0f} ms"),
                )
            )

    first = max(0.0, waited[0] - usual)
    add("first batch", [first], None, "the first batch came {ms} late: workers start, import and open files")
    epochs = [max(0.0, wait - usual) for wait, begin in list(zip(waited, begins, strict=True))[1:] if begin]
    if epochs:
        many = plan.steps * len(epochs) / len(steps)
        add(
            "start of an epoch",
            epochs,
            many,
            "each epoch begins with {ms} of waiting: nothing is prefetched across epochs",
        )
    for name in INTERRUPTIONS:
        each = [ms for ms in part_ms(steps, name) if ms > 0]
        if each:
            every = plan.every.get(name, 0)
            planned = plan.steps / every if every else 1.0
            often = f"every {every:,} steps" if every else "once"
            add(name, each, planned, f"{name} takes {{ms}}, {often}")
    return sorted(stalls, key=lambda stall: -stall.share)


WHOLES = ("batch", "sample")  # sections whose own time is no part's


def loader_workers(batches: Sequence[Iteration], names: dict[str, str]) -> list[LoaderWorker]:
    """One row per process; ``names`` says what a thread of the timeline is called."""
    by_thread: dict[str, list[Iteration]] = {}
    for batch in batches:
        by_thread.setdefault(batch.whole.thread, []).append(batch)
    workers = []
    for thread, own in by_thread.items():
        whole = sum(batch.ms for batch in own)
        life = (own[-1].whole.end_ns - own[0].whole.start_ns) / 1e6
        workers.append(
            LoaderWorker(
                name=names.get(thread, thread),
                batches=len(own),
                batch_ms=median(batch.ms for batch in own),
                fastest_ms=min(batch.ms for batch in own),
                busy=min(1.0, whole / life) if life > 0 else 1.0,
                cpu=sum(batch.whole.cpu_ns or 0 for batch in own) / 1e6 / whole if whole > 0 else 0.0,
            )
        )
    return sorted(workers, key=lambda worker: worker.name)


def loader_parts(batches: Sequence[Iteration]) -> list[LoaderPart]:
    """The most specific parts of loading, the longest first, and what is in none of them as 'other'.

    A part's time is its own, without that of the parts inside it.
    """
    if not batches:
        return []
    own: dict[str, float] = {}
    cpu: dict[str, float | None] = {}
    for batch in batches:
        above: list[Section] = []
        for section in (batch.whole, *batch.parts):  # in tree order
            while above and len(above) >= len(section.path):
                above.pop()
            _add(own, cpu, section, 1)
            if above:
                _add(own, cpu, above[-1], -1, of=section)
            above.append(section)
    whole = sum(batch.ms for batch in batches)
    rows = []
    for name, ms in sorted(own.items(), key=lambda item: (item[0] == OTHER, -item[1])):
        used = cpu[name]
        waiting = None if used is None or ms <= 0 else min(1.0, max(0.0, 1 - used / ms))
        rows.append(LoaderPart(name=name, ms=ms / len(batches), share=ms / whole if whole else 0.0, waiting=waiting))
    return rows


def _add(
    own: dict[str, float], cpu: dict[str, float | None], to: Section, sign: int, of: Section | None = None
) -> None:
    name, source = OTHER if to.name in WHOLES else to.name, of or to
    own[name] = own.get(name, 0.0) + sign * source.ms
    so_far = cpu.get(name, 0.0)
    cpu[name] = None if so_far is None or source.cpu_ns is None else so_far + sign * source.cpu_ns / 1e6
