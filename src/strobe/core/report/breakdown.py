"""Breakdown → document: the part that takes most first, then every measurement with its parts."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import limits, measured, memory, more, pace, tables
from strobe.core.report.document import Document
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.answer import BreakdownResult, Result
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.queued import find_filled_calls


def outline(result: BreakdownResult, depth: int | None = None) -> Document:
    """Return the document of a breakdown; ``depth`` limits the levels of its trees."""
    sections = pace.cadence_sections(result) + measured.sections(result, depth)
    for m in _limited_measurements(result):
        sections += limits.sections([(m.name, m)], m.name)
    sections += memory.sections(result.measurements, depth)
    sections += more.sections(result)
    sentences = answers(result) + [limits.line(result.subject.name, m) for m in _limited_measurements(result)]
    sentences += [text for m in result.measurements if (text := _energy(m))]
    return measured.document(result, sentences + pace.cadence_answers(result), sections)


def plots(result: BreakdownResult, depth: int | None = None) -> Plots:
    """Return the plots of a measured answer, and the roofline of inference."""
    drawn = measured.plots(result, depth)
    for m in _limited_measurements(result):
        drawn |= limits.plots([(m.name, m)], result.machine.ceiling)
    return drawn


def _limited_measurements(result: BreakdownResult) -> list[Measurement]:
    """Measurements with a known limit. Paced calls are left out: their limit is the same."""
    return [m for m in result.advised_measurements() if m.limit is not None][:1]


def answers(result: Result) -> list[str]:
    """Return each measurement's biggest part and, of a backbone, the rate at which it takes its clips."""
    if not result.measurements:
        return ["Nothing was measured."]
    measurements = result.advised_measurements() if isinstance(result, BreakdownResult) else result.measurements
    sentences = [text for m in measurements for text in (_biggest(result, m), rate(m)) if text]
    return [f"{text[:1].upper()}{text[1:]}" for text in sentences]


def biggest(components: Sequence[Component]) -> Component | None:
    """Return the most specific part that holds at least half of the whole; None without parts.

    A part that holds nearly everything (90 %) says nothing, so there the biggest of its children is named instead,
    as it is where no part holds half.
    """
    biggest_part, children = None, [c for c in components if c.depth == 1]
    while children:
        best = max(children, key=lambda c: c.share)
        if biggest_part is not None and biggest_part.share < 0.9 and best.share < 0.5:
            break
        if biggest_part is not None and (best.name.isdecimal() or (best.other and best.depth > 2)):
            break  # the rest of a named part has a name, that part's; so has a numbered module of a sequence
        biggest_part = best
        children = [c for c in components if c.depth == best.depth + 1 and c.path[:-1] == best.path]
        if best.share < 0.5:
            break
    return biggest_part


def _biggest(result: Result, measurement: Measurement) -> str:
    whole = measurement.samples.summary
    total = f"{units.short_ms(whole.median)} ms"
    subject, name = result.subject.name, measurement.name
    if (few := find_filled_calls(measurement.samples.values)) is not None:
        calls, took = units.percent(few.calls), f"{units.short_ms(few.each_ms)} ms"
        return (
            f"{calls} of the calls of {subject} take {took} each and hold {units.percent(few.time)} of the time of "
            f"{name}: no typical call stands for all, whose mean is {units.short_ms(few.mean_ms)} ms."
        )
    for blocks in measurement.blocks:
        if blocks.share >= 0.5:
            share, took = units.percent(blocks.share), f"{units.short_ms(blocks.total.median)} of {total}"
            inside = f" in {blocks.path[-1]}" if blocks.path else ""
            return f"The {len(blocks.names)} blocks{inside} take {share} of {subject}'s {name}: {took}."
    part = biggest(measurement.components)
    if part is None:
        return f"{subject}: {name} takes {total}."
    share, took = units.percent(part.share), f"{units.short_ms(part.summary.median)} of {total}"
    if part.other:
        return f"{share} of {subject}'s {name} belongs to no named part: {took}."
    subject_of = part.name if "_" in part.name or "." in part.name else part.name[:1].upper() + part.name[1:]
    parent = f" in {part.path[-2]}" if part.depth > 2 else ""
    return f"{subject_of}{parent} takes {share} of {subject}'s {name}: {took}."


def _energy(m: Measurement) -> str:
    """Return the energy of a call; '' if it is not judged."""
    seen = m.energy
    if seen is None or seen.joules is None or seen.watts is None or seen.within is None:
        return ""
    return (
        f"A call of {m.name} takes {units.number(seen.joules, 3)} J (±{units.number(seen.within, 2)}), at "
        f"{units.number(seen.watts, 3)} W. {seen.source}; its idle share and other programs are in it."
    )


def rate(m: Measurement) -> str:
    """Return how fast a backbone gets through its clips, and what each part around it would let through by itself."""
    rates = tables.throughput_units(m)
    if m.traits.backbone is None or m.samples.summary.median <= 0:
        return ""

    def format_rate(ms: float, unit: str) -> str:
        return f"{units.rate(1000 * rates[unit] / ms)} {unit}"

    *clips, frames = [format_rate(m.samples.summary.median, unit) for unit in rates]
    end_to_end = f"end to end that is {frames}{f' ({clips[0]})' if clips else ''}"
    parts = [c for c in m.components if c.depth == 1 and not c.other and c.summary.median > 0]
    if len(parts) < 2:
        return f"{end_to_end}."
    fastest = list(rates)[-1]
    limit = max(parts, key=lambda c: c.summary.median)
    by_itself = ", ".join(f"{c.name} {format_rate(c.summary.median, fastest)}" for c in parts)
    return f"{end_to_end}; by itself {by_itself}: the {limit.name} limits it."
