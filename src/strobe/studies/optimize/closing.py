"""The closing run: all rungs in alternation. It gives the ladder's figures, since kept trials are biased upwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.results.comparison import Comparison
from strobe.studies.measuring import Measured
from strobe.studies.optimize import limits
from strobe.studies.optimize.climb import Climb
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


def take_off(climb: Climb, comparisons: Sequence[Comparison]) -> None:
    """Give the rungs that were kept at first sight their verdicts, and take off the top those not shown to be faster.

    What was asked for with the start was judged before, and stays.
    """
    kept = {one.rung: one for one in climb.tries if one.outcome == "kept"}
    at_first_sight = [rung for rung, step in enumerate(climb.steps) if rung and step.verdict is None]
    for rung in at_first_sight:
        below, name = climb.steps[rung - 1].variant.name, climb.steps[rung].variant.name
        verdict = next(c.verdict for c in comparisons if (c.baseline, c.candidate) == (below, name))
        climb.steps[rung].verdict = kept[rung].verdict = verdict
    while len(climb.steps) - 1 in at_first_sight and (verdict := climb.top.verdict) and verdict.kind != "faster":
        taken = kept[len(climb.steps) - 1]
        taken.outcome, taken.reason = outcome_of(verdict, "")
        climb.reporter.said(f"{climb.top.variant.name}: not kept, {taken.reason}")
        climb.steps.pop()


def enough(measured: Measured, rungs: int) -> bool:
    """Return whether the closing run can be judged, though it may have been interrupted."""
    kept = [len(m.samples.values) for m in measured.measurements]
    return len(kept) == rungs and (not measured.interrupted or min(kept) >= limits.PAIRS)
