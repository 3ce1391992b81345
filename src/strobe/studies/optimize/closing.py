"""The closing run: all rungs in alternation. It gives the ladder's figures, since kept trials are biased upwards."""

from __future__ import annotations

from strobe.results.machine import Ceiling
from strobe.studies.measuring import Measured
from strobe.studies.optimize import limits
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.strategy import Strategy


def closing_run(climb: Climb, strategy: Strategy, ceiling: Ceiling | None) -> Measured:
    """Run all rungs in alternation within the time that is left, but for the fewest rounds in any case.

    Raises:
        KeyboardInterrupt: before the first round was complete.
    """
    variants = [step.variant for step in climb.steps]
    climb.reporter.stage(f"the closing run: {', '.join(variant.name for variant in variants)}")
    asked = climb.runs.options.budget
    each = sum(climb.runs.spaced_s(step.ms / 1e3) for step in climb.steps)
    left = climb.time_left() - climb.counting_s()
    seconds = max(min(asked.seconds, left), limits.TRY_S[0], strategy.closing_rounds * each)
    return climb.runs.close(variants, strategy.closing_budget(asked, seconds), ceiling)


def enough(measured: Measured, rungs: int) -> bool:
    """Return whether the closing run can be judged, though it may have been interrupted."""
    kept = [len(m.samples.values) for m in measured.measurements]
    return len(kept) == rungs and (not measured.interrupted or min(kept) >= limits.PAIRS)
