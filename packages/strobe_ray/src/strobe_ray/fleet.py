"""Ray: join a cluster, and keep a worker of ours on each device of its nodes, as nodes come and go (`Fleet`)."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

from strobe.core.errors import UserError, install
from strobe.core.untrusted import JsonObject

LOOK_EVERY_S = 2.0
ALONE_S = 600.0  # how long a command waits for a node when none is left
LOST_AT_MOST = 3  # a job under which this many nodes were lost is not done again
_STARTS_AT_MOST = 3  # how often Ray may fail to start our process on a node that lives
_REACH_S = 5.0

Resources = Mapping[str, float]


def load_ray() -> Any:
    """Import Ray, set up before that to print nothing, because the terminal is the command's. Return the package.

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


def connect(address: str | None) -> tuple[Any, bool]:
    """Return Ray, connected, and whether this call connected it.

    Args:
        address: HOST:PORT. None and 'auto' mean the cluster that this machine belongs to, else one of its own.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """
    ray = load_ray()
    if ray.is_initialized():
        return ray, False
    target = address if address not in (None, "auto") else os.environ.get("RAY_ADDRESS") or "auto"
    more: JsonObject = {}
    if target == "auto" and not _is_in_cluster():
        target = "local"
    if target == "local":
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own 15 would measure at low priority
        more["include_dashboard"] = False
    elif target != "auto":
        _require_listener(target)
    try:
        ray.init(address=target, log_to_driver=False, logging_level=logging.CRITICAL, **more)
    except Exception as error:  # ConnectionError, RuntimeError, ValueError, and others from one version to the next
        if target == "local":
            raise UserError(f"found no Ray cluster, and could not start one here: {_last_line(error)}") from None
        raise UserError(
            f"cannot join the Ray cluster at {target}: {_last_line(error)} (start the command on one of its nodes)"
        ) from None
    return ray, True


@dataclass(eq=False)
class Worker:
    """Our actor on one device, and what it is doing."""

    device: tuple[str, int]  # the node's id, and which of its devices
    node: str
    actor: Any
    ready: bool = False
    job: Hashable = None
    since: datetime = datetime.min
    began: float = 0.0


class Answered(NamedTuple):
    """A job that has ended, and what the actor's ``run`` returned."""

    job: Any
    worker: Worker
    value: Any


class Lost(NamedTuple):
    """A job whose worker is gone, and the reasons of this loss and of earlier ones."""

    job: Any
    worker: Worker
    reasons: list[str]

    @property
    def may_retry(self) -> bool:
        """Whether the job is to be done again."""
        return len(self.reasons) < LOST_AT_MOST


class Fleet:
    """Workers on the nodes of a Ray cluster, at most ``most`` of them. Close it.

    Args:
        address: of the cluster, as `connect` has it.
        actor: the class whose objects live on the nodes. It has ``prepare(home, threads, …)``, which calls `settle`,
            and ``run(…)``. Text that either returns is an error of the user's.
        devices: what an actor asks for, for each device of a node of Ray's.
        setting: the further arguments of ``prepare``, for an actor with these resources.
        work: what it is for, in words: 'run cells'.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """

    def __init__(
        self,
        address: str | None,
        actor: type,
        devices: Callable[[JsonObject], list[dict[str, float]]],
        setting: Callable[[Resources], tuple[Any, ...]],
        work: str,
        most: float = float("inf"),
    ) -> None:
        self.ray, self._ours = connect(address)
        self._actor, self._devices, self._setting, self._work, self._most = actor, devices, setting, work, most
        self._workers: dict[tuple[str, int], Worker] = {}
        self._calls: dict[Any, Worker] = {}
        self._failed: Counter[tuple[str, int]] = Counter()
        self._losses: dict[Any, list[str]] = {}
        self._alone_since: float | None = None
        self._looked = float("-inf")

    @property
    def free(self) -> int:
        """The number of workers that wait for a job."""
        return len(self._free())

    def count_node_peers(self, worker: Worker) -> int:
        """Return the number of other workers on a worker's node."""
        return sum(other.device[0] == worker.device[0] for other in self._workers.values()) - 1

    def grow(self) -> None:
        """Put workers on devices that have none; nothing where it has just looked.

        Raises:
            UserError: there has been no node for too long.
        """
        if time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        for node in self.ray.nodes():
            if node["Alive"]:
                for index, resources in enumerate(self._devices(node)):
                    if len(self._workers) < self._most and (node["NodeID"], index) not in self._workers:
                        self._start((node["NodeID"], index), _node_name(node), resources)
        now = self._looked = time.monotonic()
        self._alone_since = None if self._workers else self._alone_since or now
        if self._alone_since is not None and now - self._alone_since > ALONE_S:
            raise UserError(
                f"the Ray cluster has had no node to {self._work} on for {ALONE_S / 60:.0f} minutes: add nodes to it "
                "('ray status' lists them) and continue: what is done is saved"
            )

    def give(self, job: Hashable, *arguments: Any) -> Worker:
        """Give ``job``, by the name that `wait` returns, to a free worker on the node where the fewest work.

        Args:
            arguments: of the actor's ``run``.
        """
        working = Counter(worker.device[0] for worker in self._workers.values() if worker.job is not None)
        worker = min(self._free(), key=lambda free: working[free.device[0]])
        worker.job, worker.since, worker.began = job, datetime.now(timezone.utc), time.monotonic()
        self._calls[worker.actor.run.remote(*arguments)] = worker
        return worker

    def wait(self) -> Answered | Lost | None:
        """Wait for a job to end, a moment at most; None if none has, or a worker has become free instead.

        Raises:
            UserError: our code failed on a node, or there has been no node for too long.
        """
        self.grow()
        if not self._calls:
            time.sleep(LOOK_EVERY_S)
            return None
        done, _ = self.ray.wait(list(self._calls), num_returns=1, timeout=LOOK_EVERY_S)
        if not done:
            return None
        worker = self._calls.pop(done[0])
        job, worker.job = worker.job, None
        try:
            value = self._value(done[0], worker)
        except _LostError as error:
            reason = f"node {worker.node}: {error}"
            self._drop(worker)
            if job is None:
                self._never_ready(worker, reason)
                return None
            self._losses.setdefault(job, []).append(reason)
            return Lost(job, worker, self._losses[job])
        if isinstance(value, str):
            raise UserError(f"node {worker.node}: {value}")
        worker.ready = True
        return None if job is None else Answered(job, worker, value)

    def close(self) -> None:
        """End all workers, and their work with them. May be called twice."""
        for worker in list(self._workers.values()):
            self._drop(worker)
        if self._ours:
            self.ray.shutdown()
        self._ours = False

    def _free(self) -> list[Worker]:
        return [worker for worker in self._workers.values() if worker.ready and worker.job is None]

    def _start(self, device: tuple[str, int], name: str, resources: dict[str, float]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(device[0], soft=False)
        options = {"max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": strategy, **resources}
        worker = Worker(device, name, self.ray.remote(self._actor).options(**options).remote())
        self._workers[device] = worker
        place = os.getcwd(), os.environ.get("OMP_NUM_THREADS")
        self._calls[worker.actor.prepare.remote(*place, *self._setting(resources))] = worker

    def _value(self, call: Any, worker: Worker) -> Any:
        """Return what an actor's call returned.

        Raises:
            UserError: our code failed on the node, where it would fail again.
            _LostError: the actor, or its answer, was lost.
        """
        from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError, RuntimeEnvSetupError

        try:
            return self.ray.get(call)
        except RayError as error:
            failed = isinstance(error, (RayTaskError, RuntimeEnvSetupError))
            if failed or (isinstance(error, RayActorError) and error.actor_init_failed):
                raise UserError(
                    f"node {worker.node} cannot {self._work}: {_last_line(error)} (every node needs the driver's "
                    "environment)"
                ) from None
            if isinstance(error, ActorUnavailableError):
                raise _LostError("out of reach") from None
            # Ray's message goes on with advice and numbers: its first sentence is enough.
            raise _LostError(_last_line(error).split(". ")[0].rstrip(".")) from None

    def _never_ready(self, worker: Worker, reason: str) -> None:
        """Raises UserError where Ray could not start a worker too often, and its node lives."""
        self._failed[worker.device] += 1
        alive = {node["NodeID"] for node in self.ray.nodes() if node["Alive"]}
        if worker.device[0] in alive and self._failed[worker.device] >= _STARTS_AT_MOST:
            raise UserError(f"Ray cannot start a process on {reason}")

    def _drop(self, worker: Worker) -> None:
        """Forget a worker.

        One that was only out of reach must not go on either: the next on its device waits for Ray to have ended it, so
        that the two never share the device.
        """
        self._workers.pop(worker.device, None)
        with contextlib.suppress(Exception):
            self.ray.kill(worker.actor)


class _LostError(Exception):
    """The actor, or its answer, went down with its node or its process."""


def settle(home: str, threads: str | None) -> None:
    """Make this process, an actor's on a node, like the driver's.

    Args:
        home: the driver's folder, which relative paths among flags start from.
        threads: the driver's OMP_NUM_THREADS.
    """
    with contextlib.suppress(OSError):
        os.chdir(home)  # where there is no such folder, what needs it says so
    # Ray sets it to the CPUs that an actor asked for, and what runs on a GPU node would have one thread.
    os.environ.pop("OMP_NUM_THREADS", None)
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = threads


def device_resources(node: JsonObject, on_cpu: Collection[bool]) -> list[dict[str, float]]:
    """Return the resources that an actor asks for, per device of a node; none on a head node that runs nothing.

    Args:
        on_cpu: of each job, whether it runs on the CPU, which a node has one of. Where one does, the node gets one
            actor, however many accelerators it has: two would disturb each other.
    """
    gpus, cpus = int(node["Resources"].get("GPU", 0)), node["Resources"].get("CPU", 0)
    if gpus and cpus and True in on_cpu:
        return [{"num_cpus": cpus, **({"num_gpus": 1} if False in on_cpu else {})}]
    if gpus:
        return [{"num_gpus": 1, "num_cpus": 0}] * gpus
    return [{"num_cpus": cpus}] if cpus else []


def _is_in_cluster() -> bool:
    from ray._private.services import get_ray_address_from_environment  # what 'auto' means; nothing public tells

    try:
        _require_listener(get_ray_address_from_environment("auto", None))
    except (ConnectionError, UserError):
        return False
    return True


def _require_listener(address: str) -> None:
    """Raises UserError where nothing answers at ``address``, at once: Ray itself would try for a minute."""
    if "://" in address:
        raise UserError(f"--ray.address={address}: write HOST:PORT, and start the command on a node of the cluster")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--ray.address={address}: write HOST:PORT, such as 10.0.0.1:6379, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise UserError(f"no Ray cluster at {address} ({why}): 'ray start --head' starts one") from None


def _last_line(error: Exception) -> str:
    """Return the last line of an error of Ray's, at most 300 characters: tracebacks and identifiers come first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


def _node_name(node: JsonObject) -> str:
    name = node.get("NodeName")
    return name if name and name != node["NodeManagerAddress"] else node["NodeManagerHostname"]
