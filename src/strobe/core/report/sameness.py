"""Agreement → its part of a document: how far a treatment changes the actions, next to yardsticks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from strobe.core.measure.guard import METRICS
from strobe.core.report.document import Columns, Row, Section, Table, figure, figures, heads, listing, table, words
from strobe.core.results import units
from strobe.core.results.agreement import Agreement, Check, DimensionAgreement, Yardstick, YardstickName
from strobe.core.results.answer import Held, make_guarded_actions
from strobe.core.results.comparison import Comparison

KEY = "agreement"
TITLE = "Do they act the same?"
OF_OUTPUTS = "Are the outputs the same?"
FEW = 3  # dimensions shown of each candidate, by their RMS; the one of the largest error and those that decide besides
FOCUS = 3  # candidates whose dimensions are shown and plotted
SENTENCES = 6  # candidates that have a sentence each
# Yardstick → what changes the actions, in a table and as the subject of a sentence.
NAMES: dict[YardstickName, str] = {"reordered sums": "floating-point noise"}
MOVES = {
    "reordered sums": "floating-point noise (another summation order)",
    "another noise draw": "another noise seed",
    "neighbouring frame": "the neighbouring frame",
    "another observation": "another observation",
}
SIGMA = {
    "actions": "σ: the spread of that action dimension",
    "features": "σ: the spread of that channel",
    "outputs": "σ: the spread of that column",
}
MEANING = {
    "actions": "σ is the spread of an action dimension, from {spread}. RMS, p99 and flips are those of the worst "
    "dimension. A flip is a reversed decision, such as an open gripper that should be shut.",
    "features": "σ is the spread of a channel: {spread}. RMS and p99 are those of the worst channel, over all tokens. "
    "'Worst token' is the RMS over all channels of one token.",
    "outputs": "σ is the spread of a column: {spread}. A column is a place along the last dimension of an array. RMS "
    "and p99 are those of the worst column. An array with the same numbers everywhere has no σ.",
}
DIMENSIONS = f"The {FEW} dimensions that change most, the dimension of the largest error, and the on/off dimensions."
EXACT = "'exact' allows a small multiple of floating-point noise, measured in the same run."


def comparison_candidates(comparisons: Sequence[Comparison]) -> list[Held]:
    """Return the candidates whose actions were compared; with their baseline's name where there are several."""
    several = len({pair.baseline for pair in comparisons}) > 1
    candidates = []
    for pair in comparisons:
        if pair.agreement is not None:
            name = f"{pair.candidate} vs {pair.baseline}" if several else pair.candidate
            candidates.append(make_guarded_actions(pair, name, ""))
    return candidates


def check_candidates(checks: Sequence[Check]) -> list[Held]:
    """Return a candidate for each check."""
    return [make_guarded_actions(check, check.name, "") for check in checks]


def has_errors(candidates: Sequence[Held]) -> bool:
    """Return whether there is more to tell than cosines."""
    return any(candidate.has_spread_errors for candidate in candidates)


def focus(candidates: Sequence[Held], closely: Sequence[str] | None = None) -> list[Held]:
    """Return the candidates worth a closer look: those named, else those that broke their guard, then the last ones."""
    known = [candidate for candidate in candidates if candidate.has_spread_errors]
    if closely is not None and (named := [candidate for candidate in known if candidate.name in closely]):
        return named
    chosen = [
        *(candidate for candidate in known if candidate.broken),
        *reversed([candidate for candidate in known if not candidate.broken]),
    ][:FOCUS]
    return [candidate for candidate in known if candidate in chosen]


def answers(candidates: Sequence[Held], yardsticks: Sequence[Yardstick]) -> list[str]:
    """Return a sentence for each candidate with its guard, and one for the yardsticks; none with only cosines."""
    if not has_errors(candidates):
        return []
    shown = [
        candidate for candidate in candidates if candidate.has_spread_errors or candidate.broken or candidate.unjudged
    ]
    # Of many, those that do not hold their guard come before those that are as they should be.
    faulty = [candidate for candidate in shown if candidate.broken or candidate.unjudged]
    chosen = [*faulty, *(candidate for candidate in shown if candidate not in faulty)][:SENTENCES]
    sentences = [
        f"{_describe_change(candidate)}{_describe_guard(candidate)}." for candidate in shown if candidate in chosen
    ]
    sentences += [f"The table has {len(shown) - len(chosen):,} more variants."] if len(shown) > len(chosen) else []
    return [*sentences, describe_yardsticks(yardsticks, compared_quantity(candidates))] if yardsticks else sentences


def describe_yardsticks(yardsticks: Sequence[Yardstick], of: str = "actions") -> str:
    """Return how far each yardstick changes the baseline's actions, or a backbone's features, in a sentence."""
    first, *others = (f"{MOVES[yardstick.name]} {{}}by {units.sigma(yardstick.rms)} σ" for yardstick in yardsticks)
    listed = [first.format(f"changes the {of} "), *(other.format("") for other in others)]
    return f"For comparison: {', '.join(listed)} ({SIGMA[of]})."


def describe_agreement(same: Agreement) -> str:
    """Return how far the actions changed, in a sentence: in σ if that is known, with the cosine."""
    if same.of == "features":
        if not same.rms:
            return f"Its features' cosine is {same.cosine:.6f}."
        token = f"{units.sigma(same.token)} σ in the worst token"
        return f"Its features change by {units.sigma(same.rms)} σ RMS, {token} (cosine {same.cosine:.6f})."
    if same.rms is None or same.worst is None:
        return f"The cosine of its {same.of} to the baseline's is {same.cosine:.6f}."
    flips = f", {share_of_flips(same.flips)} of decisions flip" if same.flips else ""
    return (
        f"Its {same.of} change by {units.sigma(same.rms)} σ RMS, at most {units.sigma(same.worst)} σ{flips} "
        f"(cosine {same.cosine:.6f})."
    )


def sections(
    candidates: Sequence[Held],
    yardsticks: Sequence[Yardstick],
    title: str = TITLE,
    closely: Sequence[str] | None = None,
) -> list[Section]:
    """Return the candidates with the yardsticks, then their dimensions; none where no errors are known in σ.

    Args:
        closely: names of the candidates whose dimensions are shown; None for those that `focus` finds.
    """
    if not has_errors(candidates):
        return []
    shown = focus(candidates, closely)
    notes = [candidate.agreement.note for candidate in candidates if candidate.agreement and candidate.agreement.note]
    text = [*_explain_figures(candidates, yardsticks), *dict.fromkeys(notes)]
    shown_sections = [Section(KEY, title, _errors(candidates, yardsticks), text)]
    if any(_dimensions(candidate) for candidate in shown):
        shown_sections.append(_worst_dimensions(shown, len(candidates)))
    for index, candidate in enumerate(shown):
        dimensions = _dimensions(candidate)
        if len(_worst_and_deciding(dimensions)) < len(dimensions):
            name = f"{candidate.name}, dimension by dimension"
            shown_sections += listing(f"{KEY}-{index}", name, dimensions, _DIMENSIONS, detail=True)
    return shown_sections


def _errors(candidates: Sequence[Held], yardsticks: Sequence[Yardstick]) -> Table:
    of = "Outputs of" if compared_quantity(candidates) == "outputs" else "Actions of"
    columns = heads(
        f"<{of} | RMS (σ) | p99 (σ) | Max error (σ) | Flips | <Limits | Executed: RMS (σ) | Executed: max error (σ)",
        "Worst token (σ) | Cosine | Calls | <Max error in",
    )
    rows = [
        Row(_figures(candidate), "whole" if candidate.broken or candidate.unjudged else "part")
        for candidate in candidates
    ]
    rows += [Row(["for comparison", *[""] * (len(columns) - 1)], "other")] if yardsticks else []
    rows += [Row(_yardstick(yardstick), "other", depth=1) for yardstick in yardsticks]
    places = [index for index in range(len(columns)) if any(row.cells[index] for row in rows)]
    return Table(columns, rows).select_columns(places)


def share_of_flips(share: float | None) -> str | None:
    """Return a share of decisions in per cent, with two figures: one in ten thousand is seen too."""
    return None if share is None else f"{units.sigma(100 * share)} %"


def _figures(candidate: Held) -> list[str | None]:
    same, held = candidate.agreement, "within" if candidate.guard else None
    if candidate.broken or candidate.unjudged:
        held = f"exceeded: {candidate.broken}" if candidate.broken else f"not checked: {candidate.unjudged}"
    if same is None:
        return [candidate.name, *[None] * 4, candidate.broken or held, *[None] * 6]
    figures = [units.sigma(same.rms), units.sigma(same.p99), units.sigma(same.worst), share_of_flips(same.flips), held]
    partly = _is_partly_executed(same)
    figures += [units.sigma(of) if partly else None for of in (same.executed_rms, same.executed_worst)]
    where = ", ".join(filter(None, (same.worst_dimension, same.worst_at))) if same.worst else ""
    figures += [units.sigma(same.token), f"{same.cosine:.6f}", f"{same.observations:,}"]
    return [candidate.name, *figures, where or None]


def _yardstick(yardstick: Yardstick) -> list[str | None]:
    dimensions = yardstick.dimensions
    worst = max(dimensions, key=lambda dimension: dimension.worst, default=None)
    p99 = max((dimension.p99 for dimension in dimensions), default=None)
    flips = max((dimension.flips for dimension in dimensions if dimension.flips is not None), default=None)
    figures = [units.sigma(yardstick.rms), units.sigma(p99), units.sigma(yardstick.worst), share_of_flips(flips), None]
    figures += [None, None, units.sigma(yardstick.token), None, f"{yardstick.observations:,}"]
    return [NAMES.get(yardstick.name, yardstick.name), *figures, worst.name if worst and worst.worst else None]


def _describe_change(candidate: Held) -> str:
    same, several = candidate.agreement, candidate.name.endswith(" treatments")
    name = units.capital(candidate.name if several else units.quote(candidate.name))
    if same is None:
        return f"{name} could not be compared"
    if same.not_finite:
        return f"{name} gives NaN or infinity in {units.count(same.not_finite, 'number')}"
    if same.rms is None or same.worst is None:
        return f"{name} has a cosine of {same.cosine:.6f} to the baseline"
    if not same.worst:
        calls = f"all {same.observations:,} calls" if same.observations > 1 else "the one call"
        return f"{name} {'do' if several else 'does'} not change the {same.of}: bit-identical in {calls}"
    flips = f" and flip{'' if several else 's'} {share_of_flips(same.flips)} of decisions" if same.flips else ""
    changed = f"{units.sigma(same.rms)} σ RMS, at most {units.sigma(same.worst)} σ"
    if same.of == "features":
        return f"{name}: the features differ by {changed}"
    return f"{name} change{'' if several else 's'} the {same.of} by {changed}{flips}"


def describe_limits(guard: str) -> str:
    """Return a guard's limits as they are read: 'RMS ≤ 0.02 σ, max error ≤ 0.2 σ, flips ≤ 0'.

    >>> describe_limits("rms<=0.02, worst<=0.2, flips<=0")
    'RMS ≤ 0.02 σ, max error ≤ 0.2 σ, flips ≤ 0'
    """
    shown = re.sub(r"\b(rms|worst|token)<=([\d.e-]+)", lambda found: f"{METRICS[found[1]].shown} ≤ {found[2]} σ", guard)
    return shown.replace("<=", " ≤ ").replace(">=", " ≥ ")


def _describe_guard(candidate: Held) -> str:
    if candidate.broken:
        return f": {candidate.broken}" if candidate.agreement is None else f", beyond its limit ({candidate.broken})"
    if candidate.unjudged:
        return f"; its limits were not checked ({candidate.unjudged})"
    return f", within the limits ({describe_limits(candidate.guard)})" if candidate.guard else ""


def compared_quantity(candidates: Sequence[Held]) -> str:
    """Return what the candidates' figures are of: 'actions', 'features' or 'outputs'."""
    return next((of.agreement.of for of in candidates if of.has_spread_errors and of.agreement is not None), "actions")


def _is_partly_executed(same: Agreement) -> bool:
    length = max((len(dimension.along) for dimension in same.dimensions), default=0)
    return same.executed is not None and (same.executed < length or not length)


def _explain_figures(candidates: Sequence[Held], yardsticks: Sequence[Yardstick]) -> list[str]:
    known = [of.agreement for of in candidates if of.agreement is not None and of.agreement.rms is not None]
    spread = "; ".join(dict.fromkeys(same.spread for same in known if same.spread))
    about = [MEANING[compared_quantity(candidates)].format(spread=spread or "an unnamed source")]
    how = dict.fromkeys(same.how for same in known if same.how)
    about += [f"Compared, with the same noise: {'; or '.join(how)}."] if how else []
    executed = dict.fromkeys(same.executed for same in known if _is_partly_executed(same))
    about += [f"The robot executes the first {' or '.join(map(str, executed))} actions of a chunk."] if executed else []
    if yardsticks:
        described = [
            f"{NAMES.get(each.name, each.name)} ({each.about})" if each.about else NAMES.get(each.name, each.name)
            for each in yardsticks
        ]
        about.append(f"For comparison, the baseline against itself: {'; '.join(described)}.")
    guards: dict[str, list[str]] = {}
    for candidate in candidates:
        if candidate.guard:
            guards.setdefault(candidate.guard, []).append(candidate.name)
    if guards:
        listed = list(guards) if len(guards) == 1 else [f"{guard} for {', '.join(of)}" for guard, of in guards.items()]
        exact = f" {EXACT}" if any(guard.startswith("exact") for guard in guards) else ""
        about.append(f"Limits (--guard): {'; '.join(listed)}.{exact}")
    return about


def _worst_dimensions(shown: Sequence[Held], of: int) -> Section:
    rows: list[Row] = []
    for candidate in shown:
        dimensions = _dimensions(candidate)
        if len(shown) > 1 and dimensions:
            rows.append(Row([candidate.name, *[""] * (len(_DIMENSIONS) - 1)], "whole"))
        rows += table(_worst_and_deciding(dimensions), _DIMENSIONS, depth=lambda _: int(len(shown) > 1)).rows
    most = max(len(_dimensions(candidate)) - len(_worst_and_deciding(_dimensions(candidate))) for candidate in shown)
    about = [f"Of {shown[0].name}."] if len(shown) == 1 < of else []
    about += [DIMENSIONS] if most else []
    text = [" ".join(about)] if about else []
    whole = Table([each.head for each in _DIMENSIONS], rows).drop_empty_columns()
    return Section(f"{KEY}-dimensions", "Which dimensions change", whole, text)


_DIMENSIONS: Columns[DimensionAgreement] = [
    words("Dimension", lambda dimension: dimension.name),
    *figures(units.sigma, ("RMS (σ)", lambda dimension: dimension.rms), ("p99 (σ)", lambda dimension: dimension.p99)),
    figure("Max error (σ)", lambda dimension: dimension.worst, units.sigma),
    figure("Mean offset (σ)", lambda dimension: dimension.offset, units.sigma),
    figure("Mean offset (own units)", lambda dimension: dimension.offset * dimension.spread, units.sigma),
    figure("Flips", lambda dimension: dimension.flips, share_of_flips),
    figure("σ (own units)", lambda dimension: dimension.spread, units.figures(3)),
]


def _worst_and_deciding(dimensions: Sequence[DimensionAgreement]) -> list[DimensionAgreement]:
    if len(dimensions) <= FEW + 2:
        return list(dimensions)
    worst = sorted(range(len(dimensions)), key=lambda index: -dimensions[index].rms)[:FEW]
    worst.append(max(range(len(dimensions)), key=lambda index: dimensions[index].worst))
    return [dimension for index, dimension in enumerate(dimensions) if index in worst or dimension.flips is not None]


def _dimensions(candidate: Held) -> list[DimensionAgreement]:
    return candidate.agreement.dimensions if candidate.agreement is not None else []
