"""Complete an answer, show it, and save it: in a run's folder, as a page.

Every command that answers ends here. The answer goes to the screen before anything is written, so a full disk costs the
folder and not the answer.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from strobe.core import demo
from strobe.core.cli.display import WIDTH, show
from strobe.core.cli.live import shown_if_slow
from strobe.core.cli.summaries import keep_summary
from strobe.core.errors import NotKeptError, is_full, make_not_kept_error, os_error_reason
from strobe.core.findings.thresholds import Thresholds
from strobe.core.kinds import advise, document, page
from strobe.core.report import console, markdown
from strobe.core.results.answer import Answer, Result
from strobe.core.runs import store
from strobe.core.untrusted import JsonObject

if TYPE_CHECKING:
    from strobe.core.timeline.timeline import Section


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
    config: JsonObject,
    thresholds: Thresholds | None = None,
) -> None:
    """Write into ``answer`` its command, its duration and its config, and draw its findings.

    Args:
        argv: the command and its flags, without 'strobe'.
        started: `time.monotonic` at the command's start, in seconds.
        config: the command's config as JSON data.
        thresholds: limits of the findings; None for a study that has drawn its findings itself.
    """
    answer.duration_s = round(time.monotonic() - started, 3)
    answer.command = demo.restore_typed_name(["strobe", *argv])
    answer.config = demo.restore_typed_name(config)
    if thresholds is not None:
        answer.findings = advise(answer, thresholds)


def build_trace(answer: Result, sections: Sequence[Section], profiled: list[JsonObject] | None = None) -> JsonObject:
    """Return the trace of a completed answer, from its sections and torch.profiler's events."""
    from strobe.core.timeline.trace import chrome_trace

    return chrome_trace(sections, profiled=profiled, metadata={"command": shlex.join(answer.command)})


def latest(sections: Sequence[Section]) -> list[Section]:
    """Return the sections of the last ``TRACED`` iterations; a longer trace is too large to open."""
    from strobe.core.subjects.subject import ITERATION  # brings torch, which a report need not wait for

    starts = [section.start_ns for section in sections if section.path == (ITERATION,)]
    if len(starts) <= TRACED:
        return list(sections)
    begin = sorted(starts)[-TRACED]
    return [section for section in sections if section.start_ns >= begin]


def keep(
    answer: Answer,
    root: Path | None,
    trace: JsonObject | None = None,
    files: Mapping[str, bytes] | None = None,
    page_file: Path | None = None,
) -> Path | None:
    """Show a completed answer and save it in a new folder below ``root``. Return the folder, None without a root.

    Args:
        files: name → content of what else belongs into the folder.
        page_file: where a page of the answer is written as well.

    Raises:
        NotKeptError: the folder, or its page, could not be written.
        UserError: ``page_file`` cannot be written.
    """
    folder: Path | None = None
    try:
        show(answer)
    finally:  # a reader that is gone (`| head`) must not cost the run
        if root is not None:
            with shown_if_slow(f"saving the run in {root}"):
                folder = write_run(answer, root, trace, files)
    if page_file is not None:
        with shown_if_slow(f"writing {page_file}"):
            store.write_text(page_file, render_markdown(answer) if page_file.suffix.lower() == ".md" else page(answer))
        print(f"\nreport: {page_file}")
    if folder is not None:
        print(f"\nreport   {folder / store.REPORT}")
        if trace is not None:
            print(f"trace    {folder / store.TRACE}  (open in ui.perfetto.dev)")
        for name in files or {}:
            print(_line(folder / name))
    return folder


def write_run(
    answer: Answer,
    root: Path,
    trace: JsonObject | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write an answer, its page and its files into a new folder below ``root``. Returns the folder.

    Raises:
        NotKeptError: the data could not be written whole, and no folder is left; or the page alone could not.
    """
    folder = root
    try:
        folder = store.new_run(root, answer.study, answer.subject_name)
        store.save(answer, folder, trace, files)
    except OSError as error:
        if folder != root:
            shutil.rmtree(folder, ignore_errors=True)
        raise make_not_kept_error("run", "--output_dir", folder, error) from None
    keep_summary(answer, folder)
    _write_page(answer, folder)
    return folder


def save_answer(answer: Answer, folder: Path) -> None:
    """Show a completed answer and save it in ``folder``, which holds what it was made from: episodes, a sweep's cells.

    Raises:
        NotKeptError: the answer, or its page, could not be written. What was there before stays.
    """
    is_sweep = answer.study == "sweep"
    try:
        show(answer)
    finally:
        what, flag = ("sweep", "--sweep_dir") if is_sweep else ("run", "--output_dir")
        with shown_if_slow(f"saving the {what} in {folder}"):
            try:
                store.save(answer, folder)
            except OSError as error:
                raise make_not_kept_error(what, flag, folder, error) from None
            keep_summary(answer, folder)
            _write_page(answer, folder)
    print(f"\nreport   {folder / store.REPORT}")
    if is_sweep:
        print(f"cells    {folder / 'cells'}")


def render_markdown(answer: Answer, depth: int | None = None) -> str:
    """Return the answer as Markdown."""
    return markdown.render(document(answer, depth))


def render_text(answer: Answer, depth: int | None = None) -> str:
    """Return what the console shows of the answer, without colours."""
    screen = Console(width=WIDTH, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.render(document(answer, depth), screen)
    return screen.export_text()


def _write_page(answer: Answer, folder: Path) -> None:
    """Write the page of an answer that is saved in ``folder``. Raises NotKeptError."""
    content = page(answer, folder=folder).encode()
    try:
        store.replace(folder / store.REPORT, content)
    except OSError as error:
        free = "free some, then " if is_full(error) else ""
        raise NotKeptError(
            f"cannot write {folder / store.REPORT}: {os_error_reason(error)}; the numbers are saved: "
            f"{free}`strobe report {folder}` writes the page"
        ) from None


def _line(file: Path) -> str:
    viewer = next((how for ending, how in VIEWERS.items() if file.name.endswith(ending)), None)
    kind = "recipe " if file.suffix == ".yaml" else "profile"
    return f"{kind}  {file}{f'  (open in {viewer})' if viewer else ''}"
