"""Does an exported policy act as the policy it was made from? Nothing is timed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strobe.core.measure.guard import LEAST_OF_ENGINES, Guards, strongest
from strobe.core.results.agreement import Check, Effect
from strobe.core.results.answer import VerifyResult
from strobe.core.studies.shared.progress import Reporter
from strobe.core.subjects.check_inputs import COUNT
from strobe.core.treatments.recipe import RecipeTreatment
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.export.exported import ExportedPolicy, group_of, in_float32
from strobe.export.stages import first_difference
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.verify import PASSES, verify_groups
from strobe.treatments.numbers.precision import Precision


@dataclass(frozen=True)
class Export:
    """An export that is to be verified.

    Args:
        folder: Strobe's, or another's.
        python: of an environment with physicalai, which runs another's; '' for this environment's.
        settings: of the recipe that it was made with, which the user names: what the folder says is not believed.
    """

    folder: Path
    python: str = ""
    settings: tuple[RecipeTreatment, ...] = ()


def verify_export(
    subject: PolicySubject,
    export: Export,
    guards: Guards,
    reporter: Reporter,
    *,
    count: int = COUNT,
    passes: int = PASSES,
    seconds: float = math.inf,
) -> VerifyResult:
    """Hold ``export`` against the untouched policy; `verify` says what the arguments are.

    With settings in it, or of a policy that is not in float32, it is first held against the policy with these settings
    in float32: what they do to the actions must not hide what the export does.

    Raises:
        UserError: the folder is no export or is damaged, or a setting does not apply.
    """
    guards = replace(guards, least=LEAST_OF_ENGINES)
    own: tuple[Treatment, ...] = export.settings
    words, effect = " with the recipe's settings" if own else "", strongest([each.effect for each in own])
    if not in_float32(subject):
        own, words, effect = (*own, Precision("fp32")), f"{words} in float32", strongest([effect, "rounding"])
    held_to: list[tuple[str, Effect, tuple[Treatment, ...]]] = [("", effect, ())]
    if own:
        held_to.insert(0, (f" against the policy{words}", "exact", own))
    checks: list[Check] = []
    result: VerifyResult | None = None
    for words, effect, settings in held_to:
        name, treatments = group_of(export.folder, export.python, effect)
        undo = Variant("recipe", settings).apply(subject)
        try:
            groups = [(f"{name}{words}", treatments)]
            how: dict[str, Any] = {"count": count, "passes": passes, "seconds": seconds / len(held_to)}
            result = verify_groups(subject, groups, export.folder.name, guards, reporter, **how)
            made = treatments[0].treatment
            if result.outcome == "broken" and isinstance(made, ExportedPolicy):
                reporter.stage("where it first differs")
                result.passes = [first_difference(subject, made, count)]
        finally:
            undo()
        checks += result.checks
        if result.outcome == "broken" or result.status != "complete":
            break
    assert result is not None  # it is held to something
    result.checks, result.recipe, result.exported = checks, "", export.folder.name
    result.title = f"{subject.info.name}: does the exported policy act the same?"
    return result
