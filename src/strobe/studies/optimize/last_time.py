"""The rungs that the last ladder kept, put on together and tried in one run of all its rungs.

The run ends by the width of its intervals alone, and what is in it was chosen before it began. So it is as good as a
closing run, and is one where nothing is added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strobe.studies.measuring import Measured
from strobe.studies.optimize.candidates import Candidate, candidate_of, largest, together
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.ladder import Step
from strobe.studies.optimize.runs import build_seconds, verdict_of
from strobe.studies.optimize.tries import Judged, Trial, could_not, moved, outcome_of, refusal, speedup
from strobe.treatments.treatment import Spec, Variant

Close = Callable[[Sequence[Variant]], Measured]


def put_on(climb: Climb, rungs: Sequence[Candidate], close: Close) -> Measured | None:
    """Try ``rungs`` together on top of what is on; keep all of them or none.

    Args:
        close: runs variants in alternation, as a closing run does.

    Returns:
        The run, where they were kept: it has the rungs that were there before, too.

    Raises:
        KeyboardInterrupt: during the run.
    """
    before, number = climb.top, len(climb.steps)
    head = f"kept last time, now together: {'; '.join(rung.text for rung in rungs)}"
    climb.reporter.doing(head)
    specs: tuple[Spec, ...] = ()
    for rung in rungs:
        specs = together(specs, rung.specs)
    whole = candidate_of(climb.runs.subject, specs)
    on: list[tuple[Spec, ...]] = []
    for rung in rungs:
        on.append(together(on[-1] if on else before.specs, rung.specs))
    measured: Measured | None = None
    variants: list[Variant] = []
    first_s: list[float | None] = []
    try:
        variants = [climb.runs.variant(number + index, each) for index, each in enumerate(on)]
        judged, measured, first_s = _judge(climb, Trial(whole, variants[-1]), variants, close)
    except Exception as error:
        judged = could_not(error)
    if judged.outcome != "kept" or measured is None:
        climb.record(whole, judged.outcome, judged.reason, judged.verdict, judged.agreement)
        climb.runs.release(step.variant for step in climb.steps)
        climb.reporter.said(f"{head}: {f'{judged.figures} → ' if judged.figures else ''}not kept, {judged.reason}")
        return None
    taken = {one.name: one for one in measured.measurements}
    for rung, variant, each, seconds in zip(rungs, variants, on, first_s, strict=True):
        below = climb.top
        verdict = verdict_of(measured, below.variant.name, variant.name)
        agreement = climb.runs.agreement(measured, variant.name)
        build_s = build_seconds(measured, variant.name, seconds)
        climb.begin_try(rung)
        climb.record(rung, "kept", "", verdict, agreement, build_s)
        part, _ = largest(rung, below.measurement)
        measurement = taken[variant.name]
        climb.steps.append(Step(variant, each, measurement, rung, part, build_s, verdict, agreement))
    climb.reporter.said(f"{head}: {judged.figures} → kept")
    return measured


def _judge(
    climb: Climb, trial: Trial, variants: Sequence[Variant], close: Close
) -> tuple[Judged, Measured | None, list[float | None]]:
    """Check the guard with all of ``variants`` on, then time them.

    Returns:
        The judgement, the run, and the seconds of each variant's first call where it was made before the run.
    """
    runs = climb.runs
    first_s: list[float | None] = [None for _ in variants]
    if not trial.candidate.build_s:  # compiled code has the probes in it: a call without them would build it twice
        first_s = [runs.once(variant)[1] for variant in variants[:-1]]
        checked = runs.check(trial.variant)
        first_s.append(checked.first_s)
        if checked.judged.outcome != "held":
            return Judged(*refusal(checked.judged), agreement=checked.agreement), None, first_s
    measured = close([*(step.variant for step in climb.steps), *variants])
    if measured.interrupted:
        raise KeyboardInterrupt
    chunks = measured.outputs.first(climb.steps[0].variant.name)
    runs.reference = max(runs.reference, chunks, key=len)  # the policy as it is may only have been glanced at
    verdict = verdict_of(measured, climb.top.variant.name, trial.variant.name)
    agreement = runs.agreement(measured, trial.variant.name)
    outcome, reason = outcome_of(verdict, runs.judge(trial.variant, agreement))
    figures = {"kept": f"{speedup(verdict)}, {moved(agreement)}", "guard": speedup(verdict)}.get(outcome, "")
    return Judged(outcome, reason, figures=figures, verdict=verdict, agreement=agreement), measured, first_s
