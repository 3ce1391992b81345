"""One by one: each candidate is judged in a run of its own, in alternation with the highest rung."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from strobe.measure.sampling import SamplingBudget
from strobe.measure.sequential import MATTERS, Glance
from strobe.results.agreement import Agreement
from strobe.studies.measuring import Measured
from strobe.studies.optimize import limits
from strobe.studies.optimize.candidates import Candidate
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.closing import close
from strobe.studies.optimize.last_time import put_on
from strobe.studies.optimize.runs import build_seconds
from strobe.studies.optimize.tries import Judged, Trial, attempt, moved, outcome_of, refusal, speedup
from strobe.treatments.treatment import Variant


@dataclass
class OneByOne:
    """A strategy: keeps what its own run shows to be faster, within the guard."""

    so_far: Climb
    closing_rounds = limits.PAIRS + 1  # of which the first is warm-up
    closed: Measured | None = None
    _at_first_sight: bool = False  # whether the policy as it is was only glanced at

    def measure_start(self, variants: Sequence[Variant], chunk_s: float) -> Measured:
        earlier = self.so_far.earlier
        learned = earlier is not None and bool(earlier.rungs)
        if len(variants) == 1 and (learned or self._glances(chunk_s)):
            self._at_first_sight = True  # the run of what was kept last time, or the closing run, measures it well
            return self.so_far.runs.first_sight(variants, counted=True)
        rounds_s = (limits.ROUNDS + 1) * chunk_s * len(variants)
        return self.so_far.runs.sample(variants, max(limits.TRY_S[0], rounds_s), counted=True)

    def climb(self) -> str:
        so_far = self.so_far
        rungs = so_far.kept_last_time()
        if rungs and sum(rung.build_s for rung in rungs) <= so_far.time_to_try(self.closing_rounds):
            self.closed = put_on(so_far, rungs, lambda variants: close(so_far, self, variants))
        if self._at_first_sight and (self.closed is not None or not self._far()):
            self._measure_well(self.closed)
        while not so_far.reached():
            left = so_far.left_to_try()
            if not left:
                return f"nothing was left to try{so_far.left_out()}"
            # What is quick may still fit where what comes first does not.
            seconds = so_far.time_to_try(self.closing_rounds)
            fitting = next((candidate for candidate in left if self._needed_s(candidate) <= seconds), None)
            if fitting is None:
                return self._out_of_time(left)
            quick = sum(1 for candidate in left if not candidate.build_s)
            attempt(so_far, fitting, partial(self._judge, sharing=quick))
        return so_far.end_at_target()

    def closing_budget(self, asked: SamplingBudget, seconds: float) -> SamplingBudget:
        gains = [1 - step.verdict.ratio for step in self.so_far.steps if step.verdict is not None]
        gains += [1 - rung.ratio for rung in self.so_far.earlier.rungs] if self.so_far.earlier is not None else []
        # Known before the run begins, so that its end depends on widths alone.
        precision = min([asked.precision, *(max(gain / 2, limits.FINEST) for gain in gains if gain > 0)])
        fewest = asked.iterations or limits.PAIRS
        return replace(asked, seconds=seconds, fewest=fewest, min_iterations=limits.PAIRS, precision=precision)

    def _glances(self, chunk_s: float) -> bool:
        """Return whether tries of such a chunk begin with a glance."""
        return limits.try_s(chunk_s) > limits.GLANCED_FROM_S

    def _far(self) -> bool:
        """Return whether the policy as it is misses the target by so much that a glance at it shows that."""
        return self.so_far.aim.everything or self.so_far.steps[0].ms > limits.FAR * self.so_far.aim.target_ms

    def _measure_well(self, measured: Measured | None) -> None:
        """Put a good measurement of the policy as it is in the place of a first glance: from ``measured``, or anew."""
        first, runs = self.so_far.steps[0], self.so_far.runs
        if measured is None:
            seconds = (limits.ROUNDS + 1) * runs.spaced_s(first.ms / 1e3)
            measured = runs.sample([first.variant], max(limits.TRY_S[0], seconds))
            if measured.interrupted:
                raise KeyboardInterrupt
        first.measurement = measured.measurements[0]
        runs.reference = measured.outputs.first(first.variant.name)

    def _needed_s(self, candidate: Candidate) -> float:
        """Seconds that a try takes at the least."""
        return candidate.build_s + limits.try_s(self.so_far.runs.spaced_s(self.so_far.top.ms / 1e3))

    def _out_of_time(self, left: Sequence[Candidate]) -> str:
        seconds = max(self.so_far.time_to_try(self.closing_rounds), 0.0)
        self.so_far.leave(f"{seconds:.0f} s were left", left, with_build=True)
        which = ", all of which take long to build" if all(candidate.build_s for candidate in left) else ""
        limit = f"the time limit of {self.so_far.limit_s:.0f} s was reached with {len(left)} left to try"
        return f"{limit}{which}{self.so_far.left_out()}"

    def _judge(self, trial: Trial, sharing: int) -> Judged:
        """Check the guard on a few observations, then time the trial against the highest rung.

        ``sharing``: how many candidates that are quick to build share the time that is left.
        """
        so_far, before = self.so_far, self.so_far.top
        runs, name = so_far.runs, trial.variant.name
        first_s, call_s = None, before.ms / 1e3
        if not trial.candidate.build_s:  # compiled code has the probes in it: a call without them would build it twice
            checked = runs.check(trial.variant)
            first_s, call_s = checked.first_s, checked.call_s
            if checked.judged.outcome != "held":
                return Judged(
                    *refusal(checked.judged),
                    detail=f" ({checked.agreement.observations} observations)",
                    agreement=checked.agreement,
                    build_s=max(first_s - call_s, 0.0),
                )
        least, most = limits.TRY_S
        seconds = min(max(so_far.time_to_try(self.closing_rounds) / max(sharing, 1), least), most)
        rounds_s = (limits.ROUNDS + 1) * (runs.spaced_s(before.ms / 1e3) + runs.spaced_s(call_s))
        glanced = not trial.candidate.build_s and self._glances(runs.spaced_s(before.ms / 1e3))
        measured, verdict, most_gain = runs.trial(
            before.variant, trial.variant, max(seconds, rounds_s), glanced=glanced
        )
        if measured.interrupted:
            raise KeyboardInterrupt
        agreement = runs.agreement(measured, name)
        build_s = build_seconds(measured, name, first_s)
        if isinstance(verdict, Glance):
            return self._at_a_glance(verdict, measured, trial, agreement, build_s)
        outcome, reason = outcome_of(verdict, runs.judge(trial.variant, agreement))
        figures = {
            "kept": f"{speedup(verdict)}, {moved(agreement)}",
            "guard": speedup(verdict),
        }
        return Judged(
            outcome,
            reason,
            figures=figures.get(outcome, ""),
            measurement=measured.measurements[-1],
            verdict=verdict,
            agreement=agreement,
            build_s=build_s,
            most_gain=most_gain,
        )

    def _at_a_glance(
        self, glance: Glance, measured: Measured, trial: Trial, agreement: Agreement, build_s: float
    ) -> Judged:
        """Keep what gains clearly in few pairs, until the closing run judges it; drop what gains nothing in them.

        What loses clearly is dropped too, and nothing is claimed of it: so few pairs do not show that it is slower.
        """
        seen = f"{glance.times:.2f}× as fast in {glance.pairs} pairs"
        if glance.seen == "no gain":
            reason = f"saves less than {100 * MATTERS:g} %: {seen}"
            return Judged(
                "no difference shown", reason, agreement=agreement, build_s=build_s, most_gain=glance.most_gain
            )
        if glance.seen == "a clear loss":
            return Judged("too noisy", f"seems slower: {seen}", agreement=agreement, build_s=build_s)
        if (judged := self.so_far.runs.judge(trial.variant, agreement)).outcome != "held":
            return Judged(*refusal(judged), figures=seen, agreement=agreement, build_s=build_s)
        figures, after = f"{seen}, {moved(agreement)}", measured.measurements[-1]
        return Judged("kept", figures=figures, measurement=after, agreement=agreement, build_s=build_s)
