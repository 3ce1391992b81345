"""strobe report: a run, a sweep or a profiler's trace, on the terminal, as Markdown, or as one HTML page.

Without --format, it writes the run's report.html again and prints the result. The page needs no network. For a folder
of runs it writes an index.html, in which you can search the runs, open them, and compare some of them.

It also reads a trace of torch.profiler, of any program on CUDA, ROCm or a CPU. It shows what the device waited for,
stretches that launches limit, copies, synchronisations, kernels, operators, parts and iterations. The page is
next to the trace. Several traces, or a folder of them, are the ranks of one program: it shows who waits for whom.

Examples:
  strobe report runs                                an index of all runs in the folder
  strobe report trace.json.gz                       of torch.profiler's export_chrome_trace

More:
Further examples:
  strobe report RUN --depth 2
  strobe report RUN --output report.md              Markdown, for a pull request
  strobe report RUN --format rrd                    a rollout's cameras, actions, queue and sections on one timeline
  strobe report rank0.json.gz rank1.json.gz --output ranks.html      or the folder that holds them

A rollout's recording opens in Rerun (rrd: `rerun FILE`) or Foxglove (mcap). It has cameras and joints if the run saved
them: strobe rollout --observations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from strobe.core.cli.bounds import choice_bound, minimum_bound, positional
from strobe.core.cli.display import show
from strobe.core.cli.live import Live
from strobe.core.cli.parse import parse
from strobe.core.cli.runner import Command
from strobe.core.cli.summaries import summary_of_run
from strobe.core.errors import UserError, legible
from strobe.core.findings.thresholds import DEFAULTS
from strobe.core.runs import store
from strobe.core.slices import Offer

if TYPE_CHECKING:
    from strobe.core.results.answer import Answer

RECORDINGS = ("rrd", "mcap")  # formats for viewers of recordings

# Ending of --output → the format that it means.
ENDS = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "console"}
ENDS |= {f".{name}": name for name in RECORDINGS}


class TraceFiles(Protocol):
    """How traces are found, and how their names end."""

    ENDINGS: tuple[str, ...]
    is_trace: Callable[[Path], bool]
    find_traces: Callable[[Path], list[Path]]


TRACE_FILES: Offer[TraceFiles] = Offer("trace files")
TRACE: Offer[Callable[[Sequence[Path], Callable[[Path, int, int], None]], Answer]] = Offer("trace")
RECORD: Offer[Callable[[Path, str, Path | None], tuple[Path, int]]] = Offer("recordings")


@dataclass
class ReportConfig:
    """Arguments and flags of `strobe report`."""

    # A run folder, its result.json, a folder of runs, or the traces of torch.profiler.
    runs: list[Path] = field(default_factory=list, metadata=positional("RUN"))
    # Print or write only this. A rollout can also be a recording (rrd, mcap).
    format: str | None = field(default=None, metadata=choice_bound("console", "markdown", "html", *RECORDINGS))
    # Show this many levels of parts (default: all).
    depth: int | None = field(default=None, metadata=minimum_bound(1))
    # Write to this file; its ending gives the format (.html, .md, .txt, .rrd, .mcap), unless --format does.
    output: Path | None = None


def read(argv: Sequence[str]) -> ReportConfig:
    """Return the command's flags, checked. Raises UserError."""
    config = parse(ReportConfig, argv)
    if config.format is None and config.output is not None:
        config.format = ENDS.get(config.output.suffix.lower())
        if config.format is None:
            raise UserError(f"--output={config.output}: name a file that ends in {', '.join(ENDS)}, or give --format")
    return config


def report(config: ReportConfig, live: Live) -> int:
    """Show or write the run in the format of the flags. Return the exit code. Raises UserError."""
    shape, output = config.format, config.output
    if files := _named_traces(config.runs):
        answer = _read_traces(config.runs, files, shape, live)
        return _report(answer, config, _page_path(config.runs))
    if len(config.runs) > 1:
        raise UserError(f"'{config.runs[1]}' is one argument too many: see --help")
    (run,) = config.runs
    if shape in RECORDINGS:
        return _recording(run, shape, output)
    if run.is_dir() and not (run / store.RESULT).is_file() and any(run.glob(f"*/{store.RESULT}")):
        return _index(run, shape, output, live)
    folder = run if run.is_dir() else run.parent
    return _report(store.load_answer(run), config, folder / store.REPORT)


def _report(answer: Answer, config: ReportConfig, page_file: Path) -> int:
    """Show or write one answer. Its page goes to ``page_file`` without --output."""
    from strobe.core.cli.keep import render_markdown, render_text
    from strobe.core.kinds import page

    shape, output = config.format, config.output
    if shape in (None, "html"):
        file = output or page_file
        content = page(answer, config.depth, page_file.parent)
        if shape is None:
            show(answer, config.depth)
            print()
        store.write_text(file, content)
        print(f"report: {file}")
    elif output:
        store.write_text(
            output, render_markdown(answer, config.depth) if shape == "markdown" else render_text(answer, config.depth)
        )
        print(f"report: {output}")
    elif shape == "markdown":
        print(render_markdown(answer, config.depth), end="")
    else:
        show(answer, config.depth)
    return 0


def _named_traces(paths: Sequence[Path]) -> list[Path]:
    """Return the traces among the arguments, [] for runs. Raises UserError for several that are not all traces."""
    files = TRACE_FILES.find()
    if files is None:
        return []
    if len(paths) == 1 and paths[0].is_dir():
        holds_results = (paths[0] / store.RESULT).is_file() or any(paths[0].glob(f"*/{store.RESULT}"))
        return [] if holds_results else files.find_traces(paths[0])
    traces = [path for path in paths if files.is_trace(path)]
    if len(paths) > 1 and len(traces) < len(paths):
        other = next(path for path in paths if path not in traces)
        raise UserError(
            f"{other} is no trace of torch.profiler: several arguments are the traces of one program's ranks"
            if other.exists()
            else f"no file at {other}"
        )
    return traces


def _read_traces(paths: Sequence[Path], files: Sequence[Path], shape: str | None, live: Live) -> Answer:
    """Return what the traces show, with findings; ``paths`` are as the command has them, ``shape`` is of ``--format``.

    Raises UserError if none of the ``files`` is a whole trace, or the format is one of a run.
    """
    from strobe.core.cli.keep import complete

    if shape in RECORDINGS:
        raise UserError(f"--format={shape} is of a run of Strobe, and {paths[0]} is a trace of torch.profiler")
    started = time.monotonic()

    def show_read(path: Path, done: int, size: int) -> None:
        if done:
            from strobe.core.measure.sampling import Progress  # brings NumPy, which a small trace does without

            live.progress(Progress(done >> 20, size >> 20, time.monotonic() - started, None, "MiB"))
        else:
            live.doing(f"reading {path.name}")

    with live:
        answer = TRACE.require()(files, show_read)
    complete(answer, ["report", *map(str, paths)], started, {}, DEFAULTS)
    return answer


def _page_path(paths: Sequence[Path]) -> Path:
    first = paths[0]
    if first.is_dir():
        return first / store.REPORT
    if len(paths) > 1:
        return first.parent / store.REPORT
    stem = next(
        (first.name.removesuffix(end) for end in reversed(TRACE_FILES.require().ENDINGS) if first.name.endswith(end)),
        first.name,
    )
    return first.parent / f"{stem}.{store.REPORT}"


def _index(folder: Path, shape: str | None, output: Path | None, live: Live) -> int:
    """Write the page of a folder of runs. Raises UserError for another shape, or if it cannot be written."""
    from strobe.core.report import html

    if shape not in (None, "html"):
        raise UserError(f"{folder} contains several runs, and --format={shape} shows one: name one of them")
    lines, left_out = [], []
    with live:
        for name, file in live.each("reading runs", list(store.iter_results(folder, parts=False)), "runs"):
            try:
                lines.append((summary_of_run(file), name))
                if not (file.parent / store.REPORT).exists():
                    _write_page(file)
            except UserError as error:
                left_out.append(f"left out {legible(name)}: {error}")
    file = output or folder / "index.html"
    store.write_text(file, html.render_runs(lines, folder.resolve().name))
    print(*left_out, sep="\n", end="\n" * bool(left_out))
    print(f"{len(lines)} run{'s' * (len(lines) != 1)}: {file}")
    return 0


def _write_page(file: Path) -> None:
    """Write the page of a saved run. Raises UserError."""
    from strobe.core.kinds import page

    store.write_text(file.parent / store.REPORT, page(store.load_answer(file), folder=file.parent))


def _recording(run: Path, shape: str, output: Path | None) -> int:
    """Write a rollout as a recording for a viewer. Raises UserError without events, or if it cannot be written."""
    file, count = RECORD.require()(run, shape, output)
    print(f"recording: {file}  ({count:,} samples; opens in {'Rerun' if shape == 'rrd' else 'Foxglove'})")
    return 0


run = Command("report", __doc__, ReportConfig, read, report, bar=False)
