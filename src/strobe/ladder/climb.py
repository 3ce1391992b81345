"""The state of a climb: a list of tries, from which its rungs and the candidates that remain follow, and its time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from strobe.core.errors import UserError
from strobe.core.measure.components import share, shares
from strobe.core.measure.guard import strongest
from strobe.core.measure.in_time import judge_in_time
from strobe.core.measure.sequential import MATTERS
from strobe.core.results.agreement import Effect
from strobe.core.results.in_time import InTime
from strobe.core.results.measurement import Measurement
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import CAPTURED, Entry, Spec, Variant
from strobe.ladder import settings
from strobe.ladder.candidates import (
    Bounds,
    Candidate,
    Standing,
    candidates,
    combined_effect,
    is_slot_covered,
    largest,
    make_candidate,
    replaced_parts,
    sort_candidates,
    together,
)
from strobe.ladder.earlier import Earlier
from strobe.ladder.results import Try, TryOutcome
from strobe.ladder.runner import ActionGuard, Runs
from strobe.ladder.settings import Aim, Climbing

BASELINE = "baseline"


@dataclass
class Step:
    """An accepted rung: all that is on, what was added, and what its own try showed.

    Args:
        specs: of all that is on.
        tried: the try that it was accepted by. The baseline, and what is on from the start, have one that the
            ladder does not list.
        effect: of what was added.
        requested: whether it is on from the start, whatever it gains.
        in_time: by a run of its own; None without one.
    """

    variant: Variant
    specs: tuple[Spec, ...]
    measurement: Measurement
    tried: Try
    effect: Effect = "exact"
    requested: bool = False
    in_time: InTime | None = None

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.variant.name

    @property
    def is_shown_faster(self) -> bool:
        """Whether it was shown to be faster than the rung below."""
        return self.tried.verdict is not None and self.tried.verdict.kind == "faster"

    @property
    def ms(self) -> float:
        """Median milliseconds of a chunk."""
        return self.measurement.samples.summary.median


@dataclass
class TriedCandidate:
    """A candidate on top of the accepted rungs, from the moment it is picked to its outcome.

    Args:
        specs: of all that is on with it.
        tried: the record that the ladder lists: its run fills in the outcome, the reason and the figures.
        begun: whether the candidate counts as tried by it, rather than as planned or as one of several.
        listed: whether the ladder lists it; what is on from the start is a rung and no try.
        figures: time and agreement, for the printed line.
        detail: what the printed line adds to the reason.
        step: the rung that it is; None while, or where, it is not accepted.
    """

    candidate: Candidate
    specs: tuple[Spec, ...]
    tried: Try
    begun: bool = False
    listed: bool = True
    figures: str | None = None
    detail: str = ""
    step: Step | None = None

    def reject(self, outcome: TryOutcome, reason: str, detail: str = "") -> None:
        """Write down why it is not accepted."""
        self.tried.outcome, self.tried.reason, self.detail = outcome, reason, detail

    def fail(self, outcome: TryOutcome, reason: str) -> None:
        """Write down that it could not be applied, or not run, without the figures of what was run until then."""
        tried, self.figures, self.step = self.tried, None, None
        tried.verdict = tried.agreement = tried.build_s = tried.most_gain = None
        self.reject(outcome, reason)

    def accept(self, variant: Variant, measurement: Measurement, *, requested: bool = False) -> None:
        """Make it a rung."""
        self.tried.outcome = "kept"
        self.step = Step(variant, self.specs, measurement, self.tried, self.candidate.effect, requested)


@dataclass
class Climb:
    """The state that both strategies share.

    Args:
        earlier: ladders that order the candidates.
        bounds: of what candidates can gain on this machine.
        start: the baseline, the lowest rung.
        began: `time.perf_counter` when its time began to run.
        limit_s: seconds for climb and closing run.
        by_effect: whether candidates of one effect are tried together at first sight, or each by itself.
        glanced: whether the baseline was only glanced at so far.
        trials: what was tried so far, in order.
        at_target: whether the climb ended because its highest rung reaches the target.
    """

    aim: Aim
    runs: Runs
    guard: ActionGuard
    earlier: Earlier
    bounds: Bounds
    start: Step
    began: float
    limit_s: float
    by_effect: bool
    glanced: bool
    trials: list[TriedCandidate] = field(default_factory=list)
    at_target: bool = False

    @property
    def reporter(self) -> Climbing:
        """Shows the progress of the climb."""
        return self.runs.reporter

    @property
    def steps(self) -> list[Step]:
        """The accepted rungs, the baseline first."""
        return [self.start, *(trial.step for trial in self.trials if trial.step is not None)]

    @property
    def top(self) -> Step:
        """The highest rung so far."""
        return self.steps[-1]

    @property
    def part_measurement(self) -> Measurement:
        """The measurement that shows what the parts cost: of the highest rung below a graph, which hides its parts."""
        seen = (s for s in reversed(self.steps) if not any(entry.rank == CAPTURED for entry in _entries(s.specs)))
        return next(seen, self.top).measurement

    # Its time

    def remaining_s(self) -> float:
        """Return the seconds until the time limit."""
        return self.began + self.limit_s - time.perf_counter()

    def remaining_to_try_s(self) -> float:
        """Return the seconds until the closing run must begin: its fewest rounds, of all rungs and of one more."""
        each = [self.runs.spaced_s(step.ms / 1e3) for step in self.steps]
        closing = settings.CLOSING_MIN_ROUNDS * (sum(each) + each[-1]) + self.counting_s()
        return self.remaining_s() - max(closing, settings.CLOSING_SHARE * self.limit_s)

    def counting_s(self) -> float:
        """Return the seconds for a call of each rung under the dispatch mode that counts, roughly."""
        return sum(4 * step.ms / 1e3 + 0.3 for step in self.steps) if self.runs.options.counted else 0.0

    # Its target

    def has_reached_target(self) -> bool:
        """Return whether the highest rung is shown to reach the target, unless all candidates are to be tried.

        Where the chunks of its try are too few to show that, it is run by itself.
        """
        if self.aim.everything:
            return False
        top, aim = self.top, self.aim
        seen = judge_in_time(top.measurement.samples.values, aim.target_ms, aim.in_time)
        if seen.outcome == "not judged" and top.ms <= aim.target_ms and top.in_time is None:
            # Past the time limit too: a rung that reaches the target needs no more tries, which take longer.
            seconds = max(self.remaining_to_try_s(), settings.IN_TIME_S[0])
            judged = self.runs.time_alone(top.variant, top.ms, aim, seconds)
            top.in_time = judged[0] if judged is not None else None
        return (top.in_time or seen).outcome == "reached"

    def end_at_target(self) -> str:
        """Leave the other candidates untried. Return why the climb ends."""
        self.at_target = True
        self.leave("the target was reached first", self.remaining())
        return "the target was reached" if len(self.steps) > 1 else "the baseline reaches the target"

    # Its candidates

    def remaining(self) -> list[Candidate]:
        """Return what may be tried now, in order: what was not tried yet, then again what showed no difference.

        Left out is what an earlier ladder has shown to gain too little, what can gain nothing on this machine, and what
        can save little while the target is far, unless everything is to be tried.
        """
        new, again = self._applicable()
        if not self.aim.everything:
            new = [c for c in new if not (self._is_settled(c) or self._gains_nothing(c) or self._saves_little(c))]
        now = self.part_measurement
        refused = {dtype for trial in self.trials if trial.tried.outcome == "guard" for dtype in trial.candidate.dtypes}
        captured = any(entry.rank == CAPTURED for entry in _entries(self.top.specs))
        limited = self.bounds.limiting_factor(now, captured=captured)
        first = sort_candidates(new, now, self._standing, self.bounds.times, refused, limited)
        return [*first, *sort_candidates(again, now, limited=limited)]

    def left_out(self) -> str:
        """Return how many candidates are left out, and why, as the end of a sentence."""
        new = [] if self.aim.everything else self._applicable()[0]
        settled = [candidate for candidate in new if self._is_settled(candidate)]
        others = [(candidate, self._gains_nothing(candidate)) for candidate in new if candidate not in settled]
        nothing = [why for _, why in others if why]
        little = [candidate for candidate, why in others if not why and self._saves_little(candidate)]
        useless = [f"{nothing.count(why)} {why}" for why in dict.fromkeys(nothing)]
        if little:
            most, missing = max(map(self._max_saving, little)), 1 - self.aim.target_ms / self.top.ms
            most_saved = f"can save at most {100 * most:.0f} % of a chunk, and {100 * missing:.0f} % are missing"
            useless.append(f"{len(little)} that {most_saved}")
        shown = "rejected by an earlier search on this machine"
        reasons = [f"{len(settled)} {shown} (--fresh tries again)"] if settled else []
        reasons += [f"{', '.join(useless)} (--all tries all)"] if useless else []
        return f"; skipped: {', and '.join(reasons)}" if reasons else ""

    def last_rungs(self) -> list[Candidate]:
        """Return the rungs of the last ladder that may be tried now: no more than the target takes by their gains.

        Those of another policy or version that do not exist here are left out.
        """
        rungs: list[Candidate] = []
        predicted_ms = self.top.ms
        for rung in self.earlier.rungs:
            if settings.PREDICTED_MARGIN * predicted_ms <= self.aim.target_ms and not self.aim.everything:
                break
            try:
                entries = _entries(rung.treatments)
                own = tuple(rung.treatments) in self.aim.choice.own
                if entries and (own or all(map(self.aim.choice.allows, entries))):
                    rungs.append(make_candidate(self.runs.subject, rung.treatments))
                    predicted_ms *= rung.ratio
            except (UserError, StopIteration):
                continue
        return rungs

    def _applicable(self) -> tuple[list[Candidate], list[Candidate]]:
        undo = self.top.variant.apply(self.runs.subject)
        try:
            offered = candidates(self.runs.subject, self.aim.choice, self.top.measurement)
        finally:
            undo()
        on = {catalogue.format_spec(spec) for step in self.steps for spec in step.specs}
        offered = [
            c for c in offered if not {catalogue.format_spec(s) for s in c.specs} <= on and not self._is_replacement(c)
        ]
        return [c for c in offered if not self._candidate_tries(c)], [c for c in offered if self._deserves_retry(c)]

    def _candidate_tries(self, candidate: Candidate) -> list[Try]:
        return [trial.tried for trial in self.trials if trial.begun and trial.tried.treatment == candidate.text]

    def _is_replacement(self, candidate: Candidate) -> bool:
        """Return whether it is another form of what is on (an engine in float32 where one in bfloat16 is).

        Also true if an engine already computes parts that the candidate would change, and it could save too little to
        be shown.
        """
        if self._is_always_tried(candidate):
            return False
        elsewhere = replaced_parts(self.runs.subject, self.top.specs)
        computed = any(part in elsewhere for part in candidate.parts) and self._max_saving(candidate) < MATTERS
        return computed or all(is_slot_covered(spec, self.top.specs) for spec in candidate.specs)

    def _deserves_retry(self, candidate: Candidate) -> bool:
        """Return whether a quick, undecided one may be a larger share of a chunk by now: rungs were added since."""
        tries = self._candidate_tries(candidate)
        if len(tries) != 1 or candidate.build_s:
            return False
        return tries[0].outcome in ("no difference shown", "inconclusive") and tries[0].rung < len(self.steps)

    def _max_saving(self, candidate: Candidate) -> float:
        """Return the share of a chunk's time that ``candidate`` can save at most: that of the parts that it speeds up.

        What an accepted engine computes is in none of them, because it takes the place of the modules. Where the
        treatments know that they save less, it is that.
        """
        now = self.part_measurement
        entries = _entries(candidate.specs)
        of_parts = max(entry.of_parts for entry in entries) * self._share_of_parts(candidate, now)
        return min(sum(entry.saves(now) for entry in entries), of_parts)

    def _share_of_parts(self, candidate: Candidate, now: Measurement) -> float:
        elsewhere = replaced_parts(self.runs.subject, self.top.specs)
        if candidate.parts:
            return sum(share(now, part) for part in candidate.parts if part not in elsewhere)
        if not (elsewhere and candidate.of_torch):
            return 1.0
        # An engine of a whole network is one part with a name of its own, so what torch had before it bounds that.
        before = _share_without(self.start.measurement, elsewhere) * self.start.ms / self.top.ms
        return min(_share_without(now, elsewhere), before)

    def _is_always_tried(self, candidate: Candidate) -> bool:
        return candidate.effect == "lossy" or candidate.specs in self.aim.choice.own

    def _standing(self, treatment: str) -> Standing:
        return self.earlier.standing(treatment, {catalogue.format_spec(spec) for spec in self.top.specs})

    def _is_settled(self, candidate: Candidate) -> bool:
        return self._standing(candidate.text) == "left out"

    def _gains_nothing(self, candidate: Candidate) -> str | None:
        """Return why ``candidate`` can gain nothing here; None if it may, and for the user's own."""
        return None if candidate.specs in self.aim.choice.own else self.bounds.rejection_reason(candidate)

    def _saves_little(self, candidate: Candidate) -> bool:
        far = self.top.ms > settings.FAR * self.aim.target_ms
        return far and not self._is_always_tried(candidate) and self._max_saving(candidate) < settings.MIN_SAVING

    # Its record

    @property
    def tries(self) -> list[Try]:
        """What the ladder lists."""
        return [trial.tried for trial in self.trials if trial.listed]

    def plan(self, candidate: Candidate, *, begun: bool = False) -> TriedCandidate:
        """Return a try of ``candidate`` on the rungs that are there now; it counts once it is among the trials."""
        part, part_share = largest(candidate, self.part_measurement)
        tried = Try(
            treatment=candidate.text,
            rung=len(self.steps),
            effect=strongest([combined_effect(self.top.specs), candidate.effect]),
            part=part,
            parts=list(candidate.parts),
            part_share=part_share,
            before_ms=self.top.ms,
            outcome="not tried",
            on=[catalogue.format_spec(spec) for spec in self.top.specs],
        )
        return TriedCandidate(candidate, together(self.top.specs, candidate.specs), tried, begun)

    def leave(self, why: str, candidates: Sequence[Candidate], *, with_build: bool = False) -> None:
        """List those of ``candidates`` that were never tried as not tried.

        ``with_build``: say how long building takes, where that is why.
        """
        for candidate in candidates:
            if not self._candidate_tries(candidate):
                build = f", and it can take {candidate.build_s:.0f} s to build" if candidate.build_s else ""
                trial = self.plan(candidate)
                trial.reject("not tried", f"{why}{build if with_build else ''}")
                self.trials.append(trial)


def _entries(specs: Iterable[Spec]) -> list[Entry]:
    return [catalogue.find_entry(next(iter(spec))) for spec in specs]


def _share_without(measurement: Measurement, parts: Sequence[str]) -> float:
    """Return the share of the time that goes to other parts than ``parts``, 0 to 1."""
    return sum(of_it for part, of_it in shares(measurement).items() if part not in parts)
