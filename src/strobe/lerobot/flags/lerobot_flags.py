"""Parse and check arguments of LeRobot's commands by its own parser, with one line for whatever is wrong.

LeRobot's parser reads ``sys.argv`` in places and writes to module variables. Both are set here and restored after.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from unittest import mock

from draccus.help_formatter import SimpleHelpFormatter
from draccus.utils import ParsingError
from draccus.wrappers import DataclassWrapper
from draccus.wrappers.suppressing_argparse import SuppressingArgumentParser
from lerobot.configs import parser

from strobe.core.cli.placeholders import errors_alone
from strobe.core.errors import UserError, nearest
from strobe.lerobot.flags.argument_names import join_flag_values

C = TypeVar("C")

__all__ = ["join_flag_values", "parse_config", "patched_arguments"]

_LACKING = re.compile(r"`([\w.]+)`: Missing required field\(s\) ((?:`\w+`[, ]*)+)")  # as draccus says it


@contextlib.contextmanager
def patched_arguments(argv: Sequence[str], command: str = "lerobot-train") -> Iterator[None]:
    """While open, LeRobot's parser sees ``argv`` as the process's arguments, and no results of earlier parses."""
    with (
        mock.patch.object(sys, "argv", [command, *argv]),
        mock.patch.dict(parser._config_path_args, clear=True),
        mock.patch.dict(parser._config_yaml_overrides, clear=True),
    ):
        yield


def parse_config(
    arguments: Sequence[str], config_class: type[C], check: Callable[[C], object], command: str = "lerobot-train"
) -> C:
    """Return the config that ``command`` makes of ``arguments``, after ``check``. Call it inside `patched_arguments`.

    Raises:
        UserError: an unknown flag (with the nearest known one), a value of the wrong kind, or one that LeRobot refuses.
    """

    def check_config(config: C) -> C:
        check(config)
        return config

    check_config.__annotations__ = {"config": config_class}  # the class itself: LeRobot's parser looks there
    printed = io.StringIO()
    with errors_alone():  # building a config warns of every device that it falls back from
        try:
            with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
                return parser.wrap()(check_config)()  # type: ignore[call-arg, return-value]
        except SystemExit as error:  # draccus and LeRobot have printed why to stderr, not always the cause
            unknown = _unknown_flag(arguments, config_class, command)
            complaint = printed.getvalue().rpartition("error:")[2]
            raise UserError(unknown or _cause(error, command) or _one_line(complaint, command)) from None
        except UserError:
            raise
        except Exception as error:  # LeRobot's own checks raise many kinds, all of them about the user's input
            cause = error.__cause__ if isinstance(error, ParsingError) and error.__cause__ else error
            unknown = _unknown_flag(arguments, config_class, command)
            raise UserError(unknown or _one_line(str(cause), command)) from None


def _unknown_flag(arguments: Sequence[str], config_class: type[Any], command: str) -> str | None:
    """Return a sentence on the first flag that LeRobot lacks, for the chosen policy, environment, …; None for none."""
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
    """Return the complaint of a config's own check, which draccus wraps; None without one."""
    inner = error.__context__
    while inner is not None and inner.__cause__ is not None:
        inner = inner.__cause__
    of_a_choice = isinstance(inner, ParsingError) and "into any of the given types" in str(error.__context__)
    if inner is error.__context__ or not (isinstance(inner, ValueError) or of_a_choice):
        return None  # of several types draccus prints none of the reasons on its one line
    lacking = _LACKING.search(str(inner))
    if lacking is not None:
        flags = [f"--{lacking[1]}.{name}=…" for name in re.findall(r"`(\w+)`", lacking[2])]
        return f"{command} lacks {' and '.join(flags)}"
    return _one_line(str(inner), command)


def _one_line(text: str, command: str) -> str:
    plain = re.sub(r"\s+", " ", text).strip() or f"{command} refuses these arguments"
    return plain if len(plain) <= 300 else f"{plain[:300]}…"
