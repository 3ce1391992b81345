"""Difference → document: what changed between two runs, the verdicts first."""

from __future__ import annotations

from strobe.core.report import frame
from strobe.core.report.document import (
    Columns,
    Document,
    Row,
    Section,
    Table,
    figure,
    heads,
    scaled_column,
    table,
    words,
)
from strobe.core.report.frame import Plots
from strobe.core.report.measured import plot_sample_order, spread
from strobe.core.results import units
from strobe.history.results import ComponentChange, Difference, MeasurementChange, RunLabel


def outline(difference: Difference, _depth: int | None = None) -> Document:
    """Return the document of a difference."""
    early = [d.title for d in (difference.before, difference.after) if d.status == "interrupted"]
    sections = [Section("samples", "Both runs", _metrics(difference))]
    sections += [_parts(index, m) for index, m in enumerate(difference.measurements)]
    if difference.figures:
        sections.insert(1, Section("figures", "Rollouts", _figures(difference)))
    if any(m.memory for m in difference.measurements):
        sections.append(Section("memory", "Memory", _memory(difference)))
    return frame.document(
        difference,
        answers(difference),
        sections,
        kind=f"diff of {difference.of}",
        banner=f"Interrupted: {' and '.join(early)} stopped before it was done." if early else None,
        facts=[("Before", _label(difference.before)), ("After", _label(difference.after))],
    )


def answers(difference: Difference) -> list[str]:
    """Return the verdict on each measurement, the slower ones first."""
    kinds = ("slower", "faster", "no difference shown", "inconclusive")
    ordered = sorted(difference.measurements, key=lambda m: kinds.index(m.verdict.kind))
    return [line for m in ordered for line in _describe_change(m)]


def _label(run: RunLabel) -> str:
    return f"{run.title}, {run.started:%Y-%m-%d %H:%M %Z}, strobe {run.strobe_version}"


def _describe_change(m: MeasurementChange) -> list[str]:
    ratio, ends, level = m.verdict.ratio, m.verdict.interval, 100 * m.verdict.interval.level
    by = f"{abs(100 * (ratio - 1)):.2g} %"
    samples = f"{len(m.before.values):,} samples before, {len(m.after.values):,} after"
    if m.verdict.kind in ("slower", "faster"):
        head = f"{m.name} is {by} {m.verdict.kind} than before."
    elif m.verdict.kind == "no difference shown" and m.verdict.within is not None:
        head = f"{m.name} is as fast as before within {100 * m.verdict.within:.2g} %."
    else:
        head = f"Inconclusive: {m.name} may be slower or faster than before."
    medians = f"{units.short_ms(m.before.summary.median)} → {units.short_ms(m.after.summary.median)} ms"
    change = f"{medians}, {units.change(ratio)} {units.change_ends(ends)}"
    return [head, f"{change} ({level:.3g} % CI), separate runs: {samples}."]


def _decimals(m: MeasurementChange) -> int:
    return units.digits(max(m.before.summary.median, m.after.summary.median))


def _metrics(difference: Difference) -> Table:
    rows = []
    for m in difference.measurements:
        decimals, grown = _decimals(m), m.after.summary.median - m.before.summary.median
        kind = m.verdict.kind if m.verdict.kind in ("faster", "slower") else "inconclusive"
        cells = [m.name, kind, *(units.ms(of.summary.median, decimals) for of in (m.before, m.after))]
        cells += [
            units.format_signed(grown, decimals),
            units.change(m.verdict.ratio),
            units.change_span(m.verdict.interval),
        ]
        rows.append(Row([*cells, f"{len(m.before.values):,} + {len(m.after.values):,}"]))
    titles = "<Measurement | <Verdict | Before (ms) | After (ms) | Difference (ms) | Change | 99 % CI | Samples"
    return Table(heads(titles), rows)


def _figures(difference: Difference) -> Table:
    rows = []
    for of in difference.figures:
        known = [value for value in (of.before, of.after) if value is not None]
        largest = max(map(abs, known))
        decimals = 0 if all(value == round(value) for value in known) or largest >= 100 else 1 if largest >= 10 else 2
        grown = units.format_signed(known[-1] - known[0], decimals) if len(known) == 2 else None
        label = f"{of.name} ({of.unit})" if of.unit else of.name
        rows.append(Row([label, units.ms(of.before, decimals), units.ms(of.after, decimals), grown]))
    return Table(heads("<Figure | Before | After | Difference"), rows)


_PARTS: Columns[ComponentChange] = [
    words("Component", lambda c: " › ".join(c.path)),
    words("", lambda c: c.change),
    scaled_column("Before (ms)", lambda c: c.before_ms),
    scaled_column("After (ms)", lambda c: c.after_ms),
    scaled_column("Difference (ms)", lambda c: (c.after_ms or 0.0) - (c.before_ms or 0.0), units.format_signed),
    figure("Change", lambda c: c.verdict and c.verdict.ratio, units.change),
    figure("CI", lambda c: c.verdict and c.verdict.interval, units.change_span),
]


def _parts(index: int, m: MeasurementChange) -> Section:
    title = f"Parts of {m.name} that changed"
    if not m.components:
        text = f"No change of {units.count(m.judged, 'part')} is larger than chance explains."
        return Section(f"measurement-{index}", title, text=[text if m.judged else "Neither run has parts in common."])
    text = f"{units.count(m.judged, 'part')} judged at once, so the intervals are wider than those of one part."
    rows = table(m.components, _PARTS, _decimals(m)).drop_empty_columns()
    return Section(f"measurement-{index}", title, rows, [text])


def _memory(difference: Difference) -> Table:
    rows = []
    for m in difference.measurements:
        for c in m.memory:
            grown = ("+" if c.after > c.before else "") + (units.size(c.after - c.before) or "")
            rows.append(Row([f"{m.name}: {c.name}", units.size(c.before), units.size(c.after), grown]))
    return Table(heads("<Memory | Before | After | Difference"), rows)


def plots(difference: Difference, _depth: int | None = None) -> Plots:
    """Return the samples of both runs, measurement by measurement, by the key of their section."""
    drawn = []
    for m in difference.measurements:
        group = [("before", m.before), ("after", m.after)]
        if m.before.values and m.after.values:
            drawn += [spread(f"{m.name}: spread", group, split=True)]
            drawn += [plot_sample_order(f"{m.name}: in the order taken", group)]
    return {"samples": drawn}
