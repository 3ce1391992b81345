"""The state of a climb, and what follows from it: its rungs, whether it reached its target, what may be tried next.

Nothing here runs or changes anything: what acts (`trial.py`, `run.py`) takes a state and returns the next one. What is
tried next, and what is skipped, are functions of the state: `remaining` and `_skip_reason`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from strobe.core.measure.components import share, shares
from strobe.core.measure.guard import strongest
from strobe.core.results.agreement import Agreement, Effect
from strobe.core.results.measurement import Measurement
from strobe.core.results.numerals import significant
from strobe.core.studies.shared.measuring import Measured
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import CAPTURED, Entry, Spec, Variant
from strobe.ladder import settings
from strobe.ladder.candidates import (
    Bounds,
    Candidate,
    Engines,
    Standing,
    combined_effect,
    is_program,
    is_slot_covered,
    largest,
    outdoes,
    sort_candidates,
    stack,
)
from strobe.ladder.earlier import Earlier
from strobe.ladder.in_time import judge_in_time
from strobe.ladder.results import InTime, Try, TryOutcome
from strobe.ladder.sequential import MATTERS
from strobe.ladder.settings import Aim

BASELINE = "baseline"


@dataclass(frozen=True)
class Step:
    """An accepted rung: all that is on, what was added, and what its own try showed.

    Args:
        specs: of all that is on.
        tried: the try that it was accepted by. The baseline, and what is on from the start, have one that the
            ladder does not list.
        effect: of what was added.
        requested: whether it is on from the start, whatever it gains.
        seen_closely: its actions against the baseline's where faults show; None before that check.
    """

    variant: Variant
    specs: tuple[Spec, ...]
    measurement: Measurement
    tried: Try
    effect: Effect = "exact"
    requested: bool = False
    seen_closely: Agreement | None = None

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


@dataclass(frozen=True)
class TriedCandidate:
    """A candidate on top of the accepted rungs, as far as its try has come.

    Args:
        specs: of all that is on with it.
        tried: the record that the ladder lists.
        begun: whether the candidate counts as tried by it, rather than as planned or as one of several.
        listed: whether the ladder lists it; what is on from the start is a rung and no try.
        figures: time and agreement, for the printed line.
        detail: what the printed line adds to the reason.
        step: the rung that it is; None where it is not accepted.
    """

    candidate: Candidate
    specs: tuple[Spec, ...]
    tried: Try
    begun: bool = False
    listed: bool = True
    figures: str | None = None
    detail: str = ""
    step: Step | None = None

    def record(self, **fields: object) -> TriedCandidate:
        """Return it with ``fields`` of `Try` in its record."""
        tried = self.tried.model_copy()
        for name, value in fields.items():
            setattr(tried, name, value)
        return replace(self, tried=tried, step=self.step and replace(self.step, tried=tried))

    def reject(self, outcome: TryOutcome, reason: str, detail: str = "") -> TriedCandidate:
        """Return it with the reason why it is not accepted."""
        return replace(self.record(outcome=outcome, reason=reason), detail=detail, step=None)

    def accept(self, variant: Variant, measurement: Measurement, *, requested: bool = False) -> TriedCandidate:
        """Return it as a rung."""
        kept = self.record(outcome="kept")
        step = Step(variant, self.specs, measurement, kept.tried, self.candidate.effect, requested)
        return replace(kept, step=step)


@dataclass(frozen=True)
class Climb:
    """A climb at one moment.

    Args:
        earlier: ladders that order the candidates.
        bounds: of what candidates can gain on this machine.
        start: the baseline, the lowest rung.
        glanced: whether the baseline was only glanced at so far.
        trials: what was tried so far, in order.
        offered: by the catalogue on top of the highest rung; None until `trial.survey` has asked for it.
        engines: those that are on; none until `trial.survey` has looked.
        in_time: of the highest rung, by a run of its own; None without one.
        closed: a run of all rungs that is as good as a closing run of them; None without one.
        ended: why it ended, in words; None while it goes on.
        at_target: whether it ended because its highest rung reaches the target.
    """

    aim: Aim
    earlier: Earlier
    bounds: Bounds
    start: Step
    glanced: bool
    trials: tuple[TriedCandidate, ...] = ()
    offered: tuple[Candidate, ...] | None = None
    engines: Engines = field(default_factory=dict)
    in_time: InTime | None = None
    closed: Measured | None = None
    ended: str | None = None
    at_target: bool = False

    @property
    def steps(self) -> list[Step]:
        """The accepted rungs, the baseline first."""
        return [self.start, *(trial.step for trial in self.trials if trial.step is not None)]

    @property
    def top(self) -> Step:
        """The highest rung so far."""
        return self.steps[-1]

    @property
    def tries(self) -> list[Try]:
        """The tries that the ladder lists."""
        return [trial.tried for trial in self.trials if trial.listed]

    @property
    def part_measurement(self) -> Measurement:
        """The measurement that shows what the parts cost: of the highest rung below a graph, which hides its parts."""
        seen = (s for s in reversed(self.steps) if not any(entry.rank == CAPTURED for entry in find_entries(s.specs)))
        return next(seen, self.top).measurement

    @property
    def engine_parts(self) -> list[str]:
        """The parts that engines compute, in place of the modules that are there."""
        return [part for parts in self.engines.values() for part in parts]

    @property
    def programs(self) -> list[Candidate]:
        """The programs of all steps that are on."""
        accepted = [trial.candidate for trial in self.trials if trial.step is not None]
        return [candidate for candidate in accepted if is_program(candidate, self.start.measurement)]

    def building_s(self, candidate: Candidate) -> float:
        """Return the seconds that building takes, roughly: another number of steps builds a program again."""
        again = self.programs if candidate.effect == "lossy" else []
        return max(each.build_s for each in (candidate, *again))

    @property
    def has_reached_target(self) -> bool:
        """Whether the highest rung is shown to reach the target; never where all candidates are to be tried."""
        return not self.aim.everything and (self.in_time or self._seen_in_time).outcome == "reached"

    @property
    def is_target_open(self) -> bool:
        """Whether the chunks of the highest rung look in time, and are too few to show it."""
        is_fast = not self.aim.everything and self.top.ms <= self.aim.target_ms
        return is_fast and self.in_time is None and self._seen_in_time.outcome == "not judged"

    @property
    def _seen_in_time(self) -> InTime:
        return judge_in_time(self.top.measurement.samples.values, self.aim.target_ms, self.aim.in_time)

    def add(self, *trials: TriedCandidate) -> Climb:
        """Return the climb after these tries; what was known of the highest rung goes where there is a new one."""
        after = replace(self, trials=(*self.trials, *trials))
        same_top = all(trial.step is None for trial in trials)
        return after if same_top else replace(after, offered=None, engines={}, in_time=None)

    def hold_top(self, agreement: Agreement) -> Climb:
        """Return the climb whose highest rung held the guard in a closer check, with ``agreement``."""
        held = replace(self.top, seen_closely=agreement)
        trials = (replace(trial, step=held) if trial.step is self.top else trial for trial in self.trials)
        return replace(self, trials=tuple(trials))

    def refuse_top(self, outcome: TryOutcome, reason: str) -> Climb:
        """Return the climb without what a closer check of its highest rung refused.

        That is the highest rung that is not exact, with those above it. All that was tried after it may be tried again.
        """
        rungs = [place for place, trial in enumerate(self.trials) if trial.step is not None and trial.listed]
        place = next((p for p in reversed(rungs) if self.trials[p].candidate.effect != "exact"), rungs[-1])
        after = [t for t in self.trials[place + 1 :] if t.step is None and t.tried.outcome != "not tried"]
        refused = self.trials[place].reject(outcome, reason)
        trials = (*self.trials[:place], refused, *(replace(trial, begun=False) for trial in after))
        below = replace(self, trials=trials, closed=None, ended=None, at_target=False, in_time=None)
        return replace(below, offered=None, engines={})

    def plan(self, candidate: Candidate, *, begun: bool = False) -> TriedCandidate:
        """Return a try of ``candidate`` on the rungs that are there now; it counts once it is among the trials."""
        part, part_share = largest(candidate, self.part_measurement)
        specs = stack(self.top.specs, candidate, self.engines, self.part_measurement)
        tried = Try(
            treatment=candidate.text,
            rung=len(self.steps),
            effect=strongest([combined_effect(specs), candidate.effect]),
            part=part,
            parts=list(candidate.parts),
            part_share=part_share,
            before_ms=self.top.ms,
            outcome="not tried",
            on=[catalogue.format_spec(spec) for spec in self.top.specs if spec in specs],
        )
        return TriedCandidate(candidate, specs, tried, begun)

    def leave(self, why: str, candidates: Sequence[Candidate], *, with_build: bool = False) -> Climb:
        """Return the climb with those of ``candidates`` that were never tried as not tried.

        ``with_build``: say how long building takes, where that is why.
        """
        left = []
        for candidate in candidates:
            if not _candidate_tries(self, candidate):
                build = f", and it can take {candidate.build_s:.0f} s to build" if candidate.build_s else ""
                saves = f"; it can save at most {100 * max_saving(self, candidate):.0f} % of a chunk"
                reason = f"{why}{build if with_build else ''}{saves}"
                left.append(self.plan(candidate).reject("not tried", reason))
        return self.add(*left)

    def end_at_target(self) -> Climb:
        """Return the climb at its end, with the other candidates untried."""
        ended = "the target was reached" if len(self.steps) > 1 else "the baseline reaches the target"
        return replace(self.leave("the target was reached first", remaining(self)), ended=ended, at_target=True)


# What to try next

SETTLED = "rejected by an earlier search on this machine"
LITTLE = "that can save little"


def remaining(climb: Climb) -> list[Candidate]:
    """Return what may be tried now, in order: what was not tried yet, then again what showed no difference.

    Left out is what an earlier ladder has shown to gain too little, what can gain nothing on this machine, and what
    can save next to nothing, unless everything is to be tried. What takes the place of accepted rungs comes after what
    goes on top of them; while the target is far, what can save little comes last.
    """
    now = climb.part_measurement
    refused = [trial.candidate for trial in climb.trials if trial.tried.outcome == "guard"]
    captured = any(entry.rank == CAPTURED for entry in find_entries(climb.top.specs))
    limited = climb.bounds.limiting_factor(now, captured=captured)
    new = [candidate for candidate in _new_candidates(climb) if not _skip_reason(climb, candidate)]
    again = [candidate for candidate in _applicable(climb) if _deserves_retry(climb, candidate)]
    try_s = settings.shortest_try_s(climb.top.ms / 1e3)
    first = sort_candidates(new, now, lambda text: _standing(climb, text), climb.bounds.times, refused, limited, try_s)
    far = climb.top.ms > settings.FAR * climb.aim.target_ms
    first.sort(
        key=lambda each: (far and max_saving(climb, each) < settings.SMALL_SAVING, not _keeps_rungs(climb, each))
    )
    return [*first, *sort_candidates(again, now, limited=limited)]


def left_out(climb: Climb) -> str:
    """Return how many candidates are left out, and why, as the end of a sentence."""
    skipped = [(candidate, _skip_reason(climb, candidate)) for candidate in _new_candidates(climb)]
    counts = Counter(why for _, why in skipped if why)
    settled, little = counts.pop(SETTLED, 0), counts.pop(LITTLE, 0)
    useless = [f"{count} {why}" for why, count in counts.items()]
    if little:
        most = max(max_saving(climb, candidate) for candidate, why in skipped if why == LITTLE)
        useless.append(f"{little} that can save at most {significant(100 * most, 2)} % of a chunk")
    reasons = [f"{settled} {SETTLED} (--fresh tries again)"] if settled else []
    reasons += [f"{', '.join(useless)} (--all tries all)"] if useless else []
    return f"; skipped: {', and '.join(reasons)}" if reasons else ""


def _skip_reason(climb: Climb, candidate: Candidate) -> str | None:
    """Return why ``candidate`` is not worth a try, in words; None if it is. The user's own may always gain."""
    if climb.aim.everything:
        return None
    if _standing(climb, candidate.text) == "left out":
        return SETTLED
    if candidate.specs not in climb.aim.choice.own and (why := climb.bounds.rejection_reason(candidate)):
        return why
    is_little = not _is_always_tried(climb, candidate) and max_saving(climb, candidate) < settings.MIN_SAVING
    return LITTLE if is_little else None


def _applicable(climb: Climb) -> list[Candidate]:
    """Return what the catalogue offers, without what is on and without other forms of it."""
    assert climb.offered is not None  # surveyed before anything is chosen
    on = {catalogue.format_spec(spec) for step in climb.steps for spec in step.specs}
    offered = [c for c in climb.offered if not {catalogue.format_spec(spec) for spec in c.specs} <= on]
    return [candidate for candidate in offered if not _is_replacement(climb, candidate)]


def _new_candidates(climb: Climb) -> list[Candidate]:
    return [candidate for candidate in _applicable(climb) if not _candidate_tries(climb, candidate)]


def _candidate_tries(climb: Climb, candidate: Candidate) -> list[Try]:
    return [trial.tried for trial in climb.trials if trial.begun and trial.tried.treatment == candidate.text]


def _standing(climb: Climb, treatment: str) -> Standing:
    return climb.earlier.standing(treatment, {catalogue.format_spec(spec) for spec in climb.top.specs})


def _is_replacement(climb: Climb, candidate: Candidate) -> bool:
    """Return whether it is another form of what is on (an engine in float32 where one in bfloat16 is).

    Also true if an engine already computes parts that the candidate would change, and it could save too little to
    be shown; and if a program of all steps, which is on, would have to be built again of what the candidate changes.
    """
    if _is_always_tried(climb, candidate):
        return False
    if candidate.of_torch and not candidate.parts and climb.programs:
        return True
    computed = any(part in climb.engine_parts for part in candidate.parts) and max_saving(climb, candidate) < MATTERS
    return computed or all(is_slot_covered(spec, climb.top.specs) for spec in candidate.specs)


def _keeps_rungs(climb: Climb, candidate: Candidate) -> bool:
    """Return whether all that is on stays on with ``candidate``; an engine takes the place of those inside it."""
    after = stack(climb.top.specs, candidate, climb.engines, climb.part_measurement)
    return all(spec in after for spec in climb.top.specs)


def _deserves_retry(climb: Climb, candidate: Candidate) -> bool:
    """Return whether a quick, undecided one is tried again: it seemed faster, or rungs were added since."""
    tries = _candidate_tries(climb, candidate)
    if len(tries) != 1 or candidate.build_s:
        return False
    verdict, undecided = tries[0].verdict, tries[0].outcome in ("no difference shown", "inconclusive")
    seemed_faster = verdict is not None and verdict.ratio < 1 - MATTERS
    return undecided and (seemed_faster or tries[0].rung < len(climb.steps))


def _is_always_tried(climb: Climb, candidate: Candidate) -> bool:
    return candidate.effect == "lossy" or candidate.specs in climb.aim.choice.own


def max_saving(climb: Climb, candidate: Candidate) -> float:
    """Return the share of a chunk's time that ``candidate`` can save at most: that of the parts that it speeds up.

    What an accepted engine computes is in none of them, because it takes the place of the modules. Where the
    treatments know that they save less, it is that.
    """
    now, entries = climb.part_measurement, find_entries(candidate.specs)
    of_parts = max(entry.of_parts for entry in entries) * _share_of_parts(climb, candidate, now)
    return min(sum(entry.saves(now) for entry in entries), of_parts)


def _share_of_parts(climb: Climb, candidate: Candidate, now: Measurement) -> float:
    elsewhere = () if any(outdoes(spec, climb.top.specs) for spec in candidate.specs) else climb.engine_parts
    if candidate.parts:
        return sum(share(now, part) for part in candidate.parts if part not in elsewhere)
    if not (elsewhere and candidate.of_torch):
        return 1.0
    # An engine of a whole network is one part with a name of its own, so what torch had before it bounds that.
    before = _share_without(climb.start.measurement, elsewhere) * climb.start.ms / climb.top.ms
    return min(_share_without(now, elsewhere), before)


def find_entries(specs: Iterable[Spec]) -> list[Entry]:
    """Return the catalogue's entries of ``specs``."""
    return [catalogue.find_entry(next(iter(spec))) for spec in specs]


def _share_without(measurement: Measurement, parts: Sequence[str]) -> float:
    """Return the share of the time that goes to other parts than ``parts``, 0 to 1."""
    return sum(of_it for part, of_it in shares(measurement).items() if part not in parts)
