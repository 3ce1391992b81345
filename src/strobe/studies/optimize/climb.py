"""Optimize: climb from the policy as it is to a target rate, one treatment at a time, each shown and guarded.

At every rung the candidates for the part that costs most are tried first; where a chunk takes so long that few could be
tried, all of one effect are put on together. A try is what was kept so far against the
same with the candidate, in alternation; it is kept where the verdict says faster and where all that is on together
stays within the guard of the untouched policy, on the same observations with the same noise. Treatments interact, so
none is judged alone. One interleaved run of all rungs gives the ladder's figures.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from strobe.errors import UserError
from strobe.measure.guard import DEFAULT, Guard
from strobe.measure.sampling import Budget, Progress
from strobe.measure.verdicts import paired_verdict
from strobe.results.answer import OptimizeResult
from strobe.results.comparison import Agreement, Verdict
from strobe.results.ladder import Outcome, Try
from strobe.results.measurement import Measurement
from strobe.studies.breakdown import begin
from strobe.studies.compare import SEVERAL_COPIES, agree
from strobe.studies.episodes import Episodes
from strobe.studies.measuring import Measured, Options, Outputs, Reporter, Silent, measure
from strobe.studies.optimize.candidates import (
    EFFECTS,
    Candidate,
    Choice,
    candidates,
    groups,
    in_order,
    largest,
    place,
    strongest,
    together,
)
from strobe.studies.optimize.ladder import AS_IT_IS, Step, compared, compared_by_tries, ladder_of
from strobe.studies.optimize.proof import prove, started
from strobe.subjects.subject import Subject
from strobe.timeline import Section
from strobe.treatments import catalogue
from strobe.treatments.treatment import Spec, Treatment, Variant

PAIRS = 8  # with which a verdict reaches its 99 %
ROUNDS = 10  # of a try or of the closing run, at the least
GUARDED = 16  # observations with noise of their own that a try is guarded on, at most
FIRST = 2  # of them before it is timed, so that what is wrong costs little
SLOWER = 1.05  # times what was before, at first sight: not worth the closing run
TRIES = 3  # that must fit into the time limit, at the policy's first speed, for candidates to be tried one by one
TRY_S = (2.0, 8.0)  # the least and the most that a try is sampled for, unless its rounds take longer
CLOSING_SHARE = 0.15  # of the time limit, kept for the closing run
NOT_INTERLEAVED = (
    "the climb was interrupted before its closing run: a rung's figures are from its own try, in alternation with the "
    "rung before it, and it is set against the policy as it is across two runs"
)


class Climbing(Reporter, Protocol):
    """Where the climb says what it is doing, and what came of each try."""

    def doing(self, what: str) -> None:
        """Something passing, gone once it is done."""

    def said(self, line: str) -> None:
        """A line that stays."""


class SilentClimb(Silent):
    """Says nothing."""

    def doing(self, what: str) -> None: ...

    def said(self, line: str) -> None: ...


@dataclass(frozen=True)
class Aim:
    """Where to climb to and by what.

    Args:
        target_hz: control loops per second: a chunk must be ready within one.
        everything: go on through all candidates once the target is reached.
        time_limit: seconds for climb and closing run; None for what suits the subject. Episodes come after it.
        start: treatments that are on from the first rung, whatever they buy; the guard holds for them too.
        env: LeRobot's ``EnvConfig`` for paired episodes, and how many of them per task; 0 for none.
    """

    target_hz: float = 20.0
    guard: Guard = field(default_factory=lambda: Guard.parse(DEFAULT))
    choice: Choice = field(default_factory=Choice)
    start: tuple[Spec, ...] = ()
    everything: bool = False
    time_limit: float | None = None
    env: Any = None
    episodes: int = 0


def optimize(
    subject: Subject,
    aim: Aim,
    options: Options,
    base: Sequence[Treatment] = (),
    reporter: Climbing | None = None,
) -> tuple[OptimizeResult, list[Section]]:
    """Climb, then measure all rungs in one interleaved run; Ctrl-C keeps what was climbed.

    Args:
        options: its budget is the closing run's.
        base: treatments of the untouched policy itself (Real-Time Chunking), on in everything that is measured.

    Returns:
        The result, without findings, and the sections of the closing run.

    Raises:
        UserError: the start does not apply, or breaks the guard; the simulator cannot be started, or the episodes are
            too few for what the guard demands of them.
        KeyboardInterrupt: before the policy as it is was measured.
    """
    climb = _Climb(subject, aim, options, tuple(base), reporter or SilentClimb())
    return climb.run()


def default_limit(device: str) -> float:
    """Seconds for a climb: 80, or 300 where compiling pays."""
    return 80.0 if device == "cpu" else 300.0


class _Climb:
    def __init__(
        self, subject: Subject, aim: Aim, options: Options, base: tuple[Treatment, ...], reporter: Climbing
    ) -> None:
        self.subject, self.aim, self.options, self.base, self.reporter = subject, aim, options, base, reporter
        self.target_ms = 1e3 / aim.target_hz
        self.started = time.perf_counter()
        self.limit = aim.time_limit or default_limit(subject.device.type)
        self.by_effect = False
        self.call = subject.call("inference", options.batch_size)
        self.reference: list[Tensor] = []  # of the untouched policy, by the index of observation and noise
        self.steps: list[Step] = []
        self.tries: list[Try] = []
        self.tried: dict[str, int] = {}  # candidate → rungs that were there when it was last tried
        self.again: dict[str, int] = {}  # candidate → how often
        self.made: dict[tuple[str, ...], Treatment] = {}
        self.episodes: Episodes | None = None

    def run(self) -> tuple[OptimizeResult, list[Section]]:
        if self.aim.episodes:  # first, before anything is measured that a simulator's fault could cost
            self.reporter.stage(f"starting {self.aim.env.type}")
            self.episodes = started(self.subject, self.aim.env, self.aim.episodes, self.aim.guard, self.base)
        try:
            return self._run()
        finally:
            if self.episodes is not None:
                self.episodes.close()

    def _run(self) -> tuple[OptimizeResult, list[Section]]:
        title = f"{self.subject.info.name}: a ladder to {self.aim.target_hz:g} Hz"
        result = begin(OptimizeResult, self.subject, title, self.options, self.reporter)
        interrupted = self._start()
        try:
            if interrupted:
                raise KeyboardInterrupt
            ended = self._leap() if self.by_effect else self._climb()
        except KeyboardInterrupt:
            ended, result.status = "interrupted", "interrupted"
        measured: Measured | None = None
        if result.status == "complete":
            try:
                measured = self._close(result)
            except KeyboardInterrupt:
                measured = None
            if measured is None or measured.interrupted:
                result.status = "interrupted"
        if measured is not None and _enough(measured, len(self.steps)):
            result.measurements = measured.measurements
            result.comparisons = compared(measured)
            if self.by_effect:
                self._prune(result)
        else:
            measured = None
            result.measurements = [step.measurement for step in self.steps]
            result.comparisons = compared_by_tries(self.steps)
            if len(self.steps) > 1:
                result.notes.append(NOT_INTERLEAVED)
        if self.options.counted and len(self.steps) > 1:
            result.notes.append(SEVERAL_COPIES)
        climbed = partial(
            ladder_of,
            result,
            self.steps,
            self.tries,
            self.aim.target_hz,
            self.aim.guard,
            ended=ended,
            interleaved=measured is not None,
        )
        result.ladder = climbed()
        if self.episodes is not None and result.status == "complete":
            variants = [step.variant for step in self.steps]
            prove(result, variants, self.episodes, self.aim.guard, climbed, self.reporter)
        return result, measured.sections if measured is not None else []

    # The climb

    def _start(self) -> bool:
        """Measure the policy as it is, with what was asked to start with. Returns whether that was interrupted."""
        self.reporter.stage("the policy as it is")
        untouched = Variant(AS_IT_IS, self.base)
        chunk_s = self._seconds(untouched)
        if self._needed_at(chunk_s) * TRIES > self.limit / 2:  # the very first is slower than the others
            chunk_s = min(chunk_s, self._seconds(untouched))
        self.by_effect = self._needed_at(chunk_s) * TRIES > self.limit
        variants = [untouched]
        if self.aim.start:
            variants.append(self._variant(1, self.aim.start))
        if self.by_effect:
            self.reporter.said(f"a chunk takes {chunk_s:.1f} s: treatments of one effect are tried together")
            measured = self._glimpse(variants)
        else:
            measured = self._measure(variants, max(TRY_S[0], (ROUNDS + 1) * chunk_s * len(variants)))
        if measured.interrupted and len(measured.measurements) < len(variants):
            raise KeyboardInterrupt
        self.reference = measured.outputs.first(AS_IT_IS)
        first, *others = measured.measurements
        self.steps.append(Step(untouched, (), first))
        self.reporter.said(f"as it is: {_ms(self.steps[0].ms)} ({1e3 / self.steps[0].ms:.1f} Hz)")
        for taken in others:
            self._started(variants[1], taken, measured)
        return measured.interrupted

    def _started(self, variant: Variant, taken: Measurement, measured: Measured) -> None:
        agreement = self._agreement(measured.outputs.first(variant.name))
        if broken := self.aim.guard.broken(agreement):
            raise UserError(f"--start does not hold the guard by itself: {broken}; change --guard or --start")
        verdict = _verdict(measured, AS_IT_IS, variant.name)
        candidate = Candidate(self.aim.start, (), strongest(treatment.effect for treatment in variant.treatments), 0)
        build = _build(measured, variant.name)
        self.steps.append(Step(variant, self.aim.start, taken, candidate, "", build, verdict, agreement))
        self.reporter.said(f"rung 1, asked for: {candidate.text}: {_times(verdict)}, cosine {agreement.cosine:.6f}")

    def _climb(self) -> str:
        """Try candidate after candidate. Returns why it ended."""
        while True:
            if self._done():
                return self._met()
            found = self._next()
            if not found:
                return "nothing was left to try"
            # What is quick may still fit where what comes first does not.
            fitting = next((candidate for candidate in found if self._needed(candidate) <= self._left()), None)
            if fitting is None:
                left = max(self._left(), 0.0)
                builds = sum(1 for candidate in found if candidate.build_s)
                self._leave(f"{left:.0f} s were left", found)
                what = "" if builds < len(found) else ", all of which take long to build"
                return f"the time limit of {self.limit:.0f} s was reached with {len(found)} left to try{what}"
            self._try(fitting, partial(self._judge, sum(1 for one in found if not one.build_s)))

    def _done(self) -> bool:
        """Whether the target is reached and nothing more was asked for."""
        summary = self.steps[-1].measurement.samples.summary
        slowest = summary.interval.high if summary.interval is not None else summary.median
        return slowest <= self.target_ms and not self.aim.everything

    def _met(self) -> str:
        self._leave("the target was reached before")
        return "the target was reached" if len(self.steps) > 1 else "it meets the target as it is"

    def _next(self) -> list[Candidate]:
        """What may be tried now, in order: what was not tried yet, then once more what showed no difference before."""
        now = self.steps[-1]
        undo = now.variant.apply(self.subject)
        try:
            found = candidates(self.subject, self.aim.choice)
        finally:
            undo()
        on = {catalogue.told(spec) for step in self.steps for spec in step.specs}
        found = [c for c in found if not {catalogue.told(spec) for spec in c.specs} <= on and not self._another(c)]
        new = [c for c in found if c.text not in self.tried]
        once_more = [c for c in found if c.text in self.tried and self._worth_another(c)]
        return [*in_order(new, now.measurement), *in_order(once_more, now.measurement)]

    def _another(self, candidate: Candidate) -> bool:
        """Whether it is another form of what was kept (an engine in float32 where one in bfloat16 is): not worth a try.

        Lossy ones are: fewer steps than the fewer that were kept. So are the user's own.
        """
        taken = {place(spec) for spec in self.steps[-1].specs}
        free = candidate.effect == "lossy" or candidate.specs in self.aim.choice.own
        return not free and {place(spec) for spec in candidate.specs} <= taken

    def _worth_another(self, candidate: Candidate) -> bool:
        """Cheap, undecided, and others were kept since: then it may be a larger share of what is left."""
        last = next(one for one in reversed(self.tries) if one.treatment == candidate.text)
        undecided = last.outcome in ("no difference shown", "too noisy")
        since = self.tried[candidate.text] < len(self.steps)
        return undecided and since and not candidate.build_s and self.again.get(candidate.text, 0) < 1

    def _leave(self, why: str, found: Sequence[Candidate] | None = None) -> None:
        now = self.steps[-1]
        for candidate in self._next() if found is None else found:
            if candidate.text not in self.tried:
                build = f", and building it can take {candidate.build_s:.0f} s" if candidate.build_s else ""
                self._record(candidate, "not tried", f"{why}{build if found is not None else ''}", now)

    def _needed(self, candidate: Candidate) -> float:
        """Seconds that a try takes at the least."""
        return candidate.build_s + self._needed_at(self.steps[-1].ms / 1e3)

    def _needed_at(self, chunk_s: float) -> float:
        return (2 * (ROUNDS + 1) + FIRST + 1) * chunk_s

    def _left(self) -> float:
        """Seconds until the closing run must begin."""
        return self.started + self.limit - time.perf_counter() - self._closing()

    def _closing(self) -> float:
        """Seconds for the closing run: rounds of all rungs and of one more, and what counting takes."""
        each = [step.ms / 1e3 for step in self.steps]
        return max(self._rounds() * (sum(each) + each[-1]) + self._counting(), CLOSING_SHARE * self.limit)

    def _rounds(self) -> int:
        """Of the closing run, at the least; the first is warm-up."""
        return 1 + (PAIRS if self.by_effect else ROUNDS)

    def _counting(self) -> float:
        """Seconds for a call of each rung under the dispatch mode that counts, roughly."""
        return sum(4 * step.ms / 1e3 + 0.3 for step in self.steps) if self.options.counted else 0.0

    def _leap(self) -> str:
        """Put on all candidates of one effect together, and where that does not hold, what of them does by itself."""
        for effect in EFFECTS:
            for group in groups(self._next(), effect):
                if self._done():
                    return self._met()
                if self._try(group, self._glance) or effect == "lossy":
                    continue
                for one in self._next():
                    fits = FIRST * self.steps[-1].ms / 1e3 <= self._left()
                    if one.effect == effect and not one.build_s and fits:
                        self._try(one, self._glance)
        if self._done():
            return self._met()
        self._leave("there was no time to try it by itself")
        enough = TRIES * self._needed_at(self.steps[0].ms / 1e3)
        return f"nothing was left to try together; from --time_limit={enough:.0f} on they are tried one by one"

    def _try(self, candidate: Candidate, judge: Callable[[Candidate, str], tuple[Outcome, str, str]]) -> bool:
        """Try ``candidate`` on top of what was kept; ``judge`` adds the rung if it is to stay. Returns whether so."""
        before, number = self.steps[-1], len(self.steps)
        if candidate.text in self.tried:
            self.again[candidate.text] = self.again.get(candidate.text, 0) + 1
        self.tried[candidate.text] = number
        part, share = largest(candidate, before.measurement)
        where = f" on {part} ({100 * share:.0f} % of {_ms(before.ms)})" if part else f" on the whole ({_ms(before.ms)})"
        head = f"rung {number}: {candidate.text}{where}"
        self.reporter.doing(f"{head}{', building it first' if candidate.build_s else ''}")
        try:
            outcome, reason, said = judge(candidate, part)
        except UserError as error:
            outcome, reason, said = "does not apply", str(error), ""
            self._record(candidate, outcome, reason, before)
        except Exception as error:  # one treatment that fails must not cost the ladder
            outcome, reason, said = "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", ""
            self._record(candidate, outcome, reason, before)
        if outcome == "kept":
            self.reporter.said(f"{head}: {said} → kept")
        else:
            self._forget()
            why = f"{outcome}: {reason}" if outcome in ("does not apply", "failed") else reason
            self.reporter.said(f"{head}: {f'{said} → ' if said else ''}not kept, {why}")
        return outcome == "kept"

    def _glance(self, candidate: Candidate, part: str) -> tuple[Outcome, str, str]:
        """Keep what is within the guard and no slower at first sight, for the closing run to judge."""
        before = self.steps[-1]
        specs = together(before.specs, candidate.specs)
        variant = self._variant(len(self.steps), specs)
        measured = self._glimpse([variant])
        if measured.interrupted:
            raise KeyboardInterrupt
        (after,) = measured.measurements
        build = _build(measured, variant.name)
        agreement = self._agreement(measured.outputs.first(variant.name))
        seen = f"{_ms(after.samples.summary.median)} at first sight"
        if broken := self.aim.guard.broken(agreement):
            self._record(candidate, "guard", f"guard: {broken}", before, agreement=agreement, build_s=build)
            return "guard", f"guard: {broken} ({agreement.observations} observations)", ""
        if after.samples.summary.median > SLOWER * before.ms:
            reason = f"slower: {seen}, and {_ms(before.ms)} before"
            self._record(candidate, "slower", reason, before, agreement=agreement, build_s=build)
            return "slower", reason, ""
        self._record(candidate, "kept", "", before, agreement=agreement, build_s=build)
        self.steps.append(Step(variant, specs, after, candidate, part, build, None, agreement))
        return "kept", "", f"{seen}, cosine {agreement.cosine:.6f}"

    def _judge(self, waiting: int, candidate: Candidate, part: str) -> tuple[Outcome, str, str]:
        """Keep what the verdict shows to be faster and the guard allows.

        ``waiting``: how many that are quick to build share the time that is left.
        """
        before, number = self.steps[-1], len(self.steps)
        specs = together(before.specs, candidate.specs)
        variant = self._variant(number, specs)
        first_s, call_s = None, before.ms / 1e3
        if not candidate.build_s:  # what is compiled is compiled with the probes on: a call without would build twice
            agreement, first_s, call_s = self._look(variant)
            if broken := self.aim.guard.broken(agreement):
                build = max(first_s - call_s, 0.0)
                self._record(candidate, "guard", f"guard: {broken}", before, agreement=agreement, build_s=build)
                return "guard", f"guard: {broken} ({agreement.observations} observations)", ""
        round_s = before.ms / 1e3 + call_s
        seconds = min(max(self._left() / max(waiting, 1), TRY_S[0]), TRY_S[1])
        measured = self._measure([before.variant, variant], max(seconds, (ROUNDS + 1) * round_s))
        if measured.interrupted:
            raise KeyboardInterrupt
        after = measured.measurements[-1]
        build = _build(measured, variant.name, first_s)
        verdict = _verdict(measured, before.variant.name, variant.name)
        agreement = self._agreement(measured.outputs.first(variant.name))
        said = f"{_times(verdict)}, cosine {agreement.cosine:.6f}"
        broken = self.aim.guard.broken(agreement)
        outcome, reason = _outcome(verdict, broken)
        self._record(candidate, outcome, reason, before, verdict, agreement, build)
        if outcome != "kept":
            return outcome, reason, f"{_times(verdict)}" if outcome == "guard" else ""
        self.steps.append(Step(variant, specs, after, candidate, part, build, verdict, agreement))
        return outcome, "", said

    def _look(self, variant: Variant) -> tuple[Agreement, float, float]:
        """Run ``variant`` on a few observations; on more where the guard does not hold, so that this is no chance.

        Returns the agreement, the seconds of putting it on with the first call, and those of the second call.
        """
        outputs, took = Outputs([variant.name]), []
        for index in range(min(GUARDED, len(self.reference))):
            begun = time.perf_counter()
            outputs.add(variant.name, self._once(variant, index))
            took.append(time.perf_counter() - begun)
            if index + 1 == FIRST and not self.aim.guard.broken(self._agreement(outputs.first(variant.name))):
                break
        return self._agreement(outputs.first(variant.name)), took[0], took[min(1, len(took) - 1)]

    def _seconds(self, variant: Variant) -> float:
        begun = time.perf_counter()
        self._once(variant, 0)
        return time.perf_counter() - begun

    def _once(self, variant: Variant, index: int) -> Tensor:
        undo = variant.apply(self.subject)
        try:
            return self.call(index)
        finally:
            undo()

    def _agreement(self, outputs: Sequence[Tensor]) -> Agreement:
        """With the untouched policy, on as many of the same observations as both saw."""
        count = min(len(outputs), len(self.reference), GUARDED)
        return agree(self.reference[:count], outputs[:count])

    def _glimpse(self, variants: Sequence[Variant]) -> Measured:
        """The fewest rounds that show parts and outputs; what they take is judged in the closing run."""
        return self._sampled(variants, Budget(iterations=FIRST - 1, seconds=1.0))

    def _measure(self, variants: Sequence[Variant], seconds: float) -> Measured:
        return self._sampled(variants, Budget(seconds=seconds, min_iterations=ROUNDS, precision=0.01))

    def _sampled(self, variants: Sequence[Variant], budget: Budget) -> Measured:
        options = replace(self.options, budget=budget, counted=False)
        return measure(self.subject, "inference", variants, options, None, _Within(self.reporter))

    def _variant(self, number: int, specs: Sequence[Spec]) -> Variant:
        """The treatments of ``specs``; those that begin like an earlier variant's are shared with it.

        So a converted copy of the weights, or what was compiled, is there once. What is put on before a treatment is
        the same for all who share it, and it need not know what comes after it.
        """
        treatments, began = list(self.base), ()
        for spec in catalogue.ordered(specs):
            began = (*began, catalogue.told(spec))
            if began not in self.made:
                self.made[began] = catalogue.make(spec)
            treatments.append(self.made[began])
        return Variant(f"rung {number}", tuple(treatments))

    def _forget(self) -> None:
        """Let go of what only a refused variant used, which may be a copy of the weights."""
        used = {id(treatment) for step in self.steps for treatment in step.variant.treatments}
        self.made = {began: treatment for began, treatment in self.made.items() if id(treatment) in used}
        gc.collect()

    def _record(
        self,
        candidate: Candidate,
        outcome: Outcome,
        reason: str,
        before: Step,
        verdict: Verdict | None = None,
        agreement: Agreement | None = None,
        build_s: float | None = None,
    ) -> None:
        part, share = largest(candidate, before.measurement)
        self.tries.append(
            Try(
                treatment=candidate.text,
                rung=len(self.steps),
                part=part,
                parts=list(candidate.parts),
                part_share=share,
                before_ms=before.ms,
                outcome=outcome,
                reason=reason,
                verdict=verdict,
                agreement=agreement,
                build_s=build_s,
            )
        )

    # The closing run

    def _close(self, result: OptimizeResult) -> Measured:
        """All rungs in alternation, with their FLOP and memory."""
        self.reporter.stage(f"the closing run: {', '.join(step.variant.name for step in self.steps)}")
        each = sum(step.ms for step in self.steps) / 1e3
        left = self.started + self.limit - time.perf_counter() - self._counting()
        seconds = max(min(self.options.budget.seconds, left), TRY_S[0], self._rounds() * each)
        asked = self.options.budget
        if self.by_effect:  # counted in pairs, since warm-up may take more than its one round
            budget = Budget(iterations=asked.iterations or PAIRS, seconds=3 * seconds)
        else:
            budget = replace(asked, seconds=seconds)
        options = replace(self.options, budget=budget)
        variants = [step.variant for step in self.steps]
        return measure(self.subject, "inference", variants, options, result.machine.ceiling, _Within(self.reporter))

    def _prune(self, result: OptimizeResult) -> None:
        """Take off the top what the closing run did not show to be faster than what is below it.

        What was asked for with the start stays, whatever it buys.
        """
        while len(self.steps) > (2 if self.aim.start else 1):
            top, below = (step.variant.name for step in (self.steps[-1], self.steps[-2]))
            verdict = next(c.verdict for c in result.comparisons if (c.baseline, c.candidate) == (below, top))
            taken = next(one for one in self.tries if one.rung == len(self.steps) - 1 and one.outcome == "kept")
            taken.verdict = verdict
            if verdict.kind == "faster":
                return
            taken.outcome, taken.reason = _outcome(verdict, "")
            self.reporter.said(f"{top}: not kept, {taken.reason}")
            self.steps.pop()
            result.measurements = [one for one in result.measurements if one.name != top]
            result.comparisons = [one for one in result.comparisons if top not in (one.baseline, one.candidate)]


@dataclass
class _Within:
    """Passes on how far a measurement is, and not what it calls itself: the climb says that."""

    reporter: Climbing

    def stage(self, what: str) -> None: ...

    def progress(self, progress: Progress) -> None:
        self.reporter.progress(progress)


def _enough(measured: Measured, rungs: int) -> bool:
    """Whether the closing run can be judged, though it may have been interrupted."""
    kept = [len(m.samples.values) for m in measured.measurements]
    return len(kept) == rungs and (not measured.interrupted or min(kept) >= PAIRS)


def _verdict(measured: Measured, before: str, after: str) -> Verdict:
    samples = measured.collected.samples
    return paired_verdict(samples[before].values, samples[after].values, baseline_name=before, candidate_name=after)


def _outcome(verdict: Verdict, broken: str) -> tuple[Outcome, str]:
    low, high = verdict.interval.low, verdict.interval.high
    if verdict.kind == "faster":
        return ("guard", f"guard: {broken}") if broken else ("kept", "")
    if verdict.kind == "slower":
        return "slower", f"slower: {verdict.ratio:.2f}× the time [{low:.2f}, {high:.2f}]"
    shown = f"seen {_times(verdict)}"
    said = "no difference shown" if verdict.kind == "no difference shown" else "too noisy to say"
    return verdict.kind, f"{said} ({shown})"


def _times(verdict: Verdict) -> str:
    low, high = 1 / verdict.interval.high, 1 / verdict.interval.low
    word = "faster" if verdict.kind == "faster" else "as fast"
    return f"{1 / verdict.ratio:.2f}× {word} [{low:.2f}, {high:.2f}]"


def _build(measured: Measured, name: str, first_s: float | None = None) -> float:
    """Seconds of putting ``name`` on and its first call, beyond what a call takes; ``first_s`` if that was before."""
    median = measured.collected.samples[name].summary.median
    return max((measured.first_s.get(name, 0.0) if first_s is None else first_s) - median / 1e3, 0.0)


def _ms(value: float) -> str:
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"
