"""Time of a DataLoader's workers, by worker and by part of loading, from the sections that they recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from strobe.measure.components import OTHER, Iteration
from strobe.results.training import LoaderPart, LoaderWorker
from strobe.timeline.timeline import Section

WHOLES = ("batch", "sample")  # sections whose own time is no part's


def loader_workers(batches: Sequence[Iteration], names: dict[str, str]) -> list[LoaderWorker]:
    """One row per process; ``names`` says what a thread of the timeline is called."""
    by_thread: dict[str, list[Iteration]] = {}
    for batch in batches:
        by_thread.setdefault(batch.whole.thread, []).append(batch)
    found = []
    for thread, own in by_thread.items():
        whole = sum(batch.ms for batch in own)
        life = (own[-1].whole.end_ns - own[0].whole.start_ns) / 1e6
        found.append(
            LoaderWorker(
                name=names.get(thread, thread),
                batches=len(own),
                batch_ms=median(batch.ms for batch in own),
                fastest_ms=min(batch.ms for batch in own),
                busy=min(1.0, whole / life) if life > 0 else 1.0,
                cpu=_cpu_ms(batch.whole.cpu_ns for batch in own) / whole if whole > 0 else 0.0,
            )
        )
    return sorted(found, key=lambda worker: worker.name)


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
    """Count the time of ``of`` for the part ``to``, or, inside it, against it."""
    name, source = OTHER if to.name in WHOLES else to.name, of or to
    own[name] = own.get(name, 0.0) + sign * source.ms
    so_far = cpu.get(name, 0.0)
    cpu[name] = None if so_far is None or source.cpu_ns is None else so_far + sign * source.cpu_ns / 1e6


def mean_ms(batches: Sequence[Iteration]) -> float:
    """Mean milliseconds to load a batch."""
    return fmean(batch.ms for batch in batches)


def _cpu_ms(values: Iterable[int | None]) -> float:
    return sum(value or 0 for value in values) / 1e6
