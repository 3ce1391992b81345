"""One try: a candidate on top of the accepted rungs is run, judged, listed, and reported in a line.

`attempt` picks one of two judgements, by how the climb goes on: `_race` screens the actions on a few observations, then
times the candidate against the highest rung in alternation; `_look` runs it at first sight. What the last ladder kept
is tried by `try_rungs_together`, in one run of all rungs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.core.errors import UserError, error_line
from strobe.core.measure.guard import HELD, Judgement
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.measure.sequential import MATTERS, Glance
from strobe.core.results.agreement import Agreement
from strobe.core.results.comparison import Verdict
from strobe.core.sameness.check import PolicyCallError
from strobe.core.studies.shared.measuring import Measured
from strobe.core.treatments.treatment import Spec, Variant
from strobe.ladder import settings
from strobe.ladder.candidates import Candidate, make_candidate, together
from strobe.ladder.climb import Climb, TriedCandidate
from strobe.ladder.results import TryOutcome
from strobe.ladder.runner import build_seconds, judge_variants, require_uninterrupted


def attempt(climb: Climb, candidate: Candidate, sharing: int = 1) -> bool:
    """Try ``candidate`` on top of the accepted rungs. Return whether it was accepted.

    One that does not apply, or fails, is listed like any other: it must not cost the ladder.

    Args:
        sharing: how many candidates share the time that remains; for tries that are timed one by one.

    Raises:
        KeyboardInterrupt: during its run.
    """
    trial = climb.plan(candidate, begun=True)
    tried = trial.tried
    before = milliseconds(tried.before_ms)
    place = (
        f"{tried.part} ({100 * tried.part_share:.0f} % of {before})" if tried.part else f"the whole policy ({before})"
    )
    if others := len(tried.parts) - 1 if tried.part else 0:
        place += f" and {others} other part{'' if others == 1 else 's'}"
    number = 1 + sum(each.begun for each in climb.trials)
    head = f"candidate {number}: {candidate.text} on {place}"
    climb.reporter.doing(f"{head}{', building it first' if candidate.build_s else ''}")
    try:
        variant = climb.runs.variant(tried.rung, trial.specs)
        if climb.by_effect:
            _look(climb, trial, variant)
        else:
            _race(climb, trial, variant, sharing)
    except Exception as error:
        trial.fail(*failure(error))
    climb.trials.append(trial)
    figures = f"{trial.figures} → " if trial.figures else ""
    if trial.step is not None:
        climb.reporter.say(f"{head}: {figures}accepted as step {tried.rung}")
        return True
    climb.runs.release(step.variant for step in climb.steps)
    kind = f"{tried.outcome}: " if tried.outcome in ("does not apply", "failed") else ""
    climb.reporter.say(f"{head}: {figures}rejected, {kind}{tried.reason}{trial.detail}")
    return False


def _race(climb: Climb, trial: TriedCandidate, variant: Variant, sharing: int) -> None:
    """Screen the actions on a few observations, then time ``variant`` against the highest rung."""
    runs, tried, before = climb.runs, trial.tried, climb.top
    first_s, call_s = None, before.ms / 1e3
    if not trial.candidate.build_s:  # compiled code has the probes in it: a call without them would build it twice
        screened = climb.guard.screen(variant)
        first_s, call_s = screened.first_s, screened.call_s
        tried.agreement = screened.agreement
        if screened.judgement.outcome != "held":
            tried.build_s = max(first_s - call_s, 0.0)
            return trial.reject(*refusal(screened.judgement), f" ({screened.agreement.observations} observations)")
    least, most = settings.TRY_S
    seconds = min(max(climb.remaining_to_try_s() / max(sharing, 1), least), most)
    spaced_s = runs.spaced_s(before.ms / 1e3)
    rounds_s = (settings.TRY_ROUNDS + 1) * (spaced_s + runs.spaced_s(call_s))
    glanced = not trial.candidate.build_s and begins_with_glance(spaced_s)
    measured, verdict, most_gain = runs.race(before.variant, variant, max(seconds, rounds_s), glanced=glanced)
    tried.agreement = climb.guard.agreement(measured, variant.name)
    tried.build_s = build_seconds(measured, variant.name, first_s)
    judgement = climb.guard.judge(variant, tried.agreement)
    if isinstance(verdict, Glance):
        return _judge_glance(trial, verdict, judgement, variant, measured)
    tried.verdict, tried.most_gain = verdict, most_gain
    outcome, reason = judge_try(verdict, judgement)
    trial.figures = format_try_figures(outcome, verdict, tried.agreement)
    if outcome == "kept":
        return trial.accept(variant, measured.measurements[-1])
    return trial.reject(outcome, reason)


def _judge_glance(
    trial: TriedCandidate, glance: Glance, judgement: Judgement, variant: Variant, measured: Measured
) -> None:
    """Accept what gains clearly in few pairs, until the closing run judges it; drop what gains nothing in them.

    What loses clearly is dropped too, and nothing is claimed of it: so few pairs do not show that it is slower.
    """
    pairs = f"{glance.times:.2f} × as fast in {glance.pairs} pairs"
    if glance.seen == "no gain":
        trial.tried.most_gain = glance.most_gain
        return trial.reject("no difference shown", f"saves less than {100 * MATTERS:g} %: {pairs}")
    if glance.seen == "a clear loss":
        return trial.reject("inconclusive", f"inconclusive, seems slower: {pairs}")
    trial.figures = pairs
    if judgement.outcome != "held":
        return trial.reject(*refusal(judgement))
    assert trial.tried.agreement is not None
    trial.figures = f"{pairs}, {describe_action_change(trial.tried.agreement)}"
    return trial.accept(variant, measured.measurements[-1])


def _look(climb: Climb, trial: TriedCandidate, variant: Variant) -> None:
    runs, tried, before = climb.runs, trial.tried, climb.top
    measured = require_uninterrupted(runs.first_sight([variant]))
    after = measured.measurements[0]
    tried.agreement = agreement = climb.guard.agreement(measured, variant.name)
    tried.build_s = build_seconds(measured, variant.name)
    judgement = climb.guard.judge(variant, agreement)
    if judgement.outcome != "held":
        return trial.reject(*refusal(judgement), f" ({agreement.observations} observations)")
    sight, before_ms, after_ms = "one call", before.ms, after.samples.summary.median
    if after_ms > settings.SLOWER_AT_SIGHT * before_ms:  # one call may have been held up: both again, in turn
        again = require_uninterrupted(runs.first_sight([before.variant, variant]))
        before_ms, after_ms = (measurement.samples.summary.median for measurement in again.measurements)
        sight, after = "a second call", again.measurements[-1]
    shown = f"{milliseconds(after_ms)} in {sight}"
    if after_ms > settings.SLOWER_AT_SIGHT * before_ms:
        return trial.reject("slower", f"slower: {shown}, {milliseconds(before_ms)} before")
    trial.figures = f"{shown}, {describe_action_change(agreement)}"
    return trial.accept(variant, after)


def try_rungs_together(climb: Climb, rungs: Sequence[Candidate]) -> Measured | None:
    """Try the rungs that the last ladder kept in one run of all rungs; accept all of them or none.

    The run ends by the width of its intervals alone, and what is in it was chosen before it began. So it is as good as
    a closing run, and is one where nothing is added to it.

    Returns:
        The run, where they were accepted: it has the rungs that were there before, too.

    Raises:
        KeyboardInterrupt: during the run.
    """
    head = f"accepted by the last search, now together: {'; '.join(rung.text for rung in rungs)}"
    climb.reporter.doing(head)
    specs: tuple[Spec, ...] = ()
    for rung in rungs:
        specs = together(specs, rung.specs)
    whole = climb.plan(make_candidate(climb.runs.subject, specs))
    on = [climb.top.specs]
    for rung in rungs:
        on.append(together(on[-1], rung.specs))
    measured: Measured | None = None
    variants: list[Variant] = []
    first_s: list[float | None] = []
    try:
        variants = [climb.runs.variant(len(climb.steps) + index, each) for index, each in enumerate(on[1:])]
        first_s = _screen_together(climb, whole, variants)
        if whole.tried.outcome == "not tried":
            measured = _race_together(climb, whole, variants)
    except Exception as error:
        whole.fail(*failure(error))
    figures = f"{whole.figures} → " if whole.figures else ""
    if measured is None or whole.tried.outcome != "kept":
        climb.trials.append(whole)
        climb.runs.release(step.variant for step in climb.steps)
        climb.reporter.say(f"{head}: {figures}rejected, {whole.tried.reason}")
        return None
    measurements = {measurement.name: measurement for measurement in measured.measurements}
    for rung, variant, seconds in zip(rungs, variants, first_s, strict=True):
        trial = climb.plan(rung, begun=True)
        trial.tried.verdict = judge_variants(measured, climb.top.name, variant.name)
        trial.tried.agreement = climb.guard.agreement(measured, variant.name)
        trial.tried.build_s = build_seconds(measured, variant.name, seconds)
        trial.accept(variant, measurements[variant.name])
        climb.trials.append(trial)
    climb.reporter.say(f"{head}: {figures}accepted")
    return measured


def _screen_together(climb: Climb, whole: TriedCandidate, variants: Sequence[Variant]) -> list[float | None]:
    """Hold the guard on a few observations with all of ``variants`` on, and reject the trial where it does not hold.

    Return the seconds of each variant's first call; None if it is not made before the run.
    """
    if whole.candidate.build_s:  # compiled code has the probes in it: a call without them would build it twice
        return [None for _ in variants]
    first_s = [climb.runs.run_once(variant)[1] for variant in variants[:-1]]
    screened = climb.guard.screen(variants[-1])
    whole.tried.agreement = screened.agreement
    if screened.judgement.outcome != "held":
        whole.reject(*refusal(screened.judgement))
    return [*first_s, screened.first_s]


def _race_together(climb: Climb, whole: TriedCandidate, variants: Sequence[Variant]) -> Measured:
    measured = require_uninterrupted(run_rungs(climb, [*(step.variant for step in climb.steps), *variants]))
    chunks = measured.outputs.first(climb.start.name)
    climb.guard.reference = max(climb.guard.reference, chunks, key=len)  # it may have been glanced at only
    tried, last = whole.tried, variants[-1]
    tried.verdict = verdict = judge_variants(measured, climb.top.name, last.name)
    tried.agreement = agreement = climb.guard.agreement(measured, last.name)
    tried.outcome, tried.reason = judge_try(verdict, climb.guard.judge(last, agreement))
    whole.figures = format_try_figures(tried.outcome, verdict, agreement)
    return measured


def run_rungs(climb: Climb, variants: Sequence[Variant]) -> Measured:
    """Run ``variants`` in alternation within the time that remains, but for the fewest rounds in any case.

    Raises:
        KeyboardInterrupt: before the first round was complete.
    """
    requested = climb.runs.options.budget
    known_ms = {step.name: step.ms for step in climb.steps}
    round_s = sum(climb.runs.spaced_s(known_ms.get(variant.name, climb.top.ms) / 1e3) for variant in variants)
    remaining_s = min(requested.seconds, climb.remaining_s() - climb.counting_s())
    seconds = max(remaining_s, settings.TRY_S[0], settings.CLOSING_MIN_ROUNDS * round_s)
    fewest = requested.iterations or settings.CLOSING_MIN_PAIRS
    if climb.by_effect:
        budget = SamplingBudget(iterations=fewest, seconds=seconds, fewest=fewest, of=variants[-1].name)
        return climb.runs.close(variants, budget)
    gains = [1 - step.tried.verdict.ratio for step in climb.steps if step.tried.verdict is not None]
    gains += [1 - rung.ratio for rung in climb.earlier.rungs]
    # Known before the run begins, so that its end depends on widths alone.
    widths = [max(gain / 2, settings.FINEST_INTERVAL) for gain in gains if gain > 0]
    budget = replace(
        requested,
        seconds=seconds,
        fewest=fewest,
        min_iterations=settings.CLOSING_MIN_PAIRS,
        precision=min([requested.precision, *widths]),
        of=variants[-1].name,
    )
    return climb.runs.close(variants, budget)


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
    word = "as fast"
    return f"{1 / verdict.ratio:.2f} × {word} [{low:.2f}, {high:.2f}]"


def describe_action_change(agreement: Agreement) -> str:
    """Return how far the actions are from the baseline's, in words."""
    if agreement.rms is None or agreement.worst is None:
        return f"cosine {agreement.cosine:.6f}"
    if not agreement.worst:
        return f"the same {agreement.of} to the bit"
    return f"{agreement.of} move by {agreement.rms:.2g} σ, {agreement.worst:.2g} σ at most"


def milliseconds(value: float) -> str:
    """Return ``value`` with its unit, in as many figures as it takes."""
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"
