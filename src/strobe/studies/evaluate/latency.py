"""Latency of an evaluation's variants apart from its episodes: one chunk at a time, undisturbed, all in turn."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.errors import UserError, in_a_line
from strobe.measure.budget import steps_line, top_level
from strobe.measure.sampling import Progress, SamplingBudget
from strobe.measure.verdicts import paired_verdict
from strobe.policies.policy_subject import PolicySubject
from strobe.results.chunk_times import ChunkTimes
from strobe.results.data import Interval
from strobe.results.evaluate import EvaluateResult
from strobe.results.measurement import Measurement
from strobe.studies.evaluate.variants import Candidate
from strobe.studies.measuring import Options, Reporter, measure

SECONDS = 90.0  # of sampling, all variants together: a chunk may take seconds


def add_latency(
    result: EvaluateResult, subject: PolicySubject, candidates: Sequence[Candidate], iterations: int, reporter: Reporter
) -> None:
    """Measure the variants that were played, and put into ``result`` what was found.

    A failure costs the latency, never the episodes: it becomes a note. Ctrl-C keeps the complete rounds.

    Args:
        iterations: rounds to keep after warm-up; fewer where they would take longer than `SECONDS`.
    """
    names = [one.name for one in result.variants]
    variants = [one.variant for one in candidates if one.name in names]
    options = Options(SamplingBudget(iterations=iterations, seconds=SECONDS), counted=False)
    try:
        measured = measure(subject, "inference", variants, options, reporter=_Telling(reporter))
    except KeyboardInterrupt:
        result.status = "interrupted"
        return
    except (UserError, RuntimeError) as error:
        words = in_a_line(error, 300)
        result.notes.append(f"the latency of a chunk was not measured apart from the episodes: {words}")
        return
    if measured.interrupted:
        result.status = "interrupted"
    by_name = {one.name: one for one in measured.measurements}
    for row in result.variants:
        row.chunk = chunk_times(by_name[row.name], by_name[names[0]] if row.name != names[0] else None)
    result.measurements = measured.measurements
    samples = {
        row.steps: by_name[row.name].samples.values
        for row in result.variants
        if row.steps is not None and not row.recipe
    }
    result.line = steps_line("chunk", samples)


def chunk_times(one: Measurement, first: Measurement | None) -> ChunkTimes:
    """The row's figures of a measurement, against ``first`` from the same rounds; None for the first itself."""
    times, ends = None, None
    if first is not None and len(one.samples.values) > 1:
        verdict = paired_verdict(first.samples.values, one.samples.values)
        times = 1 / verdict.ratio
        ends = Interval(low=1 / verdict.interval.high, high=1 / verdict.interval.low, level=verdict.interval.level)
    summary = one.samples.summary
    parts = {tuple(part.path): part.summary.median for part in one.components if not part.other}
    return ChunkTimes(ms=summary, hz=1e3 / summary.median, parts=top_level(parts), times=times, times_interval=ends)


class _Telling:
    """Says of each stage that it is not about episodes."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def stage(self, what: str) -> None:
        self._reporter.stage(f"latency of a chunk, apart from the episodes: {what}")

    def progress(self, progress: Progress) -> None:
        self._reporter.progress(progress)
