"""Breakdown → document: the part that takes most first, then every measurement with its parts."""

from __future__ import annotations

import re

from strobe.core.report import frame, limits, measured, memory, pace, tables
from strobe.core.report.document import Document
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.answer import BreakdownResult, Result
from strobe.core.results.call_times import find_filled_calls, find_own_growth
from strobe.core.results.data import Summary
from strobe.core.results.measurement import Component, Measurement
from strobe.core.results.subject import RANDOM_WEIGHTS


def outline(result: BreakdownResult, depth: int | None = None) -> Document:
    """Return the document of a breakdown; ``depth`` limits the levels of its trees."""
    sections = pace.cadence_sections(result) + measured.sections(result, depth)
    for m in _limited_measurements(result):
        sections += limits.sections([(m.name, m)], m.name)
    sections += memory.sections(result.measurements, depth)
    sections += frame.added_sections(result)
    sentences = answers(result) + [text for m in result.measurements if (text := _energy(m))]
    return measured.document(result, sentences + pace.cadence_answers(result), sections)


def plots(result: BreakdownResult, depth: int | None = None) -> Plots:
    """Return the plots of a measured answer, and the roofline of inference."""
    drawn = measured.plots(result, depth)
    for m in _limited_measurements(result):
        drawn |= limits.plots([(m.name, m)], result.machine.ceiling)
    return drawn


def _limited_measurements(result: BreakdownResult) -> list[Measurement]:
    return [m for m in result.advised_measurements() if m.limit is not None][:1]


def answers(result: Result) -> list[str]:
    """Return the biggest part, its numbers and the next step, then the same of the other measurements."""
    if not result.measurements:
        return ["Nothing was measured."]
    first, *others = result.advised_measurements() if isinstance(result, BreakdownResult) else result.measurements
    headline, numbers = _biggest(result, first)
    headroom = limits.headroom(first) if isinstance(result, BreakdownResult) else None
    sentences = [headline, " ".join(filter(None, (numbers, headroom)))]
    following = _next_step(result, first)
    sentences += [f"Next: {following}"] if following else []
    for m in others:
        headline, numbers = _biggest(result, m)
        sentences.append(f"{headline} {numbers}")
    return sentences + [text for m in (first, *others) if (text := rate(m, units.capital(m.name)))]


def _next_step(result: Result, m: Measurement) -> str | None:
    if find_filled_calls(m.samples.values) is not None:
        return "measure the method that makes a chunk, such as predict_action_chunk."
    if m.losses_not_finite:
        return None
    todo = next((finding.do for finding in result.findings if finding.rule == "biggest-part"), None)
    if todo:
        return f"{todo[:1].lower()}{todo[1:]}"
    if m.phase == "inference" and result.command[:2] == ["strobe", "breakdown"]:
        return "strobe optimize, with the same --policy flags, tries what makes it faster."
    return None


def biggest(m: Measurement) -> Component | None:
    """Return the most specific part that holds at least half of the typical call; None without parts.

    A part that holds nearly everything (90 %) says nothing, so there the biggest of its children is named instead,
    and so it is if no part holds half.
    """
    biggest_part, children = None, [c for c in m.components if c.depth == 1]
    while children:
        best = max(children, key=lambda c: c.summary.median)
        if biggest_part is not None:
            if _share(m, biggest_part.summary) < 0.9 and _share(m, best.summary) < 0.5:
                break
            if best.name.isdecimal() or (best.other and best.depth > 2):
                break  # the rest of a named part has a name, that part's; so has a numbered module of a sequence
        biggest_part = best
        children = [c for c in m.components if c.depth == best.depth + 1 and c.path[:-1] == best.path]
        if _share(m, best.summary) < 0.5:
            break
    return biggest_part


def _share(m: Measurement, part: Summary) -> float:
    """Return what the median of ``part`` is of the whole's median: a sentence has both."""
    return part.median / m.samples.summary.median if m.samples.summary.median > 0 else 0.0


_CALLS = {"inference": "chunk", "training step": "step", "training forward": "pass", "loading": "batch"}


def _biggest(result: Result, m: Measurement) -> tuple[str, str]:
    whole = m.samples.summary
    work = f"{result.subject.name}'s {m.name}"
    if (few := find_filled_calls(m.samples.values)) is not None:
        return (
            f"A few calls do most of the work of {work}.",
            f"{units.percent(few.calls)} of the calls take {units.percent(few.time)} of the time, "
            f"{units.short_ms(few.each_ms)} ms each. The mean of all calls is {units.short_ms(few.mean_ms)} ms.",
        )
    if m.losses_not_finite:
        calls = units.count(m.losses_not_finite, "call")
        return f"The loss of {work} is infinite or not a number: no time is given.", f"So it was in {calls}."
    if (grown := find_own_growth(m.samples)) is not None:
        return f"The calls of {work} take longer and longer.", f"{grown.words}."
    for blocks in m.blocks:
        if (share := _share(m, blocks.total)) >= 0.5:
            inside = f" in {_add_article(blocks.path[-1])}" if blocks.path else ""
            headline = f"The {len(blocks.names)} blocks{inside} take {100 * share:.0f} % of {work}."
            return headline, _numbers(result, m, blocks.total.median)
    if (part := biggest(m)) is None:
        return f"{work} takes {units.short_ms(whole.median)} ms.", _numbers(result, m)
    numbers, share = _numbers(result, m, part.summary.median), _share(m, part.summary)
    if part.other:
        return f"{100 * share:.0f} % of {work} is in no named part.", numbers
    parent = f" in {_add_article(part.path[-2])}" if part.depth > 2 else ""
    name = units.capital(_add_article(part.name))
    return f"{name}{parent} takes {100 * share:.0f} % of {work}.", numbers


def _add_article(name: str) -> str:
    return units.quote(name) if re.search(r"[_.\d]", name) else f"the {name}"


def _numbers(result: Result, m: Measurement, part_ms: float | None = None) -> str:
    whole = m.samples.summary
    of_policy = m.traits.backbone is None and m.traits.call is None
    text = f"{units.short_ms(whole.median)} ms per {_CALLS.get(m.phase, 'call') if of_policy else 'call'}"
    if whole.interval is not None:
        ends = f"{units.short_ms(whole.interval.low)}–{units.short_ms(whole.interval.high)}"
        text += f" ({100 * whole.interval.level:.3g} % CI {ends})"
    text += f", {units.short_ms(part_ms)} ms of it there" if part_ms is not None else ""
    dtypes = result.subject.dtypes
    about = [max(dtypes, key=lambda dtype: dtypes[dtype])] if dtypes else []
    about.append("CPU" if result.machine.device == "cpu" else result.machine.device_name or result.machine.device)
    about += [RANDOM_WEIGHTS] if result.subject.source == RANDOM_WEIGHTS else []
    return f"{', '.join([text, *about])}."


def _energy(m: Measurement) -> str | None:
    """Return the energy of a call; None if it is not judged."""
    energy = m.energy
    if energy is None or energy.joules is None or energy.watts is None or energy.within is None:
        return None
    return (
        f"A call of {m.name} takes {units.number(energy.joules, 3)} J (±{units.number(energy.within, 2)}) at "
        f"{units.number(energy.watts, 3)} W. {energy.source}; this includes idle power and other programs."
    )


def rate(m: Measurement, name: str) -> str | None:
    """Return the throughput of a backbone, and of each part around it by itself; None for anything else."""
    rates = tables.throughput_units(m)
    if m.traits.backbone is None or m.samples.summary.median <= 0:
        return None

    def format_rate(ms: float, unit: str) -> str:
        return f"{units.rate(1000 * rates[unit] / ms)} {unit}"

    *clips, frames = [format_rate(m.samples.summary.median, unit) for unit in rates]
    end_to_end = f"{name} reaches {frames} end to end{f' ({clips[0]})' if clips else ''}"
    parts = [c for c in m.components if c.depth == 1 and not c.other and c.summary.median > 0]
    if len(parts) < 2:
        return f"{end_to_end}."
    fastest = list(rates)[-1]
    limit = max(parts, key=lambda c: c.summary.median)
    alone = ", ".join(f"{c.name} {format_rate(c.summary.median, fastest)}" for c in parts)
    return f"{end_to_end}. Each part alone: {alone}. The {limit.name} is the bottleneck."
