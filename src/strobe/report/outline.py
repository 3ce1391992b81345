"""Result → document: what to say, in which order. The answer comes first."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from strobe.report import changes, tables, units
from strobe.report.document import Document, Section
from strobe.results.schema import Component, Difference, Finding, Machine, Measurement, Result

LEVELS: dict[str, int] = {"warning": 0, "info": 1, "good": 2}


def outline(answer: Result | Difference, depth: int | None = None) -> Document:
    """The document of a run, or of the difference between two; ``depth`` limits the levels of its trees."""
    if isinstance(answer, Difference):
        return changes.outline(answer)
    return Document(
        kind=f"strobe {answer.study}",
        title=units.plain(answer.title),
        banner=_banner(answer),
        answers=answers(answer),
        findings=sorted((_plain(f) for f in answer.findings), key=lambda f: LEVELS[f.level]),
        sections=_sections(answer, depth),
        notes=notes(answer),
        facts=_facts(answer),
        raw=_raw(answer),
    )


def answers(result: Result) -> list[str]:
    """The answer in a sentence for each thing asked, the most important first."""
    if result.comparisons:
        return [units.plain(c.verdict.sentence) for c in result.comparisons]
    if not result.measurements:
        return ["Nothing was measured."]
    return [_biggest(result, m) for m in result.measurements]


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
    part = biggest(measurement.components)
    if part is None:
        return f"{subject}: {name} takes {total}."
    share, took = units.percent(part.share), f"{units.ms(part.summary.median, decimals)} ms of {total}"
    if part.other:
        return f"{share} of {subject}'s {name} is in no named part: {took}."
    subject_of = part.name if "_" in part.name or "." in part.name else part.name[:1].upper() + part.name[1:]
    parent = f" in {units.plain(part.path[-2])}" if part.depth > 2 else ""
    return f"{units.plain(subject_of)}{parent} takes {share} of {subject}'s {name}: {took}."


def _banner(result: Result) -> str | None:
    if result.status == "complete":
        return None
    took = [f"{units.plain(m.name)}: {units.count(len(m.samples.values), 'sample')}" for m in result.measurements]
    return f"Interrupted: this run was stopped before it was done ({'; '.join(took) or 'nothing measured'})."


def _plain(finding: Finding) -> Finding:
    texts = {name: units.plain(getattr(finding, name)) for name in ("rule", "title", "seen", "why", "do", "gain")}
    return finding.model_copy(update=texts)


def _sections(result: Result, depth: int | None) -> list[Section]:
    if not result.measurements:
        return []
    sections = []
    whole = Section("samples", "Samples", tables.metrics(result))
    parted = [m for m in result.measurements if m.components]
    side_by_side = result.study == "compare" and len(result.measurements) > 1
    if side_by_side:
        sections.append(Section("samples", "Comparison", whole.table))
        if result.comparisons:
            sections.append(Section("verdict", "Verdict", tables.verdicts(result)))
        if (same := tables.agreement(result)) is not None:
            said = [units.plain(c.agreement.note) for c in result.comparisons if c.agreement and c.agreement.note]
            sections.append(Section("agreement", "Do they act the same?", same, text=said))
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
    held = tables.memory(result.measurements)
    if held is not None:
        sections.append(Section("memory", "Memory", held))
    return sections


def notes(result: Result) -> list[str]:
    """What to know before trusting the numbers; each says which measurement it is about."""
    found = list(result.notes)
    found += [f"Stand-in: {text}" for text in result.subject.stand_ins]
    for m in result.measurements:
        cut, kept = len(m.samples.warmup), len(m.samples.values)
        if cut:
            found.append(f"{m.name}: {units.count(cut, 'warm-up sample')} cut, {kept:,} kept")
        found += [f"{m.name}: {text}" for text in [*m.samples.notes, *m.notes]]
        found += [f"{m.name}: not seen: {name} ({why})" for name, why in m.unseen.items()]
    return [units.plain(text) for text in dict.fromkeys(found)]


def machine(m: Machine) -> str:
    """Where the numbers come from, in a line."""
    said = [f"{m.device_name} ({m.device})" if m.device_name else m.device]
    if m.device != "cpu":
        said += [m.cpu]
    if m.device_memory_bytes is not None:
        said += [f"{units.size(m.device_memory_bytes)} on it"]
    said += [
        f"{units.count(m.cores, 'core')}",
        units.count(m.threads, "thread"),
        f"{units.size(m.memory_bytes)}",
    ]
    return units.plain(", ".join([*said, m.system]))


def ceiling(m: Machine) -> str | None:
    """What the machine was measured to do, in a line."""
    said = [f"{rate:,.0f} GFLOP/s {dtype}" for dtype, rate in m.ceiling.gflops.items()]
    if m.ceiling.memory_gbps is not None:
        said += [f"{m.ceiling.memory_gbps:,.1f} GB/s"]
    return units.plain(", ".join(said)) or None


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
        ("Machine", machine(m)),
        ("Ceiling", ceiling(m)),
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
    shown: list[tuple[str, object]] = [
        ("Config", result.config),
        ("Subject", result.subject.model_dump(mode="json")),
        ("Machine", result.machine.model_dump(mode="json")),
    ]
    raw = [(name, json.dumps(data, indent=2, ensure_ascii=False, default=str)) for name, data in shown if data]
    return [("Command", shlex.join(result.command)), *raw] if result.command else raw
