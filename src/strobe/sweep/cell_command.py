"""One cell of a sweep, in a process of its own: ``python -m strobe.sweep.cell_command FOLDER STUDY FLAGS…``.

Not a command for users. It runs the study and saves its result in FOLDER, then writes how it ended to ``outcome.json``.
It ends when the process that started it ends, so that a sweep that was killed leaves nothing running.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from strobe.core import slices
from strobe.core.cli.metadata import quicken
from strobe.core.errors import NotKeptError, UserError, error_line, os_error_reason
from strobe.core.processes.command import PARENT
from strobe.core.processes.lifetime import bind_to_parent, end_first, end_now
from strobe.core.runs import store
from strobe.lerobot.refusals import ran_out
from strobe.sweep.execute import NOT_KEPT, ONE_DEVICE, Outcome, write_outcome
from strobe.sweep.grid import use_single_device
from strobe.sweep.results import Status

# Imported by a cell once its flags are read, whatever its study and its policy.
NEEDED = (
    "scipy.signal",
    "scipy.stats",
    "strobe.lerobot.flags.lazy_flags",
    "strobe.core.cli.keep",
    "strobe.policy_cli.subject",
    "strobe.traces.operator_table",
    "strobe.core.studies.shared.measuring",
    "strobe.traces.operators",
    "strobe.traces.python_profile",
    "strobe.lerobot.policies.loading",
    "strobe.vision.model_subject",
    "strobe.core.timeline.trace",
)


def main() -> int:
    """Run the cell; ends the process with 0 whatever the outcome if it could be written, else with NOT_KEPT."""
    folder, study, argv = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    bind_to_parent(int(os.environ.get(PARENT, "0")))
    end_first()
    quicken()
    started, clock = datetime.now(timezone.utc), time.monotonic()
    code = 0
    try:
        status, reason = attempt(folder, study, argv)
        if status != "done":
            print(f"{status}: {reason}", file=sys.stderr)
        duration = round(time.monotonic() - clock, 3)
        write_outcome(folder, Outcome(status=status, reason=reason, started=started, duration_s=duration))
    except (NotKeptError, OSError) as error:
        code = NOT_KEPT
        with contextlib.suppress(OSError):  # the log may be on the same full disk
            print(os_error_reason(error) if isinstance(error, OSError) else error, file=sys.stderr)
    # Threads, CUDA contexts and worker pools can hang in their own clean-up; everything that counts is written.
    end_now(code)


def prepare(study: str, argv: Sequence[str]) -> None:
    """Import what the cell will need, for a server to fork cells from. Run no operator and start no device."""
    quicken()
    module = slices.commands()[study].module
    command = slices.load(module)
    for name in (*NEEDED, f"strobe.core.studies.{study}", f"{module.rpartition('.')[0]}.run"):
        with contextlib.suppress(ImportError):  # the cell will say so
            importlib.import_module(name)
    from strobe.lerobot.policies.lerobot_policies import known_types

    known_types()  # imports LeRobot's plugins
    with contextlib.suppress(UserError):
        command.read(list(argv))  # Python learns then which class is which, half a second in each process


def attempt(folder: Path, study: str, argv: list[str]) -> tuple[Status, str]:
    """Run the study and save its result. Return how it ended, and why. Raises NotKeptError if it cannot be written."""
    try:
        keep(folder, study, argv)
    except NotKeptError:
        raise
    except UserError as error:
        return "invalid", str(error)
    except Exception as error:
        line = error_line(error, 300)
        if ran_out(error):
            return "out of memory", line if str(error) else "Python could not allocate memory"
        traceback.print_exc()
        return "crashed", f"{type(error).__name__}: {line}"
    return "done", ""


def keep(folder: Path, study: str, argv: list[str]) -> None:
    """Run the study as its command does, and save result and trace, but no page: the sweep's report has the numbers.

    Raises NotKeptError if they cannot be written, and whatever the study raises.
    """
    from strobe.core.cli.live import Live
    from strobe.core.cli.runner import finish

    command = slices.load(slices.commands()[study].module)
    given, note = use_single_device(argv) if ONE_DEVICE in os.environ else (argv, None)
    config = command.read(given)
    started = time.monotonic()
    with Live() as live:
        answer = command.study(config, live)
    if note is not None:
        answer.result.notes.append(note)
    trace = finish(answer, [study, *argv], started)
    try:
        store.save(answer.result, folder, trace, answer.files)
    except OSError as error:
        raise NotKeptError(os_error_reason(error)) from None


if __name__ == "__main__":
    sys.exit(main())
