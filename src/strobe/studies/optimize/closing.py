"""The closing run: all rungs in alternation. It gives the ladder's figures, since kept trials are biased upwards."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.studies.measuring import Measured
from strobe.studies.optimize import limits
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.strategy import Strategy
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
    return climb.runs.close(variants, strategy.closing_budget(asked, seconds))


def enough(measured: Measured, rungs: int) -> bool:
    """Return whether the closing run can be judged, though it may have been interrupted."""
    kept = [len(m.samples.values) for m in measured.measurements]
    return len(kept) == rungs and (not measured.interrupted or min(kept) >= limits.PAIRS)
