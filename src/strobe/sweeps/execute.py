"""Run one cell in a process of its own, within limits, and say what became of it.

The process is forked from a server that has done its imports (`strobe.sweeps.server`), or started afresh.

The cell's process (`strobe.cli.cell`) writes its result and, last of all, ``outcome.json``. A process that ends without
having written one was stopped by a limit, by the system or by its own crash: then it is written here. A folder with an
outcome is finished; one without is as if it had never been begun.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psutil
from pydantic import Field, ValidationError

from strobe.errors import in_words
from strobe.results.data import Data, Finite
from strobe.results.sweep import Status
from strobe.runs import store

if TYPE_CHECKING:
    from strobe.sweeps.server import Forked, Server

OUTCOME = "outcome.json"
LOG = "log.txt"
CELL = "strobe.cli.cell"
NOT_KEPT = 74  # exit code of a cell that could not write its files
ONE_DEVICE = "STROBE_ONE_DEVICE"  # set where the cell was given one accelerator, and sees no other
DRIVER = "STROBE_SWEEP_DRIVER"  # the cell's parent, whose death ends the cell: the sweep, or the server that forked it
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True)
class Limits:
    """Limits of a cell: seconds, and bytes of resident memory over all of its processes."""

    seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class Job:
    """One execution of a cell."""

    key: str
    repeat: int
    study: str
    argv: tuple[str, ...]
    label: str
    folder: Path
    limits: Limits
    environment: dict[str, str] = field(default_factory=dict)  # of the cell's process, beside what it inherits
    on_cpu: bool = False  # whether it is known to run on the CPU
    module: str = CELL  # what the process runs; tests have lighter ones


class Outcome(Data):
    """How one execution ended."""

    status: Status
    reason: str = ""
    started: datetime
    duration_s: Finite
    node: str = ""
    afresh: str = Field(default="", description="why its process was started from nothing, where it was to be forked")


def outcome_of(folder: Path) -> Outcome | None:
    """The outcome of the execution in ``folder``; None where it has not ended, or could not be kept."""
    try:
        return Outcome.model_validate_json((folder / OUTCOME).read_bytes())
    except (OSError, ValidationError):
        return None


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write ``outcome`` whole or not at all."""
    store.replace(folder / OUTCOME, outcome.model_dump_json().encode())


def execute(
    job: Job, look: Callable[[str], None] = lambda _: None, node: str = "", server: Server | None = None
) -> Outcome:
    """Run ``job`` to its end. ``look`` is called a few times a second with the last line of the cell's log.

    With a ``server`` the cell is forked from it where that can be. Where the server dies under the cell, the cell runs
    again in a fresh process.

    An exception from ``look``, or Ctrl-C, ends the cell. If it had no outcome yet, its folder is removed. The same
    happens where its files cannot be written, as on a full disk: the outcome returned says so, and the same sweep runs
    the cell again.
    """
    started, clock = datetime.now(UTC), time.monotonic()  # of the cell: anew once a server has forked it

    def unkept(why: str) -> Outcome:
        shutil.rmtree(job.folder, ignore_errors=True)
        duration = round(time.monotonic() - clock, 3)
        return Outcome(status="crashed", reason=f"not kept: {why}", started=started, duration_s=duration, node=node)

    shutil.rmtree(job.folder, ignore_errors=True)
    try:
        job.folder.mkdir(parents=True)
        (job.folder / LOG).write_bytes(b"\n" * 4096)  # a disk that is full is found before the cell has run, not after
    except OSError as error:
        return unkept(in_words(error))
    stopped: tuple[Status, str] | None = None
    with (job.folder / LOG).open("wb") as log:
        try:
            process = _forked(job, server, look) or _fresh(job, log)
        except BaseException:
            shutil.rmtree(job.folder, ignore_errors=True)
            raise
        started, clock = datetime.now(UTC), time.monotonic()
        try:
            while stopped is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_EVERY_S)
                    break
                stopped = _over(job.limits, process.pid, time.monotonic() - clock)
                look(last_line(job.folder / LOG))
        except BaseException:
            _kill(process)
            if outcome_of(job.folder) is None:  # else it had ended, and only its process was still on its way out
                shutil.rmtree(job.folder, ignore_errors=True)
            raise
        _kill(process)
    found = outcome_of(job.folder)
    if found is None and stopped is None and getattr(process, "lost", False):
        return execute(job, look, node)
    if found is None and process.returncode == NOT_KEPT:
        return unkept(last_line(job.folder / LOG)[:300] or "its files could not be written")
    duration = round(time.monotonic() - clock, 3)
    if found is None or stopped is not None:
        status, reason = stopped or _died(process.wait(), job.folder / LOG)
        found = Outcome(status=status, reason=reason, started=started, duration_s=duration)
    afresh = server.unfit if server is not None and sys.platform == "linux" else ""  # elsewhere nothing forks
    found = found.model_copy(update={"started": started, "duration_s": duration, "node": node, "afresh": afresh})
    try:
        write_outcome(job.folder, found)
    except OSError as error:
        return unkept(in_words(error))
    return found


def _environment(job: Job) -> dict[str, str]:
    return {**os.environ, **job.environment}


def _forked(job: Job, server: Server | None, look: Callable[[str], None]) -> Forked | None:
    """The cell's process, forked from ``server``; None where it needs a fresh one."""
    if server is None:
        return None
    from strobe.sweeps.forks import Order

    folder = job.folder.absolute()
    order = Order(job.module, job.study, job.argv, str(folder), str(folder / LOG), os.getcwd(), _environment(job))
    return server.fork(order, look, job.limits.seconds)


def _fresh(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """The cell's process, started from nothing."""
    return subprocess.Popen(
        [sys.executable, "-m", job.module, str(job.folder.absolute()), job.study, *job.argv],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=_environment(job) | {DRIVER: str(os.getpid())},
        start_new_session=True,  # Ctrl-C is the sweep's to handle, and the cell's own children end with it
    )


def last_line(log: Path, of: int = 2000) -> str:
    """Return the last line of a log that is not blank, '' where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - of))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _over(limits: Limits, pid: int, seconds: float) -> tuple[Status, str] | None:
    if seconds > limits.seconds:
        return "timed out", f"stopped after {limits.seconds:,.0f} s (--timeout)"
    held = _resident(pid)
    if held > limits.memory_bytes:
        allowed = f"{limits.memory_bytes / 2**30:.1f} GiB (--memory_gib)"
        return "out of memory", f"stopped at {held / 2**30:.1f} GiB resident, of {allowed}"
    return None


def _resident(pid: int) -> int:
    """Resident memory of a process and its children; what they share counts for each."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss
    return total


def _kill(process: subprocess.Popen[bytes] | Forked) -> None:
    """End the cell and whatever it started."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif isinstance(process, subprocess.Popen):
        process.kill()
    process.wait()


def _died(code: int, log: Path) -> tuple[Status, str]:
    if code == -signal.SIGKILL:
        return "out of memory", "killed by the operating system, most likely for want of memory"
    if code < 0:
        return "crashed", f"killed by {signal.Signals(-code).name}: {last_line(log)[:200]}"
    return "crashed", f"ended with code {code} before it was done: {last_line(log)[:200]}"
