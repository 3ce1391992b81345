"""Breakdown: where do the milliseconds of a phase go?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.core.results.answer import BreakdownResult
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Measured, Options, measure
from strobe.core.studies.shared.paired_comparison import judge_times
from strobe.core.studies.shared.progress import Reporter, Silent
from strobe.core.subjects.subject import Phase, Subject
from strobe.core.treatments.treatment import Treatment, Variant

PACED = "paced inference"  # the measurement of calls at the robot's pace


def breakdown(
    subject: Subject,
    phases: Sequence[Phase],
    options: Options,
    treatments: tuple[Treatment, ...] = (),
    reporter: Reporter | None = None,
) -> tuple[BreakdownResult, list[Measured]]:
    """Measure each phase on its own and cut it into the family's parts; ``treatments`` hold for inference.

    With a pace in ``options``, inference is measured twice in the same rounds: back to back, and at the robot's pace.

    Returns:
        The result, without findings, and per phase what it was made from. Ctrl-C keeps the rounds measured so far and
        leaves out the phases not begun.
    """
    reporter = reporter or Silent()
    title = f"{subject.info.name}: where the time goes"
    result = begin_result(BreakdownResult, subject, title, options, reporter)
    measured: list[Measured] = []
    for phase in phases:
        if measured and options.limit.is_spent:
            options.limit.leave_out(f"{phase} was not measured")
            continue
        variants = [Variant(phase, treatments if phase == "inference" else ())]
        if options.pace_hz and phase == "inference":
            variants.append(Variant(PACED, treatments))
        how = replace(options, back_to_back=frozenset({phase}), energy=True)
        run = measure(subject, phase, variants, how, result.machine.ceiling, reporter)
        measured.append(run)
        result.measurements += run.measurements
        if len(run.measurements) == 2 and len(run.measurements[0].samples.values) > 1:
            result.gap = judge_times(*run.measurements, names=("back to back", "at the robot's pace"))
        if run.interrupted:
            result.status = "interrupted"
            break
    result.notes += options.limit.left_out
    return result, measured
