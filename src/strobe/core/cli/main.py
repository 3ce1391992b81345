"""strobe: a performance lab for robot policies.

Where do the milliseconds of a policy go, what would make it faster, and does the robot still act the same?

{commands}

`strobe COMMAND --help` says more, with examples. Flags are spelt as LeRobot spells them.
Answers fit on one screen: --full prints everything, --json one line for programs, --quiet the sentences alone.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence

from strobe.core.cli import display
from strobe.core.errors import UserError, in_words, nearest

# torch.profiler's library complains about every machine without a GPU, on stderr, past Python.
os.environ.setdefault("KINETO_LOG_LEVEL", "5")
# Where torchao is installed, LeRobot's import of diffusers complains that it does not know this version's tensors.
os.environ.setdefault("DIFFUSERS_VERBOSITY", "error")
warnings.filterwarnings("ignore", "invalid escape sequence", SyntaxWarning)  # and torchao's own source, once

_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep  # Strobe's own sources
_with_place = warnings.formatwarning


def _formatted(message: Warning | str, category: type[Warning], file: str, line: int, text: str | None = None) -> str:
    """Return a warning of Strobe's own without the place in its source, which says nothing to a user."""
    return f"strobe: {message}\n" if file.startswith(_OWN) else _with_place(message, category, file, line, text)


warnings.formatwarning = _formatted

# group → command → what it answers; each command lives in the module of its name
GROUPS = {
    "Start: can this machine be trusted?": {
        "doctor": "checks clocks, noise, every treatment, loaders and tools; says what to install",
        "tour": "everything once, with no data of yours: record, break down, compare, train, rehearse, evaluate",
    },
    "Understand: where does the time go?": {
        "breakdown": "parts of inference, of a training forward pass, of a training step, in milliseconds",
        "compare": "variants of one policy, alternating: RTC on/off, compiled, other precision, other settings",
        "train": "what a training waits for: lerobot-train as it is, with the parts of its steps and of its loader's "
        "workers",
    },
    "Speed up: what makes it fast enough?": {
        "optimize": "a ladder of treatments to a target rate, each shown to be faster and guarded",
        "budget": "what is missing to reach a target rate: latency over denoising steps, by part, and with RTC",
        "batch": "the largest training batch that fits, and the size from which a larger one is no faster",
        "export": "the whole policy as files that run without torch, in OpenVINO, checked against the policy",
    },
    "Prove: does it act the same?": {
        "verify": "a policy with and without a recipe: the whole check without timing; a CI gate",
        "evaluate": "success against latency in a simulator, over denoising steps and recipes, in paired episodes",
        "tune": "the settings that make the task succeed, and soonest: inference type, executed actions, horizons",
        "trials": "two settings on the robot, in blinded pairs of trials: the plan, and the judgement of its table",
        "diff": "what changed between two runs; with --fail-on-regression a CI gate",
        "history": "trends over runs or commits, with change points; a CI gate",
    },
    "Robot: does it get its actions in time?": {
        "preflight": "does a checkpoint fit its data and its robot? answered before anything moves",
        "rollout": "lerobot-rollout as it is; also lerobot-record, lerobot-teleoperate and remote inference",
        "rehearse": "lerobot-rollout on an emulated arm, with faults on demand: what would happen on the robot?",
        "replay": "what would other settings have done? replays a recorded rollout in simulated time",
    },
    "Data: does it come fast enough?": {
        "dataloader": "the loader settings that keep up with the training step, in lerobot-train's spelling",
        "record": "records episodes of a simulator into a LeRobotDataset with video",
    },
    "Share: over settings, machines and people": {
        "report": "shows a run again: console, Markdown, HTML, a model card, a picture",
        "sweep": "runs a study over a grid of settings; one table, resumable, optionally on Ray",
    },
}
COMMANDS = {name: answer for commands in GROUPS.values() for name, answer in commands.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Return its exit code.

    That is 0, 1 if a gate or the run failed, 2 for wrong input or a full disk, 3 if a gate could not be judged, 130
    after Ctrl-C.

    Args:
        argv: None for those of this process, which is then over: where a thread of LeRobot's is still busy, the process
            ends here with that code, since Python's own end may crash.
    """
    if argv is not None:
        return _code_of(list(argv))
    code = _code_of(sys.argv[1:])
    if "lerobot" in sys.modules:
        from strobe.core.processes.leaving import leave

        leave(code, "lerobot")
    return code


def _code_of(arguments: list[str]) -> int:
    """Run a command. Return its exit code; errors that are no fault of Strobe's are printed as a line."""
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
        print(f"strobe: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("strobe: interrupted before anything was measured", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `strobe … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        line = _in_a_line(error)
        if not line or os.environ.get("STROBE_TRACEBACK"):
            raise
        print(f"strobe: {line}", file=sys.stderr)
        return 2


def _in_a_line(error: Exception) -> str:
    """Return a full disk, the Hub's or a policy's own fault as a line; '' for a fault of Strobe itself."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{in_words(error)}{f': {error.filename}' if error.filename else ''}"
    from strobe.lerobot.refusals import of_others

    return of_others(error)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print((__doc__ or "").format(commands=listed_commands()).strip())
        return 0
    if arguments[0] in ("-V", "--version"):
        from strobe.version import __version__

        print(f"strobe {__version__}")
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        raise UserError(f"unknown command '{command}': {nearest(command, COMMANDS)}")
    from strobe.core.cli.metadata import quicken

    quicken()
    at = rest.index("--") if "--" in rest else len(rest)  # LeRobot's arguments follow
    style, log, own = display.take_flags(rest[:at])
    argv = [*own, *rest[at:]]
    with display.applied(style, log):
        run = importlib.import_module(f"strobe.core.cli.{command}").run
        try:
            return run(argv)
        finally:
            if display.asks_for_help(own):
                print(f"\n{display.HELP}")


def listed_commands() -> str:
    """Return the commands by groups, each with what it answers, for a terminal."""
    lines = []
    for group, commands in GROUPS.items():
        lines += [group, *(f"  {name:<10} {answer}" for name, answer in commands.items()), ""]
    return "\n".join(lines[:-1])


if __name__ == "__main__":
    sys.exit(main())
