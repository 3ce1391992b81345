"""Comparison → document: the verdicts first, then the variants side by side, then each of them."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import breakdown, frame, limits, measured, memory, pace, sameness, sameness_plots, tables
from strobe.core.report.document import Document, Section
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.agreement import Yardstick, yardstick
from strobe.core.results.answer import CompareResult, Result
from strobe.core.results.comparison import Comparison
from strobe.core.results.subject import RANDOM_WEIGHTS


def outline(result: CompareResult, depth: int | None = None) -> Document:
    """Return the document of a comparison; ``depth`` limits the levels of its trees."""
    shown = sections(result, depth)
    shown += limits.sections(_named_measurements(result), result.measurements[-1].name) if result.measurements else []
    shown += memory.sections(result.measurements, depth, detail=True)
    shown += frame.added_sections(result)
    sentences = answers(result) + pace.cadence_answers(result)
    sentences += sameness.answers(sameness.comparison_candidates(result.judged_comparisons()), result.yardsticks)
    sentences += frame.added_answers(result)
    return measured.document(result, sentences, shown)


def answers(result: Result) -> list[str]:
    """Return the decision, its numbers, the next step, then the other verdicts; the biggest parts if none is judged."""
    judged = result.judged_comparisons()
    if not judged:
        return breakdown.answers(result)
    decision, decisive = _decide(judged)
    numbers = " ".join(_numbers(result, pair, several=len(decisive) > 1) for pair in decisive)
    following = _next_step(result, judged, decisive)
    sentences = [decision, *([numbers] if numbers else []), *([f"Next: {following}"] if following else [])]
    sentences += [pair.verdict.text for pair in judged if pair not in decisive]
    sentences += [sentence for pair in judged if (sentence := _outputs(pair))]
    return sentences + [rate for m in result.measurements if (rate := breakdown.rate(m, units.quote(m.name)))]


def _decide(judged: Sequence[Comparison]) -> tuple[str, list[Comparison]]:
    against_first = [pair for pair in judged if pair.baseline == judged[0].baseline]
    broken = [pair for pair in against_first if _is_broken(pair)]
    usable = [pair for pair in against_first if pair.verdict.kind == "faster" and not (pair.broken or pair.unjudged)]
    best = min(usable, key=lambda pair: pair.verdict.ratio, default=None)
    if broken:
        of = broken[0].agreement.of if broken[0].agreement is not None else "outputs"
        worst = units.quote(broken[0].candidate)
        if best is not None:
            return f"Use {units.quote(best.candidate)}; {worst} changes the {of} too much.", [best, broken[0]]
        return f"{units.capital(worst)} changes the {of} too much.", broken[:1]
    best = best or judged[0]
    return best.verdict.sentence, [best]


def _is_broken(pair: Comparison) -> bool:
    return bool(pair.broken) and not (pair.agreement is not None and pair.agreement.on_purpose)


def _numbers(result: Result, pair: Comparison, *, several: bool) -> str:
    limits = ""
    if pair.broken and _is_broken(pair):
        other = yardstick(yardsticks(result), "another observation")
        limits = (
            f"{units.capital(pair.broken)}{f'; another observation: {units.sigma(other.rms)} σ' if other else ''}. "
        )
    named = f"{units.capital(units.quote(pair.candidate))}: " if several else ""
    return f"{named}{limits}{pair.verdict.detail or ''}".strip()


def _next_step(result: Result, judged: Sequence[Comparison], decisive: Sequence[Comparison]) -> str | None:
    verdict, broken = decisive[0].verdict, next((pair for pair in decisive if _is_broken(pair)), None)
    if verdict.kind == "inconclusive" and verdict.cause not in ("a queue", "no numbers", "no loss") and broken is None:
        return f"close other programs, then repeat with {verdict.longer}."
    known = [pair.agreement for pair in judged if pair.agreement is not None]
    if result.subject.source == RANDOM_WEIGHTS and any(
        same.largest_error > 0 and not same.on_purpose for same in known
    ):
        flag = "--model.path" if any(m.traits.backbone is not None for m in result.measurements) else "--policy.path"
        return f"repeat with {flag} before you decide, because random weights were compared."
    if broken is not None and broken.agreement is not None and broken.agreement.of != "outputs":
        return f"apply {units.quote(broken.candidate)} to one part only, with KEY.part=MODULE in its --variant."
    if verdict.kind == "faster" and not any(m.traits.backbone for m in result.measurements):
        return "strobe optimize combines it with other treatments and writes a recipe."
    return None


def _outputs(pair: Comparison) -> str | None:
    """Return how far the outputs of a target in Python are from the first one's; None for anything else."""
    same = pair.agreement
    if same is None or same.of != "outputs" or same.rms is not None:  # in its own spread it has a sentence elsewhere
        return None
    candidate, baseline = units.quote(pair.candidate), units.quote(pair.baseline)
    if not same.observations:
        return f"The outputs of {candidate} were not compared: {same.unjudged}."
    note = f" (not compared: {same.uncompared})" if same.uncompared else ""
    if same.largest_error == 0 and not same.not_finite:
        return f"{units.capital(candidate)} returns the same numbers as {baseline}{note}.{_describe_limits(pair)}"
    return (
        f"The outputs of {candidate} differ from those of {baseline} by at most {units.number(same.largest_error, 2)} "
        f"(cosine {same.cosine:.6f}){note}.{_describe_limits(pair) or ' No limits were given: set guard.'}"
    )


def _describe_limits(pair: Comparison) -> str:
    if pair.broken:
        return f" They exceed their limit: {pair.broken}."
    if pair.unjudged:
        return f" Their limits were not checked: {pair.unjudged}."
    return f" They are within the limits ({sameness.describe_limits(pair.guard)})." if pair.guard else ""


def sections(result: Result, depth: int | None) -> list[Section]:
    """Return the variants side by side, then each of them; of a single one, what a breakdown shows."""
    if len(result.measurements) < 2:
        return measured.sections(result, depth)
    shown = [Section("samples", "Comparison", tables.metrics(result))]
    if result.judged_comparisons():
        shown.append(Section("verdict", "Verdict", tables.verdicts(result), _explain_ratio(result)))
    shown += agreement(result)
    if (same := tables.gradients(result)) is not None:
        notes = dict.fromkeys(c.gradient.note for c in result.judged_comparisons() if c.gradient and c.gradient.note)
        shown.append(Section("gradients", "Do they train the same?", same, text=list(notes)))
    shown += measured.guidance(result)
    parted = [m for m in result.measurements if m.components]
    if len(parted) > 1:
        shown.append(Section("parts", f"Parts side by side ({tables.SHARES})", tables.parts(parted, depth)))
    shown += pace.cadence_sections(result)
    return [*shown, *measured.each(result, depth, detail=len(parted) > 1), *measured.blocks(result)]


def _explain_ratio(result: Result) -> list[str]:
    about = [
        "The change is that of the typical pair (Hodges and Lehmann's estimate). A disturbance that slows both "
        "sides of a pair cancels in it."
    ]
    medians = {m.name: m.samples.summary.median for m in result.measurements}
    for pair in result.judged_comparisons():
        before, after = medians.get(pair.baseline, 0.0), medians.get(pair.candidate, 0.0)
        interval = pair.verdict.interval
        if pair.verdict.pairs and before > 0 and after > 0 and not interval.low <= after / before <= interval.high:
            names = f"{pair.candidate} and {pair.baseline}"
            about.append(
                f"The medians of {names} differ by {units.change(after / before)}, their pairs by "
                f"{units.change(pair.verdict.ratio)}: the samples are skewed, or have two modes. Believe the pairs."
            )
    return about if any(pair.verdict.pairs for pair in result.judged_comparisons()) else []


def agreement(result: Result) -> list[Section]:
    """Return how far the candidates' actions moved: in σ with yardsticks where that is known, else by the cosine."""
    candidates = sameness.comparison_candidates(result.judged_comparisons())
    if sameness.has_errors(candidates):
        of_outputs = sameness.compared_quantity(candidates) == "outputs"
        return sameness.sections(candidates, yardsticks(result), sameness.OF_OUTPUTS if of_outputs else sameness.TITLE)
    if (same := tables.agreement(result)) is None:
        return []
    known = [c.agreement for c in result.judged_comparisons() if c.agreement is not None]
    title = sameness.OF_OUTPUTS if any(agreement.of == "outputs" for agreement in known) else sameness.TITLE
    notes = dict.fromkeys(agreement.note for agreement in known if agreement.note)
    return [Section(sameness.KEY, title, same, text=list(notes))]


def yardsticks(result: Result) -> list[Yardstick]:
    """Return the result's yardsticks, or [] for studies without any."""
    return getattr(result, "yardsticks", [])


def plots(result: Result, _depth: int | None = None) -> Plots:
    """Return the plots of each section, by its key."""
    drawn = measured.plots(result)
    drawn |= sameness_plots.plots(sameness.comparison_candidates(result.judged_comparisons()), yardsticks(result))
    return drawn | limits.plots(_named_measurements(result), result.machine.ceiling)


def _named_measurements(result: Result) -> list[limits.Named]:
    return [(m.name, m) for m in result.measurements]
