"""Keep a finished answer: complete it, show it, write its folder, say where it is.

Every command that keeps a run ends here. The answer goes to the screen before anything is written, so a full disk
costs the folder and not the answer.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.cli.logged import log
from strobe.cli.showing import show
from strobe.errors import NotKeptError, in_words
from strobe.findings.thresholds import Thresholds
from strobe.kinds import advise, page
from strobe.results.answer import Answer, Result
from strobe.results.sweep import Sweep
from strobe.runs import store

if TYPE_CHECKING:  # the timeline brings torch, and what is kept may have none
    from strobe.timeline.timeline import Section

TRACED = 20  # iterations of each variant that go into the trace

# The end of a file's name → what opens it.
VIEWERS = {
    "_profile.json": "chrome://tracing, ui.perfetto.dev",
    ".prof": "python -m pstats, snakeviz",
    ".html": "a browser",
    ".pickle": "pytorch.org/memory_viz",
}


def complete(
    answer: Answer,
    argv: Sequence[str],
    started: float,
    config: dict[str, Any],
    thresholds: Thresholds | None = None,
) -> None:
    """Write into ``answer`` how it came about, and draw its findings.

    Args:
        argv: the command and its flags, without 'strobe'.
        started: `time.monotonic` at the command's start, in seconds.
        config: the command's config as JSON data.
        thresholds: None where the study has drawn its findings itself.
    """
    answer.duration_s = round(time.monotonic() - started, 3)
    answer.command = ["strobe", *argv]
    answer.config = config
    if thresholds is not None:
        answer.findings = advise(answer, thresholds)


def trace_of(
    answer: Result, sections: Sequence[Section], profiled: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The trace of a completed answer, from its sections and torch.profiler's events."""
    from strobe.timeline.trace import chrome_trace

    return chrome_trace(sections, profiled=profiled, metadata={"command": shlex.join(answer.command)})


def latest(sections: Sequence[Section], root: str) -> list[Section]:
    """The sections of the last ``TRACED`` top-level ``root`` sections, so that a trace stays small enough to open."""
    starts = [section.start_ns for section in sections if section.path == (root,)]
    if len(starts) <= TRACED:
        return list(sections)
    begin = sorted(starts)[-TRACED]
    return [section for section in sections if section.start_ns >= begin]


def keep(
    answer: Answer,
    root: Path,
    trace: dict[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Show a completed answer and keep it in a new folder below ``root``. Returns the folder.

    Args:
        files: name → content of what else belongs into the folder.

    Raises:
        NotKeptError: the folder, or its page, could not be written.
    """
    try:
        show(answer)
    finally:  # a reader that is gone (`| head`) must not cost the run
        folder = write_run(answer, root, trace, files)
    print(f"\nreport   {folder / store.REPORT}")
    if trace is not None:
        print(f"trace    {folder / store.TRACE}  (open in ui.perfetto.dev)")
    for name in files or {}:
        print(_line(folder / name))
    return folder


def write_run(
    answer: Answer,
    root: Path,
    trace: dict[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write an answer, its page and its files into a new folder below ``root``. Returns the folder.

    Raises:
        NotKeptError: the data could not be written whole, and no folder is left; or the page alone could not.
    """
    folder = root
    try:
        folder = store.new_run(root, answer.study, answer.about)
        store.save(answer, folder, trace, files)
    except OSError as error:
        if folder != root:
            shutil.rmtree(folder, ignore_errors=True)
        raise _not_kept("run", "--output_dir", folder, error) from None
    _write_page(answer, folder)
    log(answer, folder.name)
    return folder


def keep_in(answer: Answer, folder: Path, what: str = "run", flag: str = "--output_dir") -> None:
    """Show a completed answer and keep it in ``folder``, which holds what it was made from.

    Args:
        what, flag: what is kept there, and the flag that names another place for it, for an error's words.

    Raises:
        NotKeptError: the answer, or its page, could not be written. What was there before stays.
    """
    try:
        show(answer)
    finally:
        try:
            store.save(answer, folder)
        except OSError as error:
            raise _not_kept(what, flag, folder, error) from None
        _write_page(answer, folder)
    log(answer, folder.name)
    print(f"\nreport   {folder / store.REPORT}")


def keep_sweep(sweep: Sweep, root: Path) -> None:
    """Show a completed sweep and keep it in ``root``, beside its cells. Raises NotKeptError as `keep_in` does."""
    keep_in(sweep, root, "sweep", "--sweep_dir")
    print(f"cells    {root / 'cells'}")


def plain(config: Any) -> dict[str, Any]:
    """A config as JSON data."""
    return json.loads(json.dumps(dataclasses.asdict(config), default=str))


def _write_page(answer: Answer, folder: Path) -> None:
    """Write the page of an answer that is kept in ``folder``. Raises NotKeptError."""
    content = page(answer, folder=folder).encode()
    try:
        store.replace(folder / store.REPORT, content)
    except OSError as error:
        free = "free some, then " if _is_full(error) else ""
        raise NotKeptError(
            f"cannot write {folder / store.REPORT}: {in_words(error)}; the numbers are kept: "
            f"{free}`strobe report {folder}` writes the page"
        ) from None


def _not_kept(what: str, flag: str, folder: Path, error: OSError) -> NotKeptError:
    free = "free some or " if _is_full(error) else ""
    return NotKeptError(f"cannot keep the {what} in {folder}: {in_words(error)}; {free}name another folder with {flag}")


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _line(file: Path) -> str:
    """The closing line for a file of a run: where it is, and what opens it."""
    viewer = next((how for ending, how in VIEWERS.items() if file.name.endswith(ending)), None)
    kind = "recipe " if file.suffix == ".yaml" else "profile"
    return f"{kind}  {file}{f'  (open in {viewer})' if viewer else ''}"
