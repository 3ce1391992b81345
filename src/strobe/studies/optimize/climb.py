"""The climb so far: its rungs, its tries, its time, and the candidates that are left."""

from __future__ import annotations

import time
from collections.abc import Sequence

from strobe.errors import UserError
from strobe.measure.components import share, shares
from strobe.measure.guard import strongest
from strobe.measure.sequential import MATTERS
from strobe.results.agreement import Agreement, Effect
from strobe.results.comparison import Verdict
from strobe.results.in_time import InTime
from strobe.results.ladder import Try, TryOutcome
from strobe.results.measurement import Measurement
from strobe.studies.optimize import limits
from strobe.studies.optimize.aim import Aim, Climbing
from strobe.studies.optimize.alone import seen_in, watch
from strobe.studies.optimize.bounds import Bounds
from strobe.studies.optimize.candidates import (
    Candidate,
    Standing,
    candidate_of,
    candidates,
    in_order,
    largest,
    replaced,
    slot_of,
)
from strobe.studies.optimize.earlier import Earlier
from strobe.studies.optimize.ladder import Step
from strobe.studies.optimize.runs import Runs
from strobe.treatments import catalogue


class Climb:
    """The state that both strategies share. Its time runs from its making.

    Args:
        limit_s: seconds for climb and closing run.
    """

    def __init__(self, aim: Aim, runs: Runs, reporter: Climbing, limit_s: float) -> None:
        self.aim, self.runs, self.reporter, self.limit_s = aim, runs, reporter, limit_s
        self.earlier: Earlier | None = None  # ladders that order the candidates
        self.bounds: Bounds | None = None  # of the policy as it is, once it was measured
        self.steps: list[Step] = []
        self.tries: list[Try] = []
        self.at_target = False  # whether it ended there
        self._began = time.perf_counter()
        self._tried_on: dict[str, int] = {}  # candidate → number of rungs when it was last tried
        self._retries: dict[str, int] = {}

    @property
    def top(self) -> Step:
        """The highest rung so far."""
        return self.steps[-1]

    # Its time

    def time_left(self) -> float:
        """Return the seconds until the time limit."""
        return self._began + self.limit_s - time.perf_counter()

    def time_to_try(self, closing_rounds: int) -> float:
        """Return the seconds until the closing run must begin: so many rounds of all rungs and of one more."""
        each = [self.runs.spaced_s(step.ms / 1e3) for step in self.steps]
        closing = closing_rounds * (sum(each) + each[-1]) + self.counting_s()
        return self.time_left() - max(closing, limits.CLOSING_SHARE * self.limit_s)

    def counting_s(self) -> float:
        """Return the seconds for a call of each rung under the dispatch mode that counts, roughly."""
        return sum(4 * step.ms / 1e3 + 0.3 for step in self.steps) if self.runs.options.counted else 0.0

    # Its target

    def reached(self) -> bool:
        """Return whether the highest rung is shown to reach the target, and nothing more was asked for."""
        return not self.aim.everything and self._in_time().outcome == "reached"

    def _in_time(self) -> InTime:
        """Judge the highest rung's chunks: those of its try, or of a run of its own where those are too few."""
        top = self.top
        seen = seen_in(top.measurement, self.aim)
        worth_it = seen.outcome == "not judged" and top.ms <= self.aim.target_ms
        if worth_it and top.in_time is None:
            # Past the time limit too: a rung that reaches the target needs no more tries, which take longer.
            seconds = max(self.time_to_try(limits.PAIRS + 1), limits.IN_TIME_S[0])
            found = watch(self.runs, top.variant, top.ms, self.aim, seconds)
            top.in_time = found[0] if found is not None else None
        return seen if top.in_time is None else top.in_time

    def end_at_target(self) -> str:
        """Leave the other candidates untried. Return why the climb ends."""
        self.at_target = True
        self.leave("the target was reached before", self.left_to_try())
        return "the target was reached" if len(self.steps) > 1 else "it meets the target as it is"

    # Its candidates

    def left_to_try(self) -> list[Candidate]:
        """Return what may be tried now, in order: what was not tried yet, then once more what showed no difference.

        What an earlier ladder has shown to gain too little is left out, and what can buy nothing on this machine, or
        little where much is missing, unless everything is to be tried.
        """
        new, once_more = self._found()
        if not self.aim.everything:
            new = [one for one in new if not self._refused(one) and not self._why_not(one) and not self._little(one)]
        times = self.bounds.times if self.bounds is not None else lambda _: None
        return [*in_order(new, self.top.measurement, self.standing, times), *in_order(once_more, self.top.measurement)]

    def left_out(self) -> str:
        """Return how many are left out, and why, in words that end a sentence; '' for none."""
        new = [] if self.aim.everything else self._found()[0]
        refused = [one for one in new if self._refused(one)]
        others = [(one, self._why_not(one)) for one in new if one not in refused]
        nothing = [why for _, why in others if why]
        little = [one for one, why in others if not why and self._little(one)]
        useless = [f"{nothing.count(why)} {why}" for why in dict.fromkeys(nothing)]
        if little:
            most, missing = max(map(self.at_most, little)), 1 - self.aim.target_ms / self.top.ms
            most_saved = f"can save {100 * most:.0f} % of a chunk at most, where {100 * missing:.0f} % are missing"
            useless.append(f"{len(little)} that {most_saved}")
        shown = "that an earlier ladder has shown to gain too little, or to break the guard"
        said = [f"{len(refused)} {shown} (--fresh tries them again)"] if refused else []
        said += [f"{', '.join(useless)} (--all tries them)"] if useless else []
        return f"; left out: {', and '.join(said)}" if said else ""

    def _found(self) -> tuple[list[Candidate], list[Candidate]]:
        """Return the candidates that were not tried yet, and those that deserve one more try."""
        undo = self.top.variant.apply(self.runs.subject)
        try:
            found = candidates(self.runs.subject, self.aim.choice, self.top.measurement)
        finally:
            undo()
        on = {catalogue.written(spec) for step in self.steps for spec in step.specs}
        found = [c for c in found if not {catalogue.written(spec) for spec in c.specs} <= on and not self._replaced(c)]
        new = [c for c in found if c.text not in self._tried_on]
        return new, [c for c in found if c.text in self._tried_on and self._deserves_retry(c)]

    def at_most(self, candidate: Candidate) -> float:
        """Return the share of a chunk's time that ``candidate`` can save at most: that of the parts that it speeds up.

        What a kept engine computes is in none of them, since it takes the place of the modules. Where the treatments
        tell that they save less, it is that.
        """
        now = self.top.measurement
        entries = [catalogue.entry_of(next(iter(spec))) for spec in candidate.specs]
        of_parts = max(entry.of_parts for entry in entries) * self._of_its_parts(candidate, now)
        return min(sum(entry.saves(now) for entry in entries), of_parts)

    def _of_its_parts(self, candidate: Candidate, now: Measurement) -> float:
        elsewhere = replaced(self.runs.subject, self.top.specs)
        if candidate.parts:
            return sum(share(now, part) for part in candidate.parts if part not in elsewhere)
        if not (elsewhere and candidate.of_torch):
            return 1.0
        return sum(of_it for part, of_it in shares(now).items() if part not in elsewhere)

    def _in_any_case(self, candidate: Candidate) -> bool:
        """Return whether it is tried whatever it can buy: lossy ones (fewer steps than the fewer kept), the user's."""
        return candidate.effect == "lossy" or candidate.specs in self.aim.choice.own

    def _refused(self, candidate: Candidate) -> bool:
        """Return whether an earlier ladder of the same policy has shown that ``candidate`` need not be tried."""
        return self.standing(candidate.text) == "left out"

    def _why_not(self, candidate: Candidate) -> str:
        """Return in words why ``candidate`` can buy nothing here; '' where it may, and for the user's own."""
        if self.bounds is None or candidate.specs in self.aim.choice.own:
            return ""
        return self.bounds.why_not(candidate)

    def _little(self, candidate: Candidate) -> bool:
        """Return whether ``candidate`` can buy little, while the target is far away."""
        far = self.top.ms > limits.FAR * self.aim.target_ms
        return far and not self._in_any_case(candidate) and self.at_most(candidate) < limits.LITTLE

    def standing(self, treatment: str) -> Standing:
        """Return what earlier ladders showed of ``treatment``, as it is written."""
        if self.earlier is None:
            return "unknown"
        return self.earlier.standing(treatment, {catalogue.written(spec) for spec in self.top.specs})

    def kept_last_time(self) -> list[Candidate]:
        """Return the rungs of the last ladder that may be tried now, as many as the target takes by what they bought.

        Those of another policy or version that do not exist here are left out.
        """
        found: list[Candidate] = []
        expected_ms = self.top.ms
        for rung in self.earlier.rungs if self.earlier is not None else ():
            if limits.SURE * expected_ms <= self.aim.target_ms and not self.aim.everything:
                break
            try:
                entries = [catalogue.entry_of(next(iter(spec))) for spec in rung.treatments]
                own = tuple(rung.treatments) in self.aim.choice.own
                if entries and (own or all(map(self.aim.choice.allows, entries))):
                    found.append(candidate_of(self.runs.subject, rung.treatments))
                    expected_ms *= rung.ratio
            except (UserError, StopIteration):
                continue
        return found

    def _replaced(self, candidate: Candidate) -> bool:
        """Return whether it is another form of what was kept (an engine in float32 where one in bfloat16 is).

        Nor does one buy what can be shown if what was kept computes its parts (channels_last where an engine runs), but
        for parts too small to matter.
        """
        if self._in_any_case(candidate):
            return False
        taken = {slot_of(spec) for spec in self.top.specs}
        elsewhere = replaced(self.runs.subject, self.top.specs)
        computed = any(part in elsewhere for part in candidate.parts) and self.at_most(candidate) < MATTERS
        return computed or {slot_of(spec) for spec in candidate.specs} <= taken

    def _deserves_retry(self, candidate: Candidate) -> bool:
        """Cheap, undecided, and others were kept since: then it may be a larger share of what is left."""
        last = next(one for one in reversed(self.tries) if one.treatment == candidate.text)
        undecided = last.outcome in ("no difference shown", "too noisy")
        since = self._tried_on[candidate.text] < len(self.steps)
        return undecided and since and not candidate.build_s and not self._retries.get(candidate.text)

    # Its record

    def begin_try(self, candidate: Candidate) -> None:
        """Remember that ``candidate`` is tried on the rungs that are there now."""
        if candidate.text in self._tried_on:
            self._retries[candidate.text] = self._retries.get(candidate.text, 0) + 1
        self._tried_on[candidate.text] = len(self.steps)

    def leave(self, why: str, left: Sequence[Candidate], *, with_build: bool = False) -> None:
        """Record as not tried what of ``left`` never was.

        ``with_build``: say how long building takes, where that is why.
        """
        for candidate in left:
            if candidate.text not in self._tried_on:
                build = f", and building it can take {candidate.build_s:.0f} s" if candidate.build_s else ""
                self.record(candidate, "not tried", f"{why}{build if with_build else ''}")

    def record(
        self,
        candidate: Candidate,
        outcome: TryOutcome,
        reason: str,
        verdict: Verdict | None = None,
        agreement: Agreement | None = None,
        build_s: float | None = None,
        most_gain: float | None = None,
    ) -> None:
        """Add a try on top of the highest rung to the ladder's list."""
        part, share = largest(candidate, self.top.measurement)
        kept: list[Effect] = [catalogue.entry_of(next(iter(spec))).effect for spec in self.top.specs]
        self.tries.append(
            Try(
                treatment=candidate.text,
                rung=len(self.steps),
                effect=strongest([*kept, candidate.effect]),
                part=part,
                parts=list(candidate.parts),
                part_share=share,
                before_ms=self.top.ms,
                outcome=outcome,
                reason=reason,
                verdict=verdict,
                most_gain=most_gain,
                on=[catalogue.written(spec) for spec in self.top.specs],
                agreement=agreement,
                build_s=build_s,
            )
        )
