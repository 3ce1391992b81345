"""Optimize: climb from the baseline to a target rate, one treatment at a time, each shown and guarded.

`optimize` measures the machine and the baseline, then climbs. A strategy, one by one or by effect, asks the
climb which candidates remain (`climb.py`, `candidates.py`): those for the part that costs most come first, and what
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
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

from strobe.core.errors import UserError
from strobe.core.measure.guard import Guards, strongest
from strobe.core.measure.planning import foresight
from strobe.core.sameness.check import NotSeenError, PolicyCallError
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Measured, Options
from strobe.core.studies.shared.paired_comparison import SEVERAL_COPIES
from strobe.core.subjects.subject import Subject
from strobe.core.timeline import Section
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Effect, Spec, Treatment, Variant
from strobe.ladder import settings
from strobe.ladder.answer import Choosing, build_ladder, compare_by_tries, compare_in_one_run, hold_guards
from strobe.ladder.candidates import EFFECTS, Bounds, Candidate, groups, make_candidate, together
from strobe.ladder.climb import BASELINE, Climb, Step
from strobe.ladder.closing import (
    can_be_judged,
    closing_run,
    confirm,
    drop_rungs,
    prove,
    refuse_unplayed,
    start_episodes,
    time_alone,
)
from strobe.ladder.earlier import Earlier, Use, circumstances
from strobe.ladder.episodes import Episodes
from strobe.ladder.results import OptimizeResult, Try
from strobe.ladder.runner import ActionGuard, Runs, build_seconds, judge_variants, prepare_checks, require_uninterrupted
from strobe.ladder.settings import Aim, Climbing, SilentClimb
from strobe.ladder.trial import (
    attempt,
    begins_with_glance,
    describe_action_change,
    failure,
    milliseconds,
    speedup,
    try_rungs_together,
)

NOT_INTERLEAVED = (
    "the search was interrupted before its closing run: the figures of a step are from its own try, in alternation "
    "with the step before it, and the comparison with the baseline is across two runs"
)
NOT_CONFIRMED = (
    "the search ended because a step reached the target, but the later runs do not show that: --all continues"
)


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
        climb, interrupted = _start(aim, runs, guards, ladders, began)
        if ladders.ladders:
            reporter.say(str(ladders))
        result.status, ended, measured = "interrupted", "interrupted", None
        with suppress(KeyboardInterrupt):
            if not interrupted:
                ended, closed = (climb_by_effect(climb), None) if climb.by_effect else climb_one_by_one(climb)
                measured = closing_run(climb, closed)
                result.status = "interrupted" if measured.interrupted else "complete"
        measured = measured if measured is not None and can_be_judged(measured, len(climb.steps)) else None
        _add_measurements(result, climb, measured)
        choosing = Choosing(result, climb.steps, interleaved=measured is not None)
        _answer(choosing, climb, episodes, ended)
        if not_saved := ladders.save(result):
            reporter.say(not_saved)
    return result, measured.sections if measured is not None else []


def _start(aim: Aim, runs: Runs, guards: Guards, earlier: Earlier, began: float) -> tuple[Climb, bool]:
    """Measure the baseline, with the treatments that are on from the start, and choose how to climb.

    Returns the climb, and whether Ctrl-C ended the measurement.
    """
    reporter = runs.reporter
    reporter.stage("the baseline")
    baseline_variant = Variant(BASELINE, runs.base)
    limit_s = aim.time_limit or settings.default_time_limit(runs.subject.device.type)
    tries = settings.ONE_BY_ONE_TRIES
    _, chunk_s = runs.run_once(baseline_variant)
    if tries * settings.shortest_try_s(chunk_s) > limit_s / 2:  # the very first is slower than the others
        chunk_s = min(chunk_s, runs.run_once(baseline_variant)[1])
    chunk_s = runs.spaced_s(chunk_s)
    by_effect = tries * settings.shortest_try_s(chunk_s) > limit_s
    if aim.time_limit is None:
        limit_s = max(limit_s, settings.LEAST_CHUNKS * chunk_s)
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
    climb = Climb(aim, runs, guard, earlier, bounds, step, began, limit_s, by_effect, glanced)
    reporter.say(f"baseline: {milliseconds(step.ms)} per chunk ({1e3 / step.ms:.1f} Hz)")
    if too_slow := bounds.slow_arithmetic_reason(aim.target_ms, "lossy" in aim.choice.effects):
        reporter.say(too_slow)
    if aim.start:
        _add_start(climb, variants[1], measured)
    return climb, measured.interrupted


def _add_start(climb: Climb, variant: Variant, measured: Measured) -> None:
    agreement = climb.guard.agreement(measured, variant.name)
    judgement = climb.guard.judge(variant, agreement)
    if judgement.outcome != "held":
        fault = "exceeds the limits" if judgement.broken_limit else "cannot be judged by the limits"
        start = ", ".join(map(catalogue.format_spec, climb.aim.start))
        raise UserError(f"--start='{start}' {fault}: {judgement.words}; change --guard or --start")
    effect = strongest([treatment.effect for treatment in variant.treatments])
    trial = climb.plan(Candidate(climb.aim.start, (), effect, 0))
    trial.tried.part = None
    trial.tried.verdict = verdict = judge_variants(measured, BASELINE, variant.name)
    trial.tried.agreement = agreement
    trial.tried.build_s = build_seconds(measured, variant.name)
    trial.accept(variant, measured.measurements[1], requested=True)
    trial.listed = False
    climb.trials.append(trial)
    climb.reporter.say(
        f"step 1, from --start: {trial.candidate.text}: {speedup(verdict)}, {describe_action_change(agreement)}"
    )


def _add_measurements(result: OptimizeResult, climb: Climb, measured: Measured | None) -> None:
    if measured is not None:
        comparisons = compare_in_one_run(measured)
        drop_rungs(climb, measured)
        names = {step.name for step in climb.steps}
        result.measurements = [each for each in measured.measurements if each.name in names]
        result.comparisons = [each for each in comparisons if {each.baseline, each.candidate} <= names]
    else:
        result.measurements = [step.measurement for step in climb.steps]
        result.comparisons = compare_by_tries(climb.steps)
        result.notes += [NOT_INTERLEAVED] if len(climb.steps) > 1 else []
    if climb.runs.options.counted and len(climb.steps) > 1:
        result.notes.append(SEVERAL_COPIES)
    result.yardsticks = climb.guard.yardsticks
    hold_guards(result, climb)


def _answer(choosing: Choosing, climb: Climb, episodes: Episodes | None, ended: str) -> None:
    result, guards = choosing.result, climb.guard.guards
    variants = [step.variant for step in climb.steps]
    if result.status == "complete":
        confirm(choosing, climb)
    if result.status != "complete" and guards.success_drop is not None:
        refuse_unplayed(choosing, variants)
    elif episodes is not None and result.status == "complete":
        prove(choosing, variants, episodes, guards, climb.reporter)
    result.ladder = build_ladder(choosing, climb, ended)
    if result.status == "complete":
        time_alone(result, climb)
        if climb.at_target and not result.ladder.met:
            result.notes.append(NOT_CONFIRMED)


# One by one


def climb_one_by_one(climb: Climb) -> tuple[str, Measured | None]:
    """Try each candidate in a run of its own, in alternation with the highest rung, until the target or the time limit.

    What the last ladder kept is tried first, together.

    Returns:
        Why it ended, in words; and the run of the last ladder's rungs, which may do for a closing run; None for none.

    Raises:
        KeyboardInterrupt: during a run.
    """
    rungs, closed = climb.last_rungs(), None
    if rungs and sum(rung.build_s for rung in rungs) <= climb.remaining_to_try_s():
        closed = try_rungs_together(climb, rungs)
    start = climb.start
    far = climb.aim.everything or start.ms > settings.FAR * climb.aim.target_ms
    if climb.glanced and (closed is not None or not far):
        _measure_start_well(climb, closed)
    while not climb.has_reached_target():
        remaining = climb.remaining()
        if not remaining:
            return f"no treatment remained to try{climb.left_out()}", closed
        # What is quick may still fit where what comes first does not.
        seconds = climb.remaining_to_try_s()
        try_s = settings.shortest_try_s(climb.runs.spaced_s(climb.top.ms / 1e3))
        fitting = next((candidate for candidate in remaining if candidate.build_s + try_s <= seconds), None)
        if fitting is None:
            return _time_limit_reason(climb, remaining), closed
        attempt(climb, fitting, sharing=sum(1 for candidate in remaining if not candidate.build_s))
    return climb.end_at_target(), closed


def _measure_start_well(climb: Climb, measured: Measured | None) -> None:
    start, runs = climb.start, climb.runs
    if measured is None:
        seconds = (settings.TRY_ROUNDS + 1) * runs.spaced_s(start.ms / 1e3)
        measured = require_uninterrupted(runs.sample([start.variant], max(settings.TRY_S[0], seconds)))
    start.measurement = measured.measurements[0]
    climb.guard.reference = measured.outputs.first(start.name)


def _time_limit_reason(climb: Climb, remaining: Sequence[Candidate]) -> str:
    climb.leave(f"{max(climb.remaining_to_try_s(), 0.0):.0f} s remained", remaining, with_build=True)
    which = ", all slow to build" if all(candidate.build_s for candidate in remaining) else ""
    many = f"{len(remaining)} treatment{'' if len(remaining) == 1 else 's'}"
    limit = f"the time limit of {climb.limit_s:.0f} s was over, with {many} untried"
    return f"{limit}{which}{climb.left_out()}"


# By effect


def climb_by_effect(climb: Climb) -> str:
    """Try all exact candidates as one group at first sight, then all rounding ones; only the closing run judges.

    For chunks that take so long that few candidates could be tried one by one. Return why it ended, in words.

    Raises:
        KeyboardInterrupt: during a run.
    """
    for rung in climb.last_rungs():
        if not climb.has_reached_target():
            attempt(climb, rung)
    for effect in EFFECTS:
        for group in _groups(climb, effect):
            if climb.has_reached_target():
                return climb.end_at_target()
            if group.try_alone and not _fits(climb):
                continue
            if not attempt(climb, group) and len(group.specs) > 1:
                _try_each(climb, effect)
    if climb.has_reached_target():
        return climb.end_at_target()
    climb.leave("no time was left to try it alone", climb.remaining())
    enough = settings.ONE_BY_ONE_TRIES * settings.shortest_try_s(climb.runs.spaced_s(climb.start.ms / 1e3))
    one_by_one = f"--time_limit={enough:.0f} (s) also tries each treatment alone"
    return f"all groups of treatments were tried; {one_by_one}{climb.left_out()}"


def _groups(climb: Climb, effect: Effect) -> list[Candidate]:
    """Return the groups of ``effect`` without what cannot be applied together with the rest, which is listed.

    Other forms of it, such as one for each part where the whole does not fit in memory, take its place.
    """
    while True:
        grouped = groups(climb.remaining(), effect)
        if not any(_drop_failing(climb, group) for group in grouped if len(group.specs) > 1):
            return grouped


def _drop_failing(climb: Climb, group: Candidate) -> bool:
    runs = climb.runs
    specs: tuple[Spec, ...] = ()
    for spec in catalogue.sort_specs(group.specs):
        try:
            runs.variant(len(climb.steps), together(climb.top.specs, (*specs, spec))).apply(runs.subject)()
        except Exception as error:
            trial = climb.plan(make_candidate(runs.subject, (spec,)), begun=True)
            trial.fail(*failure(error))
            climb.trials.append(trial)
            climb.reporter.say(f"{trial.tried.treatment}: rejected, {trial.tried.outcome}: {trial.tried.reason}")
        else:
            specs = (*specs, spec)
    return len(specs) < len(group.specs)


def _try_each(climb: Climb, effect: Effect) -> None:
    for candidate in climb.remaining():
        if candidate.effect == effect and not candidate.build_s and _fits(climb):
            attempt(climb, candidate)


def _fits(climb: Climb) -> bool:
    return settings.SCREENING_CHUNKS * climb.top.ms / 1e3 <= climb.remaining_to_try_s()
