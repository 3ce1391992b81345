"""How a command prints its answer: in brief, or as ``--full``, ``--json`` or ``--quiet`` ask, the same everywhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Literal

from strobe.errors import UserError

if TYPE_CHECKING:  # what brings rich and pydantic, which a wrong flag should not wait for
    from strobe.results.answer import Answer

Style = Literal["brief", "full", "json", "quiet"]
FLAGS: dict[str, Style] = {"--full": "full", "--json": "json", "--quiet": "quiet"}
HELP = """\
Flags of every command:
  --full   print every table, finding and note, not just what fits on one screen
  --json   print one line of JSON on stdout, what result.json holds; all else goes to stderr
  --quiet  print the answer's sentences alone, without progress"""
WIDTH = 120  # of what is no terminal: a file has no width, and tables read better at this one than at rich's 80

_style: ContextVar[Style] = ContextVar("style", default="brief")
_stdout: ContextVar[IO[str] | None] = ContextVar("stdout", default=None)


def take(argv: Sequence[str]) -> tuple[Style, list[str]]:
    """Take the style out of a command's own arguments. Raises UserError for two."""
    found = list(dict.fromkeys(flag for flag in argv if flag in FLAGS))
    if len(found) > 1:
        raise UserError(f"{' and '.join(found)} exclude each other: take one")
    return FLAGS[found[0]] if found else "brief", [argument for argument in argv if argument not in FLAGS]


@contextlib.contextmanager
def styled(style: Style) -> Iterator[None]:
    """Print answers in ``style``. With 'json' whatever else is printed goes to stderr."""
    before, out = _style.set(style), _stdout.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr) if style == "json" else contextlib.nullcontext():
            yield
    finally:
        _style.reset(before)
        _stdout.reset(out)


def quiet() -> bool:
    """Whether progress is to be left out."""
    return _style.get() == "quiet"


def show(answer: Answer, depth: int | None = None) -> None:
    """Print an answer in the style asked for; with a ``depth`` of parts in full, to that depth."""
    style = _style.get()
    if style == "json":
        print(answer.model_dump_json(fallback=str), file=_stdout.get() or sys.stdout, flush=True)
        return
    from rich.console import Console

    from strobe.kinds import document
    from strobe.report import console

    outlined = document(answer, depth)
    screen = Console()
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen = Console(width=WIDTH)
    if style == "quiet":
        for sentence in outlined.answers:
            screen.print(sentence, markup=False, highlight=False, soft_wrap=True)
    elif style == "full" or depth is not None:
        console.render(outlined, screen)
    else:
        console.render_brief(outlined, screen)
