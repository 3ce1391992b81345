"""Steps of a climb that act: they run something on the subject, and return the state that follows.

A try goes on top of the accepted rungs, with its words; the rungs of the last ladder are tried in one run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strobe.core.errors import UserError, error_line
from strobe.core.findings.view import ms
from strobe.core.measure.guard import HELD, Judgement
from strobe.core.measure.sampling import PATIENCE
from strobe.core.results.agreement import Agreement
from strobe.core.results.comparison import Verdict
from strobe.core.sameness.check import PolicyCallError
from strobe.core.studies.shared.measuring import Measured
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Spec, Variant
from strobe.ladder import settings
from strobe.ladder.candidates import Candidate, candidates, find_engines, make_candidate, stack
from strobe.ladder.climb import Climb, TriedCandidate, find_entries
from strobe.ladder.results import TryOutcome
from strobe.ladder.runner import ActionGuard, Runs, build_seconds, judge_variants, require_uninterrupted
from strobe.ladder.sequential import MATTERS, Glance
from strobe.ladder.settings import Climbing


@dataclass(frozen=True)
class Climber:
    """The tools of a climb's steps: runs, a guard, and a limit of time.

    Args:
        began: `time.perf_counter` when its time began to run.
        limit_s: seconds for climb and closing run.
        by_effect: whether candidates of one effect are tried together at first sight, or each by itself.
    """

    runs: Runs
    guard: ActionGuard
    reporter: Climbing
    began: float
    limit_s: float
    by_effect: bool

    def remaining_s(self) -> float:
        """Return the seconds until the time limit."""
        return self.began + self.limit_s - time.perf_counter()

    def remaining_to_try_s(self, climb: Climb) -> float:
        """Return the seconds until the closing run must begin: its fewest rounds, of all rungs and of one more."""
        each = [self.runs.spaced_s(step.ms / 1e3) for step in climb.steps]
        closing = settings.CLOSING_MIN_ROUNDS * (sum(each) + each[-1]) + self.counting_s(climb)
        return self.remaining_s() - max(closing, settings.CLOSING_SHARE * self.limit_s)

    def counting_s(self, climb: Climb) -> float:
        """Return the seconds for a call of each rung under the dispatch mode that counts, roughly."""
        return sum(4 * step.ms / 1e3 + 0.3 for step in climb.steps) if self.runs.options.counted else 0.0


def survey(climber: Climber, climb: Climb) -> Climb:
    """Apply the highest rung, and ask the catalogue what it offers on top of it."""
    subject, top = climber.runs.subject, climb.top
    undo = top.variant.apply(subject)
    try:
        offered = candidates(subject, climb.aim.choice, top.measurement)
    finally:
        undo()
    return replace(climb, offered=tuple(offered), engines=find_engines(subject, top.specs))


def confirm_target(climber: Climber, climb: Climb) -> Climb:
    """Run the highest rung by itself, where the chunks of its try are too few to show that it reaches the target.

    Past the time limit too: a rung that reaches the target needs no more tries, which take longer.
    """
    if not climb.is_target_open:
        return climb
    top, seconds = climb.top, max(climber.remaining_to_try_s(climb), settings.IN_TIME_S[0])
    judged = climber.runs.time_alone(top.variant, top.ms, climb.aim, seconds)
    return climb if judged is None else replace(climb, in_time=judged[0])


def measure_start_well(climber: Climber, climb: Climb) -> Climb:
    """Measure a baseline that was only glanced at: by the run of the last ladder's rungs, else by one of its own."""
    start, runs, measured = climb.start, climber.runs, climb.closed
    if measured is None:
        seconds = (settings.TRY_ROUNDS + 1) * runs.spaced_s(start.ms / 1e3)
        measured = require_uninterrupted(runs.sample([start.variant], max(settings.TRY_S[0], seconds)))
    climber.guard.reference = measured.outputs.first(start.name)
    return replace(climb, start=replace(start, measurement=measured.measurements[0]))


def find_last_rungs(climber: Climber, climb: Climb) -> list[Candidate]:
    """Return the rungs of the last ladder that may be tried now: no more than the target takes by their gains.

    Those of another policy or version that do not exist here are left out.
    """
    rungs: list[Candidate] = []
    predicted_ms, aim = climb.top.ms, climb.aim
    for rung in climb.earlier.rungs:
        if settings.PREDICTED_MARGIN * predicted_ms <= aim.target_ms and not aim.everything:
            break
        try:
            entries = find_entries(rung.treatments)
            own = tuple(rung.treatments) in aim.choice.own
            if entries and (own or all(map(aim.choice.allows, entries))):
                rungs.append(make_candidate(climber.runs.subject, rung.treatments))
                predicted_ms *= rung.ratio
        except (UserError, StopIteration):
            continue
    return rungs


def attempt(climber: Climber, climb: Climb, candidate: Candidate, sharing: int = 1) -> Climb:
    """Try ``candidate`` on top of the accepted rungs. The try is the last one of what is returned.

    One that does not apply, or fails, is listed like any other: it must not cost the ladder.

    Args:
        sharing: how many candidates share the time that remains; for tries that are timed one by one.

    Raises:
        KeyboardInterrupt: during its run.
    """
    climb = climb if climb.offered is not None else survey(climber, climb)
    trial = climb.plan(candidate, begun=True)
    tried = trial.tried
    before = ms(tried.before_ms)
    place = (
        f"{tried.part} ({100 * tried.part_share:.0f} % of {before})" if tried.part else f"the whole policy ({before})"
    )
    if others := len(tried.parts) - 1 if tried.part else 0:
        place += f" and {others} other part{'' if others == 1 else 's'}"
    number = 1 + sum(each.listed for each in climb.trials)
    gone = ", ".join(catalogue.format_spec(spec) for spec in climb.top.specs if spec not in trial.specs)
    head = f"candidate {number}: {candidate.text}{gone and f', in place of {gone},'} on {place}"
    climber.reporter.doing(f"{head}{', building it first' if candidate.build_s else ''}")
    try:
        variant = climber.runs.variant(tried.rung, trial.specs)
        if climber.by_effect:
            trial = _look(climber, climb, trial, variant)
        else:
            trial = _race(climber, climb, trial, variant, sharing)
    except Exception as error:
        trial = trial.reject(*failure(error))
    climb, tried = climb.add(trial), trial.tried
    figures = f"{trial.figures} → " if trial.figures else ""
    if trial.step is not None:
        climber.reporter.say(f"{head}: {figures}accepted as step {tried.rung}")
        return climb
    climber.runs.release(step.variant for step in climb.steps)
    kind = f"{tried.outcome}: " if tried.outcome in ("does not apply", "failed") else ""
    climber.reporter.say(f"{head}: {figures}rejected, {kind}{tried.reason}{trial.detail}")
    return climb


def _race(climber: Climber, climb: Climb, trial: TriedCandidate, variant: Variant, sharing: int) -> TriedCandidate:
    """Screen the actions on a few observations, then time ``variant`` against the highest rung."""
    runs, guard, before = climber.runs, climber.guard, climb.top
    first_s, call_s = None, before.ms / 1e3
    if not trial.candidate.build_s:  # compiled code has the probes in it: a call without them would build it twice
        screened = guard.screen(variant)
        first_s, call_s = screened.first_s, screened.call_s
        if screened.judgement.outcome != "held":
            trial = trial.record(agreement=screened.agreement, build_s=max(first_s - call_s, 0.0))
            return trial.reject(*refusal(screened.judgement), f" ({screened.agreement.observations} observations)")
    least, most = settings.TRY_S
    seconds = min(max(climber.remaining_to_try_s(climb) / max(sharing, 1), least), most)
    spaced_s = runs.spaced_s(before.ms / 1e3)
    rounds_s = (settings.TRY_ROUNDS + 1) * (spaced_s + runs.spaced_s(call_s))
    glanced = not trial.candidate.build_s and begins_with_glance(spaced_s)
    measured, verdict, most_gain = runs.race(before.variant, variant, max(seconds, rounds_s), glanced=glanced)
    agreement = guard.agreement(measured, variant.name)
    trial = trial.record(agreement=agreement, build_s=build_seconds(measured, variant.name, first_s))
    judgement = guard.judge(variant, agreement)
    if isinstance(verdict, Glance):
        return _judge_glance(trial, verdict, judgement, variant, measured)
    outcome, reason = judge_try(verdict, judgement)
    trial = replace(
        trial.record(verdict=verdict, most_gain=most_gain), figures=format_try_figures(outcome, verdict, agreement)
    )
    return trial.accept(variant, measured.measurements[-1]) if outcome == "kept" else trial.reject(outcome, reason)


def _judge_glance(
    trial: TriedCandidate, glance: Glance, judgement: Judgement, variant: Variant, measured: Measured
) -> TriedCandidate:
    """Accept what gains clearly in few pairs, until the closing run judges it; drop what gains nothing in them.

    What loses clearly is dropped too, and nothing is claimed of it: so few pairs do not show that it is slower.
    """
    pairs = f"{glance.times:.2f} × as fast in {glance.pairs} pairs"
    if glance.seen == "no gain":
        reason = f"saves less than {100 * MATTERS:g} %: {pairs}"
        return trial.record(most_gain=glance.most_gain).reject("no difference shown", reason)
    if glance.seen == "a clear loss":
        return trial.reject("inconclusive", f"inconclusive, seems slower: {pairs}")
    if judgement.outcome != "held":
        return replace(trial, figures=pairs).reject(*refusal(judgement))
    assert trial.tried.agreement is not None
    trial = replace(trial, figures=f"{pairs}, {describe_action_change(trial.tried.agreement)}")
    return trial.accept(variant, measured.measurements[-1])


def _look(climber: Climber, climb: Climb, trial: TriedCandidate, variant: Variant) -> TriedCandidate:
    """Run the fewest calls: what is clearly slower or breaks the guard is rejected, and the closing run judges it."""
    runs, guard, before = climber.runs, climber.guard, climb.top
    measured = require_uninterrupted(runs.first_sight([variant]))
    after = measured.measurements[0]
    agreement = guard.agreement(measured, variant.name)
    trial = trial.record(agreement=agreement, build_s=build_seconds(measured, variant.name))
    judgement = guard.judge(variant, agreement)
    if judgement.outcome != "held":
        return trial.reject(*refusal(judgement), f" ({agreement.observations} observations)")
    sight, before_ms, after_ms = "one call", before.ms, after.samples.summary.median
    if after_ms > settings.SLOWER_AT_SIGHT * before_ms:  # one call may have been held up: both again, in turn
        again = require_uninterrupted(runs.first_sight([before.variant, variant]))
        before_ms, after_ms = (measurement.samples.summary.median for measurement in again.measurements)
        sight, after = "a second call", again.measurements[-1]
    shown = f"{ms(after_ms)} in {sight}"
    if after_ms > settings.SLOWER_AT_SIGHT * before_ms:
        return trial.reject("slower", f"slower: {shown}, {ms(before_ms)} before")
    return replace(trial, figures=f"{shown}, {describe_action_change(agreement)}").accept(variant, after)


def try_rungs_together(climber: Climber, climb: Climb, rungs: Sequence[Candidate]) -> Climb:
    """Try the rungs that the last ladder kept in one run of all rungs; accept all of them or none.

    The run ends by the width of its intervals alone, and what is in it was chosen before it began. So it is as good as
    a closing run, and is one where nothing is added to it: where the rungs were accepted, it is `Climb.closed`.

    Raises:
        KeyboardInterrupt: during the run.
    """
    head = f"accepted by the last search, now together: {'; '.join(rung.text for rung in rungs)}"
    climber.reporter.doing(head)
    specs: tuple[Spec, ...] = ()
    on, engines = [climb.top.specs], dict(climb.engines)
    for rung in rungs:
        specs, last = (stack(each, rung, engines, climb.part_measurement) for each in (specs, on[-1]))
        engines |= find_engines(climber.runs.subject, rung.specs)
        on.append(last)
    whole = planned = climb.plan(make_candidate(climber.runs.subject, specs))
    measured, variants, first_s = None, list[Variant](), list[float | None]()
    try:
        variants = [climber.runs.variant(len(climb.steps) + index, each) for index, each in enumerate(on[1:])]
        whole, first_s = _screen_together(climber, whole, variants)
        if whole.tried.outcome == "not tried":
            whole, measured = _race_together(climber, climb, whole, variants)
    except Exception as error:
        whole = planned.reject(*failure(error))
    figures = f"{whole.figures} → " if whole.figures else ""
    if measured is None or whole.tried.outcome != "kept":
        climb = climb.add(whole)
        climber.runs.release(step.variant for step in climb.steps)
        climber.reporter.say(f"{head}: {figures}rejected, {whole.tried.reason}")
        return climb
    below, measurements = climb.top.name, {measurement.name: measurement for measurement in measured.measurements}
    for rung, variant, seconds in zip(rungs, variants, first_s, strict=True):
        trial = climb.plan(rung, begun=True).record(
            verdict=judge_variants(measured, below, variant.name),
            agreement=climber.guard.agreement(measured, variant.name),
            build_s=build_seconds(measured, variant.name, seconds),
        )
        climb, below = climb.add(trial.accept(variant, measurements[variant.name])), variant.name
    climber.reporter.say(f"{head}: {figures}accepted")
    return replace(climb, closed=measured)


def _screen_together(
    climber: Climber, whole: TriedCandidate, variants: Sequence[Variant]
) -> tuple[TriedCandidate, list[float | None]]:
    """Judge the actions on a few observations with all of ``variants`` on, and reject the trial where they fail.

    Return it with the seconds of each variant's first call; None if that is not made before the run.
    """
    if whole.candidate.build_s:  # compiled code has the probes in it: a call without them would build it twice
        return whole, [None for _ in variants]
    first_s = [climber.runs.run_once(variant)[1] for variant in variants[:-1]]
    screened = climber.guard.screen(variants[-1])
    whole = whole.record(agreement=screened.agreement)
    if screened.judgement.outcome != "held":
        whole = whole.reject(*refusal(screened.judgement))
    return whole, [*first_s, screened.first_s]


def _race_together(
    climber: Climber, climb: Climb, whole: TriedCandidate, variants: Sequence[Variant]
) -> tuple[TriedCandidate, Measured]:
    guard, last = climber.guard, variants[-1]
    measured = require_uninterrupted(run_rungs(climber, climb, [*(step.variant for step in climb.steps), *variants]))
    chunks = measured.outputs.first(climb.start.name)
    guard.reference = max(guard.reference, chunks, key=len)  # it may have been glanced at only
    verdict, agreement = judge_variants(measured, climb.top.name, last.name), guard.agreement(measured, last.name)
    outcome, reason = judge_try(verdict, guard.judge(last, agreement))
    whole = whole.record(verdict=verdict, agreement=agreement, outcome=outcome, reason=reason)
    return replace(whole, figures=format_try_figures(outcome, verdict, agreement)), measured


def run_rungs(climber: Climber, climb: Climb, variants: Sequence[Variant]) -> Measured:
    """Run ``variants`` in alternation within the time that remains, but for the fewest rounds in any case.

    In a climb by effect the run may take `PAIRS_IN_NOISE` rounds, while a disturbed one hides the gain.

    Raises:
        KeyboardInterrupt: before the first round was complete.
    """
    runs, requested = climber.runs, climber.runs.options.budget
    known_ms = {step.name: step.ms for step in climb.steps}
    round_s = sum(runs.spaced_s(known_ms.get(variant.name, climb.top.ms) / 1e3) for variant in variants)
    remaining_s = min(requested.seconds, climber.remaining_s() - climber.counting_s(climb))
    seconds = max(remaining_s, settings.TRY_S[0], settings.CLOSING_MIN_ROUNDS * round_s)
    gains = [1 - step.tried.verdict.ratio for step in climb.steps if step.tried.verdict is not None]
    gains += [1 - rung.ratio for rung in climb.earlier.rungs]
    precisions = [requested.precision]
    if climber.by_effect:  # whose chunks are long: what shows the whole gain is enough, but that is worth the time
        gains, precisions = [1 - climb.top.ms / climb.start.ms], []
        seconds = max(seconds, settings.PAIRS_IN_NOISE * round_s)
    # Known before the run begins, so that its end depends on widths alone.
    widths = [max(gain / 2, settings.FINEST_INTERVAL) for gain in gains if gain > 0]
    budget = replace(
        requested,
        seconds=seconds,
        fewest=requested.iterations or settings.CLOSING_MIN_PAIRS,
        patience=PATIENCE,
        min_iterations=settings.CLOSING_MIN_PAIRS,
        precision=min([*precisions, *widths], default=settings.FINEST_INTERVAL),
        of=variants[-1].name,
    )
    return runs.close(variants, budget)


def begins_with_glance(chunk_s: float) -> bool:
    """Return whether tries of a chunk that takes so long begin with a glance at few pairs."""
    return settings.shortest_try_s(chunk_s) > settings.GLANCE_FROM_S


def failure(error: Exception) -> tuple[TryOutcome, str]:
    """Return the outcome of a try that raised ``error``, with its reason."""
    if isinstance(error, UserError) and not isinstance(error, PolicyCallError):
        return "does not apply", str(error)
    if isinstance(error, PolicyCallError):
        return "failed", str(error)
    return "failed", f"{type(error).__name__}: {error_line(error, 200)}"


def refusal(judgement: Judgement) -> tuple[TryOutcome, str]:
    """Return the outcome of a try whose guard does not hold, with its reason."""
    if judgement.broken_limit:
        return "guard", f"exceeds its limit: {judgement.broken_limit}"
    return "not judged", f"not judged: {judgement.missing_figures}"


def judge_try(verdict: Verdict, judgement: Judgement = HELD) -> tuple[TryOutcome, str]:
    """Return the outcome of a try with its reason: kept if it is faster and its guard holds."""
    low, high = verdict.interval.low, verdict.interval.high
    if verdict.kind == "faster":
        return ("kept", "") if judgement.outcome == "held" else refusal(judgement)
    if verdict.kind == "slower":
        return "slower", f"slower: {verdict.ratio:.2f} × the time [{low:.2f}, {high:.2f}]"
    return verdict.kind, f"inconclusive: measured {speedup(verdict)}, {verdict.pairs} pairs"


def format_try_figures(outcome: TryOutcome, verdict: Verdict, agreement: Agreement) -> str | None:
    """Return what the printed line says of a try's time and actions, if the reason lacks it."""
    if outcome == "kept":
        return f"{speedup(verdict)}, {describe_action_change(agreement)}"
    return speedup(verdict) if outcome == "guard" else None


def speedup(verdict: Verdict) -> str:
    """Return how many times as fast, with the interval, in words."""
    low, high = 1 / verdict.interval.high, 1 / verdict.interval.low
    return f"{1 / verdict.ratio:.2f} × as fast [{low:.2f}, {high:.2f}]"


def describe_action_change(agreement: Agreement) -> str:
    """Return how far the actions are from the baseline's, in words."""
    if agreement.rms is None or agreement.worst is None:
        return f"cosine {agreement.cosine:.6f}"
    if not agreement.worst:
        return f"the same {agreement.of} to the bit"
    return f"{agreement.of} move by {agreement.rms:.2g} σ, {agreement.worst:.2g} σ at most"
