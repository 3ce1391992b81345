"""Verification → document: passed or failed first, then the checks, then how far the actions changed."""

from __future__ import annotations

import shlex

from strobe.core.report import frame, measured, sameness, sameness_plots
from strobe.core.report.document import Columns, Document, Section, figure, listing, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.agreement import Agreement, Check, Effect
from strobe.core.results.answer import VerifyResult

LEVEL = 0.95
# How closely an export acts like the policy, by the largest effect of computing in its precision.
_CLOSENESS: dict[Effect, str] = {
    "lossy": "within its limits",
    "rounding": "within rounding",
    "exact": "within floating-point noise",
}


def outline(result: VerifyResult, _depth: int | None = None) -> Document:
    """Return the document of a verification, which times nothing."""
    checks = table(result.checks, _CHECKS, kind=lambda check: "part" if check.outcome == "held" else "whole")
    shown = [Section("checks", "Checks", checks.drop_empty_columns())] if result.checks else []
    checked = sameness.check_candidates(result.checks)
    title = sameness.OF_OUTPUTS if sameness.compared_quantity(checked) == "outputs" else sameness.TITLE
    shown += sameness.sections(checked, result.yardsticks, title) + _outputs(result)
    shown += frame.added_sections(result)
    made = f"{units.count(len(result.checks), 'check')} made" if result.checks else "no check made"
    return measured.document(result, answers(result), shown, failure="the run ended before it was done", done=made)


def plots(result: VerifyResult, _depth: int | None = None) -> Plots:
    """Return errors along the chunk, of the checks that deserve a closer look."""
    return sameness_plots.plots(sameness.check_candidates(result.checks), result.yardsticks)


def answers(result: VerifyResult) -> list[str]:
    """Return the outcome, its numbers, the next step, then what each check found and how often it can be wrong."""
    changes = sameness.answers(sameness.check_candidates(result.checks), result.yardsticks)
    numbers = _numbers(result)
    following = _next_step(result)
    sentences = [_headline(result), *([numbers] if numbers else []), *([f"Next: {following}"] if following else [])]
    sentences += [*changes, *frame.added_answers(result), *_still_wrong(result)]
    sentences += [f"{result.limited}."] if result.limited else []
    return [*sentences, *([f"Limits (--guard): {result.guard}."] if result.guard else [])]


def max_missed_share(observations: int, level: float = LEVEL) -> float:
    """Return the share of faulty observations that so many would miss with a chance of 1 − ``level``: about 3 / n."""
    return 1 - (1 - level) ** (1 / observations)


def _headline(result: VerifyResult) -> str:
    name, checks = units.quote(result.subject.name), result.checks[:1] if result.environments else result.checks
    if is_output_comparison(result):
        other = units.quote(checks[0].name)
        passed = f"the outputs of {other} agree with {name} within the limits"
        failed = f"the outputs of {other} differ from {name} beyond the limits"
        unknown = f"nothing shows that {other} and {name} agree"
    elif result.environments:
        there = units.quote(result.environments[-1].name)
        passed, failed = f"{name} acts the same in {there}, within rounding", f"{name} does not act the same in {there}"
        unknown = f"nothing shows that {name} acts the same in {there}"
    elif result.exported:
        effects = {check.effect for check in checks}
        closeness = next((words for effect, words in _CLOSENESS.items() if effect in effects), "within its limits")
        passed, failed = f"the export acts like {name}, {closeness}", f"the export does not act like {name}"
        unknown = f"nothing shows that the export acts like {name}"
    else:
        passed, failed = "the recipe keeps the actions within the limits", "the recipe changes the actions too much"
        unknown = "not every limit of the recipe was checked"
    if result.has_passed:
        return f"PASSED: {passed}."
    broken = [check for check in checks if check.broken]
    if broken and broken[0].agreement is None:
        return f"FAILED: with {_name(broken[0])}, not every call gives a chunk like the baseline's."
    if broken and broken[0].effect == "exact" and len(broken[0].treatments) == 1:
        return f"FAILED: {_name(broken[0])} must not change the actions, but does."
    if broken:
        return f"FAILED: {failed}."
    return f"INCONCLUSIVE: {unknown}."


def _numbers(result: VerifyResult) -> str | None:
    checks = result.checks[:1] if result.environments else result.checks
    if result.has_passed:
        return (
            _count_inputs(checks[0]) if is_output_comparison(result) else f"{units.count(len(checks), 'check')} passed."
        )
    if broken := [check for check in checks if check.broken]:
        more = f", and {units.count(len(broken) - 1, 'more check')} failed" if len(broken) > 1 else ""
        return f"{units.capital(_name(broken[0]))}: {broken[0].broken}{more}."
    unmade = "not all checks were made" if checks else "no check was made"
    return f"{units.capital(next((check.unjudged for check in checks if check.unjudged), unmade))}."


def _count_inputs(check: Check) -> str | None:
    same = check.agreement
    if same is None:
        return None
    inputs = units.count(same.observations, "input")
    if (distinct := same.distinct or 0) < same.observations:
        inputs += f", {distinct:,} different"
    note = f" {units.capital(same.note)}." if same.note else ""
    note += f" Not compared: {same.uncompared}." if same.uncompared else ""
    return f"{inputs}.{note}"


def _name(check: Check) -> str:
    return check.name if check.treatments and "=" not in check.name else units.quote(check.name)


def _next_step(result: VerifyResult) -> str | None:
    broken = next((check for check in result.checks if check.broken), None)
    if broken is None or result.environments or is_output_comparison(result):
        return None
    if result.exported:
        return "export the policy again, then verify the new export."
    if len(broken.treatments) != 1:
        return None
    flags = [text for text in result.command if text.startswith(("--policy.", "--dataset.", "--env."))]
    key = broken.treatments[0].partition("=")[0]
    return f"{shlex.join(['strobe', 'optimize', f'--skip={key}', *flags])} writes a recipe without it."


def is_output_comparison(result: VerifyResult) -> bool:
    """Return whether it is of two things to call in Python, and not of a policy with a recipe."""
    return (
        not (result.recipe or result.exported or result.environments)
        and bool(result.checks)
        and not any(check.treatments for check in result.checks)
    )


def _outputs(result: VerifyResult) -> list[Section]:
    checks = [(check.name, check.agreement) for check in result.checks if check.agreement is not None]
    moved = [(name, same) for name, same in checks if same.of == "outputs" and same.rms is None]
    return listing(sameness.KEY, sameness.OF_OUTPUTS, moved, _OUTPUTS, whole=True)


_OUTPUTS: Columns[tuple[str, Agreement]] = [
    words("Outputs of", lambda moved: moved[0]),
    figure("Cosine", lambda moved: moved[1].cosine, units.cosine),
    figure("Max error", lambda moved: moved[1].largest_error, units.number),
    figure("Mean error", lambda moved: moved[1].mean_error, units.number),
    figure("Inputs", lambda moved: moved[1].observations),
]


def _still_wrong(result: VerifyResult) -> list[str]:
    """Return the share of chunks that may be wrong although all calls passed, in words.

    The check of the most treatments stands for the recipe. Only different observations count: a second call on one of
    them shows a fault of order, and no other.
    """
    most = max((len(check.treatments) for check in result.checks), default=0)
    whole = [
        check.agreement for check in result.checks if len(check.treatments) == most and check.agreement is not None
    ]
    widest = max(whole, key=lambda same: same.distinct or 0, default=None)
    if not result.has_passed or widest is None or not widest.distinct or widest.of == "outputs":
        return []
    share = f"{units.sigma(100 * max_missed_share(widest.distinct))} %"
    return [
        f"{units.count(widest.distinct, 'different observation')} passed, so at most {share} of chunks can be wrong "
        f"(95 % confidence) on such observations. All {widest.observations:,} calls passed."
    ]


def _outcome(check: Check) -> str:
    words = check.broken or check.unjudged
    return f"{'failed' if check.broken else 'inconclusive'}: {words}" if words else "passed"


_CHECKS: Columns[Check] = [
    words("Check", lambda check: check.name),
    words("Outcome", _outcome),
    words("Effect", lambda check: check.effect if check.treatments else None),
    words("Limits", lambda check: check.guard or None),
    words("Treatments", lambda check: ", ".join(check.treatments) or None),
]
