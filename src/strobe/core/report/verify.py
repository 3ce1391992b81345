"""Verification → document: passed or failed first, then the checks, then how far the actions moved."""

from __future__ import annotations

from dataclasses import replace

from strobe.core.report import measured, sameness, sameness_plots
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.agreement import Check, Effect
from strobe.core.results.answer import VerifyResult
from strobe.environments import page as environments

LEVEL = 0.95
# How closely an export acts as the policy, by the most that computing in its precision does to the actions.
_CLOSENESS: dict[Effect, str] = {
    "lossy": "within its guard",
    "rounding": "within rounding",
    "exact": "as closely as sums in another order do",
}


def outline(result: VerifyResult, _depth: int | None = None) -> Document:
    """Return the document of a verification, which times nothing."""
    shown = [Section("checks", "Checks", _checks(result))] if result.checks else []
    checked = sameness.of_checks(result.checks)
    title = sameness.OF_OUTPUTS if sameness.what_moves(checked) == "outputs" else sameness.TITLE
    shown += sameness.sections(checked, result.yardsticks, title) + _outputs(result)
    shown += environments.sections(result.environments, result.passes)
    page = measured.document(result, answers(result), [])
    return replace(page, sections=shown, banner=_banner(result))


def plots(result: VerifyResult, _depth: int | None = None) -> Plots:
    """Return errors along the chunk, of the checks that deserve a closer look."""
    return sameness_plots.plots(sameness.of_checks(result.checks), result.yardsticks)


def answers(result: VerifyResult) -> list[str]:
    """Return whether it passed and by which guard, what each check found, and how often it can still be wrong."""
    guard = result.guard
    moved = sameness.answers(sameness.of_checks(result.checks), result.yardsticks)
    sentences = [_headline(result), *(f"{sentence[:1].upper()}{sentence[1:]}" for sentence in moved)]
    limited = [f"{result.limited}."] if result.limited else []
    sentences += environments.answers(result.passes)
    return [*sentences, *_still_wrong(result), *limited, *([f"Guard: {guard}."] if guard else [])]


def at_most_wrong(observations: int, level: float = LEVEL) -> float:
    """Return the share of faulty observations that so many would miss with a chance of 1 − ``level``: about 3 / n."""
    return 1 - (1 - level) ** (1 / observations)


def _headline(result: VerifyResult) -> str:
    if result.environments:
        return _headline_of_environments(result)
    if result.exported:
        return _headline_of_export(result)
    if of_outputs(result):
        return _headline_of_outputs(result)
    recipe, name = result.recipe or "the recipe", result.subject.name
    broken = [check for check in result.checks if check.broken]
    if result.passed:
        checks = units.count(len(result.checks), "check")
        return f"PASSED: {name} acts the same with {recipe} as without it ({checks})."
    if broken:
        first = broken[0]
        more = f", and {units.count(len(broken) - 1, 'more check')} failed" if len(broken) > 1 else ""
        failed = f"{first.name}: {first.broken}"
        return f"FAILED: {name} does not act the same with {recipe} as without it. {failed}{more}."
    why = next((check.unjudged for check in result.checks if check.unjudged), "")
    why = why or ("no check was made" if not result.checks else "not all checks were made")
    return (
        f"NOT JUDGED: nothing shows that {name} acts the same with {recipe} as without it. {why[:1].upper()}{why[1:]}."
    )


def _headline_of_environments(result: VerifyResult) -> str:
    name, there = result.subject.name, result.environments[-1].name
    check = result.checks[0] if result.checks else None
    if result.passed:
        return f"PASSED: {name} acts the same in '{there}' as in {result.environments[0].name}, within rounding."
    if check is not None and check.broken:
        return f"FAILED: {name} does not act the same in '{there}'. {check.broken}."
    why = check.unjudged if check is not None and check.unjudged else "no check was made"
    return f"NOT JUDGED: nothing shows that {name} acts the same in '{there}'. {why[:1].upper()}{why[1:]}."


def _headline_of_export(result: VerifyResult) -> str:
    name, head = result.subject.name, f"the exported policy in {result.exported}"
    if result.passed:
        effects = {check.effect for check in result.checks}
        closeness = next(words for effect, words in _CLOSENESS.items() if effect in effects)
        return f"PASSED: {head} acts as {name} does, {closeness}."
    if broken := next((check.broken for check in result.checks if check.broken), ""):
        return f"FAILED: {head} does not act as {name} does. {broken}."
    why = next((check.unjudged for check in result.checks if check.unjudged), "no check was made")
    return f"NOT JUDGED: nothing shows that {head} acts as {name} does. {why[:1].upper()}{why[1:]}."


def of_outputs(result: VerifyResult) -> bool:
    """Return whether it is of two things to call in Python, and not of a policy with a recipe."""
    return (
        not (result.recipe or result.exported or result.environments)
        and bool(result.checks)
        and not any(check.treatments for check in result.checks)
    )


def _headline_of_outputs(result: VerifyResult) -> str:
    (check, *_), name = result.checks, result.subject.name
    if result.passed and check.agreement is not None:
        inputs = units.count(check.agreement.observations, "input")
        if (distinct := check.agreement.distinct or 0) < check.agreement.observations:
            inputs += f", {distinct:,} different"
        note = f" {check.agreement.note[:1].upper()}{check.agreement.note[1:]}." if check.agreement.note else ""
        note += f" Not compared: {check.agreement.uncompared}." if check.agreement.uncompared else ""
        return f"PASSED: the outputs of '{check.name}' are those of {name}, within the guard ({inputs}).{note}"
    if check.broken:
        return f"FAILED: the outputs of '{check.name}' are not those of {name}. {check.broken}."
    why = check.unjudged or "not all inputs were looked at"
    return f"NOT JUDGED: nothing shows that the outputs of '{check.name}' are those of {name}. {why}."


def _outputs(result: VerifyResult) -> list[Section]:
    """Return how far outputs in Python are from each other, if no spread of them is known."""
    columns = [Column("Outputs of", numeric=False)]
    columns += [Column(title) for title in ("Cosine", "Largest error", "Mean error", "Inputs")]
    rows = []
    for check in result.checks:
        same = check.agreement
        if same is not None and same.of == "outputs" and same.rms is None:
            errors = [units.number(same.largest_error), units.number(same.mean_error)]
            rows.append(Row([check.name, f"{same.cosine:.6f}", *errors, f"{same.observations:,}"]))
    return [Section(sameness.KEY, sameness.OF_OUTPUTS, Table(columns, rows))] if rows else []


def _still_wrong(result: VerifyResult) -> list[str]:
    """Return the share of chunks that may be wrong though all calls held, in words.

    The check of the most treatments stands for the recipe. Only different observations count: a second call on one of
    them shows a fault of order, and no other.
    """
    most = max((len(check.treatments) for check in result.checks), default=0)
    whole = [
        check.agreement for check in result.checks if len(check.treatments) == most and check.agreement is not None
    ]
    most_seen = max(whole, key=lambda same: same.distinct or 0, default=None)
    if not result.passed or most_seen is None or not most_seen.distinct or most_seen.of == "outputs":
        return []
    share = f"{units.sigma(100 * at_most_wrong(most_seen.distinct))} %"
    return [
        f"{units.count(most_seen.distinct, 'different observation')} held: at most {share} of chunks can be wrong "
        f"(95 %), on observations like these. All {most_seen.observations:,} calls on them held."
    ]


def _banner(result: VerifyResult) -> str | None:
    if result.status == "complete":
        return None
    made = f"{units.count(len(result.checks), 'check')} made" if result.checks else "no check made"
    if result.status == "failed":
        return f"Failed: the run ended before it was done ({made})."
    return f"Interrupted: this run was stopped before it was done ({made})."


def _checks(result: VerifyResult) -> Table:
    columns = [Column("Check", numeric=False), Column("Outcome", numeric=False), Column("Their effect", numeric=False)]
    columns += [Column("Guard", numeric=False), Column("Treatments", numeric=False)]
    return Table(columns, [_check(check) for check in result.checks]).without_empty_columns()


def _check(check: Check) -> Row:
    words = check.broken or check.unjudged
    outcome = f"{'failed' if check.broken else 'not judged'}: {words}" if words else "held"
    effect = check.effect if check.treatments else None
    cells: list[str | None] = [check.name, outcome, effect, check.guard or None]
    treatments = ", ".join(treatment for treatment in check.treatments)
    return Row([*cells, treatments or None], "part" if check.outcome == "held" else "whole")
