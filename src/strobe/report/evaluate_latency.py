"""The latency in an evaluation's report: of a chunk apart from the episodes, or else of the calls within them."""

from __future__ import annotations

from strobe.report import units
from strobe.report.document import Column, Row, Section, Table
from strobe.results.chunk_times import ChunkTimes
from strobe.results.data import Interval
from strobe.results.evaluate import EvaluateResult
from strobe.results.evaluation import EvaluatedVariant


def columns(result: EvaluateResult) -> list[Column]:
    """Return the columns of a variant's latency in the table of variants."""
    if _is_measured_apart(result):
        return [Column("ms per chunk"), Column("Chunks (Hz)"), Column("Times as fast")]
    return [Column("ms per call"), Column("Calls (Hz)"), Column("Times as fast")]


def cells(result: EvaluateResult, variant: EvaluatedVariant) -> list[str | None]:
    """Return the cells of `columns`."""
    if not _is_measured_apart(result):
        return [units.rate(variant.calls.median_ms), units.rate(variant.calls.hz), units.number(variant.times, 3)]
    if variant.chunk is None:
        return [None, None, None]
    return [units.rate(variant.chunk.ms.median), units.rate(variant.chunk.hz), units.number(variant.chunk.times, 3)]


def about(result: EvaluateResult) -> str:
    """Return a sentence on the latency in the table of variants."""
    if _is_measured_apart(result):
        return "The latency is that of a chunk, measured apart from the episodes; it stands below in parts."
    return "Calls of the policy are timed one observation at a time; the first ones count."


def took(variant: EvaluatedVariant) -> str:
    """Return the latency of a variant as a clause."""
    if variant.chunk is not None:
        return f"a chunk takes {speed(variant.chunk)}"
    return f"a call takes {units.rate(variant.calls.median_ms)} ms (median), {units.rate(variant.calls.hz)} Hz"


def speed(chunk: ChunkTimes) -> str:
    """Return the latency of a chunk: '27.1 ms (median), 36.9 Hz'."""
    return f"{units.rate(chunk.ms.median)} ms (median), {units.rate(chunk.hz)} Hz"


def answers(result: EvaluateResult) -> list[str]:
    """Return the line over denoising steps; none where it was not measured."""
    line = result.line
    if line is None:
        return []
    fixed, per_step = units.rate(line.fixed_ms), units.rate(line.per_step_ms)
    ends = [_ends(line.fixed_interval), _ends(line.per_step_interval)]
    known = f" (95 %: {ends[0]} and {ends[1]})" if all(ends) else ""
    counts = ", ".join(map(str, sorted(line.predicted)))
    return [
        f"A chunk takes about {fixed} ms and {per_step} ms per step{known}, by a straight line through {counts} steps."
    ]


def section(result: EvaluateResult) -> Section:
    """Return the latency of a chunk apart from the episodes, with its parts."""
    measured = [(variant, variant.chunk) for variant in result.variants if variant.chunk is not None]
    names = list(dict.fromkeys(name for _, chunk in measured for name in chunk.parts))
    level = next((100 * ends.level for _, chunk in measured if (ends := chunk.times_interval)), 99)
    titles = ["ms per chunk (95 %)", "Chunks (Hz)", f"Times as fast ({level:.3g} %)", *names]
    rows = []
    for number, (variant, chunk) in enumerate(measured):
        median = units.rate(chunk.ms.median)
        row = [variant.name, _with_interval(median, chunk.ms.interval), units.rate(chunk.hz)]
        row += [_with_interval(units.number(chunk.times, 3), chunk.times_interval)]
        row += [units.rate(chunk.parts[name]) if name in chunk.parts else None for name in names]
        rows.append(Row(row, "part" if number else "whole"))
    table = Table([Column("Variant", numeric=False), *map(Column, titles)], rows)
    rounds = min(chunk.ms.n for _, chunk in measured)
    about = (
        f"Measured after the episodes, in {units.count(rounds, 'round')} in which all variants take turns, at batch 1, "
        f"back to back, with processors; inputs: {result.subject.inputs}. Parts are medians in ms; what "
        "they leave of the whole is in none of them."
    )
    return Section("latency", "Latency of a chunk, apart from the episodes", table, [about])


def _is_measured_apart(result: EvaluateResult) -> bool:
    return any(variant.chunk is not None for variant in result.variants)


def _with_interval(figure: str | None, interval: Interval | None) -> str | None:
    return figure if figure is None or interval is None else f"{figure} {_ends(interval)}"


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f"[{units.rate(interval.low)}, {units.rate(interval.high)}]"
