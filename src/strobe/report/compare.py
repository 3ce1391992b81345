"""Comparison → document: the verdicts first, then the variants side by side, then each of them."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.report import (
    breakdown,
    cadence,
    limits,
    measured,
    memory,
    profiles,
    sameness,
    sameness_plots,
    tables,
    units,
)
from strobe.report.document import Document, Section
from strobe.report.plots import PALETTE, Plot, text
from strobe.results.agreement import Yardstick
from strobe.results.answer import CompareResult, OptimizeResult, Result
from strobe.results.measurement import Component, Measurement


def outline(result: CompareResult, depth: int | None = None) -> Document:
    """The document of a comparison; ``depth`` limits the levels of its trees."""
    found = sections(result, depth)
    found += limits.sections(_named(result), result.measurements[-1].name) if result.measurements else []
    found += memory.sections(result.measurements, depth, detail=True)
    found += profiles.sections(result.operators, result.python)
    said = answers(result) + cadence.answers(result)
    said += sameness.answers(sameness.of_comparisons(result.judged()), result.yardsticks)
    return measured.document(result, said, found)


def answers(result: Result) -> list[str]:
    """The verdicts and, of backbones, their rates; the biggest parts where nothing could be judged."""
    if not result.judged():
        return breakdown.answers(result)
    said = [units.plain(one.verdict.sentence) for one in result.judged()]
    return said + [f"{units.plain(m.name)}: {rate}" for m in result.measurements if (rate := breakdown.rate(m))]


def sections(result: Result, depth: int | None) -> list[Section]:
    """The variants side by side, then each of them; of a single one, what a breakdown shows."""
    if len(result.measurements) < 2:
        return measured.sections(result, depth)
    found = [Section("samples", "Comparison", tables.metrics(result))]
    if result.judged():
        found.append(Section("verdict", "Verdict", tables.verdicts(result), _about(result)))
    found += agreement(result)
    if (same := tables.gradients(result)) is not None:
        notes = [c.gradient.note for c in result.judged() if c.gradient and c.gradient.note]
        said = [units.plain(note) for note in dict.fromkeys(notes)]
        found.append(Section("gradients", "Do they train the same?", same, text=said))
    found += measured.guidance(result)
    parted = _parted(result)
    if len(parted) > 1:
        found.append(Section("parts", "Parts side by side", tables.parts(parted, depth)))
    found += cadence.sections(result)
    return [*found, *measured.each(result, depth, detail=len(parted) > 1), *measured.blocks(result)]


def _about(result: Result) -> list[str]:
    """Which ratio the verdicts go by, and where that of the medians is another."""
    said = ["Change is that of the typical pair (Hodges and Lehmann's estimate), in which what slows both cancels."]
    medians = {m.name: m.samples.summary.median for m in result.measurements}
    for one in result.judged():
        before, after = medians.get(one.baseline, 0.0), medians.get(one.candidate, 0.0)
        interval = one.verdict.interval
        if one.verdict.pairs and before > 0 and after > 0 and not interval.low <= after / before <= interval.high:
            names = f"{units.plain(one.candidate)} and {units.plain(one.baseline)}"
            said.append(
                f"The medians of {names} differ by {units.change(after / before)}, their pairs by "
                f"{units.change(one.verdict.ratio)}: the samples are skewed, or have two modes. Believe the pairs."
            )
    return said if any(one.verdict.pairs for one in result.judged()) else []


def agreement(result: Result) -> list[Section]:
    """How far the actions of the candidates moved: in σ with yardsticks where that is known, else by the cosine."""
    candidates = sameness.of_comparisons(result.judged())
    if sameness.told(candidates):
        return sameness.sections(candidates, yardsticks(result))
    if (same := tables.agreement(result)) is None:
        return []
    said = [units.plain(c.agreement.note) for c in result.judged() if c.agreement and c.agreement.note]
    return [Section(sameness.KEY, sameness.TITLE, same, text=said)]


def yardsticks(result: Result) -> list[Yardstick]:
    """Those of the result; none of a study that takes none."""
    return result.yardsticks if isinstance(result, CompareResult | OptimizeResult) else []


def plots(result: Result, depth: int | None = None) -> dict[str, list[Plot]]:
    """The plots of each section, by its key; ``depth`` limits the levels of the parts side by side."""
    found, parted = measured.plots(result), _parted(result)
    found |= sameness_plots.plots(sameness.of_comparisons(result.judged()), yardsticks(result))
    found |= limits.plots(_named(result), result.machine.ceiling)
    return found | ({"parts": [_side_by_side(parted, depth)]} if len(parted) > 1 else {})


def _named(result: Result) -> list[limits.Named]:
    return [(m.name, m) for m in result.measurements]


def _parted(result: Result) -> list[Measurement]:
    return [m for m in result.measurements if m.components]


def _side_by_side(measurements: Sequence[Measurement], depth: int | None) -> Plot:
    found = tables.side_by_side(measurements, depth)

    def largest(path: tuple[str, ...]) -> float:
        return max(by_path[path].share for by_path in found if path in by_path)

    paths = [p for p in tables.aligned([list(by_path) for by_path in found]) if largest(p) >= 0.01]
    names = [text(" › ".join(path[-2:])) for path in paths]
    traces = []
    for index, (m, by_path) in enumerate(zip(measurements, found, strict=True)):
        parts: list[Component | None] = [by_path.get(path) for path in paths]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": text(m.name),
                "y": list(range(len(paths))),
                "x": [round(part.summary.median, 6) if part else None for part in parts],
                "text": names,
                "textposition": "none",
                "marker": {"color": PALETTE[index % len(PALETTE)]},
                "hovertemplate": "%{text}<br>%{x:,.4~g} ms<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "height": 120 + max(26, 15 * len(measurements)) * len(paths),
        "barmode": "group",
        "bargap": 0.3,
        "xaxis": {"title": {"text": "ms per iteration (median)"}},
        "yaxis": {
            "autorange": "reversed",
            "showgrid": False,
            "tickvals": list(range(len(paths))),
            "ticktext": names,
            "fixedrange": True,
            "automargin": True,
        },
    }
    return Plot("As bars", "Parts under 1 % everywhere are in the table only.", traces, layout)
