"""By effect: treatments of one effect are put on together at first sight, and the closing run judges them.

For chunks that take so long that few candidates could be tried one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strobe.measure.sampling import SamplingBudget
from strobe.results.comparison import Comparison
from strobe.studies.measuring import Measured
from strobe.studies.optimize import limits
from strobe.studies.optimize.candidates import EFFECTS, groups
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.closing import take_off
from strobe.studies.optimize.runs import build_seconds
from strobe.studies.optimize.tries import Judged, Trial, attempt, milliseconds, moved
from strobe.treatments.treatment import Effect, Variant


@dataclass
class ByEffect:
    """A strategy: keeps what is within the guard and no slower at first sight, until the closing run."""

    so_far: Climb
    closing_rounds = limits.PAIRS + 1  # of which the first is warm-up
    closed = None

    def measure_start(self, variants: Sequence[Variant], chunk_s: float) -> Measured:
        self.so_far.reporter.said(f"a chunk comes every {chunk_s:.1f} s: treatments of one effect are tried together")
        return self.so_far.runs.first_sight(variants)

    def climb(self) -> str:
        for rung in self.so_far.kept_last_time():
            if not self.so_far.reached():
                attempt(self.so_far, rung, self._judge)
        for effect in EFFECTS:
            for group in groups(self.so_far.left_to_try(), effect):
                if self.so_far.reached():
                    return self.so_far.end_at_target()
                if not attempt(self.so_far, group, self._judge) and effect != "lossy":  # lossy ones are alone already
                    self._try_each(effect)
        if self.so_far.reached():
            return self.so_far.end_at_target()
        self.so_far.leave("there was no time to try it by itself", self.so_far.left_to_try())
        enough = limits.TRIES * limits.try_s(self.so_far.runs.spaced_s(self.so_far.steps[0].ms / 1e3))
        left_out = self.so_far.left_out()
        return (
            f"nothing was left to try together{left_out}; from --time_limit={enough:.0f} on they are tried one by one"
        )

    def closing_budget(self, asked: SamplingBudget, seconds: float) -> SamplingBudget:
        iterations = asked.iterations or limits.PAIRS
        return SamplingBudget(iterations=iterations, seconds=seconds, fewest=iterations)

    def judge_closing(self, comparisons: Sequence[Comparison]) -> None:
        """Take off the top what is not shown to be faster than the rung below it."""
        take_off(self.so_far, comparisons)

    def _try_each(self, effect: Effect) -> None:
        """Try each candidate of ``effect`` by itself, those that are quick to build, while there is time."""
        for candidate in self.so_far.left_to_try():
            fits = limits.FIRST * self.so_far.top.ms / 1e3 <= self.so_far.time_to_try(self.closing_rounds)
            if candidate.effect == effect and not candidate.build_s and fits:
                attempt(self.so_far, candidate, self._judge)

    def _judge(self, trial: Trial) -> Judged:
        so_far, before = self.so_far, self.so_far.top
        measured = so_far.runs.first_sight([trial.variant])
        if measured.interrupted:
            raise KeyboardInterrupt
        (after,) = measured.measurements
        median = after.samples.summary.median
        agreement = so_far.runs.agreement(measured, trial.variant.name)
        build_s = build_seconds(measured, trial.variant.name)
        seen = f"{milliseconds(median)} at first sight"
        if broken := so_far.runs.broken(trial.variant, agreement):
            detail = f" ({agreement.observations} observations)"
            return Judged("guard", f"guard: {broken}", detail, agreement=agreement, build_s=build_s)
        if median > limits.SLOWER * before.ms:
            reason = f"slower: {seen}, and {milliseconds(before.ms)} before"
            return Judged("slower", reason, agreement=agreement, build_s=build_s)
        figures = f"{seen}, {moved(agreement)}"
        return Judged("kept", figures=figures, measurement=after, agreement=agreement, build_s=build_s)
