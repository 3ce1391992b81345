"""Run a sweep's cells, each in a process of its own and within limits, and keep how each ended.

On this machine they run one after the other (`run_here`); on a Ray cluster (`run_on_ray`) at most one at a time on each
device, wherever one is free.

The cell's process (`strobe.sweep.cell_command`) writes its result and, last of all, ``outcome.json``. A process that
ends without having written one was stopped by a limit, by the system or by its own crash: then it is written here. A
folder with an outcome is finished; one without is as if it had never been begun.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import ValidationError

from strobe.core.errors import os_error_reason
from strobe.core.measure.memory import available_bytes
from strobe.core.processes.command import Command, CommandLimits, Exceeded, last_line, start, supervise
from strobe.core.processes.fork_server import Forked, Server
from strobe.core.processes.lifetime import Ending
from strobe.core.results.data import Data, Finite, optional
from strobe.core.runs import store
from strobe.core.untrusted import contents
from strobe.sweep.results import Status

if TYPE_CHECKING:
    from strobe_ray.fleet import Lost

OUTCOME = "outcome.json"
LOG = "log.txt"
CELL = "strobe.sweep.cell_command"
NOT_KEPT = 74  # exit code of a cell that could not write its files
_MEMORY_SHARE = 0.9  # share of a node's free memory: a cell must end before the node does
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
    # Of the cell's process, in addition to the inherited ones.
    environment: dict[str, str] = field(default_factory=dict)
    on_cpu: bool = False  # whether it is known to run on the CPU
    module: str = CELL  # what the process runs; tests have lighter ones


class Outcome(Data):
    """How one execution ended."""

    status: Status
    reason: str = ""
    started: datetime
    duration_s: Finite
    node: str = ""
    afresh: str | None = optional("why its process was started afresh instead of forked")


class Watch(Protocol):
    """Receives the reports of a launcher of cells."""

    def began(self, job: Job, node: str = "") -> None:
        """A cell's process is about to start."""

    def say(self, job: Job, line: str) -> None:
        """A running cell has printed ``line`` last."""

    def report_lost(self, job: Job, why: str) -> None:
        """A cell was lost with its node and waits to run again."""


def read_outcome(folder: Path) -> Outcome | None:
    """Return the outcome of the execution in ``folder``; None if it has not ended, or could not be kept."""
    try:
        return Outcome.model_validate_json(contents(folder / OUTCOME))
    except (OSError, ValidationError):
        return None


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write ``outcome`` whole or not at all."""
    store.replace(folder / OUTCOME, outcome.model_dump_json().encode())


def run_here(jobs: Sequence[Job], watch: Watch) -> Iterator[tuple[Job, Outcome]]:
    """Run ``jobs`` in their order, one at a time. Yield each when it has ended."""
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

    def make_outcome(status: Status, reason: str) -> Outcome:
        duration_s = round(time.monotonic() - clock, 3)
        return Outcome(status=status, reason=reason, started=started, duration_s=duration_s, node=node)

    def unkept(why: str) -> Outcome:
        shutil.rmtree(job.folder, ignore_errors=True)
        return make_outcome("crashed", f"not kept: {why}")

    shutil.rmtree(job.folder, ignore_errors=True)
    try:
        job.folder.mkdir(parents=True)
        log.write_bytes(b"\n" * 4096)  # a disk that is full is found before the cell has run, not after
        log.write_bytes(b"")
    except OSError as error:
        return unkept(os_error_reason(error))
    try:
        command, process = _command(job), None
        if server is not None:
            process = server.fork(command, lambda: look("importing what the cells need"), job.limits.seconds)
        process = process or start(command)
        started, clock = datetime.now(timezone.utc), time.monotonic()  # of the cell, once a server has forked it
        ending, exceeded = supervise(process, job.limits, lambda: look(last_line(log)))
    except BaseException:
        if read_outcome(job.folder) is None:  # else it had ended, and only its process was still on its way out
            shutil.rmtree(job.folder, ignore_errors=True)
        raise
    outcome = read_outcome(job.folder)
    if outcome is None and exceeded is None and isinstance(process, Forked) and process.lost:
        return execute(job, look, node)
    if outcome is None and ending.code == NOT_KEPT:
        return unkept(last_line(log)[:300] or "its files could not be written")
    status, reason = (
        _explain_ending(job, ending, exceeded) if outcome is None or exceeded else (outcome.status, outcome.reason)
    )
    # Elsewhere nothing forks.
    afresh = server.unfit if server is not None and sys.platform == "linux" else None
    outcome = make_outcome(status, reason).model_copy(update={"afresh": afresh})
    try:
        write_outcome(job.folder, outcome)
    except OSError as error:
        return unkept(os_error_reason(error))
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


def _explain_ending(job: Job, ending: Ending, exceeded: Exceeded | None) -> tuple[Status, str]:
    if exceeded is not None and exceeded.what == "time":
        return "timed out", f"stopped after {job.limits.seconds:,.0f} s (--timeout)"
    if exceeded is not None:
        allowed = f"{job.limits.memory_bytes / 2**30:.1f} GiB (--memory_gib)"
        return "out of memory", f"stopped at {exceeded.value / 2**30:.1f} GiB resident, of {allowed}"
    if ending.is_killed:
        return "out of memory", "killed by the operating system, most likely because memory ran out"
    last = last_line(job.folder / LOG)[:200]
    if ending.signal:
        return "crashed", f"killed by {ending.signal}: {last}"
    return "crashed", f"ended with code {ending.code} before it was done: {last}"


def run_on_ray(jobs: Sequence[Job], watch: Watch, address: str | None) -> Iterator[tuple[Job, Outcome]]:
    """Run ``jobs`` on the cluster at ``address``. Yield each when it has ended and its files are home.

    A cell that was given one accelerator sees it as its first, whatever number its flags name (`strobe.sweep.grid`).
    The driver hands out every job itself and keeps it until its files are home, so a node that is lost takes nothing
    with it but the cell that ran there.

    ``None`` and ``"auto"`` mean the cluster that this machine belongs to, else one of this machine alone.

    Raises:
        UserError: Ray is not installed, there is no such cluster, a node cannot run cells, or no node is left.
    """
    from strobe_ray.fleet import Answered, Fleet, Lost, device_resources

    on_cpu = {job.on_cpu for job in jobs}
    fleet = Fleet(
        address,
        _Runner,
        lambda node: device_resources(node, on_cpu),
        lambda resources: (bool(resources.get("num_gpus")),),
        "run cells",
        len(jobs),
    )
    by_folder, waiting, running = {job.folder: job for job in jobs}, deque(jobs), len(jobs)
    try:
        while running:
            ended = None
            match fleet.wait():
                case Answered(folder, worker, (outcome, files)):
                    outcome = outcome.model_copy(update={"node": worker.node})
                    ended = by_folder[folder], _bring_home(folder, outcome, files)
                case Lost(folder, _, reasons) as lost if lost.may_retry:
                    waiting.appendleft(by_folder[folder])
                    watch.report_lost(by_folder[folder], reasons[-1])
                case Lost(folder) as lost:
                    ended = by_folder[folder], _give_up(folder, lost)
            while waiting and fleet.free:  # before the caller takes its time over what has ended
                job = waiting.popleft()
                watch.began(job, fleet.give(job.folder, job).node)
            if ended is not None:
                running -= 1
                yield ended
    finally:
        fleet.close()


class _Runner:
    """The actor: runs cells on its node, one at a time, on its main thread.

    The cell's process asks the kernel to end with the thread that started it, so this must not be one that comes
    and goes; Ray runs a plain actor's calls on the main thread.
    """

    def __init__(self) -> None:
        self._server = Server()  # ends with the actor

    def prepare(self, home: str, threads: str | None, one_device: bool) -> None:
        """Make the node like the driver. An exception means that it cannot be.

        Args:
            one_device: whether Ray gave this actor one accelerator, and hides the node's others from it.
        """
        from strobe_ray.fleet import settle

        settle(home, threads)
        self._given = {ONE_DEVICE: "1"} if one_device else {}

    def run(self, job: Job) -> tuple[Outcome, dict[str, bytes]]:
        """Run ``job``. Return its outcome, and the files that it left: name → content."""
        free = int(_MEMORY_SHARE * available_bytes())
        limits = CommandLimits(job.limits.seconds, min(job.limits.memory_bytes, free))
        with tempfile.TemporaryDirectory(prefix="strobe-cell-", ignore_cleanup_errors=True) as folder:
            here = Path(folder) / "cell"
            outcome = execute(
                dataclasses.replace(job, folder=here, limits=limits, environment=job.environment | self._given),
                server=self._server,
            )
            files = here.iterdir() if here.is_dir() else ()  # no folder: it could not be kept
            return outcome, {file.name: file.read_bytes() for file in files if file.is_file()}


def _bring_home(folder: Path, outcome: Outcome, files: dict[str, bytes]) -> Outcome:
    """Write a cell's files; the outcome last, because a folder that has one is finished.

    Returns the outcome. Where the files could not be kept, on the node or here, it says so and there is no folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if OUTCOME not in files:
        return outcome
    try:
        folder.mkdir(parents=True)
        for name, content in files.items():
            if name != OUTCOME:
                store.replace(folder / name, content)
        write_outcome(folder, outcome)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        return outcome.model_copy(update={"status": "crashed", "reason": f"not kept: {os_error_reason(error)}"})
    return outcome


def _give_up(folder: Path, lost: Lost) -> Outcome:
    outcome = Outcome(
        status="crashed",
        reason=f"given up after {len(lost.reasons)} nodes that ran it were lost; {lost.reasons[-1]}",
        started=lost.worker.since,
        duration_s=round(time.monotonic() - lost.worker.began, 3),
        node=lost.worker.node,
    )
    return _bring_home(folder, outcome, {LOG: "\n".join(lost.reasons).encode(), OUTCOME: b""})
