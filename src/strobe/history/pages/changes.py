"""Difference → document: what changed between two runs, the verdicts first."""

from __future__ import annotations

from strobe.core.report import frame
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.report.measured import in_order, spread
from strobe.core.results import units
from strobe.history.results.difference import Difference, MeasurementChange, RunLabel


def outline(difference: Difference, _depth: int | None = None) -> Document:
    """Return the document of a difference."""
    early = [d.title for d in (difference.before, difference.after) if d.status == "interrupted"]
    sections = [Section("samples", "Both runs", _metrics(difference))]
    for index, m in enumerate(difference.measurements):
        sections.append(_parts(index, m))
    if difference.figures:
        sections.insert(1, Section("figures", "Of both rollouts", _figures(difference)))
    if any(m.memory for m in difference.measurements):
        sections.append(Section("memory", "Memory", _memory(difference)))
    return frame.document(
        difference,
        [_answer(m) for m in sorted(difference.measurements, key=_urgency)],
        sections,
        kind=f"diff of {difference.of}",
        banner=f"Interrupted: {' and '.join(early)} stopped before it was done." if early else None,
        facts=[("Before", _label(difference.before)), ("After", _label(difference.after))],
    )


def _label(run: RunLabel) -> str:
    return f"{run.title}, {run.started:%Y-%m-%d %H:%M %Z}, strobe {run.strobe_version}"


def _urgency(m: MeasurementChange) -> int:
    return ("slower", "faster", "no difference shown", "too noisy").index(m.verdict.kind)


def _answer(m: MeasurementChange) -> str:
    return m.verdict.sentence if m.name in m.verdict.sentence else f"{m.name}: {m.verdict.sentence}"


def _metrics(difference: Difference) -> Table:
    columns = [Column("Measurement", numeric=False), Column("Verdict", numeric=False)]
    columns += [Column(t) for t in ("Before (ms)", "After (ms)", "Difference (ms)", "Change", "Interval of it")]
    columns += [Column("Samples")]
    rows = []
    for m in difference.measurements:
        before, after = m.before.summary.median, m.after.summary.median
        decimals = units.digits(max(before, after))
        cells = [m.name, m.verdict.kind, units.ms(before, decimals), units.ms(after, decimals)]
        cells += [units.signed(after - before, decimals), units.change(m.verdict.ratio)]
        cells += [units.change_span(m.verdict.interval), f"{len(m.before.values):,} + {len(m.after.values):,}"]
        rows.append(Row(cells))
    return Table(columns, rows)


def _figures(difference: Difference) -> Table:
    columns = [Column("Figure", numeric=False), Column("Before"), Column("After"), Column("Difference")]
    rows = []
    for figure in difference.figures:
        largest = max(abs(value) for value in (figure.before, figure.after) if value is not None)
        whole = all(value is None or value == round(value) for value in (figure.before, figure.after))
        decimals = 0 if whole or largest >= 100 else 1 if largest >= 10 else 2
        both = figure.before is not None and figure.after is not None
        grown = units.signed((figure.after or 0.0) - (figure.before or 0.0), decimals) if both else None
        label = f"{figure.name} ({figure.unit})" if figure.unit else figure.name
        rows.append(Row([label, units.ms(figure.before, decimals), units.ms(figure.after, decimals), grown]))
    return Table(columns, rows)


def _parts(index: int, m: MeasurementChange) -> Section:
    title = f"Parts of {m.name} that changed"
    if not m.components:
        text = f"None of {units.count(m.judged, 'part')} changed by more than chance would show."
        return Section(f"measurement-{index}", title, text=[text if m.judged else "Neither run has parts in common."])
    columns = [Column("Component", numeric=False), Column("", numeric=False)]
    columns += [Column(t) for t in ("Before (ms)", "After (ms)", "Difference (ms)", "Change", "Interval of it")]
    decimals = units.digits(max(m.before.summary.median, m.after.summary.median))
    rows = []
    for c in m.components:
        cells = [" › ".join(c.path), c.change]
        cells += [units.ms(c.before_ms, decimals), units.ms(c.after_ms, decimals)]
        cells += [units.signed((c.after_ms or 0.0) - (c.before_ms or 0.0), decimals)]
        cells += [units.change(c.verdict and c.verdict.ratio), units.change_span(c.verdict and c.verdict.interval)]
        rows.append(Row(cells))
    text = f"{units.count(m.judged, 'part')} judged at once; the intervals are widened for that."
    return Section(f"measurement-{index}", title, Table(columns, rows).without_empty_columns(), [text])


def _memory(difference: Difference) -> Table:
    columns = [Column("Memory", numeric=False), Column("Before"), Column("After"), Column("Difference")]
    rows = []
    for m in difference.measurements:
        for c in m.memory:
            grown = units.size(c.after - c.before) or ""
            sign = "+" if c.after > c.before else ""
            label = f"{m.name}: {c.name}"
            rows.append(Row([label, units.size(c.before), units.size(c.after), sign + grown]))
    return Table(columns, rows)


def plots(difference: Difference, _depth: int | None = None) -> Plots:
    """Return the samples of both runs, measurement by measurement, by the key of their section."""
    drawn = []
    for m in difference.measurements:
        group = [("before", m.before), ("after", m.after)]
        if m.before.values and m.after.values:
            drawn += [spread(f"{m.name}: spread", group, split=True)]
            drawn += [in_order(f"{m.name}: in the order taken", group)]
    return {"samples": drawn}
