"""Read saved runs in short: from the summary beside each answer, which is written where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.results.run_summary import MeasurementSummary, RunSummary, SubjectSummary
from strobe.runs import store
from strobe.runs.summaries import digest_of, read_summary, write_summary, written

if TYPE_CHECKING:  # what a list of runs with summaries does without
    from strobe.results.answer import Answer, Result

DEEPEST = 2  # levels of parts that are laid side by side, and have a trend


def summary_of_run(file: Path) -> RunSummary:
    """Return the summary of the run whose ``result.json`` this is. Raises UserError where that cannot be read."""
    is_kept = file.name == store.RESULT  # else it is a copy for a moment
    summary = read_summary(file) if is_kept else None
    if summary is None:
        summary = summarise(store.load_answer(file), digest_of(file), written(file))
        if is_kept:
            write_summary(file.parent, summary)
    return summary


def keep_summary(answer: Answer, folder: Path) -> None:
    """Write the summary of an answer that is saved in ``folder``."""
    file = folder / store.RESULT
    write_summary(folder, summarise(answer, digest_of(file), written(file)))


def summarise(answer: Answer, digest: str = "", written: Sequence[int] = ()) -> RunSummary:
    """Return an answer in short. ``digest`` and ``written`` are of the file that it is saved in."""
    from strobe.kinds import document
    from strobe.report import frame
    from strobe.results.answer import Result

    answers = document(answer).answers
    summary = RunSummary(
        digest=digest,
        written=list(written),
        study=answer.study,
        about=answer.about,
        headline=answers[0] if answers else answer.title,
        started=answer.started,
        status=answer.status,
        strobe_version=answer.strobe_version,
        machine=frame.machine(answer.machine) if answer.machine is not None else "",
    )
    if isinstance(answer, Result):
        summary.subject = _subject(answer)
        summary.measurements = _measurements(answer)
    return summary


def _subject(result: Result) -> SubjectSummary:
    from strobe.studies.shared import comparable_runs

    subject, machine = result.subject, result.machine
    return SubjectSummary(
        name=f"{subject.name}{'' if subject.size == 'full' else f', {subject.size}'}",
        kind=subject.kind,
        device=comparable_runs.device_of(machine),
        threads=machine.threads,
        versions=comparable_runs.versions(result),
    )


def _measurements(result: Result) -> list[MeasurementSummary]:
    from strobe.measure.trend import level_of
    from strobe.studies.shared import comparable_runs

    advised = {measurement.name for measurement in result.advised()}
    return [
        MeasurementSummary(
            name=measurement.name,
            advised=measurement.name in advised,
            summary=measurement.samples.summary,
            level=level_of(measurement.samples.values),
            parts={" / ".join(part.path): part.summary for part in measurement.components if part.depth <= DEEPEST},
            settings=comparable_runs.settings(result, measurement),
        )
        for measurement in result.measurements
        if measurement.samples.values
    ]
