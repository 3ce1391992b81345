"""Evaluate: does a variant of the policy still do the task, and how fast is it there?

The latency of a chunk is measured apart from the episodes: undisturbed, all variants in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from strobe.budget.figures import steps_line, top_level
from strobe.core.errors import UserError, in_a_line
from strobe.core.measure.planning import foresight
from strobe.core.measure.sampling import Progress, SamplingBudget
from strobe.core.measure.verdicts import paired_verdict
from strobe.core.results.data import Interval
from strobe.core.results.measurement import Measurement
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.studies.shared.progress import Reporter
from strobe.evaluate.answer import rows
from strobe.evaluate.episode_log import EpisodeLog
from strobe.evaluate.episodes.play import (
    EpisodeReporter,
    EpisodeRunner,
    Episodes,
    PairsInOrder,
    ParallelEpisodeRunner,
    Plan,
    counted,
    play,
)
from strobe.evaluate.episodes.settings import Candidate
from strobe.evaluate.results.evaluate import ChunkTimes, EvaluateResult
from strobe.lerobot.policies.policy_subject import PolicySubject

SECONDS = 90.0  # time of sampling, all variants together: a chunk may take seconds


def evaluate(
    subject: PolicySubject,
    environment: str,
    plan: Plan,
    player: EpisodeRunner | ParallelEpisodeRunner,
    log: EpisodeLog,
    watching: EpisodeReporter,
    latency_iterations: int = 0,
    fps: float | None = None,
) -> EvaluateResult:
    """Report what the planned number can decide, play, judge, and measure the latency apart from the episodes.

    Ctrl-C keeps the episodes that were played, and the rounds of the latency that are complete.

    Args:
        environment: the simulator's name.
        log: empty, or with the episodes of the run that --resume continues.
        latency_iterations: rounds of the latency apart from the episodes; 0: it is not measured.
        fps: control ticks of the simulator per second.

    Raises:
        UserError: an episode fails; those before it are in the log.
        KeyboardInterrupt: before the first episode has ended.
    """
    options = Options(SamplingBudget(iterations=1), counted=False)
    title = f"{subject.info.name}: success against latency in {environment}"
    fields = {"environment": environment, "tasks": list(plan.tasks), "planned": plan.planned, "margin": plan.margin}
    fields |= {"fps": fps}
    result = begin_result(EvaluateResult, subject, title, options, watching, **fields)
    if len(plan.candidates) > 1:
        result.foresight = foresight(plan.planned, plan.margin)
        watching.say(result.foresight)
    names = "; ".join(candidate.name for candidate in plan.candidates)
    watching.stage(f"episodes in {environment}, up to {plan.planned} of each: {names}")
    if play(PairsInOrder(plan), player, log, watching):
        result.status = "interrupted"
    result.variants = rows(plan, counted(plan, log.episodes))
    if not result.variants:
        raise KeyboardInterrupt
    if latency_iterations and result.status == "complete":
        add_latency(result, subject, plan.candidates, latency_iterations, watching)
    note_how_it_was_played(result, counted(plan, log.episodes))
    return result


def note_how_it_was_played(result: EvaluateResult, episodes: Episodes) -> None:
    """Note how many processes played ``episodes`` side by side, and on which nodes."""
    if others := max(row.calls.beside for row in result.variants):
        result.notes.append(
            f"calls, simulator and rendering were timed beside up to {others} other process{'es' * (others > 1)} that "
            "played episodes: their times are longer than undisturbed ones"
        )
    nodes = Counter(line.node for line in episodes.values())
    if set(nodes) != {""}:
        counts = ", ".join(f"{name or 'this machine'} {count}" for name, count in sorted(nodes.items()))
        result.notes.append(
            f"episodes by the nodes that played them: {counts}; calls, simulator and rendering were timed there, and "
            "compare only where the nodes are alike; a chunk's latency outside the episodes was measured here"
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
        measured = measure(subject, "inference", variants, options, reporter=_LatencyReporter(reporter))
    except KeyboardInterrupt:
        result.status = "interrupted"
        return
    except (UserError, RuntimeError) as error:
        words = in_a_line(error, 300)
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


class _LatencyReporter:
    """Reports each stage as one that is not about episodes."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def stage(self, what: str) -> None:
        self._reporter.stage(f"latency of a chunk, outside the episodes: {what}")

    def progress(self, progress: Progress) -> None:
        self._reporter.progress(progress)
