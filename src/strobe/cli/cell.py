"""One cell of a sweep, in a process of its own: ``python -m strobe.cli.cell FOLDER STUDY FLAGS…``.

Not a command for users. It runs the study and keeps its result in FOLDER, then says how it ended in ``outcome.json``.
It ends when the process that started it ends, so that a sweep that was killed leaves nothing running.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from strobe.errors import UserError
from strobe.measure.lifetime import end_with
from strobe.results import store
from strobe.results.sweep import Status
from strobe.sweeps.execute import DRIVER, Outcome, write_outcome

# How allocators say that there is no more: CUDA's and MPS's as torch passes them on, the CPU's, oneDNN's.
NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")


def main() -> int:
    """Run the cell; returns the exit code, 0 whatever the outcome if it could be written."""
    folder, study, argv = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    end_with(int(os.environ.get(DRIVER, "0")))
    die_first()
    started, clock = datetime.now(UTC), time.monotonic()
    status, reason = attempt(folder, study, argv)
    if status != "done":
        print(f"{status}: {reason}", file=sys.stderr)
    duration = round(time.monotonic() - clock, 3)
    write_outcome(folder, Outcome(status=status, reason=reason, started=started, duration_s=duration))
    # Threads, CUDA contexts and worker pools can hang in their own clean-up; everything that counts is written.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def attempt(folder: Path, study: str, argv: list[str]) -> tuple[Status, str]:
    """Run the study and keep its result. Returns what became of it."""
    try:
        keep(folder, study, argv)
    except UserError as error:
        return "invalid", str(error)
    except MemoryError:
        return "out of memory", "Python could not allocate memory"
    except Exception as error:
        line = " ".join(str(error).split())
        if type(error).__name__ == "OutOfMemoryError" or any(words in line.lower() for words in NO_MEMORY):
            return "out of memory", line[:300]
        traceback.print_exc()
        return "crashed", f"{type(error).__name__}: {line[:300]}"
    return "done", ""


def keep(folder: Path, study: str, argv: list[str]) -> None:
    """Run the study as its command does, and keep result and trace, but no page: the sweep's report has the numbers."""
    from strobe.cli.common import finish
    from strobe.cli.live import Live

    command = importlib.import_module(f"strobe.cli.{study}")
    flags, config = command.read(argv)
    started = time.monotonic()
    with Live() as live:
        answer = command.study(flags, config, live)
    trace = finish(answer, [study, *argv], started)
    store.save(answer.result, folder, trace, answer.files)


def die_first() -> None:
    """Where memory runs out, let the kernel end this process rather than the sweep."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    sys.exit(main())
