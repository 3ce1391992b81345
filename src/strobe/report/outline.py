"""Result → document: what to say, in which order. The answer comes first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from strobe.report import budget, changes, dataloader, facts, ladder, memory, profiles, sweep, tables, training, units
from strobe.report.document import Answer, Document, Section
from strobe.results.answer import Result
from strobe.results.budget import Budget
from strobe.results.dataloader import Dataloader
from strobe.results.difference import Difference
from strobe.results.measurement import Component, Measurement
from strobe.results.sweep import Sweep


def outline(answer: Answer, depth: int | None = None) -> Document:
    """The document of an answer; ``depth`` limits the levels of trees."""
    if isinstance(answer, Difference):
        return changes.outline(answer)
    if isinstance(answer, Budget):
        return budget.outline(answer)
    if isinstance(answer, Sweep):
        return sweep.outline(answer)
    if isinstance(answer, Dataloader):
        return dataloader.outline(answer)
    return Document(
        kind=f"strobe {answer.study}",
        title=units.plain(answer.title),
        banner=_banner(answer),
        answers=answers(answer),
        findings=facts.findings(answer.findings),
        sections=_sections(answer, depth),
        notes=notes(answer),
        facts=_facts(answer),
        raw=_raw(answer),
    )


def answers(result: Result) -> list[str]:
    """The answer in a sentence for each thing asked, the most important first."""
    if result.training is not None:
        return training.answers(result.training)
    if (climbed := ladder.of(result)) is not None:
        return ladder.answers(result, climbed)
    if result.comparisons:
        judged = [units.plain(c.verdict.sentence) for c in result.comparisons]
        return judged + [f"{units.plain(m.name)}: {said}" for m in result.measurements if (said := _rate(m))]
    if not result.measurements:
        return ["Nothing was measured."]
    said = [(_biggest(result, m), _rate(m)) for m in result.measurements]
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
        found = best
        children = [c for c in components if c.depth == best.depth + 1 and c.path[:-1] == best.path]
        if best.share < 0.5:
            break
    return found


def _biggest(result: Result, measurement: Measurement) -> str:
    whole = measurement.samples.summary
    decimals = units.digits(whole.median)
    total = f"{units.ms(whole.median, decimals)} ms"
    subject, name = units.plain(result.subject.name), units.plain(measurement.name)
    for some in measurement.blocks:
        if some.share >= 0.5:
            share, took = units.percent(some.share), f"{units.ms(some.total.median, decimals)} ms of {total}"
            inside = f" in {units.plain(some.path[-1])}" if some.path else ""
            return f"The {len(some.names)} blocks{inside} take {share} of {subject}'s {name}: {took}."
    part = biggest(measurement.components)
    if part is None:
        return f"{subject}: {name} takes {total}."
    share, took = units.percent(part.share), f"{units.ms(part.summary.median, decimals)} ms of {total}"
    if part.other:
        return f"{share} of {subject}'s {name} is in no named part: {took}."
    subject_of = part.name if "_" in part.name or "." in part.name else part.name[:1].upper() + part.name[1:]
    parent = f" in {units.plain(part.path[-2])}" if part.depth > 2 else ""
    return f"{units.plain(subject_of)}{parent} takes {share} of {subject}'s {name}: {took}."


def _rate(m: Measurement) -> str:
    """How fast a backbone gets through its clips, and what each part around it would let through by itself."""
    rates = tables.per_call(m)
    if "frames per clip" not in m.facts or m.samples.summary.median <= 0:
        return ""

    def rate(ms: float, unit: str) -> str:
        return f"{units.rate(1000 * rates[unit] / ms)} {unit}"

    *clips, frames = [rate(m.samples.summary.median, unit) for unit in rates]
    said = f"end to end that is {frames}{f' ({clips[0]})' if clips else ''}"
    parts = [c for c in m.components if c.depth == 1 and not c.other and c.summary.median > 0]
    if len(parts) < 2:
        return f"{said}."
    fastest = list(rates)[-1]
    limit = max(parts, key=lambda c: c.summary.median)
    alone = ", ".join(f"{units.plain(c.name)} {rate(c.summary.median, fastest)}" for c in parts)
    return f"{said}; by itself {alone}: the {units.plain(limit.name)} limits it."


def _banner(result: Result) -> str | None:
    if result.status == "complete":
        return None
    took = [f"{units.plain(m.name)}: {units.count(len(m.samples.values), 'sample')}" for m in result.measurements]
    if result.status == "failed":
        why = units.plain(result.training.error) if result.training is not None else "it says nothing more"
        return f"Failed: {why} ({'; '.join(took) or 'nothing measured'})."
    return f"Interrupted: this run was stopped before it was done ({'; '.join(took) or 'nothing measured'})."


def _sections(result: Result, depth: int | None) -> list[Section]:
    if not result.measurements:
        return []
    if (climbed := ladder.of(result)) is not None:
        below = [replace(section, detail=True) for section in _measured(result, depth)]
        return [*ladder.sections(result, climbed), *below]
    return _measured(result, depth)


def _measured(result: Result, depth: int | None) -> list[Section]:
    sections = training.sections(result)
    whole = Section("samples", "Samples", tables.metrics(result))
    parted = [m for m in result.measurements if m.components]
    side_by_side = result.study in ("compare", "optimize") and len(result.measurements) > 1
    if side_by_side:
        sections.append(Section("samples", "Comparison", whole.table))
        if result.comparisons:
            sections.append(Section("verdict", "Verdict", tables.verdicts(result)))
        if (same := tables.agreement(result)) is not None:
            said = [units.plain(c.agreement.note) for c in result.comparisons if c.agreement and c.agreement.note]
            sections.append(Section("agreement", "Do they act the same?", same, text=said))
    if side_by_side and (same := tables.gradients(result)) is not None:
        notes = [c.gradient.note for c in result.comparisons if c.gradient and c.gradient.note]
        text = [units.plain(note) for note in dict.fromkeys(notes)]
        sections.append(Section("gradients", "Do they train the same?", same, text=text))
    if (inside := tables.guidance(result.measurements)) is not None:
        sections.append(Section("guidance", "Inside Real-Time Chunking", inside))
    if side_by_side and len(parted) > 1:
        sections.append(Section("parts", "Parts side by side", tables.parts(parted, depth)))
    for index, m in enumerate(result.measurements):
        table = tables.breakdown(m, depth) if m.components else None
        clock = "device time" if m.clock == "device" else "host time"
        facts = [f"{units.plain(k)}: {units.plain(str(v))}" for k, v in m.facts.items()]
        text = [", ".join([*([m.phase] if m.phase != m.name else []), clock, *facts])]
        detail = side_by_side and len(parted) > 1
        title = units.plain(m.name) + (" in detail" if detail else "")
        sections.append(Section(f"measurement-{index}", title, table, text, detail))
    if not side_by_side:
        sections.append(whole)
    if (blocks := tables.blocks(result.measurements)) is not None:
        sections.append(Section("blocks", "Blocks", blocks, tables.blocks_judged(result.measurements)))
    if (slowest := tables.slowest_blocks(result.measurements)) is not None:
        sections.append(Section("slowest-blocks", "Slowest blocks", slowest))
    return sections + memory.sections(result, depth) + profiles.sections(result)


def notes(result: Result) -> list[str]:
    """What to know before trusting the numbers; each says which measurement it is about."""
    found = list(result.notes)
    found += training.notes(result.training) if result.training is not None else []
    found += [f"Stand-in: {text}" for text in result.subject.stand_ins]
    for m in result.measurements:
        cut, kept = len(m.samples.warmup), len(m.samples.values)
        if cut:
            found.append(f"{m.name}: {units.count(cut, 'warm-up sample')} cut, {kept:,} kept")
        found += [f"{m.name}: {text}" for text in [*m.samples.notes, *m.notes]]
        found += [f"{m.name}: not seen: {name} ({why})" for name, why in m.unseen.items()]
    return [units.plain(text) for text in dict.fromkeys(found)]


def _facts(result: Result) -> list[tuple[str, str]]:
    subject, m = result.subject, result.machine
    about = [subject.name] if subject.name == subject.kind else [subject.name, subject.kind]
    about += [f"{units.metric(subject.parameters)} parameters", f"{units.size(subject.weight_bytes)}"]
    about += [*subject.dtypes, subject.source]
    about += ["tiny: the same architecture, shrunken"] if subject.size == "tiny" else []
    pairs = [
        ("Subject", ", ".join(about)),
        ("Inputs", subject.inputs),
        (
            "Parts named by",
            f"the anatomy of {subject.anatomy}" if subject.anatomy != "modules" else "modules",
        ),
        ("Machine", facts.machine(m)),
        ("Ceiling", facts.ceiling(m)),
        ("Power", ", ".join(f"{k} {v}" for k, v in m.power.items())),
        (
            "Versions",
            ", ".join(f"{k} {v}" for k, v in {"strobe": result.strobe_version, **m.versions}.items()),
        ),
        ("Run", f"{result.started:%Y-%m-%d %H:%M %Z}, {result.duration_s:,.0f} s"),
        ("Command", shlex.join(result.command)),
    ]
    return [(name, units.plain(text)) for name, text in pairs if text]


def _raw(result: Result) -> list[tuple[str, str]]:
    subject, machine = result.subject.model_dump(mode="json"), result.machine.model_dump(mode="json")
    return facts.raw(result.command, {"Config": result.config, "Subject": subject, "Machine": machine})
