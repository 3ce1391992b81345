"""The frame of every measured answer's document: banner, measurements one by one, notes, facts, and their plots."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.report import frame, tables, units
from strobe.report.charts import Colours, Plot
from strobe.report.document import Document, Section
from strobe.report.frame import Plots
from strobe.report.measured_plots import icicle, in_order, spread, timeline
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
    """Return the document of ``result``: what its study says, within what all measured answers say alike.

    Args:
        sections: left out where nothing was measured.
        command: that made it, where it is not called like the study.
        notes: the study's, after the result's own.
        failure: what ended a run that failed, in a line.
    """
    subject, machine = result.subject.model_dump(mode="json"), result.machine.model_dump(mode="json")
    return frame.document(
        result,
        answers,
        sections if result.measurements else [],
        kind=command,
        banner=_banner(result, failure),
        notes=_notes(result, notes),
        facts=_facts(result),
        raw={"Subject": subject, "Machine": machine},
    )


def sections(result: Result, depth: int | None) -> list[Section]:
    """Return the measurements one after the other, then their samples and their blocks."""
    samples = Section("samples", "Samples", tables.metrics(result))
    return [*guidance(result), *each(result, depth), samples, *blocks(result)]


def guidance(result: Result) -> list[Section]:
    """Return Real-Time Chunking's share of a chunk, where there is any."""
    table = tables.guidance(result.measurements)
    return [] if table is None else [Section("guidance", "Inside Real-Time Chunking", table)]


def each(result: Result, depth: int | None, *, detail: bool = False) -> list[Section]:
    """Return the parts of each measurement, as a ``detail`` where a table side by side has said the most of it."""
    shown = []
    for index, m in enumerate(result.measurements):
        table = tables.breakdown(m, depth) if m.components else None
        clock = "device time" if m.clock == "device" else "host time"
        about = [f"{name}: {value}" for name, value in m.traits.labelled().items()]
        text = [", ".join([*([m.phase] if m.phase != m.name else []), clock, *about])]
        title = m.name + (" in detail" if detail else "")
        shown.append(Section(f"measurement-{index}", title, table, text, detail))
    return shown


def blocks(result: Result) -> list[Section]:
    """Return the like blocks of each part, and the slowest of them."""
    shown = []
    if (table := tables.blocks(result.measurements)) is not None:
        shown.append(Section("blocks", "Blocks", table, tables.describe_blocks(result.measurements)))
    if (slowest := tables.slowest_blocks(result.measurements)) is not None:
        shown.append(Section("slowest-blocks", "Slowest blocks", slowest))
    return shown


def plots(result: Result, _depth: int | None = None) -> Plots:
    """Return the plots of the samples and of each measurement, by the key of their section."""
    drawn = {"samples": _samples(result.measurements)}
    colours = Colours(
        [part.name for m in result.measurements for part in m.components]
        + [span.name for m in result.measurements for span in m.spans]
    )
    for index, m in enumerate(result.measurements):
        parts = [icicle(m, colours)] if m.components else []
        drawn[f"measurement-{index}"] = parts + ([timeline(m.spans, colours)] if m.spans else [])
    return drawn


def _samples(measurements: Sequence[Measurement]) -> list[Plot]:
    drawn = []
    phases = list(dict.fromkeys(m.phase for m in measurements))
    for phase in phases:
        group = [(m.name, m.samples) for m in measurements if m.phase == phase and m.samples.values]
        label = f" ({phase})" if len(phases) > 1 else ""
        if group:
            drawn += [spread(f"Spread of the samples{label}", group), in_order(f"In the order taken{label}", group)]
    return drawn


def _banner(result: Result, failure: str) -> str | None:
    if result.status == "complete":
        return None
    took = [f"{m.name}: {units.count(len(m.samples.values), 'sample')}" for m in result.measurements]
    if result.status == "failed":
        return f"Failed: {failure} ({'; '.join(took) or 'nothing measured'})."
    return f"Interrupted: this run was stopped before it was done ({'; '.join(took) or 'nothing measured'})."


def _notes(result: Result, of_study: Sequence[str]) -> list[str]:
    notes = [*result.notes, *of_study]
    notes += [f"Stand-in: {text}" for text in result.subject.stand_ins]
    for m in result.measurements:
        warmup, count = len(m.samples.warmup), len(m.samples.values)
        if warmup:
            notes.append(f"{m.name}: {units.count(warmup, 'warm-up sample')} cut, {count:,} kept")
        if (seen := m.samples.longest_state_s) is not None:  # of all variants, which run in the same rounds
            notes.append(
                f"{m.phase}: a state of the machine that lasts longer than {units.rate(seen)} s "
                f"({units.count(count - count // 6, 'call')}) is not seen"
            )
        notes += [f"{m.name}: {text}" for text in [*m.samples.notes, *m.notes]]
        notes += [f"{m.name}: not seen: {name} ({why})" for name, why in m.unseen.items()]
    return notes


def _facts(result: Result) -> list[tuple[str, str | None]]:
    subject, m = result.subject, result.machine
    about = [subject.name] if subject.name == subject.kind else [subject.name, subject.kind]
    if subject.parameters:
        about += [f"{units.metric(subject.parameters)} parameters", f"{units.size(subject.weight_bytes)}"]
    about += [*subject.dtypes, subject.source]
    about += ["tiny: the same architecture, shrunken"] if subject.size == "tiny" else []
    named_by = f"the anatomy of {subject.anatomy}" if subject.anatomy != "modules" else "modules"
    return [
        ("Subject", ", ".join(about)),
        ("Inputs", subject.inputs),
        ("Parts named by", named_by if subject.parameters or subject.anatomy != "modules" else None),
        ("Machine", frame.machine(m)),
        ("Ceiling", frame.ceiling(m)),
        ("Power", frame.power(m)),
        ("Versions", frame.versions(result, m)),
    ]
