"""Verification → document: passed or failed first, then the checks, then how far the actions moved."""

from __future__ import annotations

from strobe.core.report import measured, more, sameness, sameness_plots
from strobe.core.report.document import Columns, Document, Section, figure, listing, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.agreement import Agreement, Check, Effect
from strobe.core.results.answer import VerifyResult

LEVEL = 0.95
# How closely an export acts as the policy, by the most that computing in its precision does to the actions.
_CLOSENESS: dict[Effect, str] = {
    "lossy": "within its guard",
    "rounding": "within rounding",
    "exact": "as closely as sums in another order do",
}


def outline(result: VerifyResult, _depth: int | None = None) -> Document:
    """Return the document of a verification, which times nothing."""
    checks = table(result.checks, _CHECKS, kind=lambda check: "part" if check.outcome == "held" else "whole")
    shown = [Section("checks", "Checks", checks.drop_empty_columns())] if result.checks else []
    checked = sameness.check_candidates(result.checks)
    title = sameness.OF_OUTPUTS if sameness.compared_quantity(checked) == "outputs" else sameness.TITLE
    shown += sameness.sections(checked, result.yardsticks, title) + _outputs(result)
    shown += more.sections(result)
    made = f"{units.count(len(result.checks), 'check')} made" if result.checks else "no check made"
    return measured.document(result, answers(result), shown, failure="the run ended before it was done", done=made)


def plots(result: VerifyResult, _depth: int | None = None) -> Plots:
    """Return errors along the chunk, of the checks that deserve a closer look."""
    return sameness_plots.plots(sameness.check_candidates(result.checks), result.yardsticks)


def answers(result: VerifyResult) -> list[str]:
    """Return whether it passed and by which guard, what each check found, and how often it can still be wrong."""
    guard = result.guard
    moved = sameness.answers(sameness.check_candidates(result.checks), result.yardsticks)
    sentences = [_headline(result), *(f"{sentence[:1].upper()}{sentence[1:]}" for sentence in moved)]
    limited = [f"{result.limited}."] if result.limited else []
    sentences += more.answers(result)
    return [*sentences, *_still_wrong(result), *limited, *([f"Guard: {guard}."] if guard else [])]


def max_missed_share(observations: int, level: float = LEVEL) -> float:
    """Return the share of faulty observations that so many would miss with a chance of 1 − ``level``: about 3 / n."""
    return 1 - (1 - level) ** (1 / observations)


def _headline(result: VerifyResult) -> str:
    if is_output_comparison(result):
        return _headline_of_outputs(result)
    name, checks, how, unmade = result.subject.name, result.checks, "", "no check was made"
    broken = [check.broken for check in checks if check.broken]
    if result.environments:
        first, there, checks = result.environments[0].name, result.environments[-1].name, checks[:1]
        claim, denial = f"{name} acts the same in '{there}'", f"{name} does not act the same in '{there}'"
        how, broken = f" as in {first}, within rounding", [check.broken for check in checks if check.broken]
    elif result.exported:
        head = f"the exported policy in {result.exported}"
        claim, denial = f"{head} acts as {name} does", f"{head} does not act as {name} does"
        if result.has_passed:
            effects = {check.effect for check in checks}
            how = f", {next(words for effect, words in _CLOSENESS.items() if effect in effects)}"
    else:
        recipe = f"with {result.recipe or 'the recipe'} as without it"
        claim, denial = f"{name} acts the same {recipe}", f"{name} does not act the same {recipe}"
        how, unmade = f" ({units.count(len(checks), 'check')})", "not all checks were made" if checks else unmade
        more = f", and {units.count(len(broken) - 1, 'more check')} failed" if len(broken) > 1 else ""
        broken = [f"{check.name}: {check.broken}{more}" for check in checks if check.broken]
    if result.has_passed:
        return f"PASSED: {claim}{how}."
    if broken:
        return f"FAILED: {denial}. {broken[0]}."
    why = next((check.unjudged for check in checks if check.unjudged), unmade)
    return f"NOT JUDGED: nothing shows that {claim}. {why[:1].upper()}{why[1:]}."


def is_output_comparison(result: VerifyResult) -> bool:
    """Return whether it is of two things to call in Python, and not of a policy with a recipe."""
    return (
        not (result.recipe or result.exported or result.environments)
        and bool(result.checks)
        and not any(check.treatments for check in result.checks)
    )


def _headline_of_outputs(result: VerifyResult) -> str:
    (check, *_), name = result.checks, result.subject.name
    if result.has_passed and check.agreement is not None:
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
    checks = [(check.name, check.agreement) for check in result.checks if check.agreement is not None]
    moved = [(name, same) for name, same in checks if same.of == "outputs" and same.rms is None]
    return listing(sameness.KEY, sameness.OF_OUTPUTS, moved, _OUTPUTS, whole=True)


_OUTPUTS: Columns[tuple[str, Agreement]] = [
    words("Outputs of", lambda moved: moved[0]),
    figure("Cosine", lambda moved: moved[1].cosine, units.cosine),
    figure("Largest error", lambda moved: moved[1].largest_error, units.number),
    figure("Mean error", lambda moved: moved[1].mean_error, units.number),
    figure("Inputs", lambda moved: moved[1].observations),
]


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
    if not result.has_passed or most_seen is None or not most_seen.distinct or most_seen.of == "outputs":
        return []
    share = f"{units.sigma(100 * max_missed_share(most_seen.distinct))} %"
    return [
        f"{units.count(most_seen.distinct, 'different observation')} held: at most {share} of chunks can be wrong "
        f"(95 %), on observations like these. All {most_seen.observations:,} calls on them held."
    ]


def _outcome(check: Check) -> str:
    words = check.broken or check.unjudged
    return f"{'failed' if check.broken else 'not judged'}: {words}" if words else "held"


_CHECKS: Columns[Check] = [
    words("Check", lambda check: check.name),
    words("Outcome", _outcome),
    words("Their effect", lambda check: check.effect if check.treatments else None),
    words("Guard", lambda check: check.guard or None),
    words("Treatments", lambda check: ", ".join(check.treatments) or None),
]
