"""Run a sweep's cells on a Ray cluster: at most one at a time on each device, wherever one is free.

A cell that was given one accelerator sees it as its first, whatever number was asked for (`strobe.sweeps.given`).

The driver hands out every job itself and keeps it until its files are home, so a node that is lost takes nothing with
it but the cell that ran there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from strobe.errors import in_words
from strobe.measure.memory import available_bytes
from strobe.runs import store
from strobe.sweeps.execute import LOG, ONE_DEVICE, OUTCOME, Job, Limits, Outcome, execute, write_outcome
from strobe.sweeps.fleet import LOST_AT_MOST, Fleet, Resources, Worker, devices
from strobe.sweeps.local import Watch
from strobe.sweeps.ray_cluster import LostError, answer, answered, connected
from strobe.sweeps.server import Server

_MEMORY_SHARE = 0.9  # of what a node has free: a cell must end before the node does


def run_on_ray(jobs: Sequence[Job], watch: Watch, address: str | None) -> Iterator[tuple[Job, Outcome]]:
    """Run ``jobs`` on the cluster at ``address``; each is given back when it has ended and its files are home.

    ``None`` and ``"auto"`` mean the cluster that this machine belongs to, else one of this machine alone.

    Raises:
        UserError: Ray is not installed, there is no such cluster, a node cannot run cells, or no node is left.
    """
    ray, ours = connected(address)
    on_cpu = {job.on_cpu for job in jobs}
    fleet = Fleet(ray, _Runner, lambda node: devices(node, on_cpu), _prepared, "run a cell", len(jobs))
    try:
        yield from _run(ray, fleet, jobs, watch)
    finally:
        fleet.dismiss()
        if ours:
            ray.shutdown()


class _Runner:
    """The actor: runs cells on its node, one at a time, on its main thread.

    The cell's process asks the kernel to end with the thread that started it, so this must not be one that comes
    and goes; Ray runs a plain actor's calls on the main thread.
    """

    _one_device = False

    def __init__(self) -> None:
        self._server = Server()  # ends with the actor

    def prepare(self, home: str, threads: str | None, one_device: bool) -> None:
        """Make the node like the driver. An exception says that it cannot be.

        Args:
            one_device: whether Ray gave this actor one accelerator, and hides the node's others from it.
        """
        self._one_device = one_device
        with contextlib.suppress(OSError):
            os.chdir(home)  # relative paths among a cell's flags; where there is no such folder, the cell will say so
        # Ray sets it to the CPUs that an actor asked for, and a cell on a GPU node would run with one thread.
        os.environ.pop("OMP_NUM_THREADS", None)
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads

    def run(self, job: Job, node: str) -> tuple[Outcome, dict[str, bytes]]:
        """Run ``job``. Return its outcome, and the files that it left: name → content."""
        free = int(_MEMORY_SHARE * available_bytes())
        limits = Limits(job.limits.seconds, min(job.limits.memory_bytes, free))
        with tempfile.TemporaryDirectory(prefix="strobe-cell-", ignore_cleanup_errors=True) as folder:
            given = job.environment | ({ONE_DEVICE: "1"} if self._one_device else {})
            here = dataclasses.replace(job, folder=Path(folder) / "cell", limits=limits, environment=given)
            outcome = execute(here, node=node, server=self._server)
            left = here.folder.iterdir() if here.folder.is_dir() else ()  # no folder: it could not be kept
            return outcome, {file.name: file.read_bytes() for file in left if file.is_file()}


def _prepared(actor: Any, resources: Resources) -> Any:
    return actor.prepare.remote(os.getcwd(), os.environ.get("OMP_NUM_THREADS"), bool(resources.get("num_gpus")))


def _run(ray: Any, fleet: Fleet, jobs: Sequence[Job], watch: Watch) -> Iterator[tuple[Job, Outcome]]:
    waiting, left = deque(jobs), len(jobs)
    losses: dict[Path, list[str]] = {}
    while left:
        fleet.grow()
        ended: tuple[Job, Outcome] | None = None
        if (call := answered(ray, list(fleet.calls))) is not None:
            worker = fleet.calls.pop(call)
            job, worker.job = worker.job, None
            try:
                left_there = answer(ray, call, worker.node, "run cells")
            except LostError as loss:
                why = f"node {worker.node}: {loss}"
                if job is None:
                    fleet.never_ready(worker, why)
                else:
                    fleet.drop(worker)
                    losses.setdefault(job.folder, []).append(why)
                    if len(losses[job.folder]) < LOST_AT_MOST:
                        waiting.appendleft(job)
                        watch.lost(job, why)
                    else:
                        ended = job, _given_up(job, losses[job.folder], worker)
            else:
                worker.ready = True
                if job is not None:
                    ended = job, _bring_home(job.folder, *left_there)
        for worker in fleet.free()[: len(waiting)]:  # before the caller takes its time over what has ended
            job = waiting.popleft()
            watch.began(job, worker.node)
            worker.job, worker.since = job, datetime.now(UTC)
            fleet.calls[worker.actor.run.remote(job, worker.node)] = worker
        if ended is not None:
            left -= 1
            yield ended


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


def _given_up(job: Job, losses: list[str], worker: Worker) -> Outcome:
    outcome = Outcome(
        status="crashed",
        reason=f"given up after {len(losses)} nodes were lost under it; {losses[-1]}",
        started=worker.since,
        duration_s=round((datetime.now(UTC) - worker.since).total_seconds(), 3),
        node=worker.node,
    )
    return _bring_home(job.folder, outcome, {LOG: "\n".join(losses).encode(), OUTCOME: b""})
