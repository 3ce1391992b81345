"""After the climb: one run of all rungs gives the ladder's figures; then the best rung is held to its promises.

Accepted tries are biased upwards, so the figures come from a fresh run. The rung that the ladder ends with is looked at
closely, played in the simulator, and timed by itself; where it fails, the next rung below takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.core.errors import UserError
from strobe.core.measure.guard import DROP, Guards
from strobe.core.measure.time_limit import LookInterrupted, TimeLimit
from strobe.core.results.agreement import Agreement, YardstickName
from strobe.core.sameness.check import NotSeenError, PolicyCallError
from strobe.core.studies.shared.action_check import (
    CheckProgress,
    action_time_limit,
    plan_visits,
    yardstick_observations,
    yardsticks,
)
from strobe.core.studies.shared.measuring import Measured
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.evaluate.measure.episodes import MARGIN
from strobe.evaluate.measure.planning import fewest_pairs
from strobe.evaluate.pairs import PairedEpisodes
from strobe.ladder import settings
from strobe.ladder.answer import Choosing, find_baseline_comparison
from strobe.ladder.climb import BASELINE, Climb, Step
from strobe.ladder.episodes import CandidateError, Episodes, rejection_reason
from strobe.ladder.in_time import best_rung
from strobe.ladder.results import OptimizeResult
from strobe.ladder.runner import ActionGuard, judge_variants
from strobe.ladder.settings import Climbing
from strobe.ladder.trial import Climber, describe_action_change, judge_try, run_rungs
from strobe.lerobot.config_fields import require_policy

MORE_YARDSTICKS: tuple[YardstickName, ...] = ("another noise draw", "neighbouring frame", "another observation")
NO_EPISODES = "no episodes show its success"


def closing_run(climber: Climber, climb: Climb) -> Measured:
    """Run all rungs in alternation, unless there is a run that is as good: `Climb.closed`, where its rungs are all.

    Raises:
        KeyboardInterrupt: before the first round was complete.
    """
    variants = [step.variant for step in climb.steps]
    names = [variant.name for variant in variants]
    if climb.closed is not None and list(climb.closed.variants) == names:
        return climb.closed
    climber.reporter.stage(f"the closing run: {', '.join(names)}")
    return run_rungs(climber, climb, variants)


def can_be_judged(measured: Measured, rungs: int) -> bool:
    """Return whether a closing run has enough of each rung, though it may have been interrupted."""
    counts = [len(measurement.samples.values) for measurement in measured.measurements]
    return len(counts) == rungs and (not measured.interrupted or min(counts) >= settings.CLOSING_MIN_PAIRS)


def drop_rungs(climb: Climb, measured: Measured, reporter: Climbing) -> Climb:
    """Reject what lies above the best rung by the closing run, and give rungs accepted at first sight their verdicts.

    What is on from the start stays, whatever it gains.
    """
    steps, names = climb.steps, [step.name for step in climb.steps]
    start = max(rung for rung, step in enumerate(steps) if not rung or step.requested)
    times = [measured.collected.samples[name].values for name in names]
    best = best_rung(times, [step.is_shown_faster for step in steps], [True] * len(steps), start)
    trials = []
    for trial in climb.trials:
        rung = names.index(trial.step.name) if trial.step is not None else 0
        if rung > start:
            verdict = judge_variants(measured, names[rung - 1], names[rung])
            trial = trial.record(verdict=trial.tried.verdict or verdict)
            if rung > best:
                if verdict.kind == "faster":  # than a rung that is no gain itself
                    verdict = judge_variants(measured, names[best], names[rung])
                outcome, reason = judge_try(verdict)
                trial = trial.record(verdict=verdict).reject(outcome, f"{reason} in the closing run")
                reporter.say(f"{names[rung]}: rejected, {trial.tried.reason}")
        trials.append(trial)
    return replace(climb, trials=tuple(trials))


def look_closely(climber: Climber, climb: Climb) -> Climb:
    """Check the actions of the highest rung where faults show; where they break the guard, reject that rung.

    Raises:
        KeyboardInterrupt: during the check.
    """
    guard, top, reporter = climber.guard, climb.top, climber.reporter
    if guard.same is None or top is climb.start or top.requested or top.seen_closely is not None:
        return climb
    guard.same.limit = action_time_limit(settings.CLOSE_LOOK_S, climb.start.ms / 1e3)
    agreement, broken, _ = _check_rung(guard, top, reporter)
    guard.same.limit = TimeLimit()  # tries look at few observations
    if broken:
        reporter.say(f"{top.name} is rejected by a closer check of its actions: {broken}")
        return climb.refuse_top("guard" if agreement is not None else "failed", f"{broken} in a closer check")
    return climb if agreement is None else climb.hold_top(agreement)


def _check_rung(guard: ActionGuard, step: Step, reporter: Climbing) -> tuple[Agreement | None, str | None, str | None]:
    """Return how ``step`` agrees with the baseline, the limit that it breaks, and what is not judged."""
    same = guard.same
    assert same is not None  # there is nothing to check otherwise
    agreement = step.seen_closely
    if agreement is None:
        reporter.stage(f"the same actions? {step.name}")
        same.limit.begin(1)
        try:
            agreement = same.check(step.variant, plan_visits(same, step.variant), CheckProgress(reporter))
        except PolicyCallError as error:
            return None, str(error), None
        except NotSeenError as error:
            return None, None, str(error)
    judgement = guard.judge(step.variant, agreement)
    return agreement, judgement.broken_limit, judgement.missing_figures


def confirm(choosing: Choosing, climber: Climber) -> None:
    """Check the chosen rung's actions where faults show; where it fails, the next one below, until one holds.

    The result gets the agreements and the other yardsticks. Ctrl-C ends it.
    """
    guard, reporter, result = climber.guard, climber.reporter, choosing.result
    if guard.same is None:
        return
    steps = {step.name: step for step in choosing.steps}
    chunk_s = choosing.steps[0].ms / 1e3
    guard.same.limit = action_time_limit(settings.CLOSE_LOOK_S, chunk_s)
    try:
        if choosing.chosen_rung != BASELINE:
            guard.same.limit.begin(1 / 2)
            count = yardstick_observations(chunk_s)
            for moved_by in yardsticks(guard.same, count, reporter, MORE_YARDSTICKS):
                result.yardsticks.append(moved_by)
        while (name := choosing.chosen_rung) != BASELINE:
            comparison = find_baseline_comparison(result, name)
            assert comparison is not None
            try:
                agreement, comparison.broken, comparison.unjudged = _check_rung(guard, steps[name], reporter)
            except LookInterrupted as stopped:
                if isinstance(stopped.found, Agreement):
                    comparison.agreement = stopped.found
                    comparison.broken, comparison.unjudged = "", stopped.found.unjudged
                raise
            if agreement is None and comparison.broken:
                comparison.agreement = None  # of the closing run, in which no call failed
            if agreement is not None:
                comparison.agreement = agreement
                reporter.say(f"{name}: {describe_action_change(agreement)}; {agreement.how}")
            if comparison.outcome == "held":
                return
            choosing.refused[name] = comparison.broken or f"not judged: {comparison.unjudged}"
            reporter.say(f"{name} is rejected: {choosing.refused[name]}")
    except KeyboardInterrupt:
        result.status = "interrupted"
        result.notes.append("interrupted before the actions of the last step were checked on more observations")


def start_episodes(
    subject: Subject, env: object, count: int, guards: Guards, base: Sequence[Treatment] = ()
) -> Episodes:
    """Start the simulator of LeRobot's ``EnvConfig`` for ``count`` pairs per task, at most.

    Raises:
        UserError: it cannot be started, ``subject`` is no policy, or the pairs are too few for what the guard demands.
    """
    policy = require_policy(subject)
    limit = guards.success_drop
    margin = MARGIN if limit is None else limit
    episodes = Episodes(env, policy, Variant(BASELINE, tuple(base)), count, policy.seed, margin)
    if limit is not None and episodes.planned_pairs < (enough := fewest_pairs(limit)):
        episodes.close()
        raise UserError(
            f"{DROP}<={limit:g} needs at least {enough} pairs of episodes, even if all of them agree; this run plays "
            f"{episodes.planned_pairs}: raise --eval.n_episodes"
        )
    return episodes


def prove(
    choosing: Choosing, variants: Sequence[Variant], episodes: Episodes, guards: Guards, watching: Climbing
) -> None:
    """Play the chosen rung against the baseline; where it is refused, the next one below, until one is not.

    The result gets the episodes; one that Ctrl-C ended is interrupted.

    Args:
        variants: of the ladder's rungs.
    """
    result, refused = choosing.result, choosing.refused
    if choosing.chosen_rung == BASELINE:
        result.notes.append("no paired episodes: no treatment was accepted")
    while (name := choosing.chosen_rung) != BASELINE:
        rung = next(variant for variant in variants if variant.name == name)
        watching.stage(f"paired episodes in {episodes.environment}: {BASELINE}, {name}")
        judged: PairedEpisodes | None = None
        interrupted = False
        try:
            judged, interrupted = episodes.play_against_baseline(rung, watching)
        except CandidateError as error:
            refused[name] = str(error)
            watching.say(f"{name} is rejected: {error}")
        except UserError as error:  # the simulator's fault says nothing of any rung, and must not cost the ladder
            result.notes.append(f"no paired episodes: {error}")
        if judged is not None:
            judged.broken = rejection_reason(guards, judged) or ""
            result.episodes.append(judged)
            refused |= {name: judged.broken} if judged.broken else {}
            watching.say(judged.sentence)
        elif interrupted:
            result.notes.append("no paired episodes: interrupted before the first pair was played")
        unknown = judged is None and name not in refused
        if (interrupted or unknown) and guards.success_drop is not None:
            refuse_unplayed(choosing, variants)
        if interrupted:
            result.status = "interrupted"
        if interrupted or name not in refused:
            return


def refuse_unplayed(choosing: Choosing, variants: Sequence[Variant]) -> None:
    """Refuse all rungs, where a guard wants episodes that were not played."""
    for variant in variants[1:]:
        choosing.refused.setdefault(variant.name, NO_EPISODES)


def time_alone(result: OptimizeResult, climber: Climber, climb: Climb) -> None:
    """Time the chosen rung by itself, unless the closing run shows that its chunks are too late.

    The answer rests on a run of its own: the climb ended with a rung because its chunks looked in time. A long
    closing run, which `--iterations` requests, takes its place.
    """
    ladder = result.ladder
    if ladder is None or ladder.in_time is None or ladder.in_time.outcome == "missed":
        return
    chosen = next(step for step in climb.steps if step.name == ladder.chosen)
    if result.measurement(ladder.chosen).samples.summary.median > ladder.target_ms:
        return
    if ladder.in_time.chunks * climber.runs.spaced_s(chosen.ms / 1e3) >= settings.IN_TIME_S[0]:
        return
    climber.reporter.stage(f"are its chunks in time? {ladder.chosen}")
    try:
        judged = climber.runs.time_alone(chosen.variant, chosen.ms, climb.aim)
    except KeyboardInterrupt:
        result.notes.append("interrupted before the chunks of the last step were timed alone")
        return
    if judged is not None:
        ladder.in_time, ladder.alone = judged
        ladder.met = ladder.in_time.outcome == "reached"
