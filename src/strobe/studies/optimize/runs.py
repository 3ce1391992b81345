"""Running variants of one subject for a climb: once, on a few observations, or in alternation."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from strobe.measure.agreement import agree, agree_features, in_common
from strobe.measure.guard import Guard, Guards, Judgement, strongest
from strobe.measure.in_time import InTimeLooks
from strobe.measure.sampling import Progress, SamplingBudget
from strobe.measure.sequential import Glance, Looks
from strobe.measure.verdicts import paired_verdict
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.results.agreement import Agreement, Effect, Yardstick, yardstick
from strobe.results.comparison import Verdict
from strobe.results.machine import Ceiling
from strobe.sameness.check import Sameness, affordable
from strobe.sameness.reordered import features_reordered
from strobe.sameness.visits import plan
from strobe.studies.cadence import ticks_between_calls
from strobe.studies.measuring import Counted, Measured, Options, Outputs, Reporter, measure
from strobe.studies.optimize import limits
from strobe.studies.sameness import few, shown, visits_of, yardsticks
from strobe.treatments import catalogue
from strobe.treatments.room import noted
from strobe.treatments.treatment import Spec, Treatment, Variant


@dataclass(frozen=True)
class Checked:
    """A few calls of a variant: the agreement of their chunks, and what the first two calls took.

    Args:
        judged: how the agreement stands to the guard.
        first_s: with putting the variant on.
    """

    agreement: Agreement
    judged: Judgement
    first_s: float
    call_s: float


class Runs:
    """Puts variants on ``subject`` and runs them; their chunks are compared with the untouched policy's.

    Args:
        base: treatments of the untouched policy itself, on in every variant.
        guards: how far the chunks may be apart.
    """

    def __init__(
        self,
        subject: Subject,
        options: Options,
        base: tuple[Treatment, ...],
        reporter: Reporter,
        guards: Guards | None = None,
    ) -> None:
        self.subject, self.options, self.base = subject, options, base
        self.guards = replace(guards or Guards(), of_features=not isinstance(subject, PolicySubject))
        self.same: Sameness | None = None  # of a policy, from `begin_checks` on
        self.yardsticks: list[Yardstick] = []
        self.reference: list[Tensor] = []  # chunks of the untouched policy, by the index of observation and noise
        self.ceiling: Ceiling | None = None  # of this machine, once it was measured
        self._reporter = reporter
        self._call = subject.call("inference", options.batch_size)
        self._made: dict[tuple[str, ...], Treatment] = {}
        self._counts: dict[str, Counted] = {}  # of the untouched policy, by its variant's name
        self._ticks = 1  # from call to call at the robot's pace

    def variant(self, number: int, specs: Sequence[Spec]) -> Variant:
        """Make a variant of ``specs``; treatments that begin like an earlier variant's are shared with it.

        So a converted copy of the weights, or what was compiled, is there once. What is put on before a treatment is
        the same for all who share it, and it need not know what comes after it.

        Raises:
            UserError: a spec means nothing.
        """
        treatments, began = list(self.base), ()
        for spec in catalogue.ordered(specs):
            began = (*began, catalogue.written(spec))
            if began not in self._made:
                self._made[began] = catalogue.make(spec)
            treatments.append(self._made[began])
        return Variant(f"rung {number}", tuple(treatments))

    def release(self, kept: Iterable[Variant]) -> None:
        """Let go of the treatments that none of ``kept`` uses: each may hold a copy of the weights."""
        used = {id(treatment) for variant in kept for treatment in variant.treatments}
        self._made = {began: treatment for began, treatment in self._made.items() if id(treatment) in used}
        gc.collect()

    def once(self, variant: Variant, index: int = 0) -> tuple[Tensor, float]:
        """Run ``variant`` on observation ``index``. Return its chunk, and seconds with putting it on."""
        begun = time.perf_counter()
        undo = variant.apply(self.subject)
        try:
            self._ticks = ticks_between_calls(self.subject)
            with noted(self.subject):
                chunk = self._call(index)
        finally:
            undo()
        return chunk, time.perf_counter() - begun

    def spaced_s(self, chunk_s: float) -> float:
        """Return the seconds from one timed call to the next: those of the chunk, or of the robot's pace."""
        return max(chunk_s, self._ticks / self.options.pace_hz) if self.options.pace_hz else chunk_s

    def begin_checks(self, chunk_s: float) -> None:
        """Choose the observations that a policy's actions are compared on, and measure how far rounding moves them.

        Args:
            chunk_s: seconds that a chunk of the untouched policy takes.
        """
        if not self.options.checked:
            return
        if not isinstance(self.subject, PolicySubject):
            self._reporter.stage("how far the untouched features move by reordered sums")
            found = features_reordered(
                self.subject, Variant("untouched", self.base), few(chunk_s), shown(self._reporter)
            )
            self.yardsticks = [found] if found is not None else []
            return
        same = Sameness(self.subject, self.base, affordable(limits.CHECK_S, chunk_s))
        self.yardsticks = list(yardsticks(same, few(chunk_s), self._reporter, ("reordered sums",)))
        self.same = same

    def guard(self, variant: Variant) -> Guard:
        """Return the guard for what ``variant`` has beyond the untouched policy."""
        return self.guards.of([self.effect(variant)])

    def effect(self, variant: Variant) -> Effect:
        """Return the most that ``variant`` does to the actions, beyond the untouched policy's own treatments."""
        return strongest([treatment.effect for treatment in variant.treatments[len(self.base) :]])

    def judge(self, variant: Variant, agreement: Agreement) -> Judgement:
        """Hold ``agreement`` against the guard's limits on actions; episodes, where there is one on them, come last."""
        return self.guard(variant).of_actions.judge(agreement, yardstick(self.yardsticks, "reordered sums"))

    def check(self, variant: Variant) -> Checked:
        """Run ``variant`` on a few observations; on more where the guard does not hold, so that this is no chance.

        Raises:
            CallFailed: a call fails on an observation that the untouched policy takes.
        """
        outputs, took = Outputs([variant.name]), []
        for index in range(min(limits.GUARDED, len(self.reference))):
            chunk, seconds = self.once(variant, index)
            outputs.add(variant.name, chunk)
            took.append(seconds)
            if index + 1 == limits.FIRST:
                seen = self.judge(variant, self._agreement(variant, outputs.first(variant.name)))
                if seen.outcome == "held":
                    break
        agreement = self._agreement(variant, outputs.first(variant.name))
        judged = self.judge(variant, agreement)
        if judged.outcome == "held" and self.same is not None:
            agreement = self.same.check(variant, plan(limits.LOOKED_AT, rtc=False))
            judged = self.judge(variant, agreement)
        return Checked(agreement, judged, took[0], took[min(1, len(took) - 1)])

    def check_well(self, variant: Variant) -> Agreement | None:
        """Run ``variant`` on all that finds faults; None for a backbone.

        Raises:
            CallFailed: a call fails on an observation that the untouched policy takes.
        """
        if self.same is None:
            return None
        return self.same.check(variant, visits_of(self.same, variant), shown(self._reporter))

    def first_sight(self, variants: Sequence[Variant], *, counted: bool = False) -> Measured:
        """Run the fewest rounds that show parts and outputs; the closing run judges what they take.

        Args:
            counted: whether FLOP and memory are counted too, unless that was not asked for.
        """
        return self._measure(variants, self._of(SamplingBudget(iterations=limits.FIRST - 1, seconds=1.0), counted))

    def sample(self, variants: Sequence[Variant], seconds: float, *, counted: bool = False) -> Measured:
        """Run ``variants`` in alternation for ``seconds``, or less where their ratio is known sooner.

        Args:
            counted: as for `first_sight`.
        """
        budget = SamplingBudget(seconds=seconds, min_iterations=limits.ROUNDS, precision=0.01)
        return self._measure(variants, self._of(budget, counted))

    def trial(
        self, before: Variant, after: Variant, seconds: float, *, glanced: bool = False
    ) -> tuple[Measured, Verdict | Glance, float]:
        """Run two variants in alternation until it is clear which is faster, for ``seconds`` at most.

        Args:
            glanced: whether two, four or six pairs may end it.

        Returns:
            The run; the judgement on it, or the glance where that ended it; and the share of the time that ``after``
            saves at most.
        """
        looks = Looks(before.name, after.name)
        glance = Glance(looks) if glanced else None
        budget = SamplingBudget(
            seconds=seconds, fewest=limits.PAIRS, min_iterations=limits.ROUNDS, looking=glance or looks
        )
        measured = self._measure([before, after], self._of(budget))
        if glance is not None and glance.seen:
            return measured, glance, glance.most_gain
        times = [measured.collected.samples[one.name].values for one in (before, after)]
        return measured, looks.verdict(*times), looks.most_gain(*times)

    def sample_one(self, variant: Variant, looks: InTimeLooks, seconds: float) -> Measured:
        """Run ``variant`` by itself until its chunks show whether they are in time, for ``seconds`` at most."""
        return self._measure([variant], self._of(SamplingBudget(seconds=seconds, looking=looks)))

    def close(self, variants: Sequence[Variant], budget: SamplingBudget) -> Measured:
        """Run ``variants`` in alternation, and count their FLOP and memory where that was asked for."""
        return self._measure(variants, replace(self.options, budget=budget))

    def agreement(self, measured: Measured, name: str) -> Agreement:
        """Compare the chunks of ``name`` with the untouched policy's on the observations that both saw."""
        return self._agreement(measured.variants[name], measured.outputs.first(name))

    def _agreement(self, variant: Variant, outputs: Sequence[Tensor]) -> Agreement:
        count = min(len(outputs), len(self.reference), limits.GUARDED)
        before, after = self.reference[:count], outputs[:count]
        if not isinstance(self.subject, PolicySubject):
            return agree_features(before, after)
        scale = self.subject.scale(self.reference) if self.reference[0].dim() > 1 else None
        if scale is not None and before[0].shape != after[0].shape and variant.changes_execution:
            before, after = in_common(before, after)
        return agree(before, after, scale, executed=self.subject.executed)

    def _of(self, budget: SamplingBudget, counted: bool = False) -> Options:
        return replace(self.options, budget=budget, counted=counted and self.options.counted)

    def _measure(self, variants: Sequence[Variant], options: Options) -> Measured:
        ceiling = self.ceiling if options.counted else None
        reporter = _ProgressOnly(self._reporter)
        measured = measure(self.subject, "inference", variants, options, ceiling, reporter, known=self._counts)
        untouched = [variant.name for variant in variants if variant.treatments == self.base]
        self._counts |= {name: measured.counts[name] for name in untouched if name in measured.counts}
        return measured


@dataclass
class _ProgressOnly:
    """Passes on how far a measurement is, and not its stages: the climb names those itself."""

    reporter: Reporter

    def stage(self, what: str) -> None: ...

    def progress(self, progress: Progress) -> None:
        self.reporter.progress(progress)


def verdict_of(measured: Measured, before: str, after: str) -> Verdict:
    """Judge the variant ``after`` against ``before``, both of one alternating run."""
    samples = measured.collected.samples
    return paired_verdict(samples[before].values, samples[after].values, baseline_name=before, candidate_name=after)


def build_seconds(measured: Measured, name: str, first_s: float | None = None) -> float:
    """Return the seconds of putting ``name`` on with its first call, beyond what a call takes.

    ``first_s``: of that first call, where it was made before this run.
    """
    median = measured.collected.samples[name].summary.median
    return max((measured.first_s.get(name, 0.0) if first_s is None else first_s) - median / 1e3, 0.0)
