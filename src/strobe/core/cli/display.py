"""Flags of every command: how it prints its answer (``--full``, ``--json``, ``--quiet``), and ``--log``.

`main` takes them out of the arguments; they hold while `applied`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal

from strobe.core.errors import UserError, error_line

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
  --quiet  print only the answer's sentences, without progress
  --log=trackio  also log the figures in Trackio, as lerobot-train does from LeRobot 0.7 on (or --log=wandb, as before)
  --log.project=NAME  the project to log in (default: strobe)
  --log.space_id=USER/SPACE  Trackio's Space on the Hub to log to (default: files of this machine)"""
WIDTH = 120  # width of output to a file: tables read better at this width than at rich's 80


@dataclass(frozen=True)
class Log:
    """Where figures are logged; ``tool`` is None for nowhere."""

    tool: str | None = None
    project: str = "strobe"
    space_id: str | None = None  # of Trackio

    def __str__(self) -> str:
        """The flags."""
        project = f" --log.project={self.project}" if self.project != Log.project else ""
        return f"--log={self.tool}{project}{f' --log.space_id={self.space_id}' if self.space_id else ''}"


# Flag → an example of its value.
_LOG_FLAGS = {"--log": "trackio", "--log.project": "arm", "--log.space_id": "me/arm"}

_style: ContextVar[Style] = ContextVar("style", default="brief")
_log: ContextVar[Log] = ContextVar("log", default=Log())  # noqa: B039 (it is frozen)
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


def take_flags(argv: Sequence[str]) -> tuple[Style, Log, list[str]]:
    """Take the flags of every command out of a command's own arguments. Return them, and the other arguments.

    Raises:
        UserError: two styles, a tool that is unknown or not installed, a flag without a value.
    """
    styles = list(dict.fromkeys(flag for flag in argv if flag in FLAGS))
    if len(styles) > 1:
        raise UserError(f"{' and '.join(styles)} exclude each other: give only one")
    log, rest = _take_log([argument for argument in argv if argument not in FLAGS])
    return FLAGS[styles[0]] if styles else "brief", log, rest


def _take_log(argv: Sequence[str]) -> tuple[Log, list[str]]:
    values, rest, arguments = {}, [], iter(argv)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name not in _LOG_FLAGS:
            rest.append(argument)
            continue
        value = value if equals else next(arguments, "")
        if not value or value.startswith("--"):
            raise UserError(f"{name} needs a value, such as {name}={_LOG_FLAGS[name]}")
        values[name] = value
    tool, space_id = values.get("--log"), values.get("--log.space_id")
    if not tool and values:
        raise UserError(f"{next(iter(values))} needs --log=trackio or --log=wandb")
    if space_id and tool != "trackio":
        raise UserError(f"--log.space_id is Trackio's: it needs --log=trackio, not --log={tool}")
    if tool:
        from strobe.core.report.loggers import require_logger

        require_logger(tool)
    return Log(tool, values.get("--log.project", "strobe"), space_id), rest


@contextlib.contextmanager
def apply_style(style: Style, log: Log) -> Iterator[None]:
    """Print answers in ``style`` and log them in ``log``. With 'json' whatever else is printed goes to stderr."""
    before = _style.set(style), _log.set(log), _stdout.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr) if style == "json" else contextlib.nullcontext():
            yield
    finally:
        for variable, token in zip((_style, _log, _stdout), before, strict=True):
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


def refuse_log(why: str) -> None:
    """Raise UserError if `--log` was given: there is nothing to log, because of ``why``."""
    if tool := _log.get().tool:
        raise UserError(f"--log={tool} has nothing to log: {why}")


def log(answer: Answer, name: str) -> None:
    """Log an answer that is saved as ``name``, if `--log` was given. What goes wrong costs a line, not the run."""
    target = _log.get()
    if not target.tool:
        return
    from strobe.core.report import loggers as exports

    try:
        exports.log(answer, target.tool, target.project, name, target.space_id)
    except Exception as error:  # the tool's own: no account, no network, a full disk
        again = f"`strobe report RUN {target}` tries again"
        print(f"not logged in {target.tool}: {error_line(error, 200)}; {again}", file=sys.stderr)
    else:
        print(f"logged   {target.tool}, project {target.project}: {name}")
