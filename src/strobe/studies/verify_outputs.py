"""Verify in Python: do two things to call return the same, input by input? Nothing is timed."""

from __future__ import annotations

from strobe.errors import UserError
from strobe.measure.agreement import agree
from strobe.measure.guard import Guard
from strobe.measure.sampling import SamplingBudget
from strobe.policies.callable_subject import CallableSubject
from strobe.policies.callables import Target
from strobe.policies.outputs import Numbers, numbers_of
from strobe.results.agreement import Check
from strobe.results.answer import VerifyResult
from strobe.studies.shared.machine_state import begin_result
from strobe.studies.shared.measuring import Options
from strobe.studies.shared.progress import Reporter, Steps


def verify_outputs(subject: CallableSubject, guard: Guard, reporter: Reporter) -> VerifyResult:
    """Hold the outputs of the subject's second target against those of its first, on each input.

    A second target that fails, or returns other shapes, breaks the guard. Ctrl-C keeps the inputs that both were
    called with.

    Raises:
        UserError: the first target fails.
    """
    first, second = subject.targets
    subject.first_calls(reporter.stage, [first])
    title = f"{subject.info.name}: {second.name} against {first.name}"
    options = Options(SamplingBudget(), counted=False)
    result = begin_result(VerifyResult, subject, title, options, reporter, recipe="", guard=str(guard))
    # Nothing is known of what the second does: the guard says what it may do.
    check = Check(name=second.name, treatments=[], effect="lossy", guard=str(guard))
    result.checks.append(check)
    pairs: list[tuple[Numbers, Numbers]] = []
    reporter.stage(title)
    steps = Steps(reporter, "inputs")
    try:
        for index in range(len(subject.inputs)):
            expected = _numbers(subject, first, index)
            try:
                pairs.append((expected, _numbers(subject, second, index)))
            except UserError as error:
                check.broken = str(error)
                break
            steps(index + 1, len(subject.inputs))
    except KeyboardInterrupt:
        result.status = "interrupted"
    _judge(check, guard, pairs, subject)
    return result


def _numbers(subject: CallableSubject, target: Target, index: int) -> Numbers:
    with subject.switched(target):
        return numbers_of(subject.output(index))


def _judge(check: Check, guard: Guard, pairs: list[tuple[Numbers, Numbers]], subject: CallableSubject) -> None:
    """Fill in the agreement of the pairs of equal shape, and what of the guard is broken or not judged."""
    before = [(a.values, b.values) for a, b in pairs]
    alike = [(a, b) for a, b in before if a is not None and b is not None]
    for index, (expected, seen) in enumerate(pairs):
        if expected.values is None:
            check.unjudged = f"{subject.targets[0].name} returns no numbers, but {expected.kind}"
            return
        if expected.shapes != seen.shapes:
            other = f"of {seen.words}" if seen.shapes else f"without numbers ({seen.kind})"
            check.broken = check.broken or f"input {index + 1} gives an output {other} in place of {expected.words}"
    if check.broken:
        return
    if not alike:
        check.unjudged = "no input was looked at"
        return
    check.agreement = agree([a for a, _ in alike], [b for _, b in alike])
    check.agreement.of = "outputs"
    check.agreement.distinct = len({subject.digest_of(index) for index in range(len(alike))})
    judged = guard.judge(check.agreement)
    check.broken, check.unjudged = judged.broken, judged.unjudged
