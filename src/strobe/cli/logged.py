"""``--log`` of every command: what it keeps is logged in Weights & Biases or trackio, too."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strobe.errors import UserError, in_a_line

if TYPE_CHECKING:
    from strobe.results.answer import Answer

HELP = """\
  --log=wandb  log the figures there too, as lerobot-train does (or --log=trackio)
  --log.project=NAME  the project to log in (default: strobe)"""


@dataclass(frozen=True)
class Log:
    """Where figures are logged; ``tool`` is '' for nowhere."""

    tool: str = ""
    project: str = "strobe"


_log: ContextVar[Log] = ContextVar("log", default=Log())  # noqa: B039 (it is frozen)


def take(argv: Sequence[str]) -> tuple[Log, list[str]]:
    """Take the flags out of a command's own arguments.

    Raises:
        UserError: a tool that is unknown or not installed, a flag without a value.
    """
    found, rest, own = {}, [], iter(argv)
    for argument in own:
        name, equals, value = argument.partition("=")
        if name not in ("--log", "--log.project"):
            rest.append(argument)
            continue
        value = value if equals else next(own, "")
        if not value or value.startswith("--"):
            raise UserError(
                f"{name} needs a value, such as {'--log=wandb' if name == '--log' else '--log.project=arm'}"
            )
        found[name] = value
    tool = found.get("--log", "")
    if tool:
        from strobe.report.experiment_loggers import require

        require(tool)
    elif found:
        raise UserError("--log.project needs --log=wandb or --log=trackio")
    return Log(tool, found.get("--log.project", "strobe")), rest


@contextlib.contextmanager
def logging_to(log: Log) -> Iterator[None]:
    """Log what is kept meanwhile."""
    before = _log.set(log)
    try:
        yield
    finally:
        _log.reset(before)


def refuse(why: str) -> None:
    """Raise UserError if `--log` was asked for: here is nothing to log, because of ``why``."""
    asked = _log.get()
    if asked.tool:
        raise UserError(f"--log={asked.tool} has nothing to log: {why}")


def log(answer: Answer, name: str) -> None:
    """Log an answer that is kept as ``name``, if that was asked for. What goes wrong costs a line, not the run."""
    asked = _log.get()
    if not asked.tool:
        return
    from strobe.report import experiment_loggers

    try:
        experiment_loggers.log(answer, asked.tool, asked.project, name)
    except Exception as error:  # the tool's own: no account, no network, a full disk
        said = in_a_line(error, 200)
        print(
            f"not logged in {asked.tool}: {said}; `strobe report RUN --log={asked.tool}` tries again", file=sys.stderr
        )
    else:
        print(f"logged   {asked.tool}, project {asked.project}: {name}")
