"""Verify what is called in Python: do two targets return the same, or one with a recipe and without?

Nothing is timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from strobe.core.errors import UserError
from strobe.core.measure.agreement import Values, add_note, agree, agree_outputs
from strobe.core.measure.guard import Guard, Guards, record_judgement, strongest
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.measure.time_limit import LookInterrupted
from strobe.core.results.agreement import Check, Yardstick, yardstick
from strobe.core.results.answer import VerifyResult
from strobe.core.results.recipe import Recipe
from strobe.core.sameness.visits import FEWEST, CheckCall, describe, plan
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options
from strobe.core.studies.shared.progress import Reporter, Steps
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import Target
from strobe.core.subjects.outputs import Numbers, extract_numbers, note_uncompared
from strobe.core.treatments.recipe import RecipeTreatment, check_groups, make_treatments
from strobe.core.treatments.treatment import Variant

IN_ROW = 4  # calls without a reset between them


class _CallError(Exception):
    """A call failed with the treatments on, and did not without."""


def verify_outputs(subject: CallableSubject, guard: Guard, reporter: Reporter) -> VerifyResult:
    """Compare the outputs of the subject's second target with those of its first, on each input.

    A second target that fails, or returns other shapes, breaks the guard. Ctrl-C keeps the inputs that both were
    called with.

    Raises:
        UserError: the first target fails.
    """
    first, second = subject.targets
    title = f"{subject.info.name}: {second.name} against {first.name}"
    options = Options(SamplingBudget(), counted=False)
    result = begin_result(VerifyResult, subject, title, options, reporter, recipe="", guard=str(guard))
    # Nothing is known of what the second does: the guard says what it may do.
    check = Check(name=second.name, treatments=[], effect="lossy", guard=str(guard))
    result.checks.append(check)
    pairs: list[tuple[Numbers, Numbers]] = []
    reporter.stage(title)
    steps, rows = Steps(reporter, "inputs"), [[index] for index in range(len(subject.inputs))]
    if first.before or second.before:
        rows.append([*range(max(len(subject.inputs), IN_ROW))])  # what is kept from one call shows in the next
    try:
        for done, row in enumerate(rows, 1):
            expected = _numbers(subject, first, row)
            try:
                pairs += zip(expected, _numbers(subject, second, row), strict=True)
            except UserError as error:
                check.broken = str(error)
                break
            steps(done, len(rows))
    except KeyboardInterrupt:
        result.status = "interrupted"
    # Not before: an object that counts its calls would be ahead of the other one.
    if result.status == "complete":
        subject.first_calls(reporter.stage, [first])
        result.notes, result.caveats = list(subject.notes), list(subject.caveats)
    if alike := _comparable_numbers(check, pairs, first.name):
        check.agreement = agree(*alike)
        check.agreement.of = "outputs"
        subject.note_inputs(check.agreement, range(min(len(pairs), len(subject.inputs))))
        note_uncompared(check.agreement, pairs)
        if (in_row := len(pairs) - len(subject.inputs)) > 0:
            check.agreement.observations = len(subject.inputs)
            add_note(check.agreement, f"{in_row} more calls were made in a row, without a reset between them")
        record_judgement(check, guard)
    return result


def judge_in_row(subject: CallableSubject, first: Target, second: Target, guard: Guard) -> Check:
    """Judge calls in a row, with a reset before the first of them alone: what is kept from one shows in the next."""
    check, row = Check(name=second.name, treatments=[], effect="lossy", guard=str(guard)), range(IN_ROW)
    try:
        pairs = list(zip(_numbers(subject, first, row), _numbers(subject, second, row), strict=True))
    except UserError as error:
        check.broken = str(error)
        return check
    if alike := _comparable_numbers(check, pairs, first.name):
        check.agreement = agree(*alike)
        check.agreement.of = "outputs"
        record_judgement(check, guard)
    return check


def verify_recipe(
    subject: CallableSubject,
    recipe: Recipe,
    name: str,
    guards: Guards,
    reporter: Reporter,
    *,
    count: int,
    passes: int,
    seconds: float = math.inf,
) -> VerifyResult:
    """Compare the outputs of a target with ``recipe`` on it with those without, in calls that find faults of caches.

    The calls return to earlier inputs, and some have the treatments applied for them alone. The same input and the same
    random numbers go to both. Exact treatments are checked by themselves too, where there are others. Ctrl-C keeps the
    checks made.

    Args:
        name: the recipe's file, for messages.
        count: calls with random numbers of their own, at least; each input is in one of them.
        passes: over these calls, each in another order.
        seconds: for all of it, roughly. Where a call takes long there are fewer, `FEWEST` at least.

    Raises:
        UserError: a treatment does not apply, or the target fails without treatments.
    """
    title = f"{subject.info.name}: does it act the same with {name}?"
    options = Options(SamplingBudget(), counted=False)
    result = begin_result(VerifyResult, subject, title, options, reporter, recipe=name, guard=str(guards))
    groups = check_groups(make_treatments(recipe, name))
    try:
        reporter.stage("the baseline's outputs")
        reference = _reference(subject, max(count, len(subject.inputs)), len(groups) * passes, seconds, reporter)
        in_row = max(len(subject.inputs), IN_ROW) if subject.target.before else 0
        episode = _numbers(subject, subject.target, range(in_row))
        if len(reference) < max(count, len(subject.inputs)):
            looked_at = f"{len(reference)} of {max(count, len(subject.inputs))} calls were looked at"
            result.limited = f"{looked_at}, to end in about {seconds:.0f} s (--seconds={seconds:g})"
        if any(treatment.effect == "exact" for _, chosen in groups for treatment in chosen):
            result.yardsticks += _reordered_yardsticks(subject, result)
        for label, chosen in groups:
            reporter.stage(f"{label} against the baseline")
            _check_group(result, subject, (label, chosen), guards, passes, reference, episode, reporter)
    except KeyboardInterrupt:
        result.status = "interrupted"
    return result


def _reference(subject: CallableSubject, count: int, rounds: int, seconds: float, reporter: Reporter) -> list[Numbers]:
    numbers, steps, began = [extract_numbers(subject.output(0))], Steps(reporter, "calls"), time.perf_counter()
    for index in range(1, count):
        numbers.append(extract_numbers(subject.output(index)))
        each = (time.perf_counter() - began) / index
        steps(index + 1, count)
        if index + 1 >= FEWEST and (index + 1) * each * (1 + 2 * rounds) >= seconds:
            break
    return numbers


def _reordered_yardsticks(subject: CallableSubject, result: VerifyResult) -> list[Yardstick]:
    from strobe.core.sameness.reordered import features_reordered  # needs torch, as what a recipe is for does

    try:
        moved = features_reordered(subject, Variant("baseline"), FEWEST)
    except UserError as error:
        result.caveats.append(f"not measured, how far reordered sums move the outputs: {error}")
        return []
    except LookInterrupted:
        raise KeyboardInterrupt from None
    return [moved] if moved is not None else []


def _check_group(
    result: VerifyResult,
    subject: CallableSubject,
    group: tuple[str, tuple[RecipeTreatment, ...]],
    guards: Guards,
    passes: int,
    reference: Sequence[Numbers],
    episode: Sequence[Numbers],
    reporter: Reporter,
) -> None:
    """Add a check of ``group``, as far as it came. Raises KeyboardInterrupt, after adding what was seen by then."""
    label, chosen = group
    effect = strongest([treatment.effect for treatment in chosen])
    guard = guards.strictest_guard([effect])
    check = Check(name=label, treatments=[each.written for each in chosen], effect=effect, guard=str(guard))
    result.checks.append(check)
    visits = plan(len(reference), rtc=False, passes=passes)
    ordered = sorted(visits, key=lambda visit: visit.isolated)
    pairs: list[tuple[Numbers, Numbers]] = []
    stopped = False
    try:
        _visit(subject, Variant(label, chosen), ordered, (reference, episode), pairs, Steps(reporter, "calls"))
    except KeyboardInterrupt:
        stopped = True
    except _CallError as error:
        check.broken = str(error)
    if alike := _comparable_numbers(check, pairs, subject.target.name):
        shapes = {expected.shapes for expected, _ in pairs}
        agreement = agree_outputs(*alike, shapes.pop()) if len(shapes) == 1 else agree(*alike)
        agreement.of, check.agreement = "outputs", agreement
        seen = ordered[: len(pairs)]
        subject.note_inputs(agreement, [visit.observation for visit in seen])
        agreement.how = describe(seen) + (f", and {len(episode)} in a row" if len(pairs) > len(seen) else "")
        note_uncompared(agreement, pairs)
        if stopped:
            agreement.short, agreement.unjudged = True, f"stopped after {len(pairs)} of {len(ordered)} calls"
        record_judgement(check, guard, yardstick(result.yardsticks, "reordered sums"))
    if stopped:
        raise KeyboardInterrupt


def _visit(
    subject: CallableSubject,
    variant: Variant,
    ordered: Sequence[CheckCall],
    expected: tuple[Sequence[Numbers], Sequence[Numbers]],
    pairs: list[tuple[Numbers, Numbers]],
    steps: Steps,
) -> None:
    """Make the calls of ``ordered`` with ``variant`` on, and add a pair for each; the isolated ones are the last.

    Args:
        expected: of each observation, and of the calls of an episode, which are made after all others.

    Raises:
        UserError: a treatment does not apply.
        _CallError: a call fails.
    """
    reference, episode = expected
    calls = [([visit.observation], visit.isolated, [reference[visit.observation]]) for visit in ordered]
    undo = variant.apply(subject)
    try:
        for row, isolated, there in [*calls, ([*range(len(episode))], False, episode)]:
            if isolated:
                undo()
                undo = variant.apply(subject)
            try:
                pairs += zip(there, _numbers(subject, subject.target, row), strict=True)
            except UserError as error:
                raise _CallError(str(error)) from error
            steps(len(pairs), len(ordered))
    finally:
        undo()


def _numbers(subject: CallableSubject, target: Target, row: Sequence[int]) -> list[Numbers]:
    """Return the numbers of calls in a row, with a reset before the first of them alone."""
    with subject.switch_target(target):
        return [extract_numbers(subject.output(index, reset=not place)) for place, index in enumerate(row)]


def _comparable_numbers(
    check: Check, pairs: Sequence[tuple[Numbers, Numbers]], first: str
) -> tuple[list[Values], list[Values]] | None:
    """Return the numbers before and after; None if they cannot be compared, which ``check`` then says.

    Args:
        first: name of what the others are compared with.
    """
    for index, (expected, seen) in enumerate(pairs, 1):
        if expected.values is None:
            check.unjudged = f"{first} returns no numbers, but {expected.kind}"
            return None
        check.broken = check.broken or ((unlike := expected.unlike(seen)) and f"input {index} gives {unlike}")
    if check.broken:
        return None
    if not pairs:
        check.unjudged = "no input was looked at"
        return None
    values = [(before.values, after.values) for before, after in pairs]
    known = [(before, after) for before, after in values if before is not None and after is not None]
    return [before for before, _ in known], [after for _, after in known]
