"""Show a run or a sweep again: on the terminal, as Markdown, or as one HTML page that needs no network.

Without --format, its report.html is written anew and the result is printed. Of a folder that holds runs, an index.html
is written: search them, open them, lay some beside each other.

Examples:
  strobe report runs                                                 an index of all runs in it
  strobe report runs/2026-11-21_0412_breakdown_act
  strobe report runs/2026-11-21_0412_breakdown_act --depth 2
  strobe report runs/2026-11-21_0412_breakdown_act --log=wandb       its figures in Weights & Biases, or trackio
  strobe report runs/2026-11-21_0412_breakdown_act --format markdown --output report.md
  strobe report runs/2026-11-22_1259_rollout_act --format rrd        cameras, actions, queue, sections on one timeline
  strobe report runs/2026-11-22_0803_optimize_act --format png --output ladder.png      its main figure, for a talk
  strobe report runs/2026-11-22_0803_optimize_act --format model-card --output CHECKPOINT/README.md

A rollout's recording opens in Rerun (rrd: `rerun FILE`) or Foxglove (mcap). Cameras and joints are in it where the run
kept them: strobe rollout --observations. A model card has latency and success in the Hub's own metadata; of a card that
is there already, the text and all other results stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from strobe.cli import logged
from strobe.cli.arguments import Arguments, levels
from strobe.cli.keep import write_run
from strobe.cli.showing import WIDTH, show
from strobe.errors import UserError, in_words
from strobe.kinds import document, figures, page
from strobe.report import console, markdown
from strobe.report.viewers import WRITERS
from strobe.results.answer import Answer
from strobe.runs import store


def write(path: Path, text: str) -> None:
    """Write a report whole or not at all. Raises UserError where there is no such place."""
    try:
        store.replace(path, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {in_words(error)}") from None


def page_shape(path: Path | None) -> Callable[[Answer], str] | None:
    """The renderer for a page of this name; None without one. Raises UserError for another ending."""
    if path is None:
        return None
    shapes: dict[str, Callable[[Answer], str]] = {".html": page, ".htm": page, ".md": as_markdown}
    if path.suffix.lower() not in shapes:
        raise UserError(f"--output {path}: name a file that ends in .html or .md")
    return shapes[path.suffix.lower()]


def hand_over(answer: Answer, shape: Callable[[Answer], str] | None, output: Path | None, root: Path | None) -> None:
    """Show an answer that is kept only where that is asked for: as a page, in a run's folder below ``root``.

    Args:
        shape: the renderer of the page at ``output``, as `page_shape` gives it.

    Raises:
        UserError: the page, or the folder, cannot be written; `--log` was asked for, and no folder.
    """
    if root is None:
        logged.refuse("the answer is not kept; --output_dir=FOLDER keeps it")
    show(answer)
    if shape is not None and output is not None:
        write(output, shape(answer))
        print(f"\nreport: {output}")
    if root is not None:
        print(f"\nreport   {write_run(answer, root) / store.REPORT}")


def as_markdown(answer: Answer, depth: int | None = None) -> str:
    """The answer as Markdown."""
    return markdown.render(document(answer, depth))


def as_text(answer: Answer, depth: int | None = None) -> str:
    """The console view without colours."""
    plain = Console(width=WIDTH, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.render(document(answer, depth), plain)
    return plain.export_text()


def run(argv: Sequence[str]) -> int:
    """``strobe report``; returns the exit code."""
    parser = Arguments("report", __doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="a run folder, its result.json, or a folder of runs")
    shapes = ("console", "markdown", "html", "model-card", "png", *WRITERS)
    parser.add_argument("--format", choices=shapes, help="print or write only this; a rollout also as a recording")
    parser.add_argument("--depth", type=levels, metavar="N", help="show this many levels of parts (default: all)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there (HTML unless --format says otherwise)")
    asked = parser.parse_args(argv)
    if asked.format in (*WRITERS, "model-card", "png"):
        logged.refuse(f"--format={asked.format} only writes a file; leave it out, or take --format=console")
    if asked.format in WRITERS:
        return _recording(asked.run, asked.format, asked.output)
    if asked.run.is_dir() and not (asked.run / store.RESULT).is_file() and any(asked.run.glob(f"*/{store.RESULT}")):
        return _index(asked.run, asked.format, asked.output)
    answer = store.load_answer(asked.run)
    if asked.format == "model-card":
        return _card(answer, asked.output)
    if asked.format == "png":
        return _picture(answer, asked.output)
    logged.log(answer, (asked.run if asked.run.is_dir() else asked.run.parent).resolve().name)
    shape = asked.format or ("html" if asked.output else None)
    if shape is None or shape == "html":
        folder = asked.run if asked.run.is_dir() else asked.run.parent
        there = asked.output or folder / store.REPORT
        write(there, page(answer, asked.depth, folder))
        if shape is None:
            show(answer, asked.depth)
        print(f"\nreport: {there}" if shape is None else f"report: {there}")
    elif asked.output:
        text = as_markdown(answer, asked.depth) if shape == "markdown" else as_text(answer, asked.depth)
        write(asked.output, text)
        print(f"report: {asked.output}")
    elif shape == "markdown":
        print(as_markdown(answer, asked.depth), end="")
    else:
        show(answer, asked.depth)
    return 0


def _index(folder: Path, shape: str | None, output: Path | None) -> int:
    """Write the page of a folder of runs. Raises UserError for another shape, or where it cannot be written."""
    from strobe.report import runs_page

    if shape not in (None, "html"):
        raise UserError(f"{folder} holds several runs, and --format={shape} shows one: name one of them")
    logged.refuse(f"{folder} holds several runs; name one of them")
    lines, left_out = [], []
    for name, file in store.runs_of(folder):
        try:
            answer = store.load_answer(file)
            if not (file.parent / store.REPORT).exists():
                write(file.parent / store.REPORT, page(answer, folder=file.parent))
            lines.append(runs_page.line(answer, document(answer), name))
        except UserError as error:
            left_out.append(f"left out {name}: {error}")
    there = output or folder / "index.html"
    write(there, runs_page.render(lines, folder.resolve().name))
    for said in left_out:
        print(said)
    print(f"{len(lines)} run{'s' * (len(lines) != 1)}: {there}")
    return 0


def _card(answer: Answer, output: Path | None) -> int:
    """Print a model card, or write it; one that is there already gets a new part. Raises UserError."""
    from strobe.report import model_card

    if output is None:
        print(model_card.render(answer), end="")
        return 0
    try:
        there = output.read_text(encoding="utf-8") if output.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {output}: {in_words(error) if isinstance(error, OSError) else error}") from None
    write(output, model_card.render(answer, there))
    print(f"card: {output}{' (its other text stays)' if there else ''}")
    return 0


def _picture(answer: Answer, output: Path | None) -> int:
    """Write the answer's main figure as a PNG. Raises UserError without a browser, or where it cannot be written."""
    from strobe.report import picture

    there = output or Path(f"{answer.study.replace(' ', '-')}.png")
    picture.write(there, document(answer), figures(answer))
    print(f"picture: {there}")
    return 0


def _recording(run: Path, shape: str, output: Path | None) -> int:
    """Write a rollout as a recording for a viewer. Raises UserError where it kept no events, or cannot be written."""
    from strobe.studies.rollout.streams import streams

    folder = run if run.is_dir() else run.parent
    there = output or folder / f"rollout.{shape}"
    samples = streams(run)
    try:
        count = WRITERS[shape](there, folder.resolve().name, samples)
    except OSError as error:
        raise UserError(f"cannot write {there}: {in_words(error)}") from None
    print(f"recording: {there}  ({count:,} samples; opens in {'Rerun' if shape == 'rrd' else 'Foxglove'})")
    return 0
