"""By effect: treatments of one effect are put on together at first sight, and the closing run judges them.

For chunks that take so long that few candidates could be tried one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strobe.measure.sampling import SamplingBudget
from strobe.studies.measuring import Measured
from strobe.studies.optimize import limits
from strobe.studies.optimize.candidates import EFFECTS, Candidate, candidate_of, groups, together
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.runs import build_seconds
from strobe.studies.optimize.tries import Judged, Trial, attempt, could_not, milliseconds, moved, refusal
from strobe.treatments import catalogue
from strobe.treatments.treatment import Effect, Spec, Variant


@dataclass
class ByEffect:
    """A strategy: keeps what is within the guard and no slower at first sight, until the closing run."""

    so_far: Climb
    closing_rounds = limits.PAIRS + 1  # of which the first is warm-up
    closed = None

    def measure_start(self, variants: Sequence[Variant], chunk_s: float) -> Measured:
        limit = f"within {self.so_far.limit_s:.0f} s (--time_limit)"
        self.so_far.reporter.said(
            f"a chunk comes every {chunk_s:.1f} s: treatments of one effect are tried together, {limit}"
        )
        return self.so_far.runs.first_sight(variants, counted=True)

    def climb(self) -> str:
        for rung in self.so_far.kept_last_time():
            if not self.so_far.reached():
                attempt(self.so_far, rung, self._judge)
        for effect in EFFECTS:
            for group in self._groups(effect):
                if self.so_far.reached():
                    return self.so_far.end_at_target()
                if group.alone and not self._fits():
                    continue
                if not attempt(self.so_far, group, self._judge) and len(group.specs) > 1:
                    self._try_each(effect)
        if self.so_far.reached():
            return self.so_far.end_at_target()
        self.so_far.leave("there was no time to try it by itself", self.so_far.left_to_try())
        enough = limits.TRIES * limits.try_s(self.so_far.runs.spaced_s(self.so_far.steps[0].ms / 1e3))
        one_by_one = f"from --time_limit={enough:.0f} on they are tried one by one"
        return f"nothing was left to try together; {one_by_one}{self.so_far.left_out()}"

    def closing_budget(self, asked: SamplingBudget, seconds: float) -> SamplingBudget:
        iterations = asked.iterations or limits.PAIRS
        return SamplingBudget(iterations=iterations, seconds=seconds, fewest=iterations)

    def _groups(self, effect: Effect) -> list[Candidate]:
        """Return the groups of ``effect`` without what cannot be put on beside the rest, which is recorded.

        Other forms of it, such as one for each part where the whole does not fit in memory, take its place.
        """
        while True:
            found = groups(self.so_far.left_to_try(), effect)
            if not any(self._refuses(group) for group in found if len(group.specs) > 1):
                return found

    def _refuses(self, group: Candidate) -> bool:
        """Return whether some of ``group`` cannot be put on beside the rest; that is recorded."""
        so_far, runs = self.so_far, self.so_far.runs
        specs: tuple[Spec, ...] = ()
        for spec in catalogue.ordered(group.specs):
            try:
                taken = together(so_far.top.specs, (*specs, spec))
                runs.variant(len(so_far.steps), taken).apply(runs.subject)()
            except Exception as error:
                one, judged = candidate_of(runs.subject, (spec,)), could_not(error)
                so_far.begin_try(one)
                so_far.record(one, judged.outcome, judged.reason)
                so_far.reporter.said(f"{one.text}: not kept, {judged.outcome}: {judged.reason}")
            else:
                specs = (*specs, spec)
        return len(specs) < len(group.specs)

    def _try_each(self, effect: Effect) -> None:
        """Try each candidate of ``effect`` by itself, those that are quick to build, while there is time."""
        for candidate in self.so_far.left_to_try():
            if candidate.effect == effect and not candidate.build_s and self._fits():
                attempt(self.so_far, candidate, self._judge)

    def _fits(self) -> bool:
        """Return whether there is time for the fewest calls of another try."""
        return limits.FIRST * self.so_far.top.ms / 1e3 <= self.so_far.time_to_try(self.closing_rounds)

    def _judge(self, trial: Trial) -> Judged:
        so_far, before = self.so_far, self.so_far.top
        measured = so_far.runs.first_sight([trial.variant])
        if measured.interrupted:
            raise KeyboardInterrupt
        (after,) = measured.measurements
        median = after.samples.summary.median
        agreement = so_far.runs.agreement(measured, trial.variant.name)
        build_s = build_seconds(measured, trial.variant.name)
        seen = f"at first sight: {milliseconds(median)}"
        if (judged := so_far.runs.judge(trial.variant, agreement)).outcome != "held":
            detail = f" ({agreement.observations} observations)"
            return Judged(*refusal(judged), detail, agreement=agreement, build_s=build_s)
        before_ms = before.ms
        if median > limits.SLOWER * before_ms:  # one call may have been held up: both once more, side by side
            beside = so_far.runs.first_sight([before.variant, trial.variant])
            if beside.interrupted:
                raise KeyboardInterrupt
            before_ms, median = (one.samples.summary.median for one in beside.measurements)
            after, seen = beside.measurements[-1], f"at second sight: {milliseconds(median)}"
        if median > limits.SLOWER * before_ms:
            reason = f"slower {seen}, and {milliseconds(before_ms)} before"
            return Judged("slower", reason, agreement=agreement, build_s=build_s)
        figures = f"{seen}, {moved(agreement)}"
        return Judged("kept", figures=figures, measurement=after, agreement=agreement, build_s=build_s)
