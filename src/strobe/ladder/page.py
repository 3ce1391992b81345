"""Ladder → document: how far it got, what each rung bought and costs, and what was not kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from strobe.core.report import charts, compare, limits, measured, memory, pace, sameness, sameness_plots
from strobe.core.report import in_time as in_words
from strobe.core.report.charts import OTHER, Plot
from strobe.core.report.document import (
    Column,
    Columns,
    Document,
    Row,
    Section,
    Table,
    figure,
    heads,
    listing,
    table,
    words,
)
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.agreement import Agreement
from strobe.core.results.comparison import Comparison
from strobe.core.results.data import Interval
from strobe.core.results.measurement import Measurement
from strobe.evaluate import page_episodes as episodes
from strobe.ladder.results import Ladder, Need, OptimizeResult, Rung, Try

SMALL = 0.03  # parts below this share of the whole in every rung are taken together
MOST = 6  # parts that are shown
ENOUGH = 0.95  # level of an interval that is shown; five calls reach no more than 94 %
REST = "other"
MEANING = (
    "Hz are chunks per second of inference, 1000 / ms: for {hz:g} Hz a chunk must be ready within {ms} ms. "
    "'So far' is against the baseline, 'this rung' against the rung before, both from one run in alternation, "
    "with 99 % intervals."
)
APART = (
    "Hz are chunks per second of inference, 1000 / ms: for {hz:g} Hz a chunk must be ready within {ms} ms. The rungs "
    "were not measured in one run. 'This rung' is from its own try, and 'so far' compares two runs."
)
PRICE = (
    "Cosine and errors compare all treatments up to that rung with the baseline, on the same observations "
    "with the same noise, in the action's own units. Guard: {guard}."
)

SPREADS = " σ is the spread of an action dimension. RMS and flips are those of the worst dimension."


def outline(result: OptimizeResult, depth: int | None = None) -> Document:
    """Return the document of a ladder; one whose rungs were not all measured is shown as a comparison."""
    shown = compare.sections(result, depth) + memory.sections(result.measurements, depth)
    ladder = measured_ladder(result)
    if ladder is None:
        return measured.document(result, compare.answers(result), shown)
    # The agreement of a ladder is shown rung by rung, with the price of each.
    moved = sameness.has_errors(_compare_with_baseline(result, ladder))
    shown = [section for section in shown if not (moved and section.key.startswith(sameness.KEY))]
    below = [replace(section, detail=True) for section in shown]
    return measured.document(result, answers(result, ladder), [*sections(result, ladder), *below])


def plots(result: OptimizeResult, depth: int | None = None) -> Plots:
    """Return the plots of a comparison and, of a whole ladder, its rungs and its episodes."""
    drawn, ladder = compare.plots(result, depth), measured_ladder(result)
    if ladder is None:
        return drawn
    drawn.pop(sameness.KEY, None)
    drawn |= sameness_plots.plots(
        _compare_with_baseline(result, ladder), result.yardsticks, closely=_label_of_chosen(ladder)
    )
    drawn |= limits.plots(_label_rungs(result, ladder), result.machine.ceiling)
    return drawn | {"ladder": [_rungs(result, ladder)]} | episodes.plots(result.episodes)


def measured_ladder(result: OptimizeResult) -> Ladder | None:
    """Return the result's ladder, if all of its rungs were measured."""
    ladder, measured = result.ladder, {m.name for m in result.measurements}
    if ladder is None or not ladder.rungs or ladder.chosen not in [rung.name for rung in ladder.rungs]:
        return None
    return ladder if all(rung.name in measured for rung in ladder.rungs) else None


def answers(result: OptimizeResult, ladder: Ladder) -> list[str]:
    """Return how far it got, by which rungs, and what is missing."""
    name = result.subject.name
    first, last = result.measurement(ladder.rungs[0].name), result.measurement(ladder.chosen)
    accepted = _accepted_rungs(ladder)
    whole = _comparison(result, first.name, last.name)
    reached = f"{_ms(last)} ms ({_hz(last)} Hz)"
    target = f"{ladder.target_hz:g} Hz ({_target_ms(ladder)} ms)"
    if len(accepted) > 1:
        gain = f", {_factor(whole)} as fast" if whole is not None else ""
        same = whole.agreement if whole is not None else None
        moved = sameness.describe_agreement(same) if same is not None else ""
        climbed = f"{_ms(first)} → {reached}{gain}"
    else:
        climbed, moved = f"It takes {reached} as it is", ""
    nothing = "" if len(accepted) > 1 or ladder.met else ", and no treatment that was tried made it faster"
    sentences = [f"{describe_target(name, target, last.samples.summary.median, ladder)} {climbed}{nothing}."]
    sentences += [moved] if moved else []
    if len(accepted) > 1:
        bought = [f"{brief(rung.treatment)} ({_describe_gain(result, ladder, rung)})" for rung in accepted[1:]]
        sentences.append(f"{units.count(len(accepted) - 1, 'rung')}: {'; '.join(bought)}.")
    sentences += [limit] if (limit := limits.line(name, last)) else []
    sentences += [_describe_missing(ladder)] if ladder.needs else []
    if result.yardsticks and len(accepted) > 1:
        sentences.append(sameness.describe_yardsticks(result.yardsticks))
    sentences += pace.cadence_answers(result) + episodes.answers(result.episodes)
    if broken := [rung for rung in ladder.rungs if not rung.guarded]:
        why = "; ".join(f"{rung.name} ({rung.refused or 'it broke the guard'})" for rung in broken)
        sentences.append(f"After the climb Strobe refused: {why}. The ladder ends with {ladder.chosen}.")
    sentences.append(f"It stopped because {'it was interrupted' if ladder.ended == 'interrupted' else ladder.ended}.")
    if len(accepted) > 1 and whole is not None:
        if whole.verdict.kind == "faster":
            sentences.append(
                f"recipe.yaml in the run's folder contains {'it' if len(accepted) == 2 else 'all of them'}."
            )
        else:
            sentences.append("No recipe was written: the closing run was too short or too noisy to show a gain.")
    return sentences


def sections(result: OptimizeResult, ladder: Ladder) -> list[Section]:
    """Return the ladder, its price, its latencies, what is missing, and what was tried in vain."""
    about = (MEANING if ladder.interleaved else APART).format(hz=ladder.target_hz, ms=_target_ms(ladder))
    shown = [Section("ladder", "Ladder", _ladder(result, ladder), [about])]
    if len(ladder.rungs) > 1:
        about = PRICE.format(guard=ladder.guard)
        about += SPREADS if sameness.has_errors(_compare_with_baseline(result, ladder)) else ""
        shown.append(Section("price", "Does it still act the same, and what it costs", _price(result, ladder), [about]))
    shown += sameness.sections(
        _compare_with_baseline(result, ladder),
        result.yardsticks,
        "How far the actions move, rung by rung",
        closely=_label_of_chosen(ladder),
    )
    shown += episodes.sections(result.episodes)
    if any(rung.parts for rung in ladder.rungs):
        shown.append(Section("rung-latencies", "Component latencies per rung", _latencies(result, ladder)))
    shown += limits.sections(_label_rungs(result, ladder), ladder.chosen, "Rung")
    if ladder.needs:
        at = "As it is" if ladder.chosen == ladder.rungs[0].name else f"With {ladder.chosen}"
        about = f"{at}. For each part the other parts stay as they are."
        shown.append(Section("needs", f"What is missing to {ladder.target_hz:g} Hz", _needs(ladder.needs), [about]))
    refused = [attempt for attempt in ladder.tries if attempt.outcome != "kept"]
    return [*shown, *listing("refused", "Not accepted", refused, _REFUSED, whole=True)]


def _rungs(result: OptimizeResult, ladder: Ladder) -> Plot:
    """Draw the milliseconds of each rung with its parts on top of one another, and the target."""
    names, stacks = _stack_parts(result, ladder)
    labels = [_short(index, rung) for index, rung in enumerate(ladder.rungs)]
    hover, places, traces = "%{text}<br>%{x:,.4~g} ms<extra>%{fullData.name}</extra>", range(len(labels)), []
    for index, name in enumerate(names):
        colour, values = OTHER if name == REST else charts.colour(index), [parts.get(name, 0.0) for parts in stacks]
        traces.append(charts.bars(name, places, values, colour, hover, labels=labels))
    target = ladder.target_ms
    longest = max(target, *(sum(parts.values()) for parts in stacks))
    layout = charts.layout(
        150 + 44 * len(labels),
        charts.axis("ms per chunk (median)", range=[0, 1.04 * longest]),
        charts.names_axis(labels, **charts.DOWN),
        barmode="stack",
        bargap=0.35,
        showlegend=True,
        legend=charts.LEGEND_ABOVE,
        # Dark on light, so that it shows on the bars as well as beside them.
        shapes=[
            charts.dashed_line(target, dash="solid", width=4, color="#fff"),
            charts.dashed_line(target, color="#1b1f24"),
        ],
    )
    caption = f"The dashed line is {ladder.target_hz:g} Hz, {_target_ms(ladder)} ms."
    return Plot("Milliseconds per rung, by part", caption, traces, layout)


def brief(treatment: str) -> str:
    """Return a treatment in a table: of a long path to a module the last name."""
    return re.sub(r"=[\w.]{16,}\.(\w+)", r"=…\1", treatment)


def _ladder(result: OptimizeResult, ladder: Ladder) -> Table:
    first = result.measurement(ladder.rungs[0].name)
    decimals, several = units.digits(first.samples.summary.median), len(ladder.rungs) > 1
    columns = heads("<Rung | ms (median) | 95 % interval | Hz")
    columns += heads("× so far | Interval of it | × this rung | Interval of it") if several else []
    columns += heads("At least (ms) | % of ceiling")
    rows = []
    for index, rung in enumerate(ladder.rungs):
        m = result.measurement(rung.name)
        summary = m.samples.summary
        cells = [
            _label(index, rung),
            units.ms(summary.median, decimals),
            units.span(summary.interval, decimals),
            _hz(m),
        ]
        for before in (first.name, ladder.rungs[max(index - 1, 0)].name) if several else ():
            cells += _gain(_comparison(result, before, rung.name))
        cells += limits.cells(m, decimals)
        rows.append(Row(cells, "whole" if rung.name == ladder.chosen else "part"))
    whole = Table(columns, rows)
    return whole if any(m.limit for m in result.measurements) else whole.first_columns(len(columns) - 2)


def _price(result: OptimizeResult, ladder: Ladder) -> Table:
    columns = heads(
        "<Rung | <Does | RMS (σ) | Worst (σ) | Flips | Cosine | Largest error | Mean error",
        "Peak activations | Weights | Memory that stays | Built in (s)",
    )
    rows = []
    for index, rung in enumerate(ladder.rungs):
        same, memory = _agreement(result, ladder, rung), result.measurement(rung.name).memory
        cells = [_label(index, rung), rung.effect if index else None]
        cells += [units.sigma(same and same.rms), units.sigma(same and same.worst)]
        cells += [sameness.share_of_flips(same and same.flips), None if same is None else f"{same.cosine:.6f}"]
        cells += [units.number(same and same.largest_error, 3), units.number(same and same.mean_error, 3)]
        cells += [units.size(memory.peak_activations or memory.peak_device), units.size(memory.weights)]
        cells += [units.size(memory.stays)]
        rows.append(Row([*cells, f"{rung.build_s:.1f}" if rung.build_s and rung.build_s >= 0.05 else None]))
    return Table(columns, rows).drop_empty_columns()


def _latencies(result: OptimizeResult, ladder: Ladder) -> Table:
    names, stacks = _stack_parts(result, ladder)
    rows = []
    for index, (rung, parts) in enumerate(zip(ladder.rungs, stacks, strict=True)):
        total = result.measurement(rung.name).samples.summary.median
        cells: list[str | None] = [_label(index, rung), units.ms(total)]
        for ms in map(parts.get, names):
            cells.append(None if ms is None else f"{ms:,.2f} ({100 * ms / total:.0f} %)" if total > 0 else units.ms(ms))
        rows.append(Row(cells, "whole" if rung.name == ladder.chosen else "part"))
    return Table([*heads("<Rung | Total (ms)"), *(Column(f"{name} (ms)") for name in names)], rows)


def _needs(needs: Sequence[Need]) -> Table:
    shown = [need for need in needs if need.share >= SMALL or need is needs[0]]
    return table(shown, _NEEDS, share=lambda need: need.share)


_NEEDS: Columns[Need] = [
    words("Part", lambda need: need.part),
    figure("Now (ms)", lambda need: need.ms, units.ms),
    figure("% of the total", lambda need: need.share, units.percent),
    figure("Must fall to (ms)", lambda need: units.ms(need.needed_ms) or "not enough by itself", str),
    figure("Faster by", lambda need: need.ms / need.needed_ms if need.needed_ms else None, "{:.1f} ×".format),
    words("What was tried on it", lambda need: brief("; ".join(need.treatments)) or "no treatment was tried on it"),
]
_REFUSED: Columns[Try] = [
    words("Tried, not accepted", lambda tried: brief(tried.treatment)),
    words("For", lambda tried: tried.part or "the whole"),
    figure("On rung", lambda tried: tried.rung - 1, str),
    words("Why", lambda tried: tried.explanation),
]


def _stack_parts(result: OptimizeResult, ladder: Ladder) -> tuple[list[str], list[dict[str, float]]]:
    """Return names of the parts shown, and of each rung their milliseconds with the rest, which add up to the whole."""
    totals = [result.measurement(rung.name).samples.summary.median for rung in ladder.rungs]
    largest: dict[str, float] = {}
    for rung, total in zip(ladder.rungs, totals, strict=True):
        for name, ms in rung.parts.items():
            largest[name] = max(largest.get(name, 0.0), ms / total if total > 0 else 0.0)
    ranked = sorted((name for name, share in largest.items() if share >= SMALL), key=lambda name: -largest[name])
    names = [name for name in largest if name in ranked[:MOST] and name != REST]
    stacks = []
    for rung, total in zip(ladder.rungs, totals, strict=True):
        parts = {name: ms for name, ms in rung.parts.items() if name in names}
        stacks.append({**parts, REST: max(0.0, total - sum(parts.values()))})
    return [*names, REST], stacks


def _target_ms(ladder: Ladder) -> str:
    return f"{ladder.target_ms:,.0f}" if ladder.target_ms >= 1000 else f"{ladder.target_ms:.4g}"


def _describe_missing(ladder: Ladder) -> str:
    sufficient = [need for need in ladder.needs if need.needed_ms]
    if not sufficient:
        return "No single part can make up for that: several must become shorter."
    need = max(sufficient, key=lambda need: need.ms)
    needed = need.needed_ms or 0.0
    fall = f"{units.short_ms(need.ms)} to {units.short_ms(needed)} ms ({need.ms / (needed or 1):.1f} ×)"
    return f"What is missing: {need.part} would have to fall from {fall}, if all other parts stay as they are."


def _accepted_rungs(ladder: Ladder) -> list[Rung]:
    names = [rung.name for rung in ladder.rungs]
    return ladder.rungs[: names.index(ladder.chosen) + 1]


def _describe_gain(result: OptimizeResult, ladder: Ladder, rung: Rung) -> str:
    before = ladder.rungs[[rung.name for rung in ladder.rungs].index(rung.name) - 1]
    comparison = _comparison(result, before.name, rung.name)
    return rung.effect if comparison is None else f"{_factor(comparison)}, {rung.effect}"


def _comparison(result: OptimizeResult, baseline: str, candidate: str) -> Comparison | None:
    return next((c for c in result.comparisons if (c.baseline, c.candidate) == (baseline, candidate)), None)


def _label_rungs(result: OptimizeResult, ladder: Ladder) -> list[limits.Named]:
    """Return the rungs that were kept, from the baseline to the chosen one."""
    return [(_short(index, rung), result.measurement(rung.name)) for index, rung in enumerate(_accepted_rungs(ladder))]


def _compare_with_baseline(result: OptimizeResult, ladder: Ladder) -> list[sameness.Candidate]:
    """Return each rung against the baseline."""
    labels = {rung.name: _label(index, rung) for index, rung in enumerate(ladder.rungs) if index}
    pairs = [_comparison(result, ladder.rungs[0].name, name) for name in labels]
    return [
        replace(candidate, name=labels[pair.candidate])
        for pair in pairs
        if pair is not None
        for candidate in sameness.comparison_candidates([pair])
    ]


def _label_of_chosen(ladder: Ladder) -> list[str]:
    """Return the name of the chosen rung among those of `_against_the_first`."""
    return [_label(i, rung) for i, rung in enumerate(ladder.rungs) if rung.name == ladder.chosen]


def _agreement(result: OptimizeResult, ladder: Ladder, rung: Rung) -> Agreement | None:
    comparison = _comparison(result, ladder.rungs[0].name, rung.name)
    return comparison.agreement if comparison is not None else None


def _gain(comparison: Comparison | None) -> list[str | None]:
    if comparison is None or comparison.verdict.ratio <= 0:
        return [None, None]
    return [f"{1 / comparison.verdict.ratio:.2f}", _inverse(comparison.verdict.interval)]


def _factor(comparison: Comparison) -> str:
    if comparison.verdict.ratio <= 0:
        return "–"
    between = _inverse(comparison.verdict.interval)
    return f"{1 / comparison.verdict.ratio:.2f} × {f'[{between}]' if between else '(too few calls for an interval)'}"


def _inverse(interval: Interval) -> str | None:
    """Return the interval of the factor; None if too few calls make it no interval that one could trust."""
    if interval.low <= 0 or interval.high <= 0 or interval.level < ENOUGH:
        return None
    return f"{1 / interval.high:.2f} to {1 / interval.low:.2f}"


def _label(index: int, rung: Rung) -> str:
    return f"{index} {brief(rung.treatment)}" if index else rung.name


def _short(index: int, rung: Rung) -> str:
    label = _label(index, rung)
    return label if len(label) <= 44 else f"{label[:20]}…{label[-22:]}"


def _ms(m: Measurement) -> str:
    return units.short_ms(m.samples.summary.median)


def _hz(m: Measurement) -> str:
    hz = 1e3 / m.samples.summary.median if m.samples.summary.median > 0 else 0.0
    return f"{hz:,.1f}" if hz >= 10 else f"{hz:.3g}"


def describe_target(name: str, target: str, median_ms: float, ladder: Ladder) -> str:
    """Return whether the rung that a ladder ends with reaches its target, in a sentence or two.

    Args:
        name: of the policy.
        target: the rate, with its milliseconds.
    """
    judged = ladder.in_time
    by = median_ms - ladder.target_ms
    if judged is None:  # of an earlier version, which looked at the median
        return (
            f"{name} reaches {target} by its median."
            if ladder.met
            else f"{name} misses {target}{_missing_time_suffix(by)}."
        )
    if judged.outcome == "reached":
        return f"{name} reaches {target}: {in_words.describe_share(judged)}."
    if judged.outcome == "missed":
        required = f", where {in_words.percent_of_chunks(judged.asked)} must be" if by <= 0 else ""
        return f"{name} misses {target}{_missing_time_suffix(by)}: {in_words.describe_share(judged)}{required}."
    return f"Too few chunks to say whether {name} reaches {target}: {in_words.describe_lack(judged)}."


def _missing_time_suffix(missing_ms: float) -> str:
    return f" by {units.short_ms(missing_ms)} ms" if missing_ms > 0 else ""
