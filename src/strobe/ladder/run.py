"""Optimize: climb from the baseline to a target rate, one treatment at a time, each shown and guarded.

`optimize` measures the machine and the baseline, then climbs. A strategy, one by one or by effect, reads from the
climb's state what remains (`climb.py`, `candidates.py`): candidates for the part that costs most come first, and what
earlier ladders showed counts (`earlier.py`). It tries the first of them (`trial.py`): on top of the accepted rungs,
since treatments interact; screened on a few observations, where all treatments together must stay within the guard's
limits; then timed against the highest rung in alternation (`runner.py`). A faster one becomes the next rung, and every
try is listed. Where a chunk takes so long that few candidates could be tried, all of one effect are tried together at
first sight. In the end one interleaved run of all rungs gives the ladder's figures and drops what it does not show
(`closing.py`); the highest rung is looked at closely, played in the simulator, and timed by itself. Where it fails, the
rung below takes its place, and the answer is written (`answer.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from strobe.core.errors import UserError
from strobe.core.findings.view import ms
from strobe.core.measure.guard import Guards, strongest
from strobe.core.results import units
from strobe.core.sameness.check import NotSeenError, PolicyCallError
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Measured, Options
from strobe.core.studies.shared.paired_comparison import SEVERAL_COPIES
from strobe.core.subjects.subject import Subject
from strobe.core.timeline import Section
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Effect, Spec, Treatment, Variant
from strobe.evaluate.measure.planning import foresight
from strobe.ladder import settings
from strobe.ladder.answer import Choosing, build_ladder, compare_by_tries, compare_in_one_run, judge_rungs
from strobe.ladder.candidates import EFFECTS, Bounds, Candidate, groups, is_program, make_candidate, together
from strobe.ladder.climb import BASELINE, Climb, Step, TriedCandidate, left_out, max_saving, remaining
from strobe.ladder.closing import (
    can_be_judged,
    closing_run,
    confirm,
    drop_rungs,
    look_closely,
    prove,
    refuse_unplayed,
    start_episodes,
    time_alone,
)
from strobe.ladder.earlier import Earlier, Use, circumstances
from strobe.ladder.episodes import Episodes
from strobe.ladder.results import OptimizeResult, Try
from strobe.ladder.runner import ActionGuard, Runs, build_seconds, judge_variants, prepare_checks
from strobe.ladder.settings import Aim, Climbing, SilentClimb
from strobe.ladder.trial import (
    Climber,
    attempt,
    begins_with_glance,
    confirm_target,
    describe_action_change,
    failure,
    find_last_rungs,
    measure_start_well,
    speedup,
    survey,
    try_rungs_together,
)

NOT_INTERLEAVED = (
    "the search was interrupted before its closing run: the figures of a step are from its own try, in alternation "
    "with the step before it, and the comparison with the baseline is across two runs"
)
WITHOUT_RTC = (
    "torch computes the chunks that Real-Time Chunking guides, without the one program of all denoising steps: a robot "
    "that runs it needs a recipe from a search with --rtc.execution_horizon=N"
)
NOT_CONFIRMED = "a step reached the target and ended the search, but the later runs do not show that: --all continues"


def optimize(
    subject: Subject,
    aim: Aim,
    options: Options,
    base: Sequence[Treatment] = (),
    reporter: Climbing | None = None,
    earlier: Use = "none",
) -> tuple[OptimizeResult, list[Section]]:
    """Climb, then measure all rungs in one interleaved run; Ctrl-C closes with what was accepted.

    Args:
        options: its budget is the closing run's.
        base: treatments of the baseline itself (Real-Time Chunking), on in everything that is measured.
        earlier: whether earlier ladders of this machine and policy are read, and this one is added to them.

    Returns:
        The result, without findings, and the sections of the closing run.

    Raises:
        UserError: the start does not apply, or breaks the guard; the simulator cannot be started, or the episodes are
            too few for what the guard demands of them.
        KeyboardInterrupt: before the baseline was measured.
    """
    if aim.guards.success_drop is not None and not aim.episodes:
        raise UserError(f"--guard={aim.guards}: success_drop needs episodes: add --eval.n_episodes=50")
    reporter, began = reporter or SilentClimb(), time.perf_counter()
    with ExitStack() as stack:
        episodes = None
        if aim.episodes:  # first, before anything is measured that a simulator's fault could cost
            reporter.stage(f"starting {aim.env.type}")
            episodes = stack.enter_context(closing(start_episodes(subject, aim.env, aim.episodes, aim.guards, base)))
            reporter.say(foresight(episodes.planned_pairs, episodes.margin))
        title = f"{subject.info.name}: treatments to reach {aim.target_hz:g} Hz"
        halves = ("float16",) if subject.device.type != "cpu" else ()  # few CPUs have fp16 arithmetic
        result = begin_result(OptimizeResult, subject, title, options, reporter, halves)
        runs = Runs(subject, options, tuple(base), reporter, result.machine.ceiling)
        guards = replace(aim.guards, kind=subject.returns)
        under = circumstances(subject, options, base, guards) if earlier != "none" else {}
        ladders = Earlier(result.subject, result.machine, under, earlier)
        climber, climb, interrupted = _start(aim, runs, guards, ladders, began)
        if ladders.ladders:
            reporter.say(str(ladders))
        result.status, measured = "interrupted", None
        with suppress(KeyboardInterrupt):
            if not interrupted:
                for state in search(climber, climb):
                    climb = state
                measured = closing_run(climber, climb)
                result.status = "interrupted" if measured.interrupted else "complete"
        if measured is not None and not can_be_judged(measured, len(climb.steps)):
            measured = None
        climb = _add_measurements(result, climber, climb, measured)
        _answer(Choosing(result, climb.steps, interleaved=measured is not None), climber, climb, episodes)
        if not_saved := ladders.save(result):
            reporter.say(not_saved)
    return result, measured.sections if measured is not None else []


def _start(aim: Aim, runs: Runs, guards: Guards, earlier: Earlier, began: float) -> tuple[Climber, Climb, bool]:
    """Measure the baseline, with the treatments that are on from the start, and choose how to climb.

    Returns what the climb acts with, its first state, and whether Ctrl-C ended the measurement.
    """
    reporter = runs.reporter
    reporter.stage("the baseline")
    baseline_variant = Variant(BASELINE, runs.base)
    usual_s, tries = settings.default_time_limit(runs.subject.device.type), settings.ONE_BY_ONE_TRIES
    limit_s = aim.time_limit or settings.LONGEST * usual_s
    _, chunk_s = runs.run_once(baseline_variant)
    if tries * settings.shortest_try_s(chunk_s) > limit_s / 2:  # the very first is slower than the others
        chunk_s = min(chunk_s, runs.run_once(baseline_variant)[1])
    chunk_s = runs.spaced_s(chunk_s)
    by_effect = tries * settings.shortest_try_s(chunk_s) > limit_s
    if aim.time_limit is None:
        tried_s = min(settings.ONE_BY_ONE_CHUNKS * chunk_s, limit_s)
        limit_s = max(usual_s, settings.LEAST_CHUNKS * chunk_s if by_effect else tried_s)
    variants = [baseline_variant, *([runs.variant(1, aim.start)] if aim.start else [])]
    # Where it is only glanced at, the run of the last ladder's rungs, or the closing run, measures it well.
    glanced = by_effect or (len(variants) == 1 and (bool(earlier.rungs) or begins_with_glance(chunk_s)))
    if by_effect:
        within = f"in {limit_s:.0f} s (--time_limit)"
        reporter.say(f"a chunk takes {chunk_s:.1f} s: all treatments of one effect are tried together, {within}")
    if glanced:
        measured = runs.first_sight(variants, counted=True)
    else:
        rounds_s = (settings.TRY_ROUNDS + 1) * chunk_s * len(variants)
        measured = runs.sample(variants, max(settings.TRY_S[0], rounds_s), counted=True)
    if measured.interrupted and len(measured.measurements) < len(variants):
        raise KeyboardInterrupt
    first = measured.measurements[0]
    tried = Try(treatment="", rung=0, before_ms=first.samples.summary.median, outcome="kept")
    guard = ActionGuard(runs, guards, measured.outputs.first(BASELINE))
    try:
        guard.same, guard.yardsticks = prepare_checks(runs, first.samples.summary.median / 1e3)
    except (NotSeenError, PolicyCallError) as error:  # the ladder is judged on the observations that are timed
        reporter.say(f"the actions are compared only on the timed observations: {error}")
    bounds, step = Bounds(first, runs.ceiling), Step(baseline_variant, (), first, tried)
    climber = Climber(runs, guard, reporter, began, limit_s, by_effect)
    climb = Climb(aim, earlier, bounds, step, glanced)
    reporter.say(f"baseline: {ms(step.ms)} per chunk ({1e3 / step.ms:.1f} Hz)")
    if by_effect and aim.time_limit is None:
        climb = survey(climber, climb)
        if programs := _find_programs(climb):
            build_s = programs[0].build_s
            climber = replace(climber, limit_s=limit_s + build_s)
            program = f"one program of all denoising steps may take {build_s:.0f} s to build"
            reporter.say(f"{program}: {climber.limit_s:.0f} s for the search (--time_limit)")
    if too_slow := bounds.slow_arithmetic_reason(aim.target_ms, "lossy" in aim.choice.effects):
        reporter.say(too_slow)
    if aim.start:
        climb = _add_start(climber, climb, variants[1], measured)
    return climber, climb, measured.interrupted


def _add_start(climber: Climber, climb: Climb, variant: Variant, measured: Measured) -> Climb:
    agreement = climber.guard.agreement(measured, variant.name)
    judgement = climber.guard.judge(variant, agreement)
    if judgement.outcome != "held":
        fault = "exceeds the limits" if judgement.broken_limit else "cannot be judged by the limits"
        start = ", ".join(map(catalogue.format_spec, climb.aim.start))
        raise UserError(f"--start='{start}' {fault}: {judgement.words}; change --guard or --start")
    effect = strongest([treatment.effect for treatment in variant.treatments])
    verdict, build_s = judge_variants(measured, BASELINE, variant.name), build_seconds(measured, variant.name)
    trial = climb.plan(Candidate(climb.aim.start, (), effect, 0))
    trial = trial.record(part=None, verdict=verdict, agreement=agreement, build_s=build_s)
    trial = replace(trial.accept(variant, measured.measurements[1], requested=True), listed=False)
    climber.reporter.say(
        f"step 1, from --start: {trial.candidate.text}: {speedup(verdict)}, {describe_action_change(agreement)}"
    )
    return climb.add(trial)


def _add_measurements(result: OptimizeResult, climber: Climber, climb: Climb, measured: Measured | None) -> Climb:
    """Add the figures of all rungs. Return the climb without those that the closing run does not show."""
    if measured is not None:
        comparisons = compare_in_one_run(measured)
        climb = drop_rungs(climb, measured, climber.reporter)
        names = {step.name for step in climb.steps}
        result.measurements = [each for each in measured.measurements if each.name in names]
        result.comparisons = [each for each in comparisons if {each.baseline, each.candidate} <= names]
    else:
        result.measurements = [step.measurement for step in climb.steps]
        result.comparisons = compare_by_tries(climb.steps)
        result.notes += [NOT_INTERLEAVED] if len(climb.steps) > 1 else []
    if climber.runs.options.counted and len(climb.steps) > 1:
        result.notes.append(SEVERAL_COPIES)
    result.yardsticks = climber.guard.yardsticks
    judge_rungs(result, climb.steps, climber.guard, measured)
    return climb


def _answer(choosing: Choosing, climber: Climber, climb: Climb, episodes: Episodes | None) -> None:
    result, guards = choosing.result, climber.guard.guards
    variants = [step.variant for step in climb.steps]
    if result.status == "complete":
        confirm(choosing, climber)
    if result.status != "complete" and guards.success_drop is not None:
        refuse_unplayed(choosing, variants)
    elif episodes is not None and result.status == "complete":
        prove(choosing, variants, episodes, guards, climber.reporter)
    result.ladder = build_ladder(choosing, climb, guards)
    if climb.programs and hasattr(getattr(climber.runs.subject.module, "config", None), "rtc_config"):
        result.notes.append(WITHOUT_RTC)
    if result.status == "complete":
        time_alone(result, climber, climb)
        if climb.at_target and not result.ladder.met:
            result.notes.append(NOT_CONFIRMED)


# Strategies: each is the states of a climb, one after the other; after Ctrl-C the last one has what was accepted.


def search(climber: Climber, climb: Climb) -> Iterator[Climb]:
    """Climb, and check the actions of the highest rung closely; where they break the guard, climb on without it."""
    if climber.by_effect:
        yield from climb_by_effect(climber, climb)
        return
    while climb.ended is None:
        for state in climb_one_by_one(climber, climb):
            yield (climb := state)
        yield (climb := look_closely(climber, climb))


def climb_one_by_one(climber: Climber, climb: Climb) -> Iterator[Climb]:
    """Try each candidate in a run of its own, in alternation with the highest rung, until the target or the time limit.

    What the last ladder kept is tried first, together.
    """
    rungs = [] if climb.tries else find_last_rungs(climber, climb)
    if rungs and sum(rung.build_s for rung in rungs) <= climber.remaining_to_try_s(climb):
        yield (climb := try_rungs_together(climber, climb, rungs))
    far = climb.aim.everything or climb.start.ms > settings.FAR * climb.aim.target_ms
    if climb.glanced and (climb.closed is not None or not far):
        yield (climb := measure_start_well(climber, climb))
    while not (climb := confirm_target(climber, climb)).has_reached_target:
        climb = survey(climber, climb)
        left = remaining(climb)
        if not left:
            yield replace(climb, ended=f"no treatment remained to try{left_out(climb)}")
            return
        # What is quick may still fit where what comes first does not.
        seconds = climber.remaining_to_try_s(climb)
        try_s = settings.shortest_try_s(climber.runs.spaced_s(climb.top.ms / 1e3))
        fitting = next((each for each in left if climb.building_s(each) + try_s <= seconds), None)
        if fitting is None:
            yield _end_at_time_limit(climber, climb, left)
            return
        yield (climb := attempt(climber, climb, fitting, sharing=sum(1 for each in left if not each.build_s)))
    yield survey(climber, climb).end_at_target()


def _end_at_time_limit(climber: Climber, climb: Climb, left: Sequence[Candidate]) -> Climb:
    seconds = max(climber.remaining_to_try_s(climb), 0.0)
    which = ", all slow to build" if all(candidate.build_s for candidate in left) else ""
    over = f"{seconds:.0f} s of the time limit of {climber.limit_s:.0f} s were left, too few for another try"
    ended = f"{over}, with {units.count(len(left), 'treatment')} untried{which}{left_out(climb)}"
    return replace(climb.leave(f"{seconds:.0f} s remained", left, with_build=True), ended=ended)


def climb_by_effect(climber: Climber, climb: Climb) -> Iterator[Climb]:
    """Try all exact candidates as one group at first sight, then all rounding ones; only the closing run judges.

    For chunks that take so long that few candidates could be tried one by one.
    """
    for rung in find_last_rungs(climber, climb):
        if not (climb := confirm_target(climber, climb)).has_reached_target:
            yield (climb := attempt(climber, climb, rung))
    for effect in EFFECTS:
        # An accepted one takes the place of most of the others, and of the same in another dtype.
        while programs := [each for each in _find_programs(survey(climber, climb)) if each.effect == effect]:
            climb = confirm_target(climber, climb)
            if climb.has_reached_target or not _fits(climber, climb, programs[0]):
                break
            yield (climb := attempt(climber, climb, programs[0]))
        climb, grouped = _group_candidates(climber, climb, effect)
        yield climb
        refused, apart = set[str](), False
        while grouped:
            climb = climb if climb.offered is not None else survey(climber, climb)
            # Time may end before each is tried by itself: what can save most comes first.
            grouped.sort(key=lambda each: (each.try_alone, -each.try_alone * max_saving(climb, each)))
            group = grouped.pop(0)
            if (climb := confirm_target(climber, climb)).has_reached_target:
                yield survey(climber, climb).end_at_target()
                return
            if (group.try_alone or climb.building_s(group)) and not _fits(climber, climb, group):
                continue
            yield (climb := attempt(climber, climb, group))
            if climb.trials[-1].step is not None:
                continue
            climb, apart = survey(climber, climb), apart or not group.try_alone
            if climb.trials[-1].tried.outcome == "guard" and group.dtypes and refused.isdisjoint(group.dtypes):
                refused.update(group.dtypes)  # what there is in other dtypes comes next
                others = [each for each in remaining(climb) if refused.isdisjoint(each.dtypes)]
                regrouped = groups(others, effect, climb.part_measurement)
                grouped = [*(each for each in regrouped if each not in grouped), *grouped]
        # What was rejected together may be accepted by itself.
        while apart and not (climb := survey(climber, confirm_target(climber, climb))).has_reached_target:
            left = [each for each in remaining(climb) if each.effect == effect and not each.build_s]
            if not left or not _fits(climber, climb, left[0]):
                break
            yield (climb := attempt(climber, climb, left[0]))
    climb = survey(climber, confirm_target(climber, climb))
    if climb.has_reached_target:
        yield climb.end_at_target()
        return
    enough = settings.ONE_BY_ONE_TRIES * settings.shortest_try_s(climber.runs.spaced_s(climb.start.ms / 1e3))
    alone = f"--time_limit={enough:.0f} (s) also tries each treatment alone"
    ended = f"all groups of treatments were tried; {alone}{left_out(climb)}"
    yield replace(climb.leave("no time was left to try it alone", remaining(climb)), ended=ended)


def _group_candidates(climber: Climber, climb: Climb, effect: Effect) -> tuple[Climb, list[Candidate]]:
    """Return the groups of ``effect`` without what cannot be applied together with the rest, which is listed.

    Other forms of it, such as one for each part where the whole does not fit in memory, take its place.
    """
    while True:
        climb = survey(climber, climb)
        grouped = groups(remaining(climb), effect, climb.part_measurement)
        failing = [trial for group in grouped if len(group.specs) > 1 for trial in _find_failing(climber, climb, group)]
        if not failing:
            return climb, grouped
        climb = climb.add(*failing)


def _find_failing(climber: Climber, climb: Climb, group: Candidate) -> list[TriedCandidate]:
    """Apply the treatments of ``group`` one on top of the other. Return those that fail."""
    runs, reporter = climber.runs, climber.reporter
    specs: tuple[Spec, ...] = ()
    failing = []
    for spec in catalogue.sort_specs(group.specs):
        try:
            runs.variant(len(climb.steps), together(climb.top.specs, (*specs, spec))).apply(runs.subject)()
        except Exception as error:
            trial = climb.plan(make_candidate(runs.subject, (spec,)), begun=True).reject(*failure(error))
            reporter.say(f"{trial.tried.treatment}: rejected, {trial.tried.outcome}: {trial.tried.reason}")
            failing.append(trial)
        else:
            specs = (*specs, spec)
    return failing


def _find_programs(climb: Climb) -> list[Candidate]:
    """Return the programs of all steps that may be tried now."""
    return [each for each in remaining(climb) if is_program(each, climb.part_measurement)]


def _fits(climber: Climber, climb: Climb, candidate: Candidate) -> bool:
    seconds = settings.SCREENING_CHUNKS * climb.top.ms / 1e3 + climb.building_s(candidate)
    return seconds <= climber.remaining_to_try_s(climb)
