"""Evaluate: does a variant of the policy still do the task, and how fast is it there?

The latency of a chunk is measured apart from the episodes: undisturbed, all variants in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from strobe.core.cli.live import Live
from strobe.core.errors import UserError, error_line
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.measure.statistics import steps_line
from strobe.core.measure.verdicts import paired_verdict
from strobe.core.results.answer import Result
from strobe.core.results.data import Interval
from strobe.core.results.measurement import Measurement, top_level
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.studies.shared.progress import Inner, Reporter
from strobe.core.treatments.recipe import load_rungs
from strobe.core.treatments.treatment import Variant
from strobe.evaluate import flags as realtime
from strobe.evaluate import session as playing
from strobe.evaluate.answer import rows
from strobe.evaluate.episodes.crews import Crew
from strobe.evaluate.episodes.play import FIRST, Candidate, Episodes, PairsInOrder, Session
from strobe.evaluate.episodes.runners import require_engine
from strobe.evaluate.episodes.timings import RequestedTiming
from strobe.evaluate.episodes.videos import Filming
from strobe.evaluate.flags import EvaluateConfig
from strobe.evaluate.measure.planning import foresight
from strobe.evaluate.results import ChunkTimes, EvaluateResult
from strobe.lerobot.config_fields import Settings
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.sampling import denoising_steps, steps_field
from strobe.preflight.wiring.of_run import wiring_of_run

R = TypeVar("R", bound=Result)
SECONDS = 90.0  # time of sampling, all variants together: a chunk may take seconds


def evaluate_policy(config: EvaluateConfig, crew: Crew, live: Live) -> tuple[EvaluateResult, Path]:
    """Load the policy, play its episodes and judge them, as `session.play` does."""
    steps, executed = config.steps, config.n_action_steps

    def make_request(subjects: playing.Subjects) -> playing.Request[EvaluateResult]:
        (subject,) = subjects.values()
        timings = realtime.timings(config, config.simulator)
        rows_of = partial(evaluated_rows, steps=steps, executed=executed, timings=timings)
        made = rows_of(subject, config.recipe)
        for timing in timings:
            require_engine(subject.policy, timing.engine)

        def study(session: Session, films: Filming) -> EvaluateResult:
            # True to time, many rows are one variant, whose chunk takes as long in all of them.
            result = evaluate(subject, session, 0 if timings else config.latency_iterations)
            result.videos = films.videos(session.log.episodes)
            if config.full_reward is not None:
                word = f"--full_reward={config.full_reward:g} is your word"
                result.notes.append(f"{word}: whether these rewards grow with the task was not judged")
            result.notes += realtime.notes(config, config.simulator, timings, session.log.episodes.values())
            return result

        notes = _repetition_notes(subject, steps, executed)
        full_reward = realtime.full_reward(config)
        return playing.Request(rows_of, made, config.episodes, study, config.videos, notes, full_reward)

    result, folder = playing.play("evaluate", {"": config.subject}, config, crew, live, make_request)
    if (data := config.dataset).root is not None and result.status == "complete":
        path, given = config.subject.path, config.subject.overrides
        look = wiring_of_run(path, data.root, rename=config.rename_map, settings=given, episodes=data.episodes)
        look.extend_result(result)
        look.add_frames(result, data.root, data.episodes, live)
    return result, folder


def evaluated_rows(
    subject: PolicySubject,
    recipes: Sequence[Path] = (),
    *,
    steps: Sequence[int] = (),
    executed: Sequence[int] = (),
    timings: Sequence[RequestedTiming] = (),
) -> list[Candidate]:
    """Return the baseline and its variants, at each timing where there are any; what is its own is not repeated.

    Each variant is applied ``subject`` once to see that it applies.

    Args:
        steps: numbers of denoising steps.
        executed: numbers of actions of a chunk that are executed before the next call, LeRobot's ``n_action_steps``.

    Raises:
        UserError: the policy has no denoising steps or no queue of actions, or a recipe does not apply.
    """
    config = subject.policy.config
    own, name = denoising_steps(config), steps_field(config)
    if steps and not name:
        raise UserError(f"--steps: the policy type '{config.type}' has no denoising steps: leave it out")
    if executed and not hasattr(config, "n_action_steps"):
        raise UserError(f"--n_action_steps: the policy type '{config.type}' has no such setting: leave it out")
    made = [Candidate(Variant(FIRST), steps=own)]
    for count in steps:
        if count != own:
            variant = Variant(_steps(count), (Settings({name: count}),))
            made.append(Candidate(variant, f"policy.{name}={count}", count))
    for count in executed:
        if count != subject.executed_actions:
            variant = Variant(f"n_action_steps={count}", (Settings({"n_action_steps": count}),))
            made.append(Candidate(variant, f"policy.n_action_steps={count}"))
    for path in recipes:
        rungs = load_rungs(subject, path)
        made.append(Candidate(Variant(path.name, rungs), "; ".join(rung.written for rung in rungs), own, path.name))
    names = [candidate.name for candidate in made]
    for candidate in made:
        if names.count(candidate.name) > 1:
            raise UserError(f"--recipe: rename the recipe '{candidate.name}': a variant has that name already")
        candidate.variant.require("inference")
        require_applies(candidate, subject)
    return combine_with_timings(made, timings) if timings else made


def combine_with_timings(candidates: Sequence[Candidate], timings: Sequence[RequestedTiming]) -> list[Candidate]:
    """Return each variant at each timing; the policy as it is at the first timing comes first."""
    return [
        replace(candidate, written=f"{candidate.written} | {timing.settings_text}", timing=timing)
        for candidate in candidates
        for timing in timings
    ]


def require_applies(candidate: Candidate, subject: PolicySubject) -> None:
    """Apply a candidate to ``subject``, and revert it. Raises UserError if it does not apply."""
    try:
        candidate.variant.apply(subject)()
    except UserError as error:
        raise UserError(f"'{candidate.name}' does not apply: {error}") from None


def _repetition_notes(subject: PolicySubject, steps: Sequence[int], executed: Sequence[int]) -> list[str]:
    own = [count for count in steps if count == denoising_steps(subject.policy.config)]
    notes = [f"{_steps(count)} are the policy's own: they are played once" for count in own]
    own = [count for count in executed if count == subject.executed_actions]
    return notes + [f"n_action_steps={count} is the policy's own: it is played once" for count in own]


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


def evaluate(subject: PolicySubject, session: Session, latency_iterations: int = 0) -> EvaluateResult:
    """Report what the planned number can decide, play, judge, and measure the latency apart from the episodes.

    Ctrl-C keeps the episodes that were played, and the rounds of the latency that are complete.

    Args:
        latency_iterations: rounds of the latency apart from the episodes; 0: it is not measured.

    Raises:
        UserError: an episode fails; those before it are in the log.
        KeyboardInterrupt: before the first episode has ended.
    """
    plan, watching = session.plan, session.watching
    title = f"{subject.info.name}: success against latency in {session.environment}"
    result = begin(EvaluateResult, subject, title, session, planned=plan.planned_episodes)
    result.score, result.full_reward = "success" if plan.full_reward is None else "progress", plan.full_reward
    if len(plan.candidates) > 1:
        result.foresight = foresight(plan.planned_episodes, plan.margin, score=result.score)
        watching.say(result.foresight)
    names = "; ".join(candidate.name for candidate in plan.candidates)
    watching.stage(f"episodes in {session.environment}, up to {plan.planned_episodes} of each: {names}")
    order = PairsInOrder(plan)
    if session.play(order):
        result.status = "interrupted"
    result.variants = rows(plan, order.counted)
    if not result.variants:
        raise KeyboardInterrupt
    if latency_iterations and result.status == "complete":
        add_latency(result, subject, plan.candidates, latency_iterations, watching)
    note_how_it_was_played(result, order.counted)
    return result


def begin(kind: type[R], subject: PolicySubject, title: str, session: Session, **fields: Any) -> R:
    """Return an answer of ``kind`` that knows what is played where; ``fields``: those that it alone has."""
    plan, options = session.plan, Options(SamplingBudget(iterations=1), counted=False)
    fields |= {"environment": session.environment, "tasks": list(plan.tasks), "margin": plan.margin, "fps": session.fps}
    return begin_result(kind, subject, title, options, session.watching, **fields)


def note_how_it_was_played(result: EvaluateResult, episodes: Episodes) -> None:
    """Note how many processes played ``episodes`` side by side, and on which nodes."""
    if others := max(row.calls.concurrent for row in result.variants):
        result.notes.append(
            f"calls, simulator and rendering were timed while up to {others} other process{'es' * (others > 1)} played "
            "episodes: their times are longer than undisturbed ones"
        )
    nodes = Counter(line.node for line in episodes.values())
    if set(nodes) != {""}:
        counts = ", ".join(f"{name or 'this machine'} {count}" for name, count in sorted(nodes.items()))
        result.notes.append(
            f"episodes by the nodes that played them: {counts}; calls, simulator and rendering were timed there, and "
            "compare only if the nodes are alike; a chunk's latency outside the episodes was measured here"
        )


def add_latency(
    result: EvaluateResult, subject: PolicySubject, candidates: Sequence[Candidate], iterations: int, reporter: Reporter
) -> None:
    """Measure the variants that were played, and add their latency to ``result``.

    A failure costs the latency, never the episodes: it becomes a note. Ctrl-C keeps the complete rounds.

    Args:
        iterations: rounds to keep after warm-up; fewer where they would take longer than `SECONDS`.
    """
    names = [row.name for row in result.variants]
    variants = [candidate.variant for candidate in candidates if candidate.name in names]
    options = Options(SamplingBudget(iterations=iterations, seconds=SECONDS), counted=False)
    try:
        within = Inner(reporter, "latency of a chunk, outside the episodes")
        measured = measure(subject, "inference", variants, options, reporter=within)
    except KeyboardInterrupt:
        result.status = "interrupted"
        return
    except (UserError, RuntimeError) as error:
        words = error_line(error, 300)
        result.notes.append(f"the latency of a chunk was not measured outside the episodes: {words}")
        return
    if measured.interrupted:
        result.status = "interrupted"
    by_name = {measurement.name: measurement for measurement in measured.measurements}
    for row in result.variants:
        row.chunk = chunk_times(by_name[row.name], by_name[names[0]] if row.name != names[0] else None)
    result.measurements = measured.measurements
    samples = {
        row.steps: by_name[row.name].samples.values
        for row in result.variants
        if row.steps is not None and not row.recipe
    }
    result.line = steps_line("chunk", samples)


def chunk_times(own: Measurement, first: Measurement | None) -> ChunkTimes:
    """Return the row's figures of a measurement, against ``first`` from the same rounds; None for the first itself."""
    times, ends = None, None
    if first is not None and len(own.samples.values) > 1:
        verdict = paired_verdict(first.samples.values, own.samples.values)
        times = 1 / verdict.ratio
        ends = Interval(low=1 / verdict.interval.high, high=1 / verdict.interval.low, level=verdict.interval.level)
    summary = own.samples.summary
    parts = {tuple(part.path): part.summary.median for part in own.components if not part.other}
    return ChunkTimes(ms=summary, hz=1e3 / summary.median, parts=top_level(parts), times=times, times_interval=ends)
