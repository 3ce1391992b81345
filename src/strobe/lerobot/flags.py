"""LeRobot's own parsing and checks of its commands' arguments, with one line for whatever is wrong with them.

LeRobot's parser reads ``sys.argv`` in places and keeps what it found in module variables; both are lent to it here and
taken back.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from draccus.help_formatter import SimpleHelpFormatter
from draccus.utils import ParsingError
from draccus.wrappers import DataclassWrapper
from draccus.wrappers.suppressing_argparse import SuppressingArgumentParser
from lerobot.configs import parser

from strobe.errors import UserError, nearest
from strobe.lerobot.argument_names import joined
from strobe.lerobot.quiet import errors_alone

__all__ = ["joined", "lent", "parsed"]


@contextlib.contextmanager
def lent(argv: Sequence[str], command: str = "lerobot-train") -> Iterator[None]:
    """While open, LeRobot's parser sees ``argv`` as the process's arguments, and nothing of earlier parses."""
    with (
        mock.patch.object(sys, "argv", [command, *argv]),
        mock.patch.dict(parser._config_path_args, clear=True),
        mock.patch.dict(parser._config_yaml_overrides, clear=True),
    ):
        yield


def parsed[C](
    arguments: Sequence[str], config_class: type[C], check: Callable[[C], object], command: str = "lerobot-train"
) -> C:
    """The config that ``command`` makes of ``arguments``, which are `lent` to it, after ``check``.

    Raises:
        UserError: an unknown flag (with the nearest known one), or a value of the wrong kind or that LeRobot refuses.
    """

    def checked(config: C) -> C:
        check(config)
        return config

    checked.__annotations__ = {"config": config_class}  # the class itself: LeRobot's parser looks there
    said = io.StringIO()
    with errors_alone():  # building a config warns of every device that it falls back from
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                return parser.wrap()(checked)()  # type: ignore[call-arg, return-value]
        except SystemExit as error:  # draccus and LeRobot have said why on stderr, not always the cause
            unknown = _unknown_flag(arguments, config_class, command)
            raise UserError(unknown or _cause(error, command) or _complaint(said.getvalue(), command)) from None
        except UserError:
            raise
        except Exception as error:  # LeRobot's own checks raise many kinds, all of them about the user's input
            said_why = error.__cause__ if isinstance(error, ParsingError) and error.__cause__ else error
            unknown = _unknown_flag(arguments, config_class, command)
            raise UserError(unknown or _one_line(str(said_why), command)) from None


def _unknown_flag(arguments: Sequence[str], config_class: type[Any], command: str) -> str | None:
    """A sentence on the first flag that LeRobot does not have, given the policy, environment, … that are chosen."""
    offered = SuppressingArgumentParser(formatter_class=SimpleHelpFormatter)
    parser._register_scoped_actions(DataclassWrapper(config_class), offered, arguments)
    known = {option for action in offered._actions for option in action.option_strings}
    known |= {"--policy.path", "--reward_model.path", "--config_path"}
    for argument in arguments:
        name = argument.split("=", 1)[0]
        by_plugin = name.endswith(parser.PLUGIN_DISCOVERY_SUFFIX)
        if name not in known and not by_plugin:
            return f"{command} has no flag {name}: {nearest(name, known, many=0)}".removesuffix(": known: , …")
    return None


def _cause(error: BaseException, command: str) -> str | None:
    """The complaint of a config's own check, which draccus wraps; None without one."""
    inner = error.__context__
    while inner is not None and inner.__cause__ is not None:
        inner = inner.__cause__
    return _one_line(str(inner), command) if isinstance(inner, ValueError) and inner is not error.__context__ else None


def _complaint(said: str, command: str) -> str:
    """The one line of a parser's output that says what is wrong."""
    lines = [line.split("error:", 1)[1] for line in said.splitlines() if "error:" in line]
    return _one_line(lines[-1] if lines else said, command)


def _one_line(text: str, command: str) -> str:
    plain = re.sub(r"\s+", " ", text).strip() or f"{command} refuses these arguments"
    return plain if len(plain) <= 300 else f"{plain[:300]}…"
