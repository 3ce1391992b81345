"""Read saved runs in short: from the summary next to each answer, which is written if it is missing.

A summary that is of another answer counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from strobe.core.errors import UserError, os_error_reason
from strobe.core.results import units
from strobe.core.results.run_summary import FORMAT, MeasurementSummary, RunSummary, SubjectSummary
from strobe.core.runs import store
from strobe.core.untrusted import contents

if TYPE_CHECKING:  # what a list of runs with summaries does without
    from strobe.core.results.answer import Answer, Result

SUMMARY = "summary.json"
DEEPEST = 2  # levels of parts that are laid side by side, and have a trend


def summary_of_run(file: Path) -> RunSummary:
    """Return the summary of the run whose ``result.json`` this is. Raises UserError where that cannot be read."""
    is_kept = file.name == store.RESULT  # else it is a copy for a moment
    summary = read_summary(file) if is_kept else None
    if summary is None:
        summary = summarise(store.load_answer(file), result_digest(file), file_stamp(file))
        if is_kept:
            write_summary(file.parent, summary)
    return summary


def keep_summary(answer: Answer, folder: Path) -> None:
    """Write the summary of an answer that is saved in ``folder``."""
    file = folder / store.RESULT
    write_summary(folder, summarise(answer, result_digest(file), file_stamp(file)))


def summarise(answer: Answer, digest: str = "", written: Sequence[int] = ()) -> RunSummary:
    """Return an answer in short. ``digest`` and ``written`` are of the file that it is saved in."""
    from strobe.core.kinds import headline
    from strobe.core.report import frame
    from strobe.core.results.answer import Result

    summary = RunSummary(
        digest=digest,
        written=list(written),
        study=answer.study,
        about=answer.subject_name,
        headline=units.plain(headline(answer)),
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
    from strobe.core.runs import saved_runs

    subject, machine = result.subject, result.machine
    return SubjectSummary(
        name=f"{subject.name}{'' if subject.size == 'full' else f', {subject.size}'}",
        kind=subject.kind,
        device=saved_runs.device_words(machine),
        threads=machine.threads,
        versions=saved_runs.versions(result),
    )


def _measurements(result: Result) -> list[MeasurementSummary]:
    from strobe.core.measure.statistics import run_level
    from strobe.core.runs import saved_runs

    advised = {measurement.name for measurement in result.advised_measurements()}
    return [
        MeasurementSummary(
            name=measurement.name,
            advised=measurement.name in advised,
            summary=measurement.samples.summary,
            level=run_level(measurement.samples.values),
            parts={" / ".join(part.path): part.summary for part in measurement.components if part.depth <= DEEPEST},
            settings=saved_runs.settings(result, measurement),
        )
        for measurement in result.measurements
        if measurement.samples.values
    ]


def result_digest(file: Path) -> str:
    """Return the digest of a ``result.json``. Raises UserError where it cannot be read."""
    try:
        return hashlib.blake2b(contents(file), digest_size=16).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {file}: {os_error_reason(error)}") from None


def read_summary(file: Path) -> RunSummary | None:
    """Return the summary of just this ``result.json`` next to it, or None. Raises UserError where it cannot be read."""
    try:
        summary = RunSummary.model_validate_json(contents(file.parent / SUMMARY))
    except (OSError, ValidationError):  # such as one of another format
        return None
    if summary.format != FORMAT:
        return None
    # A copy of the folder has another time, and the same content.
    same = summary.written == file_stamp(file) or summary.digest == result_digest(file)
    return summary if same else None


def file_stamp(file: Path) -> list[int]:
    """Return the size of a file (bytes), and when it was written (ns). Raises UserError where it is not there."""
    try:
        seen = file.stat()
    except OSError as error:
        raise UserError(f"cannot read {file}: {os_error_reason(error)}") from None
    return [seen.st_size, seen.st_mtime_ns]


def write_summary(folder: Path, summary: RunSummary) -> None:
    """Write the summary into a run's folder. Where that cannot be, it is made again when it is needed."""
    with contextlib.suppress(OSError):
        store.replace(folder / SUMMARY, summary.model_dump_json().encode(), durable=False)
