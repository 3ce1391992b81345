"""Compare: two or more variants of one subject, run in alternation, judged in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strobe.core.errors import UserError
from strobe.core.measure.agreement import add_note
from strobe.core.measure.guard import LEAST_OF_ENGINES, Guard, Guards, record_judgement, strongest
from strobe.core.measure.sampling import Collected
from strobe.core.measure.statistics import bonferroni
from strobe.core.measure.verdicts import LEVEL
from strobe.core.results.agreement import Check, Effect
from strobe.core.results.answer import CompareResult
from strobe.core.results.comparison import Comparison
from strobe.core.results.measurement import Measurement
from strobe.core.studies.shared.action_check import SHARE, ActionCheck, action_time_limit, check_actions, check_features
from strobe.core.studies.shared.gradients import gradients
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Measured, Options, Session
from strobe.core.studies.shared.paired_comparison import SEVERAL_COPIES, judge
from strobe.core.studies.shared.progress import Reporter, Silent
from strobe.core.studies.verify_outputs import IN_ROW, judge_in_row
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.callables import Target
from strobe.core.subjects.subject import ActingSubject, Phase, Subject
from strobe.core.treatments.treatment import Treatment, Undo, Variant

NO_GUARD = "the change of the outputs is not judged: no guard was given, and no spread (σ) of these outputs is known"
WITH_RTC = (
    "RTC changes the actions on purpose, so the effect of the other treatments was not measured: compare them without "
    "RTC, or with RTC in the first variant too"
)
MOST_S = 60.0  # longest sampling; the check of a variant takes its share of it


def compare(
    subject: Subject,
    variants: Sequence[Variant],
    phase: Phase,
    options: Options,
    reporter: Reporter | None = None,
    guards: Guards | None = None,
) -> tuple[CompareResult, Measured]:
    """Judge every variant against the first one, on the same observations with the same noise.

    Args:
        guards: how far the actions of a variant may be from the first one's; None for the usual. The outputs of a call
            in Python are judged by the usual guard of each effect only where `Options.in_spread` says so.

    Raises:
        UserError: fewer than two variants, two of one name, or a treatment that does not apply or is not for ``phase``.
    """
    names = [variant.name for variant in variants]
    if len(names) < 2:
        raise UserError(
            "a comparison needs two variants or more: add --compile or --variant 'NAME: policy.FIELD=VALUE'"
        )
    if len(set(names)) < len(names):
        raise UserError(f"two variants have the same name: {', '.join(names)}")
    for variant in variants:
        variant.require(phase)
    reporter = reporter or Silent()
    title = f"{subject.info.name}: {' against '.join(names)}"
    dtypes = [dtype for variant in variants for dtype in variant.weight_dtypes]
    result = begin_result(CompareResult, subject, title, options, reporter, dtypes)
    if dtypes and options.counted:
        result.notes.append(SEVERAL_COPIES)
    check = ActionCheck()
    by_effect = subject.returns != "outputs" or options.in_spread

    def check_outputs(collected: Collected) -> None:
        nonlocal check
        if phase == "inference" and options.checked and by_effect:
            check = _looks(subject, variants, options, collected, reporter)

    ceiling = result.machine.ceiling
    measured = Session(subject, phase, variants, options, ceiling, reporter, afterwards=check_outputs).measure()
    result.measurements = measured.measurements
    result.status = "interrupted" if measured.interrupted or check.interrupted else "complete"
    result.yardsticks = check.yardsticks
    result.caveats += check.notes
    pairs = [pair for pair in _pairs(measured) if len(pair[1].samples.values) > 1]
    level = bonferroni(len(pairs), LEVEL)
    result.comparisons = [judge(*pair, measured, within=options.within, level=level) for pair in pairs]
    if not by_effect:
        _judge_by_request(result, subject, guards.requested if guards is not None else None)
    elif phase == "inference":
        _judge_by_effect(result, measured, check, guards or Guards(kind=subject.returns))
    if phase != "inference" and result.status == "complete" and (acting := subject.acting) is not None:
        _compare_gradients(acting, variants, result, options, reporter)
    result.notes += options.limit.left_out
    return result, measured


def _looks(
    subject: Subject, variants: Sequence[Variant], options: Options, collected: Collected, reporter: Reporter
) -> ActionCheck:
    rounds_s = min(options.budget.seconds, MOST_S)
    most_s = max(collected.seconds, rounds_s)
    seconds = [samples.summary.median / 1e3 for samples in collected.samples.values()]
    if (acting := subject.acting) is not None:
        chunk_s = max(seconds)
        limit = action_time_limit(most_s, chunk_s, options.limit)
        return check_actions(acting, variants, chunk_s, SHARE * rounds_s, reporter, limit)
    call_s = min(seconds)
    return check_features(subject, variants, call_s, reporter, action_time_limit(most_s, call_s, options.limit))


def _compare_gradients(
    subject: ActingSubject, variants: Sequence[Variant], result: CompareResult, options: Options, reporter: Reporter
) -> None:
    step_s = max(measurement.samples.summary.median for measurement in result.measurements) / 1e3
    check = gradients(subject, variants, options.batch_size, reporter, options.limit, step_s)
    for comparison in result.comparisons:
        if comparison.baseline == variants[0].name:
            comparison.gradient = check.agreements.get(comparison.candidate)
    result.notes += [check.note] if check.note else []
    if check.interrupted:
        result.status = "interrupted"
        missing = [variant.name for variant in variants[1:] if variant.name not in check.agreements]
        result.notes += (
            [f"stopped before the gradients of these were compared: {', '.join(missing)}"] if missing else []
        )


def _judge_by_request(result: CompareResult, subject: Subject, guard: Guard | None) -> None:
    for comparison in result.comparisons:
        agreement = comparison.agreement
        if guard is not None:
            comparison.guard = str(guard)
            comparison.unjudged = "one of the two returns no numbers" if agreement is None else None
            record_judgement(comparison, guard)
            if not comparison.broken and isinstance(subject, CallableSubject) and result.status == "complete":
                names = (comparison.baseline, comparison.candidate)
                first, second = (each for name in names for each in subject.targets if each.name == name)
                if first.before or second.before:
                    _record_row(comparison, judge_in_row(subject, first, second, guard))
        elif agreement is not None:
            add_note(agreement, NO_GUARD)


def _record_row(comparison: Comparison, row: Check) -> None:
    if row.broken:
        comparison.agreement = row.agreement or comparison.agreement
        comparison.broken = f"in calls in a row, without a reset between them: {row.broken}"
    elif comparison.agreement is not None:
        add_note(comparison.agreement, f"{IN_ROW} more calls were made in a row, without a reset between them")


def _judge_by_effect(result: CompareResult, measured: Measured, check: ActionCheck, guards: Guards) -> None:
    first = measured.variants[result.measurements[0].name]
    for comparison in result.comparisons:
        candidate = measured.variants[comparison.candidate]
        added = [treatment for treatment in candidate.treatments if treatment not in first.treatments]
        others = [treatment for treatment in added if not treatment.guided]
        if comparison.baseline != first.name or (candidate.is_guided != first.is_guided and not others):
            continue
        comparison.effect = strongest([treatment.effect for treatment in others])
        of_engine = any(treatment.key == "exported" for treatment in others)
        guard = (replace(guards, least=LEAST_OF_ENGINES) if of_engine else guards).strictest_guard([comparison.effect])
        comparison.guard = str(guard)
        if candidate.is_guided != first.is_guided:
            comparison.unjudged = WITH_RTC
            continue
        check.judge(comparison, comparison.candidate, guard)


def _pairs(measured: Measured) -> list[tuple[Measurement, Measurement]]:
    # All against the first; and where RTC and compilation are crossed, the compiled pair against each other as well,
    # as are RTC's two ways to compute its guidance.
    baseline, *others = measured.measurements
    compiled, guided = list[Measurement](), list[Measurement]()
    for candidate in others:
        variant = measured.variants[candidate.name]
        if "compiled" in variant.builds:
            compiled.append(candidate)
        elif variant.is_guided:
            guided.append(candidate)
    pairs = [(baseline, candidate) for candidate in others]
    return pairs + [(group[0], candidate) for group in (compiled, guided) for candidate in group[1:]]


@dataclass(frozen=True, eq=False)
class SwitchTarget(Treatment):
    """Has ``target`` on. Nothing is known of what it does to the outputs, which are compared and not guarded."""

    target: Target
    effect: Effect = "lossy"

    def apply(self, subject: Subject) -> Undo:
        """Switch to the target. Raises TypeError for another subject."""
        if not isinstance(subject, CallableSubject):
            raise TypeError(f"{type(subject).__name__} has no targets")
        before, subject.target = subject.target, self.target

        def undo() -> None:
            subject.target = before

        return undo


def make_variants(targets: Sequence[Target]) -> list[Variant]:
    """Return a variant for each target, under its name."""
    return [Variant(target.name, (SwitchTarget(target),)) for target in targets]
