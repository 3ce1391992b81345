"""A closer look at the rung that the ladder ends with: does it act like the untouched policy where faults show?"""

from __future__ import annotations

from collections.abc import Callable

from strobe.measure.guard import Judgement
from strobe.results.agreement import YardstickName
from strobe.results.answer import OptimizeResult
from strobe.results.comparison import Comparison
from strobe.results.ladder import Ladder
from strobe.sameness.check import CallFailed
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.ladder import AS_IT_IS
from strobe.studies.optimize.tries import moved
from strobe.studies.sameness import few, yardsticks

MORE: tuple[YardstickName, ...] = ("another noise draw", "neighbouring frame", "another observation")


def hold(result: OptimizeResult, climb: Climb) -> None:
    """Write down the guard that each rung's agreement with the untouched policy is held against, and its outcome."""
    variants = {step.variant.name: step.variant for step in climb.steps}
    for one in result.comparisons:
        if one.baseline == AS_IT_IS and one.agreement is not None and one.candidate in variants:
            variant = variants[one.candidate]
            one.effect = climb.runs.effect(variant)
            one.guard = str(climb.runs.guard(variant))
            _write(one, climb.runs.judge(variant, one.agreement))


def confirm(result: OptimizeResult, climb: Climb, climbed: Callable[..., Ladder]) -> dict[str, str]:
    """Check the chosen rung on all that finds faults; where it fails, the next one below, until one holds.

    ``result`` gets the agreements, the other yardsticks, and a ladder that takes them into account. Ctrl-C ends it.

    Returns:
        rung → what is held against it.
    """
    runs, reporter = climb.runs, climb.reporter
    refused: dict[str, str] = {}
    if runs.same is None or result.ladder is None:
        return refused
    variants = {step.variant.name: step.variant for step in climb.steps}
    try:
        if result.ladder.chosen != AS_IT_IS:
            for found in yardsticks(runs.same, few(climb.steps[0].ms / 1e3), reporter, MORE):
                result.yardsticks.append(found)
        while result.ladder is not None and (name := result.ladder.chosen) != AS_IT_IS:
            reporter.stage(f"the same actions? {name}")
            compared = next(c for c in result.comparisons if (c.baseline, c.candidate) == (AS_IT_IS, name))
            try:
                agreement = runs.check_well(variants[name])
            except CallFailed as error:
                agreement, compared.broken = None, str(error)
            if agreement is not None:
                compared.agreement = agreement
                _write(compared, runs.judge(variants[name], agreement))
                reporter.said(f"{name}: {moved(agreement)}; {agreement.how}")
            if compared.outcome == "held":
                return refused
            refused[name] = compared.broken or f"not judged: {compared.unjudged}"
            reporter.said(f"{name} is refused: {refused[name]}")
            result.ladder = climbed(refused=refused)
    except KeyboardInterrupt:
        result.status = "interrupted"
        result.notes.append("interrupted before the actions of the chosen rung were looked at closely")
    return refused


def _write(compared: Comparison, judged: Judgement) -> None:
    compared.broken, compared.unjudged = judged.broken, judged.unjudged
