"""Running variants of one subject for a climb, and judging their actions by the guard."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from strobe.core.measure.agreement import Values, agree, agree_features, agree_outputs, crop_to_common_actions
from strobe.core.measure.compilations import CompileWatch
from strobe.core.measure.guard import Guard, Guards, Judgement, strongest
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.measure.time_limit import TimeLimit
from strobe.core.measure.verdicts import paired_verdict
from strobe.core.results.agreement import Agreement, Effect, Yardstick, yardstick
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Samples
from strobe.core.results.subject import Ceiling
from strobe.core.sameness.check import Sameness, affordable
from strobe.core.sameness.reordered import features_reordered
from strobe.core.sameness.visits import plan
from strobe.core.studies.shared.action_check import CheckProgress, action_time_limit, yardstick_observations, yardsticks
from strobe.core.studies.shared.cadence import ticks_between_calls
from strobe.core.studies.shared.counting import Counted
from strobe.core.studies.shared.measuring import Measured, Options, Session
from strobe.core.studies.shared.progress import Inner
from strobe.core.studies.shared.rounds import Outputs
from strobe.core.subjects.callable_subject import CallableSubject
from strobe.core.subjects.subject import Subject
from strobe.core.torch_there import is_tensor
from strobe.core.treatments import catalogue
from strobe.core.treatments.room import record_call_memory
from strobe.core.treatments.treatment import Spec, Treatment, Variant
from strobe.ladder import settings
from strobe.ladder.in_time import InTimeLooks, fewest_chunks
from strobe.ladder.results import InTime
from strobe.ladder.sequential import Glance, Looks
from strobe.ladder.settings import Aim, Climbing
from strobe.lerobot.policies.policy_subject import PolicySubject


class Runs:
    """Puts variants on ``subject`` and runs them: once, or in alternation.

    Args:
        base: treatments of the baseline itself, on in every variant.
        ceiling: of this machine.
    """

    def __init__(
        self,
        subject: Subject,
        options: Options,
        base: tuple[Treatment, ...],
        reporter: Climbing,
        ceiling: Ceiling | None,
    ) -> None:
        self.subject, self.options, self.base, self.reporter = subject, options, base, reporter
        self.ceiling = ceiling
        self._call = subject.call("inference", options.batch_size)
        self._treatments: dict[tuple[str, ...], Treatment] = {}  # by the specs up to their own, in order
        self._counts: dict[str, Counted] = {}  # of the baseline, by its variant's name
        self._ticks = 1  # from call to call at the robot's pace

    def variant(self, number: int, specs: Sequence[Spec]) -> Variant:
        """Make a variant of ``specs``; treatments that begin like an earlier variant's are shared with it.

        So a converted copy of the weights, or compiled code, is there once. What is applied before a treatment is the
        same for all who share it, and it need not know what comes after it.

        Raises:
            UserError: a spec means nothing.
        """
        treatments, key = list(self.base), ()
        for spec in catalogue.sort_specs(specs):
            key = (*key, catalogue.format_spec(spec))
            if key not in self._treatments:
                self._treatments[key] = catalogue.make(spec)
            treatments.append(self._treatments[key])
        return Variant(f"step {number}", tuple(treatments))

    def release(self, accepted: Iterable[Variant]) -> None:
        """Let go of the treatments that none of ``accepted`` uses: each may hold a copy of the weights."""
        used = {id(treatment) for variant in accepted for treatment in variant.treatments}
        self._treatments = {key: treatment for key, treatment in self._treatments.items() if id(treatment) in used}
        gc.collect()

    def run_once(self, variant: Variant, index: int = 0) -> tuple[Tensor, float]:
        """Run ``variant`` on observation ``index``. Return its chunk, and seconds with putting it on."""
        compiling, begun = CompileWatch(), time.perf_counter()
        undo = variant.apply(self.subject)
        try:
            self._ticks = ticks_between_calls(self.subject)
            with record_call_memory(self.subject):
                chunk = self._call(index)
        finally:
            undo()
            compiling.look(variant.compiles, -1)
        return chunk, time.perf_counter() - begun

    def spaced_s(self, chunk_s: float) -> float:
        """Return the seconds from one timed call to the next: those of the chunk, or of the robot's pace."""
        return max(chunk_s, self._ticks / self.options.pace_hz) if self.options.pace_hz else chunk_s

    def first_sight(self, variants: Sequence[Variant], *, counted: bool = False) -> Measured:
        """Run the fewest rounds that show parts and outputs; the closing run judges the times.

        Args:
            counted: whether FLOP and memory are counted too, unless the options leave that out.
        """
        return self._measure(variants, SamplingBudget(iterations=settings.SCREENING_CHUNKS - 1, seconds=1.0), counted)

    def sample(self, variants: Sequence[Variant], seconds: float, *, counted: bool = False) -> Measured:
        """Run ``variants`` in alternation for ``seconds``, or less where their ratio is known sooner.

        Args:
            counted: as for `first_sight`.
        """
        budget = SamplingBudget(seconds=seconds, min_iterations=settings.TRY_ROUNDS, precision=0.01)
        return self._measure(variants, budget, counted)

    def race(
        self, before: Variant, after: Variant, seconds: float, *, glanced: bool = False
    ) -> tuple[Measured, Verdict | Glance, float]:
        """Run two variants in alternation until it is clear which is faster, for ``seconds`` at most.

        Args:
            glanced: whether two, four or six pairs may end it.

        Returns:
            The run; the judgement on it, or the glance where that ended it; and the share of the time that ``after``
            saves at most.

        Raises:
            KeyboardInterrupt: during the run.
        """
        looks = Looks(before.name, after.name)
        glance = Glance(looks) if glanced else None
        budget = SamplingBudget(
            seconds=seconds,
            fewest=settings.CLOSING_MIN_PAIRS,
            min_iterations=settings.TRY_ROUNDS,
            looking=glance or looks,
        )
        measured = require_uninterrupted(self._measure([before, after], budget))
        if glance is not None and glance.seen:
            return measured, glance, glance.most_gain
        times = [measured.collected.samples[variant.name].values for variant in (before, after)]
        return measured, looks.verdict(*times), looks.most_gain(*times)

    def time_alone(
        self, variant: Variant, chunk_ms: float, aim: Aim, seconds: float = math.inf
    ) -> tuple[InTime, Samples] | None:
        """Run ``variant`` by itself, chunk after chunk, until it is clear whether enough of them are in time.

        What a closing run has of a rung is too little to say that: some ten chunks, where 59 can show that 95 % are in
        time.

        Args:
            chunk_ms: milliseconds of a chunk, roughly.
            seconds: that it may take at most.

        Returns:
            The judgement and the chunks; None if ``seconds`` are too few for it, and nothing was run.

        Raises:
            KeyboardInterrupt: during the run.
        """
        usual, most = settings.IN_TIME_S
        least_s = (fewest_chunks(aim.in_time) + settings.SCREENING_CHUNKS) * self.spaced_s(chunk_ms / 1e3)
        if least_s > min(seconds, most):
            return None
        looks = InTimeLooks(variant.name, aim.target_ms, aim.in_time)
        budget = SamplingBudget(seconds=min(max(usual, least_s), seconds), looking=looks)
        samples = require_uninterrupted(self._measure([variant], budget)).measurements[0].samples
        return looks.judge_run(samples.values), samples

    def close(self, variants: Sequence[Variant], budget: SamplingBudget) -> Measured:
        """Run ``variants`` in alternation, and count their FLOP and memory unless the options leave that out."""
        return self._measure(variants, budget, counted=True)

    def _measure(self, variants: Sequence[Variant], budget: SamplingBudget, counted: bool = False) -> Measured:
        options = replace(self.options, budget=budget, counted=counted and self.options.counted)
        ceiling = self.ceiling if options.counted else None
        reporter = Inner(self.reporter)  # the climb names its stages itself
        session = Session(self.subject, "inference", variants, options, ceiling, reporter, known=self._counts)
        measured = session.measure()
        baseline = [variant.name for variant in variants if variant.treatments == self.base]
        self._counts |= {name: measured.counts[name] for name in baseline if name in measured.counts}
        return measured


def prepare_checks(runs: Runs, chunk_s: float) -> tuple[Sameness | None, list[Yardstick]]:
    """Choose the observations that a policy's actions are compared on, and measure how far rounding moves them.

    Args:
        chunk_s: seconds that a chunk of the baseline takes.

    Returns:
        The comparison, None for a backbone or where none is requested, and the yardsticks.

    Raises:
        PolicyCallError: the baseline fails on one of the observations.
    """
    subject, reporter = runs.subject, runs.reporter
    if not runs.options.checked:
        return None, []
    limit = action_time_limit(settings.CLOSE_LOOK_S, chunk_s)
    if not isinstance(subject, PolicySubject):
        reporter.stage(f"floating-point noise of the {subject.returns}")
        baseline = Variant("baseline", runs.base)
        count, progress = yardstick_observations(chunk_s), CheckProgress(reporter)
        moved = features_reordered(subject, baseline, count, progress, limit)
        return None, [moved] if moved is not None else []
    same = Sameness(subject, runs.base, affordable(settings.CLOSE_LOOK_S, chunk_s), limit)
    moved_by = list(yardsticks(same, yardstick_observations(chunk_s), reporter, ("reordered sums",)))
    same.limit = TimeLimit()  # tries look at few observations, and the close look gets a limit of its own
    return same, moved_by


@dataclass(frozen=True)
class Screened:
    """A few calls of a variant: how its actions stand to the guard, and the seconds of the first two calls.

    Args:
        first_s: with putting the variant on.
    """

    agreement: Agreement
    judgement: Judgement
    first_s: float
    call_s: float


@dataclass
class ActionGuard:
    """Compares variants' actions with the baseline's, and judges the difference by the guard.

    Args:
        guards: how far the actions may differ.
        reference: chunks of the baseline, by the index of observation and noise.
        same: checks a policy's actions on other observations; None for a backbone, or where the baseline fails.
        yardsticks: how far something harmless moves the baseline's actions.
    """

    runs: Runs
    guards: Guards
    reference: list[Values]
    same: Sameness | None = None
    yardsticks: list[Yardstick] = field(default_factory=list)

    def effect(self, variant: Variant) -> Effect:
        """Return the most that ``variant`` does to the actions, beyond the baseline's own treatments."""
        return strongest([treatment.effect for treatment in variant.treatments[len(self.runs.base) :]])

    def variant_guard(self, variant: Variant) -> Guard:
        """Return the guard for what ``variant`` has beyond the baseline."""
        return self.guards.strictest_guard([self.effect(variant)])

    def judge(self, variant: Variant, agreement: Agreement) -> Judgement:
        """Compare ``agreement`` with the guard's limits on actions; one on episodes is held at the end of the climb."""
        return self._judge(self.variant_guard(variant), agreement)

    def _judge(self, guard: Guard, agreement: Agreement) -> Judgement:
        return guard.action_guard.judge(agreement, yardstick(self.yardsticks, "reordered sums"))

    def agreement(self, measured: Measured, name: str) -> Agreement:
        """Compare the chunks of ``name`` with the baseline's on the observations that both saw."""
        return self._agreement(measured.variants[name], measured.outputs.first(name))

    def screen(self, variant: Variant) -> Screened:
        """Run ``variant`` on a few observations; on more where it is near a limit, so that the judgement is no chance.

        Raises:
            PolicyCallError: a call fails on an observation that the baseline takes.
        """
        outputs, seconds = Outputs([variant.name]), []
        for index in range(settings.GUARDED_OBSERVATIONS):
            if index == len(self.reference):  # the baseline was glanced at only
                self.reference.append(self.runs.run_once(Variant("baseline", self.runs.base), index)[0])
            chunk, took = self.runs.run_once(variant, index)
            outputs.add(variant.name, chunk)
            seconds.append(took)
            if index + 1 == settings.SCREENING_CHUNKS:
                few_seen = self._agreement(variant, outputs.first(variant.name))
                guard, near = self.variant_guard(variant), settings.NEAR_LIMIT
                tight, wide = (self._judge(guard.scale(share), few_seen).outcome for share in (near, 1 / near))
                if tight == "held" or wide == "broken":
                    break
        agreement = self._agreement(variant, outputs.first(variant.name))
        judgement = self.judge(variant, agreement)
        if judgement.outcome == "held" and self.same is not None:
            agreement = self.same.check(variant, plan(settings.SCREENED_OBSERVATIONS, rtc=False))
            judgement = self.judge(variant, agreement)
        return Screened(agreement, judgement, seconds[0], seconds[min(1, len(seconds) - 1)])

    def _agreement(self, variant: Variant, outputs: Sequence[Values]) -> Agreement:
        subject = self.runs.subject
        count = min(len(outputs), len(self.reference), settings.GUARDED_OBSERVATIONS)
        before, after = self.reference[:count], outputs[:count]
        if isinstance(subject, CallableSubject):
            return agree_outputs(before, after, form.shapes if (form := subject.latest.form) is not None else ())
        if not isinstance(subject, PolicySubject):
            return agree_features(before, after)
        chunks = [each for each in self.reference if is_tensor(each) and each.dim() > 1]
        # The spread over the few observations of a try is less than that over more, and its errors in σ seem larger.
        scale = (subject.scale(chunks) if self.same is None else self.same.scale) if chunks else None
        if scale is not None and before[0].shape != after[0].shape and variant.changes_execution:
            before, after = crop_to_common_actions(before, after)
        return agree(before, after, scale, executed=subject.executed_actions)


def require_uninterrupted(measured: Measured) -> Measured:
    """Return ``measured``. Raises KeyboardInterrupt if Ctrl-C ended it."""
    if measured.interrupted:
        raise KeyboardInterrupt
    return measured


def judge_variants(measured: Measured, before: str, after: str) -> Verdict:
    """Judge the variant ``after`` against ``before``, both of one alternating run."""
    samples = measured.collected.samples
    return paired_verdict(samples[before].values, samples[after].values, baseline_name=before, candidate_name=after)


def build_seconds(measured: Measured, name: str, first_s: float | None = None) -> float:
    """Return the seconds of putting ``name`` on with its first call, beyond what a call takes.

    ``first_s``: of that first call, where it was made before this run.
    """
    median = measured.collected.samples[name].summary.median
    return max((measured.first_s.get(name, 0.0) if first_s is None else first_s) - median / 1e3, 0.0)
