"""The summary of a saved run, in the file beside its answer; one that is of another answer counts as none."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from pydantic import ValidationError

from strobe.errors import UserError, in_words
from strobe.results.run_summary import FORMAT, RunSummary
from strobe.runs.store import replace

SUMMARY = "summary.json"


def digest_of(file: Path) -> str:
    """Return the digest of a ``result.json``. Raises UserError where it cannot be read."""
    try:
        return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {file}: {in_words(error)}") from None


def read_summary(file: Path) -> RunSummary | None:
    """Return the summary beside a ``result.json``; None without one, or where it was made of another answer.

    Raises:
        UserError: the answer cannot be read.
    """
    try:
        summary = RunSummary.model_validate_json((file.parent / SUMMARY).read_bytes())
    except (OSError, ValidationError):  # such as one of another format
        return None
    if summary.format != FORMAT:
        return None
    # A copy of the folder has another time, and the same content.
    same = summary.written == written(file) or summary.digest == digest_of(file)
    return summary if same else None


def written(file: Path) -> list[int]:
    """Return the size of a file (bytes), and when it was written (ns). Raises UserError where it is not there."""
    try:
        seen = file.stat()
    except OSError as error:
        raise UserError(f"cannot read {file}: {in_words(error)}") from None
    return [seen.st_size, seen.st_mtime_ns]


def write_summary(folder: Path, summary: RunSummary) -> None:
    """Write the summary into a run's folder. Where that cannot be, it is made again when it is needed."""
    with contextlib.suppress(OSError):
        replace(folder / SUMMARY, summary.model_dump_json().encode())
