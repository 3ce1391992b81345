"""The part of `strobe report` that reads traces of torch.profiler: one, several, or a folder of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.cli.live import Live
from strobe.errors import UserError
from strobe.report.exports import WRITERS
from strobe.runs import store
from strobe.runs.trace_file import ENDINGS, is_trace, traces_in

if TYPE_CHECKING:
    from strobe.results.trace import TraceAnswer


def traces_of(paths: Sequence[Path]) -> list[Path]:
    """Return the traces that the arguments name; [] where they name a run or a folder of runs.

    Raises:
        UserError: several arguments, not all of them traces.
    """
    if len(paths) == 1 and paths[0].is_dir():
        holds_results = (paths[0] / store.RESULT).is_file() or any(paths[0].glob(f"*/{store.RESULT}"))
        return [] if holds_results else traces_in(paths[0])
    traces = [path for path in paths if is_trace(path)]
    if len(paths) > 1 and len(traces) < len(paths):
        other = next(path for path in paths if path not in traces)
        raise UserError(
            f"{other} is no trace of torch.profiler: several arguments are the traces of one program's ranks"
            if other.exists()
            else f"no file at {other}"
        )
    return traces


def read_traces(paths: Sequence[Path], files: Sequence[Path], shape: str | None, live: Live) -> TraceAnswer:
    """Return what the traces show, with findings.

    Args:
        paths: as the command has them.
        files: the traces.
        shape: of ``--format``.

    Raises:
        UserError: none of them is a whole trace, or the format is one of a run.
    """
    from strobe.cli.keep import complete
    from strobe.findings.thresholds import DEFAULTS
    from strobe.studies.trace import trace

    if shape in (*WRITERS, "model-card"):
        raise UserError(f"--format={shape} is of a run of Strobe, and {paths[0]} is a trace of torch.profiler")
    started = time.monotonic()
    with live:
        answer = trace(files, lambda path: live.doing(f"reading {path.name}"))
    complete(answer, ["report", *map(str, paths)], started, {}, DEFAULTS)
    return answer


def page_of(paths: Sequence[Path]) -> Path:
    """Return where the page of traces goes: beside the trace, or into the folder of several."""
    first = paths[0]
    if first.is_dir():
        return first / store.REPORT
    if len(paths) > 1:
        return first.parent / store.REPORT
    stem = next((first.name.removesuffix(end) for end in reversed(ENDINGS) if first.name.endswith(end)), first.name)
    return first.parent / f"{stem}.{store.REPORT}"
