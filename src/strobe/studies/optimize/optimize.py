"""Optimize: climb from the policy as it is to a target rate, one treatment at a time, each shown and guarded.

At every rung the candidates for the part that costs most are tried first; where a chunk takes so long that few could be
tried, all of one effect are put on together. Treatments interact, so none is judged alone: a try runs with all that was
kept before it, and all that is on together must hold the guard against the untouched policy, on the same observations
with the same noise. One interleaved run of all rungs gives the ladder's figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial

from strobe.errors import UserError
from strobe.measure.guard import strongest
from strobe.measure.planning import foresight
from strobe.policies.subject import Subject
from strobe.results.answer import OptimizeResult
from strobe.results.measurement import Measurement
from strobe.sameness.check import CallFailed
from strobe.studies.breakdown import begin
from strobe.studies.compare import SEVERAL_COPIES
from strobe.studies.episodes import Episodes
from strobe.studies.measuring import Measured, Options
from strobe.studies.optimize import limits
from strobe.studies.optimize.aim import Aim, Climbing, SilentClimb
from strobe.studies.optimize.alone import watch
from strobe.studies.optimize.bounds import Bounds
from strobe.studies.optimize.by_effect import ByEffect
from strobe.studies.optimize.candidates import Candidate
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.closing import closing_run, enough, take_off
from strobe.studies.optimize.confirm import confirm, hold
from strobe.studies.optimize.earlier import Earlier, circumstances
from strobe.studies.optimize.ladder import AS_IT_IS, Step, compared, compared_by_tries, ladder_of
from strobe.studies.optimize.one_by_one import OneByOne
from strobe.studies.optimize.proof import prove, started
from strobe.studies.optimize.runs import Runs, build_seconds, verdict_of
from strobe.studies.optimize.strategy import Strategy
from strobe.studies.optimize.tries import milliseconds, moved, speedup
from strobe.timeline import Section
from strobe.treatments.treatment import Treatment, Variant

NOT_INTERLEAVED = (
    "the climb was interrupted before its closing run: a rung's figures are from its own try, in alternation with the "
    "rung before it, and it is set against the policy as it is across two runs"
)
NOT_CONFIRMED = (
    "the climb ended because its rung was seen to reach the target, which the runs after it do not show: --all goes on"
)


def optimize(
    subject: Subject,
    aim: Aim,
    options: Options,
    base: Sequence[Treatment] = (),
    reporter: Climbing | None = None,
    earlier: Callable[[OptimizeResult, dict[str, str]], Earlier] | None = None,
) -> tuple[OptimizeResult, list[Section]]:
    """Climb, then measure all rungs in one interleaved run; Ctrl-C keeps what was climbed.

    Args:
        options: its budget is the closing run's.
        base: treatments of the untouched policy itself (Real-Time Chunking), on in everything that is measured.
        earlier: a result that knows its subject and machine, and the circumstances of the climb → their earlier
            ladders, which this one is added to; None for none.

    Returns:
        The result, without findings, and the sections of the closing run.

    Raises:
        UserError: the start does not apply, or breaks the guard; the simulator cannot be started, or the episodes are
            too few for what the guard demands of them.
        KeyboardInterrupt: before the policy as it is was measured.
    """
    if aim.guards.success_drop is not None and not aim.episodes:
        raise UserError(f"--guard={aim.guards}: success_drop is seen in episodes: add --eval.n_episodes=50")
    reporter = reporter or SilentClimb()
    limit_s = aim.time_limit or limits.default_limit(subject.device.type)
    runs = Runs(subject, options, tuple(base), reporter, aim.guards)
    climb = Climb(aim, runs, reporter, limit_s)
    if not aim.episodes:
        return _climb_and_close(climb, None, earlier)
    # First, before anything is measured that a simulator's fault could cost.
    reporter.stage(f"starting {aim.env.type}")
    with closing(started(subject, aim.env, aim.episodes, aim.guards, base)) as episodes:
        reporter.said(foresight(episodes.planned, episodes.margin))
        return _climb_and_close(climb, episodes, earlier)


def _climb_and_close(
    climb: Climb, episodes: Episodes | None, earlier: Callable[[OptimizeResult, dict[str, str]], Earlier] | None
) -> tuple[OptimizeResult, list[Section]]:
    aim, runs, reporter = climb.aim, climb.runs, climb.reporter
    title = f"{runs.subject.info.name}: a ladder to {aim.target_hz:g} Hz"
    halves = ("float16",) if runs.subject.device.type != "cpu" else ()  # which few CPUs have arithmetic for
    result = begin(OptimizeResult, runs.subject, title, runs.options, reporter, halves)
    runs.ceiling = result.machine.ceiling
    climb.earlier = earlier(result, circumstances(runs)) if earlier is not None else None
    strategy, interrupted = _start(climb)
    if climb.earlier is not None and climb.earlier.ladders:
        reporter.said(str(climb.earlier))
    result.status, ended = "interrupted", "interrupted"
    measured: Measured | None = None
    with suppress(KeyboardInterrupt):
        if not interrupted:
            ended = strategy.climb()
            measured = closing_run(climb, strategy)
            result.status = "interrupted" if measured.interrupted else "complete"
    if measured is not None and not enough(measured, len(climb.steps)):
        measured = None
    if measured is not None:
        comparisons = compared(measured)
        take_off(climb, measured)
        kept = {step.variant.name for step in climb.steps}
        result.measurements = [one for one in measured.measurements if one.name in kept]
        result.comparisons = [one for one in comparisons if {one.baseline, one.candidate} <= kept]
    else:
        result.measurements = [step.measurement for step in climb.steps]
        result.comparisons = compared_by_tries(climb.steps)
        result.notes += [NOT_INTERLEAVED] if len(climb.steps) > 1 else []
    if runs.options.counted and len(climb.steps) > 1:
        result.notes.append(SEVERAL_COPIES)
    interleaved = measured is not None
    ladder = partial(
        ladder_of,
        result,
        climb.steps,
        climb.tries,
        aim,
        str(runs.guards),
        ended=ended,
        interleaved=interleaved,
    )
    result.yardsticks = runs.yardsticks
    hold(result, climb)
    result.ladder = ladder()
    refused: dict[str, str] = {}
    if result.status == "complete":
        refused = confirm(result, climb, ladder)
    if result.status != "complete" and runs.guards.success_drop is not None:
        unseen = {step.variant.name: "no episodes show what it loses" for step in climb.steps[1:]}
        result.ladder = ladder(refused=unseen | refused)
    elif episodes is not None and result.status == "complete":
        prove(result, [step.variant for step in climb.steps], episodes, runs.guards, ladder, reporter, refused)
    if result.status == "complete":
        _watch(result, climb)
        if climb.at_target and result.ladder is not None and not result.ladder.met:
            result.notes.append(NOT_CONFIRMED)
    if climb.earlier is not None and (why := climb.earlier.keep(result)):
        reporter.said(why)
    return result, measured.sections if measured is not None else []


def _watch(result: OptimizeResult, climb: Climb) -> None:
    """Run the chosen rung by itself, unless the closing run shows that its chunks are too late: the answer is about it.

    A run of its own, since the climb ended with a rung because its chunks looked in time. A long closing run, which
    `--iterations` asks for, takes its place.
    """
    ladder = result.ladder
    if ladder is None or ladder.in_time is None or ladder.in_time.outcome == "missed":
        return
    chosen = next(step for step in climb.steps if step.variant.name == ladder.chosen)
    if result.measurement(ladder.chosen).samples.summary.median > ladder.target_ms:
        return
    if ladder.in_time.chunks * climb.runs.spaced_s(chosen.ms / 1e3) >= limits.IN_TIME_S[0]:
        return
    climb.reporter.stage(f"are its chunks in time? {ladder.chosen}")
    try:
        found = watch(climb.runs, chosen.variant, chosen.ms, climb.aim)
    except KeyboardInterrupt:
        result.notes.append("interrupted before the chunks of the chosen rung were timed by themselves")
        return
    if found is not None:
        ladder.in_time, ladder.alone = found
        ladder.met = ladder.in_time.outcome == "reached"


def _start(climb: Climb) -> tuple[Strategy, bool]:
    """Measure the policy as it is, with what was asked to start with, and choose how to go on.

    Returns the strategy, and whether Ctrl-C ended the measurement.
    """
    runs, start = climb.runs, climb.aim.start
    climb.reporter.stage("the policy as it is")
    untouched = Variant(AS_IT_IS, runs.base)
    _, chunk_s = runs.once(untouched)
    if limits.TRIES * limits.try_s(chunk_s) > climb.limit_s / 2:  # the very first is slower than the others
        chunk_s = min(chunk_s, runs.once(untouched)[1])
    chunk_s = runs.spaced_s(chunk_s)
    one_by_one = limits.TRIES * limits.try_s(chunk_s) <= climb.limit_s
    strategy: Strategy = OneByOne(climb) if one_by_one else ByEffect(climb)
    if climb.aim.time_limit is None:
        climb.limit_s = max(climb.limit_s, limits.CHUNKS * chunk_s)
    variants = [untouched, *([runs.variant(1, start)] if start else [])]
    measured = strategy.measure_start(variants, chunk_s)
    if measured.interrupted and len(measured.measurements) < len(variants):
        raise KeyboardInterrupt
    runs.reference = measured.outputs.first(AS_IT_IS)
    try:
        runs.begin_checks(measured.measurements[0].samples.summary.median / 1e3)
    except CallFailed as error:  # the ladder is judged on the observations that are timed
        climb.reporter.said(f"the actions are not looked at closely: {error}")
    first, *others = measured.measurements
    climb.bounds = Bounds(first, runs.ceiling)
    climb.steps.append(Step(untouched, (), first))
    climb.reporter.said(f"as it is: {milliseconds(climb.top.ms)} ({1e3 / climb.top.ms:.1f} Hz)")
    if why := climb.bounds.too_slow(climb.aim.target_ms, "lossy" in climb.aim.choice.effects):
        climb.reporter.said(why)
    for taken in others:
        _add_start(climb, variants[1], taken, measured)
    return strategy, measured.interrupted


def _add_start(climb: Climb, variant: Variant, taken: Measurement, measured: Measured) -> None:
    """Add the rung of the treatments that were asked for from the start."""
    aim = climb.aim
    agreement = climb.runs.agreement(measured, variant.name)
    judged = climb.runs.judge(variant, agreement)
    if judged.outcome != "held":
        fault = "does not hold the guard by itself" if judged.broken else "cannot be judged by the guard"
        raise UserError(f"--start {fault}: {judged.words}; change --guard or --start")
    verdict = verdict_of(measured, AS_IT_IS, variant.name)
    candidate = Candidate(aim.start, (), strongest([treatment.effect for treatment in variant.treatments]), 0)
    build_s = build_seconds(measured, variant.name)
    climb.steps.append(Step(variant, aim.start, taken, candidate, "", build_s, verdict, agreement, asked_for=True))
    climb.reporter.said(f"rung 1, asked for: {candidate.text}: {speedup(verdict)}, {moved(agreement)}")
