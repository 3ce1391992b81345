"""Agreement → its part of a document: how far treated actions are from the untouched policy's, beside yardsticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strobe.report import units
from strobe.report.document import Column, Row, Section, Table
from strobe.results.agreement import Agreement, Check, DimensionAgreement, Effect, Yardstick
from strobe.results.comparison import Comparison

KEY = "agreement"
TITLE = "Do they act the same?"
FEW = 3  # dimensions shown of each candidate, by their RMS; the one of the largest error and those that decide besides
FOCUS = 3  # candidates whose dimensions are shown and plotted
SENTENCES = 6  # candidates that have a sentence each
# Yardstick → what moves the actions, as the subject of a sentence.
MOVES = {
    "reordered sums": "taking the same sums in another order",
    "another noise draw": "another noise draw",
    "neighbouring frame": "the neighbouring frame",
    "another observation": "another observation",
}
MEANING = {
    "actions": "Errors are in σ, the spread of each action dimension, from {spread}. RMS, p99 and flips are of the "
    "dimension that is worst in them; a flip is a decision, such as open or shut, that falls the other way.",
    "features": "Errors are in σ, the spread of each channel: {spread}. RMS and p99 are of the channel that is worst "
    "in them, over all tokens; 'worst token' is the RMS over all channels of one token.",
}
EXACT = "'exact' allows a small multiple of what reordered sums do, measured in the same run."


@dataclass(frozen=True)
class Candidate:
    """Treated actions, and what they were held against.

    Args:
        name: as tables and sentences have it, a plain line.
        agreement: None where a call failed.
        guard, broken, unjudged: '' where there is none.
    """

    name: str
    agreement: Agreement | None
    effect: Effect | None = None
    guard: str = ""
    broken: str = ""
    unjudged: str = ""

    @property
    def measured(self) -> bool:
        """Whether its errors are known in units of the spread."""
        return self.agreement is not None and self.agreement.rms is not None


def of_comparisons(comparisons: Sequence[Comparison]) -> list[Candidate]:
    """The candidates whose actions were compared; with their baseline's name where there are several."""
    several = len({one.baseline for one in comparisons}) > 1
    found = []
    for one in comparisons:
        if one.agreement is not None:
            name = f"{one.candidate} vs {one.baseline}" if several else one.candidate
            found.append(Candidate(name, one.agreement, one.effect, one.guard, one.broken, one.unjudged))
    return found


def of_checks(checks: Sequence[Check]) -> list[Candidate]:
    """A candidate for each check."""
    return [Candidate(one.name, one.agreement, one.effect, one.guard, one.broken, one.unjudged) for one in checks]


def told(candidates: Sequence[Candidate]) -> bool:
    """Whether there is more to tell than cosines."""
    return any(one.measured for one in candidates)


def focus(candidates: Sequence[Candidate], closely: Sequence[str] | None = None) -> list[Candidate]:
    """The candidates worth a closer look: those named, else those that broke their guard, then the last ones."""
    known = [one for one in candidates if one.measured]
    if closely is not None and (named := [one for one in known if one.name in closely]):
        return named
    chosen = [*(one for one in known if one.broken), *reversed([one for one in known if not one.broken])][:FOCUS]
    return [one for one in known if one in chosen]


def answers(candidates: Sequence[Candidate], yardsticks: Sequence[Yardstick]) -> list[str]:
    """A sentence for each candidate with its guard, and one for the yardsticks; none where cosines are all there is."""
    if not told(candidates):
        return []
    shown = [one for one in candidates if one.measured or one.broken or one.unjudged]
    # Of many, those that do not hold their guard come before those that are as they should be.
    faulty = [one for one in shown if one.broken or one.unjudged]
    chosen = [*faulty, *(one for one in shown if one not in faulty)][:SENTENCES]
    said = [f"{_moved(one)}{_guarded(one)}." for one in shown if one in chosen]
    said += [f"{len(shown) - len(chosen):,} more in the table."] if len(shown) > len(chosen) else []
    return [*said, beside(yardsticks, _of(candidates))] if yardsticks else said


def beside(yardsticks: Sequence[Yardstick], of: str = "actions") -> str:
    """How far each yardstick moves the untouched policy's actions, or a backbone's features, in a sentence."""
    listed = [f"{MOVES[one.name]} moves the {of} by {units.sigma(one.rms)} σ" for one in yardsticks[:1]]
    listed += [f"{MOVES[one.name]} by {units.sigma(one.rms)} σ" for one in yardsticks[1:]]
    return f"For comparison: {', '.join(listed)}."


def in_short(same: Agreement) -> str:
    """How far the actions moved, in a sentence: in σ where that is known, with the cosine."""
    if same.of == "features":
        moved = f"move by {units.sigma(same.rms)} σ, {units.sigma(same.token)} σ in the worst token" if same.rms else ""
        return (
            f"Its features {moved} (cosine {same.cosine:.6f})."
            if moved
            else f"Its features' cosine is {same.cosine:.6f}."
        )
    if same.rms is None or same.worst is None:
        return f"The cosine of its actions to the untouched policy's is {same.cosine:.6f}."
    flips = f", {flipped(same.flips)} of decisions flip" if same.flips else ""
    return (
        f"Its actions are {units.sigma(same.rms)} σ from the untouched policy's, {units.sigma(same.worst)} σ at most"
        f"{flips} (cosine {same.cosine:.6f})."
    )


def sections(
    candidates: Sequence[Candidate],
    yardsticks: Sequence[Yardstick],
    title: str = TITLE,
    closely: Sequence[str] | None = None,
) -> list[Section]:
    """The candidates beside the yardsticks, then their dimensions; none where no errors are known in σ.

    Args:
        closely: names of the candidates whose dimensions are shown; None for those that `focus` finds.
    """
    if not told(candidates):
        return []
    shown = focus(candidates, closely)
    notes = [one.agreement.note for one in candidates if one.agreement and one.agreement.note]
    text = [*_about(candidates, yardsticks), *dict.fromkeys(notes)]
    found = [Section(KEY, title, table(candidates, yardsticks), text)]
    if any(_dimensions(one) for one in shown):
        found.append(_worst_dimensions(shown, len(candidates)))
    for index, one in enumerate(shown):
        dimensions = _dimensions(one)
        if len(_few(dimensions)) < len(dimensions):
            rows = [_dimension(dimension) for dimension in dimensions]
            name = f"{one.name}, dimension by dimension"
            found.append(Section(f"{KEY}-{index}", name, _of_dimensions("Dimension", rows), detail=True))
    return found


def table(candidates: Sequence[Candidate], yardsticks: Sequence[Yardstick]) -> Table:
    """Candidates, then yardsticks, with the figures of each."""
    columns = [Column("Actions of", numeric=False), Column("RMS (σ)"), Column("p99 (σ)"), Column("Worst (σ)")]
    columns += [Column("Flips"), Column("Guard", numeric=False), Column("Executed: RMS (σ)")]
    columns += [
        Column("Executed: worst (σ)"),
        Column("Worst token (σ)"),
        Column("Cosine"),
        Column("Calls"),
        Column("Worst in", numeric=False),
    ]
    rows = [Row(_figures(one), "whole" if one.broken or one.unjudged else "part") for one in candidates]
    rows += [Row(["yardsticks", *[""] * (len(columns) - 1)], "other")] if yardsticks else []
    rows += [Row(_yardstick(one), "other", depth=1) for one in yardsticks]
    kept = [index for index in range(len(columns)) if any(row.cells[index] for row in rows)]
    rows = [Row([row.cells[index] for index in kept], row.kind, row.depth) for row in rows]
    return Table([columns[index] for index in kept], rows)


def flipped(share: float | None) -> str | None:
    """A share of decisions in per cent, with two figures: one in ten thousand is seen too."""
    return None if share is None else f"{units.sigma(100 * share)} %"


def _figures(one: Candidate) -> list[str | None]:
    same = one.agreement
    held = "held" if one.guard else None
    if one.broken or one.unjudged:
        held = f"broken: {one.broken}" if one.broken else f"not judged: {one.unjudged}"
    if same is None:
        return [one.name, *[None] * 4, held, *[None] * 6]
    figures = [units.sigma(same.rms), units.sigma(same.p99), units.sigma(same.worst), flipped(same.flips)]
    where = ", ".join(filter(None, (same.worst_dimension, same.worst_at))) if same.worst else ""
    executed = [units.sigma(same.executed_rms), units.sigma(same.executed_worst)] if _partly(same) else [None, None]
    figures += [held, *executed, units.sigma(same.token), f"{same.cosine:.6f}", f"{same.observations:,}"]
    return [one.name, *figures, where or None]


def _yardstick(one: Yardstick) -> list[str | None]:
    dimensions = one.dimensions
    worst = max(dimensions, key=lambda dimension: dimension.worst, default=None)
    p99 = max((dimension.p99 for dimension in dimensions), default=None)
    flips = max((dimension.flips for dimension in dimensions if dimension.flips is not None), default=None)
    figures = [units.sigma(one.rms), units.sigma(p99), units.sigma(one.worst), flipped(flips), None]
    figures += [None, None, units.sigma(one.token), None, f"{one.observations:,}"]
    return [one.name, *figures, worst.name if worst and worst.worst else None]


def _moved(one: Candidate) -> str:
    same = one.agreement
    if same is None:
        return f"{one.name} could not be compared"
    if same.not_finite:
        return f"{one.name} gives {units.count(same.not_finite, 'number')} that are infinite or not a number"
    if same.rms is None or same.worst is None:
        return f"{one.name}: cosine {same.cosine:.6f}"
    if not same.worst:
        return f"{one.name} does not move the {same.of}: they are the same to the bit in {_calls(same)}"
    flips = f"; {flipped(same.flips)} of its decisions flip" if same.flips else ""
    worst = "channel" if same.of == "features" else "dimension"
    return (
        f"{one.name} moves the {same.of} by {units.sigma(same.rms)} σ (RMS of the worst {worst}), "
        f"{units.sigma(same.worst)} σ at most{flips}"
    )


def _guarded(one: Candidate) -> str:
    if one.broken:
        return f": it breaks its guard ({one.broken})"
    if one.unjudged:
        return f": its guard was not judged ({one.unjudged})"
    return f": its guard holds ({one.guard})" if one.guard else ""


def _of(candidates: Sequence[Candidate]) -> str:
    """What the candidates' figures are of: 'actions' or 'features'."""
    return next((one.agreement.of for one in candidates if one.measured and one.agreement is not None), "actions")


def _partly(same: Agreement) -> bool:
    """Whether only the first actions of a chunk are executed: else their figures are those of all."""
    length = max((len(one.along) for one in same.dimensions), default=0)
    return same.executed is not None and (same.executed < length or not length)


def _calls(same: Agreement) -> str:
    return f"all {same.observations:,} calls" if same.observations > 1 else "the one call"


def _about(candidates: Sequence[Candidate], yardsticks: Sequence[Yardstick]) -> list[str]:
    known = [one.agreement for one in candidates if one.agreement is not None and one.agreement.rms is not None]
    spread = "; ".join(dict.fromkeys(same.spread for same in known if same.spread))
    said = [MEANING[_of(candidates)].format(spread=spread or "an unnamed source")]
    how = dict.fromkeys(same.how for same in known if same.how)
    said += [f"Compared, with the same noise: {'; or '.join(how)}."] if how else []
    executed = dict.fromkeys(same.executed for same in known if _partly(same))
    said += [f"Executed are the first {' or '.join(map(str, executed))} actions of a chunk."] if executed else []
    if yardsticks:
        about = [f"{one.name} ({one.about})" if one.about else one.name for one in yardsticks]
        said.append(f"Yardsticks, the untouched policy against itself: {'; '.join(about)}.")
    guards: dict[str, list[str]] = {}
    for one in candidates:
        if one.guard:
            guards.setdefault(one.guard, []).append(one.name)
    if guards:
        listed = list(guards) if len(guards) == 1 else [f"{guard} for {', '.join(of)}" for guard, of in guards.items()]
        exact = f" {EXACT}" if any(guard.startswith("exact") for guard in guards) else ""
        said.append(f"Guard: {'; '.join(listed)}.{exact}")
    return said


def _worst_dimensions(shown: Sequence[Candidate], of: int) -> Section:
    rows: list[Row] = []
    for one in shown:
        dimensions = _dimensions(one)
        if len(shown) > 1 and dimensions:
            rows.append(Row([one.name, *[""] * 7], "whole"))
        rows += [_dimension(dimension, depth=int(len(shown) > 1)) for dimension in _few(dimensions)]
    most = max(len(_dimensions(one)) - len(_few(_dimensions(one))) for one in shown)
    said = [f"Of {shown[0].name}."] if len(shown) == 1 < of else []
    said += [f"The {FEW} that move most, the one of the largest error, and those that decide."] if most else []
    text = [" ".join(said)] if said else []
    return Section(f"{KEY}-dimensions", "Which dimensions move", _of_dimensions("Dimension", rows), text)


def _of_dimensions(label: str, rows: list[Row]) -> Table:
    columns = [Column(label, numeric=False), Column("RMS (σ)"), Column("p99 (σ)"), Column("Worst (σ)")]
    columns += [Column("Mean offset (σ)"), Column("Mean offset (own units)"), Column("Flips")]
    columns += [Column("σ (own units)")]
    return Table(columns, rows).without_empty_columns()


def _dimension(one: DimensionAgreement, depth: int = 0) -> Row:
    cells = [one.name, units.sigma(one.rms), units.sigma(one.p99), units.sigma(one.worst)]
    cells += [units.sigma(one.offset), units.sigma(_offset(one)), flipped(one.flips)]
    return Row([*cells, units.number(one.spread, 3)], depth=depth)


def _offset(one: DimensionAgreement) -> float:
    return one.offset * one.spread


def _few(dimensions: Sequence[DimensionAgreement]) -> list[DimensionAgreement]:
    """The worst ones and those that decide, in their own order; all where one or two would be left out."""
    if len(dimensions) <= FEW + 2:
        return list(dimensions)
    worst = sorted(range(len(dimensions)), key=lambda index: -dimensions[index].rms)[:FEW]
    worst.append(max(range(len(dimensions)), key=lambda index: dimensions[index].worst))
    return [one for index, one in enumerate(dimensions) if index in worst or one.flips is not None]


def _dimensions(one: Candidate) -> list[DimensionAgreement]:
    return one.agreement.dimensions if one.agreement is not None else []
