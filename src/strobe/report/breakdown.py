"""Breakdown → document: the part that takes most first, then every measurement with its parts."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.report import cadence, limits, measured, memory, profiles, tables, units
from strobe.report.document import Document
from strobe.report.plots import Plot
from strobe.results.answer import BreakdownResult, Result
from strobe.results.measurement import Component, Measurement


def outline(result: BreakdownResult, depth: int | None = None) -> Document:
    """The document of a breakdown; ``depth`` limits the levels of its trees."""
    sections = cadence.sections(result) + measured.sections(result, depth)
    for m in _limited(result):
        sections += limits.sections([(m.name, m)], m.name)
    sections += memory.sections(result.measurements, depth)
    sections += profiles.sections(result.operators, result.python)
    said = answers(result) + [limits.line(result.subject.name, m) for m in _limited(result)]
    return measured.document(result, said + cadence.answers(result), sections)


def plots(result: BreakdownResult, depth: int | None = None) -> dict[str, list[Plot]]:
    """The plots of a measured answer, and the roofline of inference."""
    found = measured.plots(result, depth)
    for m in _limited(result):
        found |= limits.plots([(m.name, m)], result.machine.ceiling)
    return found


def _limited(result: BreakdownResult) -> list[Measurement]:
    """The inference whose limit is known, alone: calls at the robot's pace have the same."""
    return [m for m in result.advised() if m.limit is not None][:1]


def answers(result: Result) -> list[str]:
    """Each measurement's biggest part and, of a backbone, the rate at which it takes its clips."""
    if not result.measurements:
        return ["Nothing was measured."]
    told = result.advised() if isinstance(result, BreakdownResult) else result.measurements
    said = [(_biggest(result, m), rate(m)) for m in told]
    return [f"{text[:1].upper()}{text[1:]}" for pair in said for text in pair if text]


def biggest(components: Sequence[Component]) -> Component | None:
    """The most specific part that holds at least half of the whole.

    A part that holds nearly everything (90 %) says nothing, so there the biggest of its children is named instead,
    as it is where no part holds half.
    """
    found, children = None, [c for c in components if c.depth == 1]
    while children:
        best = max(children, key=lambda c: c.share)
        if found is not None and found.share < 0.9 and best.share < 0.5:
            break
        if best.other and best.depth > 2:  # the rest of a named part has a name: that part's
            break
        found = best
        children = [c for c in components if c.depth == best.depth + 1 and c.path[:-1] == best.path]
        if best.share < 0.5:
            break
    return found


def _biggest(result: Result, measurement: Measurement) -> str:
    whole = measurement.samples.summary
    total = f"{units.short_ms(whole.median)} ms"
    subject, name = units.plain(result.subject.name), units.plain(measurement.name)
    for some in measurement.blocks:
        if some.share >= 0.5:
            share, took = units.percent(some.share), f"{units.short_ms(some.total.median)} of {total}"
            inside = f" in {units.plain(some.path[-1])}" if some.path else ""
            return f"The {len(some.names)} blocks{inside} take {share} of {subject}'s {name}: {took}."
    part = biggest(measurement.components)
    if part is None:
        return f"{subject}: {name} takes {total}."
    share, took = units.percent(part.share), f"{units.short_ms(part.summary.median)} of {total}"
    if part.other:
        return f"{share} of {subject}'s {name} is in no named part: {took}."
    subject_of = part.name if "_" in part.name or "." in part.name else part.name[:1].upper() + part.name[1:]
    parent = f" in {units.plain(part.path[-2])}" if part.depth > 2 else ""
    return f"{units.plain(subject_of)}{parent} takes {share} of {subject}'s {name}: {took}."


def rate(m: Measurement) -> str:
    """How fast a backbone gets through its clips, and what each part around it would let through by itself."""
    rates = tables.per_call(m)
    if m.traits.backbone is None or m.samples.summary.median <= 0:
        return ""

    def per_second(ms: float, unit: str) -> str:
        return f"{units.rate(1000 * rates[unit] / ms)} {unit}"

    *clips, frames = [per_second(m.samples.summary.median, unit) for unit in rates]
    said = f"end to end that is {frames}{f' ({clips[0]})' if clips else ''}"
    parts = [c for c in m.components if c.depth == 1 and not c.other and c.summary.median > 0]
    if len(parts) < 2:
        return f"{said}."
    fastest = list(rates)[-1]
    limit = max(parts, key=lambda c: c.summary.median)
    alone = ", ".join(f"{units.plain(c.name)} {per_second(c.summary.median, fastest)}" for c in parts)
    return f"{said}; by itself {alone}: the {units.plain(limit.name)} limits it."
