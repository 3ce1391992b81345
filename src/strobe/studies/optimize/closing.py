"""The closing run: all rungs in alternation. It gives the ladder's figures, since kept trials are biased upwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.measure.in_time import best_rung
from strobe.studies.measuring import Measured
from strobe.studies.optimize import limits
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.runs import verdict_of
from strobe.studies.optimize.strategy import Strategy
from strobe.studies.optimize.tries import outcome_of
from strobe.treatments.treatment import Variant


def closing_run(climb: Climb, strategy: Strategy) -> Measured:
    """Run all rungs in alternation; not again where the run of what was kept last time had all of them.

    Raises:
        KeyboardInterrupt: before the first round was complete.
    """
    variants = [step.variant for step in climb.steps]
    if strategy.closed is not None and list(strategy.closed.variants) == [variant.name for variant in variants]:
        return strategy.closed
    climb.reporter.stage(f"the closing run: {', '.join(variant.name for variant in variants)}")
    return close(climb, strategy, variants)


def close(climb: Climb, strategy: Strategy, variants: Sequence[Variant]) -> Measured:
    """Run ``variants`` in alternation within the time that is left, but for the fewest rounds in any case.

    Raises:
        KeyboardInterrupt: before the first round was complete.
    """
    asked = climb.runs.options.budget
    known = {step.variant.name: step.ms for step in climb.steps}
    each = sum(climb.runs.spaced_s(known.get(variant.name, climb.top.ms) / 1e3) for variant in variants)
    left = climb.time_left() - climb.counting_s()
    seconds = max(min(asked.seconds, left), limits.TRY_S[0], strategy.closing_rounds * each)
    budget = replace(strategy.closing_budget(asked, seconds), of=variants[-1].name)
    return climb.runs.close(variants, budget)


def take_off(climb: Climb, measured: Measured) -> None:
    """Take off what lies above the best rung by the closing run, and give rungs kept at first sight their verdicts.

    What was asked for with the start stays, whatever it buys.
    """
    steps = climb.steps
    tried = {one.rung: one for one in climb.tries if one.outcome == "kept"}
    names = [step.variant.name for step in steps]
    start = max(rung for rung, step in enumerate(steps) if not rung or step.asked_for)
    times = [measured.collected.samples[name].values for name in names]
    best = best_rung(times, [step.shown for step in steps], [True] * len(steps), start)
    for rung in range(start + 1, len(steps)):
        verdict = verdict_of(measured, names[rung - 1], names[rung])
        if steps[rung].verdict is None:
            steps[rung].verdict = tried[rung].verdict = verdict
        if rung > best:
            if verdict.kind == "faster":  # than a rung that is no gain itself
                verdict = verdict_of(measured, names[best], names[rung])
            taken = tried[rung]
            taken.outcome, reason = outcome_of(verdict)
            taken.reason, taken.verdict = f"{reason} in the closing run", verdict
            climb.reporter.said(f"{names[rung]}: not kept, {taken.reason}")
    del steps[best + 1 :]


def enough(measured: Measured, rungs: int) -> bool:
    """Return whether the closing run can be judged, though it may have been interrupted."""
    kept = [len(m.samples.values) for m in measured.measurements]
    return len(kept) == rungs and (not measured.interrupted or min(kept) >= limits.PAIRS)
