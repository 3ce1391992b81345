"""The frame of every measured answer's document: banner, measurements one by one, notes, facts, and their plots."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.report import facts, tables, units
from strobe.report.document import Document, Section
from strobe.report.plots import Colours, Plot, icicle, in_order, spread, timeline
from strobe.results.answer import Result
from strobe.results.measurement import Measurement


def document(
    result: Result,
    answers: list[str],
    sections: list[Section],
    *,
    command: str = "",
    notes: Sequence[str] = (),
    failure: str = "it says nothing more",
) -> Document:
    """The document of ``result``: what its study says, within what all measured answers say alike.

    Args:
        sections: left out where nothing was measured.
        command: that made it, where it is not called like the study.
        notes: the study's, after the result's own.
        failure: what ended a run that failed, in a line.
    """
    return Document(
        kind=f"strobe {command or result.study}",
        title=units.plain(result.title),
        banner=_banner(result, failure),
        answers=answers,
        findings=facts.findings(result.findings),
        sections=sections if result.measurements else [],
        notes=_notes(result, notes),
        facts=_facts(result),
        raw=_raw(result),
    )


def sections(result: Result, depth: int | None) -> list[Section]:
    """The measurements one after the other, then their samples and their blocks."""
    samples = Section("samples", "Samples", tables.metrics(result))
    return [*guidance(result), *each(result, depth), samples, *blocks(result)]


def guidance(result: Result) -> list[Section]:
    """Real-Time Chunking's share of a chunk, where there is any."""
    table = tables.guidance(result.measurements)
    return [] if table is None else [Section("guidance", "Inside Real-Time Chunking", table)]


def each(result: Result, depth: int | None, *, detail: bool = False) -> list[Section]:
    """The parts of each measurement; ``detail`` where a table side by side has said the most of it."""
    found = []
    for index, m in enumerate(result.measurements):
        table = tables.breakdown(m, depth) if m.components else None
        clock = "device time" if m.clock == "device" else "host time"
        about = [f"{units.plain(k)}: {units.plain(str(v))}" for k, v in m.traits.labelled().items()]
        text = [", ".join([*([m.phase] if m.phase != m.name else []), clock, *about])]
        title = units.plain(m.name) + (" in detail" if detail else "")
        found.append(Section(f"measurement-{index}", title, table, text, detail))
    return found


def blocks(result: Result) -> list[Section]:
    """The like blocks of each part, and the slowest of them."""
    found = []
    if (table := tables.blocks(result.measurements)) is not None:
        found.append(Section("blocks", "Blocks", table, tables.blocks_judged(result.measurements)))
    if (slowest := tables.slowest_blocks(result.measurements)) is not None:
        found.append(Section("slowest-blocks", "Slowest blocks", slowest))
    return found


def plots(result: Result, _depth: int | None = None) -> dict[str, list[Plot]]:
    """The plots of the samples and of each measurement, by the key of their section."""
    found = {"samples": _samples(result.measurements)}
    colours = Colours(
        [part.name for m in result.measurements for part in m.components]
        + [span.name for m in result.measurements for span in m.spans]
    )
    for index, m in enumerate(result.measurements):
        drawn = [icicle(m, colours)] if m.components else []
        drawn += [timeline(m.spans, colours)] if m.spans else []
        found[f"measurement-{index}"] = drawn
    return found


def _samples(measurements: Sequence[Measurement]) -> list[Plot]:
    drawn = []
    for phase in dict.fromkeys(m.phase for m in measurements):
        group = [(m.name, m.samples) for m in measurements if m.phase == phase and m.samples.values]
        several = len({m.phase for m in measurements}) > 1
        label = f" ({phase})" if several else ""
        if group:
            drawn += [
                spread(f"Spread of the samples{label}", group),
                in_order(f"In the order taken{label}", group),
            ]
    return drawn


def _banner(result: Result, failure: str) -> str | None:
    if result.status == "complete":
        return None
    took = [f"{units.plain(m.name)}: {units.count(len(m.samples.values), 'sample')}" for m in result.measurements]
    if result.status == "failed":
        return f"Failed: {units.plain(failure)} ({'; '.join(took) or 'nothing measured'})."
    return f"Interrupted: this run was stopped before it was done ({'; '.join(took) or 'nothing measured'})."


def _notes(result: Result, of_study: Sequence[str]) -> list[str]:
    found = [*result.notes, *of_study]
    found += [f"Stand-in: {text}" for text in result.subject.stand_ins]
    for m in result.measurements:
        warmup, kept = len(m.samples.warmup), len(m.samples.values)
        if warmup:
            found.append(f"{m.name}: {units.count(warmup, 'warm-up sample')} cut, {kept:,} kept")
        if (seen := m.samples.longest_state_s) is not None:  # of all variants, which run in the same rounds
            found.append(
                f"{m.phase}: a state of the machine that lasts longer than {units.rate(seen)} s "
                f"({units.count(kept - kept // 6, 'call')}) is not seen"
            )
        found += [f"{m.name}: {text}" for text in [*m.samples.notes, *m.notes]]
        found += [f"{m.name}: not seen: {name} ({why})" for name, why in m.unseen.items()]
    return [units.plain(text) for text in dict.fromkeys(found)]


def _facts(result: Result) -> list[tuple[str, str]]:
    subject, m = result.subject, result.machine
    about = [subject.name] if subject.name == subject.kind else [subject.name, subject.kind]
    if subject.parameters:
        about += [f"{units.metric(subject.parameters)} parameters", f"{units.size(subject.weight_bytes)}"]
    about += [*subject.dtypes, subject.source]
    about += ["tiny: the same architecture, shrunken"] if subject.size == "tiny" else []
    pairs = [
        ("Subject", ", ".join(about)),
        ("Inputs", subject.inputs),
        (
            "Parts named by",
            f"the anatomy of {subject.anatomy}"
            if subject.anatomy != "modules"
            else ("modules" if subject.parameters else ""),
        ),
        ("Machine", facts.machine(m)),
        ("Ceiling", facts.ceiling(m)),
        ("Power", ", ".join(f"{k} {v}" for k, v in m.power.items())),
        (
            "Versions",
            ", ".join(f"{k} {v}" for k, v in {"strobe": result.strobe_version, **m.versions}.items()),
        ),
    ]
    return [(name, units.plain(text)) for name, text in pairs if text] + facts.run(result)


def _raw(result: Result) -> list[tuple[str, str]]:
    subject, machine = result.subject.model_dump(mode="json"), result.machine.model_dump(mode="json")
    return facts.raw(result.command, {"Config": result.config, "Subject": subject, "Machine": machine})
