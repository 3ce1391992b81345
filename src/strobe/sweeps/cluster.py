"""Run a sweep's cells on a Ray cluster: at most one at a time on each device, wherever one is free.

A cell that was given one accelerator sees it as its first, whatever number was asked for (`strobe.sweeps.given`).

The driver hands out every job itself and keeps it until its files are home, so a node that is lost takes nothing with
it but the cell that ran there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import socket
import tempfile
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from strobe.errors import UserError, in_words, install
from strobe.measure.memory import available_bytes
from strobe.results import store
from strobe.sweeps.execute import LOG, ONE_DEVICE, OUTCOME, Job, Limits, Outcome, execute, write_outcome
from strobe.sweeps.local import Watch
from strobe.sweeps.server import Server

ALONE_S = 600.0  # how long a sweep waits for a node when none is left
LOST_AT_MOST = 3  # a cell under which this many nodes were lost is not run again
_STARTS_AT_MOST = 3  # how often Ray may fail to start our process on a node that lives
_LOOK_EVERY_S = 2.0
_REACH_S = 5.0
_MEMORY_SHARE = 0.9  # of what a node has free: a cell must end before the node does


def run_on_ray(jobs: Sequence[Job], watch: Watch, address: str | None) -> Iterator[tuple[Job, Outcome]]:
    """Run ``jobs`` on the cluster at ``address``; each is given back when it has ended and its files are home.

    ``None`` and ``"auto"`` mean the cluster that this machine belongs to, else one of this machine alone.

    Raises:
        UserError: Ray is not installed, there is no such cluster, a node cannot run cells, or no node is left.
    """
    ray, ours = _connected(address)
    fleet = _Fleet(ray, jobs)
    try:
        yield from _run(ray, fleet, jobs, watch)
    finally:
        fleet.dismiss()
        if ours:
            ray.shutdown()


def load_ray() -> Any:
    """Import Ray, set up before that to print nothing, because the terminal is the sweep's. Return the package.

    Raises:
        UserError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # some versions warn unless it is set
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # a lost node's last words come despite log_to_driver=False
    try:
        import ray
    except ImportError:
        raise UserError(f"Ray is not installed: {install('ray')}") from None
    return ray


@dataclass(eq=False)
class _Worker:
    """Our actor on one device, and what it is doing."""

    device: tuple[str, int]  # the node's id, and which of its devices
    node: str
    actor: Any
    ready: bool = False
    job: Job | None = None
    since: datetime = datetime.min


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


class _Fleet:
    """The workers: one on every device of every node that lives, as far as there are jobs for them."""

    def __init__(self, ray: Any, jobs: Sequence[Job]) -> None:
        self.calls: dict[Any, _Worker] = {}  # by the call that we wait for
        self._ray, self._most, self._on_cpu = ray, len(jobs), {job.on_cpu for job in jobs}
        self._workers: dict[tuple[str, int], _Worker] = {}
        self._failed: dict[tuple[str, int], int] = {}
        self._alone_since: float | None = None

    def grow(self) -> None:
        """Put workers on devices that have none.

        Raises:
            UserError: there has been no node for too long.
        """
        for node in self._ray.nodes():
            if node["Alive"]:
                for index, resources in enumerate(_devices(node, self._on_cpu)):
                    if len(self._workers) < self._most and (node["NodeID"], index) not in self._workers:
                        self._start((node["NodeID"], index), _name(node), resources)
        now = time.monotonic()
        self._alone_since = None if self._workers else self._alone_since or now
        if self._alone_since is not None and now - self._alone_since > ALONE_S:
            raise UserError(
                f"the Ray cluster has had no node to run a cell on for {ALONE_S / 60:.0f} minutes: add nodes to it "
                "('ray status' lists them), then give the same command again; what is done is kept"
            )

    def free(self) -> list[_Worker]:
        """Return the workers that wait for a job."""
        return [worker for worker in self._workers.values() if worker.ready and worker.job is None]

    def hand(self, worker: _Worker, job: Job) -> None:
        """Let ``worker`` run ``job``."""
        worker.job, worker.since = job, datetime.now(UTC)
        self.calls[worker.actor.run.remote(job, worker.node)] = worker

    def never_ready(self, worker: _Worker, why: str) -> None:
        """Forget a worker that Ray could not start.

        Raises:
            UserError: its node lives, and it was not the first there.
        """
        self.drop(worker)
        self._failed[worker.device] = self._failed.get(worker.device, 0) + 1
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if worker.device[0] in alive and self._failed[worker.device] >= _STARTS_AT_MOST:
            raise UserError(f"Ray cannot start a process on {why}")

    def drop(self, worker: _Worker) -> None:
        """Forget a worker. One that was only out of reach must not go on either: the next on its device waits for
        Ray to have ended it, so that two cells never share the device."""
        self._workers.pop(worker.device, None)
        with contextlib.suppress(Exception):
            self._ray.kill(worker.actor)

    def dismiss(self) -> None:
        """End all workers, and their cells with them."""
        for worker in list(self._workers.values()):
            self.drop(worker)

    def _start(self, device: tuple[str, int], name: str, resources: dict[str, float]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(device[0], soft=False)
        options = {"max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": there, **resources}
        worker = _Worker(device, name, self._ray.remote(_Runner).options(**options).remote())
        self._workers[device] = worker
        one_device = bool(resources.get("num_gpus"))
        prepared = worker.actor.prepare.remote(os.getcwd(), os.environ.get("OMP_NUM_THREADS"), one_device)
        self.calls[prepared] = worker


def _run(ray: Any, fleet: _Fleet, jobs: Sequence[Job], watch: Watch) -> Iterator[tuple[Job, Outcome]]:
    waiting, left = deque(jobs), len(jobs)
    losses: dict[Path, list[str]] = {}
    looked = float("-inf")
    while left:
        if time.monotonic() - looked >= _LOOK_EVERY_S:
            fleet.grow()
            looked = time.monotonic()
        ended: tuple[Job, Outcome] | None = None
        if (call := _answered(ray, list(fleet.calls))) is not None:
            worker = fleet.calls.pop(call)
            job, worker.job = worker.job, None
            try:
                answer = _answer(ray, call, worker.node)
            except _LostError as loss:
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
                    ended = job, _bring_home(job.folder, *answer)
        for worker in fleet.free()[: len(waiting)]:  # before the caller takes its time over what has ended
            job = waiting.popleft()
            watch.began(job, worker.node)
            fleet.hand(worker, job)
        if ended is not None:
            left -= 1
            yield ended


class _LostError(Exception):
    """The actor, or its answer, went down with its node or its process."""


def _answered(ray: Any, calls: list[Any]) -> Any:
    """Return a call that has an answer; None if there is none after a while."""
    if not calls:
        time.sleep(_LOOK_EVERY_S)
        return None
    answered, _ = ray.wait(calls, num_returns=1, timeout=_LOOK_EVERY_S)
    return answered[0] if answered else None


def _answer(ray: Any, call: Any, node: str) -> Any:
    """Return the result of an actor's call.

    Raises:
        UserError: our code failed on the node, where it would fail again.
        _LostError: the actor, or its answer, was lost.
    """
    from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError, RuntimeEnvSetupError

    try:
        return ray.get(call)
    except (RayTaskError, RuntimeEnvSetupError) as error:
        raise _unfit(node, error) from None
    except RayError as error:
        if isinstance(error, RayActorError) and error.actor_init_failed:
            raise _unfit(node, error) from None
        # Ray's message goes on with advice and numbers: its first sentence is enough.
        why = "out of reach" if isinstance(error, ActorUnavailableError) else _line(error).split(". ")[0].rstrip(".")
        raise _LostError(why) from None


def _unfit(node: str, error: Exception) -> UserError:
    return UserError(f"node {node} cannot run cells: {_line(error)} (every node needs the driver's environment)")


def _line(error: Exception) -> str:
    """Return the last line of an error of Ray's, at most 300 characters: tracebacks and identifiers come first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


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


def _given_up(job: Job, losses: list[str], worker: _Worker) -> Outcome:
    outcome = Outcome(
        status="crashed",
        reason=f"given up after {len(losses)} nodes were lost under it; {losses[-1]}",
        started=worker.since,
        duration_s=round((datetime.now(UTC) - worker.since).total_seconds(), 3),
        node=worker.node,
    )
    return _bring_home(job.folder, outcome, {LOG: "\n".join(losses).encode(), OUTCOME: b""})


def _devices(node: dict[str, Any], on_cpu: Collection[bool]) -> list[dict[str, float]]:
    """Return the resources that an actor asks for, per device of a node; none on a head node that runs nothing.

    Args:
        on_cpu: of each cell, whether it runs on the CPU, which a node has one of. Where one does, the node gets one
            actor, however many accelerators it has: two cells would disturb each other.
    """
    gpus, cpus = int(node["Resources"].get("GPU", 0)), node["Resources"].get("CPU", 0)
    if gpus and cpus and True in on_cpu:
        return [{"num_cpus": cpus, **({"num_gpus": 1} if False in on_cpu else {})}]
    if gpus:
        return [{"num_gpus": 1, "num_cpus": 0}] * gpus
    return [{"num_cpus": cpus}] if cpus else []


def _name(node: dict[str, Any]) -> str:
    """Return the name that the node was started with, else its host's: Ray's own default is the bare address."""
    name = node.get("NodeName")
    return name if name and name != node["NodeManagerAddress"] else node["NodeManagerHostname"]


def _connected(address: str | None) -> tuple[Any, bool]:
    """Return Ray, connected, and whether this call connected it."""
    ray = load_ray()
    if ray.is_initialized():
        return ray, False
    asked = address if address not in (None, "auto") else os.environ.get("RAY_ADDRESS") or "auto"
    more: dict[str, Any] = {}
    if asked == "auto" and not _cluster_here():
        asked = "local"
    if asked == "local":
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own 15 would measure the cells at low priority
        more["include_dashboard"] = False
    elif asked != "auto":
        _require_listener(asked)
    try:
        ray.init(address=asked, log_to_driver=False, logging_level=logging.CRITICAL, **more)
    except Exception as error:  # ConnectionError, RuntimeError, ValueError, and others from one version to the next
        if asked == "local":
            raise UserError(f"found no Ray cluster, and could not start one here: {_line(error)}") from None
        raise UserError(
            f"cannot join the Ray cluster at {asked}: {_line(error)} (start the sweep on one of its nodes)"
        ) from None
    return ray, True


def _cluster_here() -> bool:
    """Whether this machine belongs to a cluster. One that crashed leaves its address; Ray would try it for minutes."""
    from ray._private.services import get_ray_address_from_environment  # what 'auto' means; nothing public tells

    try:
        _require_listener(get_ray_address_from_environment("auto", None))
    except (ConnectionError, UserError):
        return False
    return True


def _require_listener(address: str) -> None:
    """Raises UserError where nothing answers at ``address``, at once: Ray itself would try for a minute."""
    if "://" in address:
        raise UserError(f"--ray.address={address}: write HOST:PORT, and start the sweep on a node of the cluster")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--ray.address={address}: write HOST:PORT, such as 10.0.0.1:6379, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise UserError(f"no Ray cluster at {address} ({why}): 'ray start --head' starts one") from None
