"""Breakdown: where do the milliseconds of a phase go?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import strobe
from strobe.measure import ceiling as ceilings
from strobe.measure import machine
from strobe.measure.verdicts import difference_interval, paired_verdict
from strobe.policies.subject import Phase, Subject
from strobe.results.answer import BreakdownResult, Result
from strobe.results.comparison import Comparison
from strobe.results.machine import Ceiling
from strobe.studies.measuring import Measured, Options, Reporter, Silent, measure
from strobe.treatments.treatment import Treatment, Variant

PACED = "paced inference"  # the measurement of calls at the robot's pace


def breakdown(
    subject: Subject,
    phases: Sequence[Phase],
    options: Options,
    treatments: tuple[Treatment, ...] = (),
    reporter: Reporter | None = None,
) -> tuple[BreakdownResult, list[Measured]]:
    """Measure each phase on its own and cut it into the anatomy's parts; ``treatments`` hold for inference.

    With a pace in ``options``, inference is measured twice in the same rounds: back to back, and at the robot's pace.

    Returns:
        The result, without findings, and per phase what it was made from. Ctrl-C keeps the rounds measured so far and
        leaves out the phases not begun.
    """
    reporter = reporter or Silent()
    result = begin(BreakdownResult, subject, f"{subject.info.name}: where the time goes", options, reporter)
    measured: list[Measured] = []
    for phase in phases:
        variants = [Variant(phase, treatments if phase == "inference" else ())]
        if options.pace_hz and phase == "inference":
            variants.append(Variant(PACED, treatments))
        one = measure(
            subject, phase, variants, options, result.machine.ceiling, reporter, back_to_back=frozenset({phase})
        )
        measured.append(one)
        result.measurements += one.measurements
        if len(one.measurements) == 2:
            result.gap = _gap(one)
        if one.interrupted:
            result.status = "interrupted"
            break
    return result, measured


def _gap(measured: Measured) -> Comparison | None:
    """Calls at the robot's pace against the same back to back; None with fewer than two of each."""
    together, paced = measured.measurements
    before, after = together.samples.values, paced.samples.values
    if len(before) < 2:
        return None
    difference_ms, interval = difference_interval(before, after)
    return Comparison(
        baseline=together.name,
        candidate=paced.name,
        verdict=paired_verdict(before, after, baseline_name="back to back", candidate_name="at the robot's pace"),
        difference=interval,
        difference_ms=difference_ms,
    )


def begin[R: Result](
    kind: type[R],
    subject: Subject,
    title: str,
    options: Options,
    reporter: Reporter,
    dtypes: Iterable[str] = (),
    **fields: Any,
) -> R:
    """A result of ``kind`` that knows its subject, its machine and what the machine can do, and nothing else yet.

    ``dtypes``: those that the study runs it in beside its own; ``fields``: those that ``kind`` alone has.
    """
    where = machine.describe(subject.device)
    if options.counted:
        reporter.stage("measuring what this machine can do")
        asked = dict.fromkeys((*subject.info.dtypes, *dtypes, *ceilings.EVERYWHERE))
        known = [dtype for dtype in asked if dtype in ("float32", "bfloat16", "float16", "int8")]
        where.ceiling = ceilings.measure(subject.device, known)
    else:
        where.ceiling = Ceiling()
    return kind(
        strobe_version=strobe.__version__,
        title=title,
        subject=subject.info,
        machine=where,
        notes=list(subject.notes),
        **fields,
    )
