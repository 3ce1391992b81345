"""Verify: does a policy with a recipe on it act as it does without? Nothing is timed."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.measure.guard import Guards, strongest
from strobe.measure.sampling import SamplingBudget
from strobe.results.agreement import Check, Yardstick, yardstick
from strobe.results.answer import VerifyResult
from strobe.results.recipe import Recipe
from strobe.sameness.check import CallFailed, Sameness
from strobe.studies.breakdown import begin
from strobe.studies.measuring import Options, Reporter, Silent
from strobe.studies.sameness import shown, visits_of, yardsticks
from strobe.subjects.checks import COUNT
from strobe.subjects.policy_subject import PolicySubject
from strobe.treatments.recipe import RecipeTreatment, treatments_of
from strobe.treatments.treatment import Variant

PASSES = 2  # over the observations, each in another order
ALL, EXACT_ALONE = "the whole recipe", "its exact part"


def verify(
    subject: PolicySubject,
    recipe: Recipe,
    name: str,
    guards: Guards,
    reporter: Reporter | None = None,
    *,
    count: int = COUNT,
    passes: int = PASSES,
) -> VerifyResult:
    """Run the policy with ``recipe`` and without on observations that find faults. Ctrl-C keeps the checks made.

    Where the recipe has exact treatments beside others, these are checked by themselves too: rounding that the others
    may do must not hide what an exact one does wrong.

    Args:
        name: the recipe's file, for messages.
        count: observations; ``passes``: how many times they are gone through.

    Raises:
        UserError: a treatment does not apply.
    """
    reporter = reporter or Silent()
    options = Options(SamplingBudget(iterations=1), counted=False)
    title = f"{subject.info.name}: does it act the same with {name}?"
    result = begin(VerifyResult, subject, title, options, reporter, recipe=name, guard=str(guards))
    treatments = treatments_of(recipe, name)
    same = Sameness(subject, count=count)
    result.subject.inputs = same.checks.description
    try:
        reporter.stage("the untouched policy's actions")
        same.prepare(visits_of(same, Variant(name, treatments)), shown(reporter))
        for found in yardsticks(same, count, reporter):
            result.yardsticks.append(found)
        result.notes += same.notes
        reordered = yardstick(result.yardsticks, "reordered sums")
        for label, chosen in _groups(treatments):
            reporter.stage(f"{label}: {len(chosen)}")
            result.checks.append(_check(same, label, chosen, guards, reordered, passes, reporter))
    except KeyboardInterrupt:
        result.status = "interrupted"
    return result


def _groups(treatments: Sequence[RecipeTreatment]) -> list[tuple[str, tuple[RecipeTreatment, ...]]]:
    exact = tuple(one for one in treatments if one.effect == "exact")
    alone = [(EXACT_ALONE, exact)] if exact and len(exact) < len(treatments) else []
    return [*alone, (ALL, tuple(treatments))]


def _check(
    same: Sameness,
    label: str,
    treatments: tuple[RecipeTreatment, ...],
    guards: Guards,
    reordered: Yardstick | None,
    passes: int,
    reporter: Reporter,
) -> Check:
    effect = strongest([one.effect for one in treatments])
    guard = guards.of([effect])
    check = Check(name=label, treatments=[one.written for one in treatments], effect=effect, guard=str(guard))
    variant = Variant(label, treatments)
    try:
        check.agreement = same.check(variant, visits_of(same, variant, passes), shown(reporter))
    except CallFailed as error:
        check.broken = str(error)
        return check
    judged = guard.judge(check.agreement, reordered)
    check.broken, check.unjudged = judged.broken, judged.unjudged
    return check
