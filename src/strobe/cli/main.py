"""strobe: a performance lab for robot policies.

Where do the milliseconds of a policy go, what would make it faster, and does the robot still act the same?

Commands:
{commands}

`strobe COMMAND --help` says more, with examples. Flags are spelt as LeRobot spells them.
Answers fit on one screen: --full prints all of one, --json one line for programs, --quiet its sentences alone.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence

from strobe.cli import logged, showing
from strobe.errors import UserError, in_words, nearest

# torch.profiler's library complains about every machine without a GPU, on stderr, past Python.
os.environ.setdefault("KINETO_LOG_LEVEL", "5")
# Where torchao is installed, LeRobot's import of diffusers complains that it does not know this version's tensors.
os.environ.setdefault("DIFFUSERS_VERBOSITY", "error")
warnings.filterwarnings("ignore", "invalid escape sequence", SyntaxWarning)  # and torchao's own source, once

# command → what it answers; each lives in the module of its name
COMMANDS = {
    "doctor": "what can be trusted on this machine? clocks, noise, every treatment, loaders, tools; what to install",
    "breakdown": "where does the time go? parts of inference, of a training forward pass, of a training step",
    "compare": "is it faster? variants of one policy in alternation: RTC on/off, compiled, other settings",
    "train": "what does a training wait for? lerobot-train as it is, its steps and its loader's workers by parts",
    "rollout": "does the robot get its actions in time? lerobot-rollout as it is, also -record, -teleoperate, remote",
    "rehearse": "what would happen on the robot? lerobot-rollout on an emulated arm, with faults on demand",
    "replay": "and had it been set up otherwise? a kept rollout in virtual time: starvation, ages, seams, who erred",
    "batch": "which is the largest training batch that fits, and from which on is a larger one no faster?",
    "dataloader": "which loader settings feed the training step? in lerobot-train's spelling",
    "optimize": "what makes it as fast as needed? a ladder of treatments to a target rate, each shown and guarded",
    "verify": "does it act the same with a recipe on it? the whole check without timing; a gate for CI",
    "evaluate": "does it still do the task? success against latency in a simulator, over steps and recipes, in pairs",
    "sweep": "and over a grid? any study over configurations, in one table; resumable, also on a Ray cluster",
    "budget": "what is missing to a target rate? latency over denoising steps, part by part; what RTC makes of it",
    "report": "show a run again: console, Markdown or HTML",
    "diff": "what changed between two runs? with --fail-on-regression a gate for CI",
    "history": "how did it change from run to run, or from commit to commit? trends with change points, a gate for CI",
    "record": "record episodes of a simulator into a LeRobotDataset with video",
    "tour": "all of it once, from nothing: record, break down, compare",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit code.

    That is 0, 1 where a gate failed, 2 for wrong input or a full disk, 3 where a gate could not be judged, 130 after
    Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if threading.current_thread() is threading.main_thread():
        # What ends a job on a cluster is Ctrl-C by another name: what was measured is kept all the same.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
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
    except SystemExit as done:  # argparse, after --help
        return int(done.code or 0)
    except BrokenPipeError:  # `strobe … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        said = _in_a_line(error)
        if not said or os.environ.get("STROBE_TRACEBACK"):
            raise
        print(f"strobe: {said}", file=sys.stderr)
        return 2


def _in_a_line(error: Exception) -> str:
    """A full disk, the Hub's or a policy's own fault as a line; '' for a fault of Strobe itself."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{in_words(error)}{f': {error.filename}' if error.filename else ''}"
    from strobe.lerobot.refusals import of_others

    return of_others(error)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        listed = "\n".join(f"  {name:<10} {answer}" for name, answer in COMMANDS.items())
        print((__doc__ or "").format(commands=listed).strip())
        return 0
    if arguments[0] in ("-V", "--version"):
        import strobe

        print(f"strobe {strobe.__version__}")
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        raise UserError(f"unknown command '{command}': {nearest(command, COMMANDS)}")
    from strobe.cli.metadata import quicken

    quicken()
    at = rest.index("--") if "--" in rest else len(rest)  # what follows is LeRobot's
    style, ours = showing.take(rest[:at])
    log, ours = logged.take(ours)
    with showing.styled(style), logged.logging_to(log):
        try:
            return importlib.import_module(f"strobe.cli.{command}").run([*ours, *rest[at:]])
        finally:
            if {"-h", "--help"} & set(ours):
                print(f"\n{showing.HELP}\n{logged.HELP}")


if __name__ == "__main__":
    sys.exit(main())
