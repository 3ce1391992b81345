"""Run a sweep's cells on this machine, each in a process of its own and within limits, and keep how each ended.

The cell's process (`strobe.sweep.cell_command`) writes its result and, last of all, ``outcome.json``. A process that
ends without having written one was stopped by a limit, by the system or by its own crash: then it is written here. A
folder with an outcome is finished; one without is as if it had never been begun.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from pydantic import Field, ValidationError

from strobe.core.errors import in_words
from strobe.core.processes.command import Command, CommandLimits, Exceeded, last_line, start, supervise
from strobe.core.processes.fork_server import Forked, Server
from strobe.core.processes.lifetime import Ending
from strobe.core.results.data import Data, Finite
from strobe.core.runs import store
from strobe.core.runs.contents import contents
from strobe.sweep.results import Status

OUTCOME = "outcome.json"
LOG = "log.txt"
CELL = "strobe.sweep.cell_command"
NOT_KEPT = 74  # exit code of a cell that could not write its files
ONE_DEVICE = "STROBE_ONE_DEVICE"  # set where the cell was given one accelerator, and sees no other


@dataclass(frozen=True)
class Job:
    """One execution of a cell."""

    key: str
    repeat: int
    study: str
    argv: tuple[str, ...]
    label: str
    folder: Path
    limits: CommandLimits
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
    afresh: str = Field(default="", description="why its process was started afresh instead of forked")


class Watch(Protocol):
    """Receives the reports of a launcher of cells."""

    def began(self, job: Job, node: str = "") -> None:
        """A cell's process is about to start."""

    def say(self, job: Job, line: str) -> None:
        """A running cell has printed ``line`` last."""

    def lost(self, job: Job, why: str) -> None:
        """A cell was lost with its node and waits to run again."""


def outcome_of(folder: Path) -> Outcome | None:
    """Return the outcome of the execution in ``folder``; None if it has not ended, or could not be kept."""
    try:
        return Outcome.model_validate_json(contents(folder / OUTCOME))
    except (OSError, ValidationError):
        return None


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write ``outcome`` whole or not at all."""
    store.replace(folder / OUTCOME, outcome.model_dump_json().encode())


def run_here(jobs: Sequence[Job], watch: Watch) -> Iterator[tuple[Job, Outcome]]:
    """Run ``jobs`` in their order, one at a time, since two would disturb each other. Yield each when it has ended."""
    with Server() as server:
        for job in jobs:
            watch.began(job)
            yield job, execute(job, lambda line, job=job: watch.say(job, line), server=server)


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
    started, clock, log = datetime.now(timezone.utc), time.monotonic(), job.folder / LOG

    def ended(status: Status, reason: str) -> Outcome:
        duration_s = round(time.monotonic() - clock, 3)
        return Outcome(status=status, reason=reason, started=started, duration_s=duration_s, node=node)

    def unkept(why: str) -> Outcome:
        shutil.rmtree(job.folder, ignore_errors=True)
        return ended("crashed", f"not kept: {why}")

    shutil.rmtree(job.folder, ignore_errors=True)
    try:
        job.folder.mkdir(parents=True)
        log.write_bytes(b"\n" * 4096)  # a disk that is full is found before the cell has run, not after
        log.write_bytes(b"")
    except OSError as error:
        return unkept(in_words(error))
    try:
        command, process = _command(job), None
        if server is not None:
            process = server.fork(command, lambda: look("importing what the cells need"), job.limits.seconds)
        process = process or start(command)
        started, clock = datetime.now(timezone.utc), time.monotonic()  # of the cell, once a server has forked it
        ending, exceeded = supervise(process, job.limits, lambda: look(last_line(log)))
    except BaseException:
        if outcome_of(job.folder) is None:  # else it had ended, and only its process was still on its way out
            shutil.rmtree(job.folder, ignore_errors=True)
        raise
    outcome = outcome_of(job.folder)
    if outcome is None and exceeded is None and isinstance(process, Forked) and process.lost:
        return execute(job, look, node)
    if outcome is None and ending.code == NOT_KEPT:
        return unkept(last_line(log)[:300] or "its files could not be written")
    status, reason = _how(job, ending, exceeded) if outcome is None or exceeded else (outcome.status, outcome.reason)
    # Elsewhere nothing forks.
    afresh = server.unfit if server is not None and sys.platform == "linux" else ""
    outcome = ended(status, reason).model_copy(update={"afresh": afresh})
    try:
        write_outcome(job.folder, outcome)
    except OSError as error:
        return unkept(in_words(error))
    return outcome


def _command(job: Job) -> Command:
    folder = job.folder.absolute()
    return Command(
        job.module,
        (str(folder), job.study, *job.argv),
        log=str(folder / LOG),
        home=os.getcwd(),
        environment={**os.environ, **job.environment},
        needs=(job.study, job.argv),
    )


def _how(job: Job, ending: Ending, exceeded: Exceeded | None) -> tuple[Status, str]:
    """Return the status of a cell that was stopped or wrote no outcome, and the reason in a line."""
    if exceeded is not None and exceeded.what == "time":
        return "timed out", f"stopped after {job.limits.seconds:,.0f} s (--timeout)"
    if exceeded is not None:
        allowed = f"{job.limits.memory_bytes / 2**30:.1f} GiB (--memory_gib)"
        return "out of memory", f"stopped at {exceeded.value / 2**30:.1f} GiB resident, of {allowed}"
    if ending.killed:
        return "out of memory", "killed by the operating system, most likely because memory ran out"
    last = last_line(job.folder / LOG)[:200]
    if ending.signal:
        return "crashed", f"killed by {ending.signal}: {last}"
    return "crashed", f"ended with code {ending.code} before it was done: {last}"
