"""Run a sweep's cells on a Ray cluster: at most one at a time on each device, wherever one is free.

A cell that was given one accelerator sees it as its first, whatever number its flags name (`strobe.sweep.grid`).

The driver hands out every job itself and keeps it until its files are home, so a node that is lost takes nothing with
it but the cell that ran there.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from strobe.core.errors import in_words
from strobe.core.measure.memory import available_bytes
from strobe.core.processes.command import CommandLimits
from strobe.core.processes.fork_server import Server
from strobe.core.runs import store
from strobe.sweep.execute import LOG, ONE_DEVICE, OUTCOME, Job, Outcome, Watch, execute, write_outcome
from strobe.sweep.ray_backend import Answered, Fleet, Lost, devices_of, settle

_MEMORY_SHARE = 0.9  # share of a node's free memory: a cell must end before the node does


def run_on_ray(jobs: Sequence[Job], watch: Watch, address: str | None) -> Iterator[tuple[Job, Outcome]]:
    """Run ``jobs`` on the cluster at ``address``. Yield each when it has ended and its files are home.

    ``None`` and ``"auto"`` mean the cluster that this machine belongs to, else one of this machine alone.

    Raises:
        UserError: Ray is not installed, there is no such cluster, a node cannot run cells, or no node is left.
    """
    on_cpu = {job.on_cpu for job in jobs}
    fleet = Fleet(
        address,
        _Runner,
        lambda node: devices_of(node, on_cpu),
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
                    watch.lost(by_folder[folder], reasons[-1])
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
    """Write a cell's files; the outcome last, since a folder that has one is finished.

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
        return outcome.model_copy(update={"status": "crashed", "reason": f"not kept: {in_words(error)}"})
    return outcome


def _give_up(folder: Path, lost: Lost) -> Outcome:
    """Write and return the outcome of a cell under which too many nodes were lost."""
    outcome = Outcome(
        status="crashed",
        reason=f"given up after {len(lost.reasons)} nodes that ran it were lost; {lost.reasons[-1]}",
        started=lost.worker.since,
        duration_s=round((datetime.now(timezone.utc) - lost.worker.since).total_seconds(), 3),
        node=lost.worker.node,
    )
    return _bring_home(folder, outcome, {LOG: "\n".join(lost.reasons).encode(), OUTCOME: b""})
