"""Flags of every command: how it prints its answer (``--full``, ``--json``, ``--quiet``).

`main` takes them out of the arguments; they hold while `applied`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Literal

from strobe.core.errors import UserError

if TYPE_CHECKING:  # what brings rich and pydantic, which a wrong flag should not wait for
    from rich.console import Console

    from strobe.core.results.answer import Answer

Style = Literal["brief", "full", "json", "quiet"]
HelpDetail = Literal["brief", "all", "treatments"]
FLAGS: dict[str, Style] = {"--full": "full", "--json": "json", "--quiet": "quiet"}
HELP = """\
Flags of every command:
  --full   print every table, finding and note, not only one screen of them
  --json   print the content of result.json as one line of JSON on stdout; all else goes to stderr
  --quiet  print only the answer's sentences, without progress"""
WIDTH = 120  # width of output to a file: tables read better at this width than at rich's 80


_style: ContextVar[Style] = ContextVar("style", default="brief")
_stdout: ContextVar[IO[str] | None] = ContextVar("stdout", default=None)


def requested_help(argv: Sequence[str]) -> HelpDetail | None:
    """Return which help a command's own arguments, before ``--``, ask for; None if they do not. Raises UserError."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    if "-h" in own or "--help" in own:
        return "brief"
    for word in own:
        if word.startswith("--help="):
            if (detail := word.removeprefix("--help=")) in ("all", "treatments"):
                return "all" if detail == "all" else "treatments"
            raise UserError(f"{word}: --help takes all (every flag) or treatments")
    return None


def take_flags(argv: Sequence[str]) -> tuple[Style, list[str]]:
    """Take every command's flags out of ``argv``. Return the style and the rest. Raises UserError for two styles."""
    styles = list(dict.fromkeys(flag for flag in argv if flag in FLAGS))
    if len(styles) > 1:
        raise UserError(f"{' and '.join(styles)} exclude each other: give only one")
    rest = [argument for argument in argv if argument not in FLAGS]
    return FLAGS[styles[0]] if styles else "brief", rest


@contextlib.contextmanager
def apply_style(style: Style) -> Iterator[None]:
    """Print answers in ``style``. With 'json' whatever else is printed goes to stderr."""
    before = _style.set(style), _stdout.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr) if style == "json" else contextlib.nullcontext():
            yield
    finally:
        for variable, token in zip((_style, _stdout), before, strict=True):
            variable.reset(token)  # type: ignore[arg-type]


def quiet() -> bool:
    """Return whether progress is left out."""
    return _style.get() == "quiet"


def show(answer: Answer, depth: int | None = None) -> None:
    """Print an answer in the style of the command's flags; with a ``depth`` of parts in full, to that depth."""
    style = _style.get()
    if style == "json":
        print(answer.model_dump_json(fallback=str), file=_stdout.get() or sys.stdout, flush=True)
        return
    from strobe.core.kinds import document
    from strobe.core.report import console

    outlined, shown_on = document(answer, depth), screen()
    if style == "quiet":
        for sentence in outlined.answers:
            shown_on.print(sentence, markup=False, highlight=False, soft_wrap=True)
    elif style == "full" or depth is not None:
        console.render(outlined, shown_on)
    else:
        console.render_brief(outlined, shown_on)


def screen() -> Console:
    """Return the console of stdout, `WIDTH` columns wide where that is no terminal and COLUMNS says nothing."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=WIDTH)
