"""strobe: a performance lab for robot policies.

Where do the milliseconds of a policy go, what would make it faster, and does the robot still act the same?

{commands}

`strobe COMMAND --help` says more, with examples. Flags are spelt as LeRobot spells them.
Answers fit on one screen: --full prints everything, --json one line for programs, --quiet the sentences alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from strobe.core import demo, slices
from strobe.core.cli import display
from strobe.core.errors import UserError, install, nearest, os_error_reason

# torch.profiler's library complains about every machine without a GPU, on stderr, past Python.
os.environ.setdefault("KINETO_LOG_LEVEL", "5")
# Where torchao is installed, LeRobot's import of diffusers complains that it does not know this version's tensors.
os.environ.setdefault("DIFFUSERS_VERBOSITY", "error")
warnings.filterwarnings("ignore", "invalid escape sequence", SyntaxWarning)  # and torchao's own source, once

ALONE = ("diff", "doctor", "history", "report", "trials")  # commands that need no LeRobot
_OWN = str(slices.FOLDER) + os.sep  # Strobe's own sources
_with_place = warnings.formatwarning


def _format_warning(
    message: Warning | str, category: type[Warning], file: str, line: int, text: str | None = None
) -> str:
    """Return a warning of Strobe's own without the place in its source, which says nothing to a user."""
    return f"strobe: {message}\n" if file.startswith(_OWN) else _with_place(message, category, file, line, text)


warnings.formatwarning = _format_warning


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Return its exit code.

    That is 0, 1 if a gate or the run failed, 2 for wrong input or a full disk, 3 if a gate could not be judged, 130
    after Ctrl-C.

    Args:
        argv: None for those of this process, which is then over: where a thread of LeRobot's is still busy, the process
            ends here with that code, since Python's own end may crash.
    """
    if argv is not None:
        return _run_command(list(argv))
    code = _run_command(sys.argv[1:])
    if "lerobot" in sys.modules:
        from strobe.core.processes.lifetime import leave

        leave(code, "lerobot")
    return code


def _run_command(arguments: list[str]) -> int:
    if threading.current_thread() is threading.main_thread():
        # A cluster ends a job by SIGTERM; as after Ctrl-C, what was measured is saved.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(AttributeError, ValueError):  # a stream that a caller put there
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]  # names of files may be no UTF-8
    try:
        return _run(arguments)
    except UserError as error:
        if os.environ.get("STROBE_TRACEBACK"):
            traceback.print_exception(error)
        print(f"strobe: {_describe_need(arguments) or error}", file=sys.stderr)
        return getattr(error, "code", 2)
    except KeyboardInterrupt:
        print("strobe: interrupted before anything was measured", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `strobe … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        line = _external_error_line(error, arguments)
        if not line or os.environ.get("STROBE_TRACEBACK"):
            raise
        print(f"strobe: {line}", file=sys.stderr)
        return 2


def _describe_need(argv: Sequence[str] = ("breakdown",)) -> str | None:
    """Return the line that the command of ``argv`` needs LeRobot, which is not here; None for any other."""
    served = any(source.forms.get(argv[0]) and source.find_flag(argv) for source in slices.sources())
    if served or find_spec("lerobot") or argv[0] in ALONE or slices.command(argv[0]) is None:
        return None
    python = ", for which Python must be 3.12 or newer" if sys.version_info < (3, 12) else ""
    made = argv[0] in ("breakdown", "compare", "verify") and any(flag.startswith("--policy.factory") for flag in argv)
    return f"this needs LeRobot{python}: {install('lerobot')}{f'; strobe.{argv[0]} in Python does not' if made else ''}"


def _external_error_line(error: Exception, argv: Sequence[str]) -> str | None:
    """Return a full disk, the Hub's or a policy's own fault as a line; None for a fault of Strobe itself."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{os_error_reason(error)}{f': {error.filename}' if error.filename else ''}"
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing not in ("", "strobe") and (need := _describe_need(argv) or _describe_need()):
        return need
    if missing.startswith("strobe_"):  # one of the packages next to src
        return f"this needs {missing.replace('_', '-')}: pip install packages/{missing} in Strobe's repository"
    in_a_line = slices.Offer[Callable[[Exception], str | None]]("others' refusals").find()
    return in_a_line(error) if in_a_line is not None else None


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print((__doc__ or "").format(commands=listed_commands()).strip())
        return 0
    if arguments[0] in ("-V", "--version"):
        from strobe.version import __version__

        print(f"strobe {__version__}")
        return 0
    command, rest = arguments[0], demo.spelt_out(arguments[0], arguments[1:])
    if (known := slices.command(command)) is None:
        script = slices.Offer[Callable[..., str | None]]("scripts of other tools").find() or (lambda *_: None)
        raise UserError(f"unknown command '{command}': {script(command, rest) or nearest(command, slices.commands())}")
    from strobe.core.cli.metadata import quicken

    quicken()
    at = rest.index("--") if "--" in rest else len(rest)  # LeRobot's arguments follow
    style, own = display.take_flags(rest[:at])
    argv = [*own, *rest[at:]]
    with display.apply_style(style):
        run = slices.load(known.module).run
        try:
            return run(argv)
        finally:
            if display.requested_help(own) == "all":
                print(f"\n{display.HELP}")


def listed_commands() -> str:
    """Return the commands by groups, each with what it answers, for a terminal."""
    from strobe.core.slices import group_commands

    lines = []
    for group, commands in group_commands().items():
        lines += [group, *(f"  {command.name:<10} {command.answers}" for command in commands), ""] if commands else []
    return "\n".join(lines[:-1])


if __name__ == "__main__":
    sys.exit(main())
