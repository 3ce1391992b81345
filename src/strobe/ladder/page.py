"""Ladder → document: the decision, what each step gains and costs, and what was rejected."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from strobe.core.errors import UserError
from strobe.core.report import charts, compare, frame, limits, measured, memory, pace, sameness, sameness_plots
from strobe.core.report.charts import OTHER, Plot
from strobe.core.report.document import (
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
from strobe.core.results.agreement import Effect
from strobe.core.results.comparison import Comparison
from strobe.core.results.data import Interval, Summary
from strobe.core.results.measurement import Measurement, host_and_device
from strobe.core.results.numerals import significant
from strobe.core.treatments.catalogue import format_spec
from strobe.core.treatments.known import known_words
from strobe.core.treatments.words import find_entry, parse
from strobe.evaluate import page_episodes as episodes
from strobe.ladder import in_time_words as in_words
from strobe.ladder.findings import MOST_HEADROOM, UNJUDGED, last_tries, straddles, ways
from strobe.ladder.results import Ladder, Need, OptimizeResult, Rung, Try

SUBJECT_FLAGS = ("--policy.", "--model.", "--dataset.", "--rename_map", "--env.")
_VALUE = re.compile(r"^'?[\w ]{1,16}'?: ")  # the value of a treatment, before the gloss in its help
SMALL = 0.03  # parts below this share of the whole in every rung are taken together
MOST = 6  # parts that are shown
ENOUGH = 0.95  # level of an interval that is shown; five calls reach no more than 94 %
REST = "other"
MEANING = (
    "Hz are chunks per second of inference, 1000 / ms: for {hz:g} Hz a chunk must be ready within {ms} ms. "
    "Both ratios come from one run of all steps in alternation."
)
APART = (
    "Hz are chunks per second of inference, 1000 / ms: for {hz:g} Hz a chunk must be ready within {ms} ms. The steps "
    "were not measured in one run: '× step before' comes from the step's own try, and '× baseline' compares two runs."
)
PRICE = (
    "Cosine and errors compare all treatments up to that step with the baseline, on the same observations "
    "with the same noise, in the action's own units. Limits: {guard}."
)

EFFECTS: Mapping[Effect, str] = {
    "exact": "exact",
    "rounding": "changes the actions by rounding only",
    "lossy": "changes the actions",
}
SPREADS = " σ is the spread of an action dimension. RMS and flips are those of the worst dimension."


def outline(result: OptimizeResult, depth: int | None = None) -> Document:
    """Return the document of a ladder; one whose rungs were not all measured is shown as a comparison."""
    shown = compare.sections(result, depth) + memory.sections(result.measurements, depth)
    ladder = measured_ladder(result)
    if ladder is None:
        return measured.document(result, answers(result), shown)
    # The agreement of a ladder is shown rung by rung, with the price of each.
    moved = sameness.has_errors(_compare_with_baseline(result, ladder))
    shown = [section for section in shown if not (moved and section.key.startswith(sameness.KEY))]
    below = [replace(section, detail=True) for section in shown]
    return measured.document(result, answers(result), [*sections(result, ladder), *below])


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
    return drawn | {"ladder": [_rungs(result, ladder)]}


def measured_ladder(result: OptimizeResult) -> Ladder | None:
    """Return the result's ladder, if all of its rungs were measured."""
    ladder, measured = result.ladder, {m.name for m in result.measurements}
    if ladder is None or not ladder.rungs or ladder.chosen not in [rung.name for rung in ladder.rungs]:
        return None
    return ladder if all(rung.name in measured for rung in ladder.rungs) else None


def answers(result: OptimizeResult) -> list[str]:
    """Return the decision, its figures, the next step if there is one, the accepted treatments, and the evidence."""
    ladder = measured_ladder(result)
    if ladder is None:
        return compare.answers(result)
    first, last = result.measurement(ladder.rungs[0].name), result.measurement(ladder.chosen)
    accepted = _accepted_rungs(ladder)
    whole = _comparison(result, first.name, last.name)
    sentences = [describe_target(result.subject.name, last.samples.summary, ladder)]
    sentences.append(" ".join(_describe_figures(result, ladder, whole)))
    sentences += [f"Next: {following}"] if (following := _describe_next(result, ladder, whole)) else []
    sentences += [_describe_step(result, ladder, index, rung) for index, rung in enumerate(accepted) if index]
    sentences += [_describe_need(ladder)] if ladder.needs else []
    sentences += [limit] if _has_headroom(last) and (limit := limits.line(result.subject.name, last)) else []
    if result.yardsticks and len(accepted) > 1:
        sentences.append(sameness.describe_yardsticks(result.yardsticks))
    sentences += pace.cadence_answers(result) + episodes.answers(result.episodes)
    if refused := [rung for rung in ladder.rungs if not rung.guarded]:
        why = "; ".join(f"{rung.name} ({rung.refused or 'it exceeded a limit'})" for rung in refused)
        sentences.append(f"After the search Strobe rejected {why}. The result is {ladder.chosen}.")
    ended = "you interrupted it" if ladder.ended == "interrupted" else ladder.ended
    recipe = ""
    if whole is not None and whole.verdict.kind == "faster":
        recipe = " recipe.yaml in the run's folder holds the accepted treatments."
    elif whole is not None:
        recipe = " No recipe was written: the closing run does not show a gain."
    sentences.append(f"The search stopped because {ended}.{recipe}")
    return sentences


def describe_target(name: str, median: Summary, ladder: Ladder) -> str:
    """Return in a sentence whether the rung that a ladder ends with reaches its target.

    Args:
        name: of the policy.
        median: of that rung, with its interval.
    """
    target, judged = f"{ladder.target_hz:g} Hz", ladder.in_time
    if ladder.met:
        return f"{name} reaches {target}{in_words.describe_scope(judged) if judged else ' by its median'}."
    if judged is not None and judged.outcome == "not judged" and judged.needed is not None:
        return f"{name} looks able to reach {target}, not yet proven."
    undecided = judged is None and straddles(median.interval, ladder.target_ms)
    if undecided or (judged is not None and judged.outcome == "not judged"):
        return f"Whether {name} reaches {target} is inconclusive."
    return f"{name} misses {target}."


def _describe_figures(result: OptimizeResult, ladder: Ladder, whole: Comparison | None) -> Iterator[str]:
    first, last = result.measurement(ladder.rungs[0].name), result.measurement(ladder.chosen)
    summary = last.samples.summary
    text = f"{_ms(last)} ms per chunk ({_hz(last)} Hz), {_target_ms(ladder)} ms allowed"
    if straddles(summary.interval, ladder.target_ms):
        ends = summary.interval
        between = f"{100 * ends.level:.3g} % CI {significant(ends.low)} to {significant(ends.high)} ms" if ends else ""
        text += f"; the median is inconclusive, {between or 'without an interval'}"
    if (judged := ladder.in_time) is not None:
        lacks = judged.outcome == "not judged" and judged.needed is None
        text += f"; {in_words.describe_lack(judged) if lacks else in_words.describe_share(judged)}"
    yield f"{text}."
    if ladder.chosen == first.name:
        if not ladder.met:
            yield describe_rejections(ladder)
        return
    if whole is not None:
        yield f"{_factor(whole)} as fast as the baseline, which takes {_ms(first)} ms."
        if whole.agreement is not None:
            yield sameness.describe_agreement(whole.agreement)


def describe_rejections(ladder: Ladder) -> str:
    """Say that nothing was faster, if all treatments were judged; else how many were."""
    tries = last_tries(ladder)
    judged = [attempt for attempt in tries if attempt.outcome not in UNJUDGED]
    if len(judged) == len(tries):
        return "No treatment made it faster." if tries else "No treatment was tried."
    return f"{len(judged)} of {len(tries)} treatments could be judged; none of them made it faster."


def _describe_next(result: OptimizeResult, ladder: Ladder, whole: Comparison | None) -> str | None:
    if not ladder.met:
        return next(iter(ways(result)), None)
    if whole is None or whole.verdict.kind != "faster":
        return None
    if "random" in result.subject.source:
        return "repeat with --policy.path, because random weights say little about action drift."
    if result.command[:2] == ["strobe", "optimize"]:
        return shlex.join(
            ["strobe", "verify", *frame.pick_flags(result.command[2:], SUBJECT_FLAGS), "--recipe=RUN/recipe.yaml"]
        )
    return None


def _describe_step(result: OptimizeResult, ladder: Ladder, index: int, rung: Rung) -> str:
    glossed = _gloss_treatments(rung)
    written = ", ".join(treatment for treatment, _ in glossed)
    gloss = f" ({glossed[0][1]})" if len(glossed) == 1 and glossed[0][1] else ""
    gone = [spec for spec in ladder.rungs[ladder.rungs.index(rung) - 1].treatments if spec not in rung.treatments]
    gloss += f", in place of {', '.join(brief(format_spec(spec)) for spec in gone)}" if gone else ""
    return f"Step {index}: {written}{gloss}; {_describe_gain(result, ladder, rung)}."


def _gloss_treatments(rung: Rung) -> list[tuple[str, str | None]]:
    glossed: list[tuple[str, str | None]] = []
    try:
        for spec in parse(rung.treatment, known_words()):
            entry = find_entry(next(iter(spec)), known_words())
            # A setting of the policy says itself what it is.
            gloss = None if entry.key.endswith(".") else _VALUE.sub("", entry.help).partition("; ")[0]
            glossed.append((brief(format_spec(spec)), gloss))
    except UserError:  # of a package that is not installed here
        return [(brief(rung.treatment), None)]
    return glossed


def sections(result: OptimizeResult, ladder: Ladder) -> list[Section]:
    """Return the ladder, its price, the missing time, what could still help, and what was rejected."""
    about = (MEANING if ladder.interleaved else APART).format(hz=ladder.target_hz, ms=_target_ms(ladder))
    shown = [Section("ladder", "Ladder", _ladder(result, ladder), [about])]
    glossed = [(i, *each) for i, rung in enumerate(_accepted_rungs(ladder)) if i for each in _gloss_treatments(rung)]
    shown += listing("treatments", "Accepted treatments", glossed, _TREATMENTS)
    if len(ladder.rungs) > 1:
        about = PRICE.format(guard=ladder.guard)
        about += SPREADS if sameness.has_errors(_compare_with_baseline(result, ladder)) else ""
        shown.append(Section("price", "Action drift, memory and build time", _price(result, ladder), [about]))
    shown += sameness.sections(
        _compare_with_baseline(result, ladder),
        result.yardsticks,
        "How far the actions change, step by step",
        closely=_label_of_chosen(ladder),
    )
    shown += episodes.sections(result.episodes)
    shown += limits.sections(_label_rungs(result, ladder), ladder.chosen, "Step")
    if ladder.needs:
        about = f"Measured: {ladder.chosen}. 'Must fall to' holds if only that part changes."
        needs = [need for need in ladder.needs if need.share >= SMALL or need is ladder.needs[0]]
        needed = table(needs, _NEEDS, share=lambda need: need.share)
        shown.append(Section("needs", f"To {ladder.target_hz:g} Hz", needed, [about]))
    if not ladder.met and (further := ways(result)[1:]):
        shown.append(
            Section("ways", "What else could help", None, [f"{line[:1].upper()}{line[1:]}" for line in further])
        )
    refused = [attempt for attempt in ladder.tries if attempt.outcome != "kept"]
    return [*shown, *listing("refused", "Rejected candidates", refused, _REFUSED, whole=True)]


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
        # Dark on light, so that it shows on the bars and on the page.
        shapes=[
            charts.dashed_line(target, dash="solid", width=4, color="#fff"),
            charts.dashed_line(target, color="#1b1f24"),
        ],
    )
    caption = f"The dashed line is {ladder.target_hz:g} Hz, {_target_ms(ladder)} ms."
    return Plot("Milliseconds per step, by part", caption, traces, layout)


def brief(treatment: str) -> str:
    """Return a treatment in a table: of a long path to a module the last name."""
    return re.sub(r"=[\w.]{16,}\.(\w+)", r"=…\1", treatment)


def _ladder(result: OptimizeResult, ladder: Ladder) -> Table:
    first = result.measurement(ladder.rungs[0].name)
    decimals, several = units.digits(first.samples.summary.median), len(ladder.rungs) > 1
    columns = heads("<Step | ms (median) | 95 % CI | Hz")
    columns += heads("× baseline | 99 % CI | × step before | 99 % CI") if several else []
    columns += heads("At least (ms) | % of peak")
    rows = []
    for index, rung in enumerate(ladder.rungs):
        m = result.measurement(rung.name)
        summary = m.samples.summary
        cells = [_label(index, rung), units.ms(summary.median, decimals)]
        cells += [units.span(summary.interval, decimals), _hz(m)]
        for before in (first.name, ladder.rungs[max(index - 1, 0)].name) if several else ():
            cells += _gain(_comparison(result, before, rung.name))
        cells += limits.cells(m, decimals)
        rows.append(Row(cells, "whole" if rung.name == ladder.chosen else "part"))
    whole = Table(columns, rows)
    return whole if any(m.limit for m in result.measurements) else whole.select_columns(range(len(columns) - 2))


def _price(result: OptimizeResult, ladder: Ladder) -> Table:
    columns = heads(
        "<Step | <Effect | RMS (σ) | Worst (σ) | Flips | Cosine | Largest error | Mean error",
        "Peak activations | Weights | Extra memory | Build time (s)",
    )
    rows = []
    for index, rung in enumerate(ladder.rungs):
        whole, memory = _comparison(result, ladder.rungs[0].name, rung.name), result.measurement(rung.name).memory
        same = whole.agreement if whole is not None else None
        cells = [_label(index, rung), rung.effect if index else None]
        cells += [units.sigma(same and same.rms), units.sigma(same and same.worst)]
        cells += [sameness.share_of_flips(same and same.flips), None if same is None else f"{same.cosine:.6f}"]
        cells += [units.number(same and same.largest_error, 3), units.number(same and same.mean_error, 3)]
        cells += [units.size(memory.peak_activations or memory.peak_device), units.size(memory.weights)]
        cells += [units.size(memory.stays)]
        rows.append(Row([*cells, f"{rung.build_s:.1f}" if rung.build_s and rung.build_s >= 0.05 else None]))
    return Table(columns, rows).drop_empty_columns()


_NEEDS: Columns[Need] = [
    words("Part", lambda need: need.part),
    figure("Now (ms)", lambda need: need.ms, units.ms),
    figure("% of the total", lambda need: need.share, units.percent),
    figure("Must fall to (ms)", lambda need: units.ms(need.needed_ms) or "not enough alone", str),
    figure("Faster by", lambda need: need.ms / need.needed_ms if need.needed_ms else None, "{:.1f} ×".format),
]
_TREATMENTS: Columns[tuple[int, str, str | None]] = [
    words("Step", lambda row: str(row[0])),
    words("Treatment", lambda row: row[1]),
    words("Does", lambda row: row[2]),
]
_REFUSED: Columns[Try] = [
    words("Candidate", lambda tried: brief(tried.treatment)),
    words("Part", lambda tried: tried.part or "whole policy"),
    figure("After step", lambda tried: tried.rung - 1, str),
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


def _describe_need(ladder: Ladder) -> str:
    target = f"{ladder.target_hz:g} Hz"
    sufficient = [need for need in ladder.needs if need.needed_ms]
    if not sufficient:
        return f"No single part is enough for {target}: several must become shorter."
    need = max(sufficient, key=lambda need: need.ms)
    needed = need.needed_ms or 0.0
    fall = f"{units.short_ms(need.ms)} to {units.short_ms(needed)} ms ({need.ms / (needed or 1):.1f} ×)"
    return f"To reach {target}, {need.part} alone would have to fall from {fall}."


def _accepted_rungs(ladder: Ladder) -> list[Rung]:
    names = [rung.name for rung in ladder.rungs]
    return ladder.rungs[: names.index(ladder.chosen) + 1]


def _describe_gain(result: OptimizeResult, ladder: Ladder, rung: Rung) -> str:
    before = ladder.rungs[[rung.name for rung in ladder.rungs].index(rung.name) - 1]
    comparison = _comparison(result, before.name, rung.name)
    below = "the baseline" if before.name == ladder.rungs[0].name else before.name
    changes = EFFECTS[rung.effect]
    return changes if comparison is None else f"{_factor(comparison)} as fast as {below}; {changes}"


def _comparison(result: OptimizeResult, baseline: str, candidate: str) -> Comparison | None:
    return next((c for c in result.comparisons if (c.baseline, c.candidate) == (baseline, candidate)), None)


def _label_rungs(result: OptimizeResult, ladder: Ladder) -> list[limits.Named]:
    return [(_short(index, rung), result.measurement(rung.name)) for index, rung in enumerate(_accepted_rungs(ladder))]


def _compare_with_baseline(result: OptimizeResult, ladder: Ladder) -> list[sameness.Held]:
    labels = {rung.name: _label(index, rung) for index, rung in enumerate(ladder.rungs) if index}
    pairs = [_comparison(result, ladder.rungs[0].name, name) for name in labels]
    return [
        replace(candidate, name=labels[pair.candidate])
        for pair in pairs
        if pair is not None
        for candidate in sameness.comparison_candidates([pair])
    ]


def _label_of_chosen(ladder: Ladder) -> list[str]:
    return [_label(i, rung) for i, rung in enumerate(ladder.rungs) if rung.name == ladder.chosen]


def _gain(comparison: Comparison | None) -> list[str | None]:
    if comparison is None or comparison.verdict.ratio <= 0:
        return [None, None]
    return [f"{1 / comparison.verdict.ratio:.2f}", _inverse(comparison.verdict.interval)]


def _factor(comparison: Comparison) -> str:
    if comparison.verdict.ratio <= 0:
        return "–"
    between = _inverse(comparison.verdict.interval)
    interval = f"[{between.replace(' to ', ', ')}]" if between else "(too few calls for an interval)"
    return f"{1 / comparison.verdict.ratio:.2f} × {interval}"


def _inverse(interval: Interval) -> str | None:
    """Return the interval of the factor; None if too few calls make it no interval that one could trust."""
    if interval.low <= 0 or interval.high <= 0 or interval.level < ENOUGH:
        return None
    return f"{1 / interval.high:.2f} to {1 / interval.low:.2f}"


def _has_headroom(m: Measurement) -> bool:
    took, limit = m.samples.summary.median, m.limit
    launches = m.clock == "device" and host_and_device(m).waits_for_host
    return limit is not None and took <= MOST_HEADROOM * limit.least_ms and not launches


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
