"""Actors of ours on the nodes of a Ray cluster: on every device of every node that lives, as nodes come and go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from strobe.errors import UserError
from strobe.sweeps.ray_cluster import LOOK_EVERY_S, name_of

ALONE_S = 600.0  # how long a command waits for a node when none is left
LOST_AT_MOST = 3  # work under which this many nodes were lost is not done again
_STARTS_AT_MOST = 3  # how often Ray may fail to start our process on a node that lives

Resources = Mapping[str, float]


@dataclass(eq=False)
class Worker:
    """Our actor on one device, and what it is doing."""

    device: tuple[str, int]  # the node's id, and which of its devices
    node: str
    actor: Any
    ready: bool = False
    job: Any = None
    since: datetime = datetime.min


class Fleet:
    """The workers, at most ``most`` of them.

    Args:
        actor: the class whose objects live on the nodes.
        devices: what an actor asks for, for each device of a node of Ray's.
        prepare: begins to make an actor ready, and returns that call.
        to: the work in words: 'run a cell'.

    Attributes:
        calls: the worker of each call that we wait for.
        workers: those that live, as far as we know.
    """

    def __init__(
        self,
        ray: Any,
        actor: type,
        devices: Callable[[dict[str, Any]], list[dict[str, float]]],
        prepare: Callable[[Any, Resources], Any],
        to: str,
        most: float = float("inf"),
    ) -> None:
        self.calls: dict[Any, Worker] = {}
        self._ray, self._actor, self._devices, self._prepare, self._to, self._most = (
            ray, actor, devices, prepare, to, most,
        )  # fmt: skip
        self._workers: dict[tuple[str, int], Worker] = {}
        self._failed: dict[tuple[str, int], int] = {}
        self._alone_since: float | None = None
        self._looked = float("-inf")

    @property
    def workers(self) -> Collection[Worker]:
        return self._workers.values()

    def grow(self) -> None:
        """Put workers on devices that have none. Asked again within a moment, it does nothing.

        Raises:
            UserError: there has been no node for too long.
        """
        if time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        for node in self._ray.nodes():
            if node["Alive"]:
                for index, resources in enumerate(self._devices(node)):
                    if len(self._workers) < self._most and (node["NodeID"], index) not in self._workers:
                        self._start((node["NodeID"], index), name_of(node), resources)
        now = self._looked = time.monotonic()
        self._alone_since = None if self._workers else self._alone_since or now
        if self._alone_since is not None and now - self._alone_since > ALONE_S:
            raise UserError(
                f"the Ray cluster has had no node to {self._to} on for {ALONE_S / 60:.0f} minutes: add nodes to it "
                "('ray status' lists them) and go on from here: what is done is kept"
            )

    def free(self) -> list[Worker]:
        """Return the workers that wait for a job."""
        return [worker for worker in self._workers.values() if worker.ready and worker.job is None]

    def never_ready(self, worker: Worker, why: str) -> None:
        """Forget a worker that Ray could not start.

        Raises:
            UserError: its node lives, and it was not the first there.
        """
        self.drop(worker)
        self._failed[worker.device] = self._failed.get(worker.device, 0) + 1
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if worker.device[0] in alive and self._failed[worker.device] >= _STARTS_AT_MOST:
            raise UserError(f"Ray cannot start a process on {why}")

    def drop(self, worker: Worker) -> None:
        """Forget a worker. One that was only out of reach must not go on either: the next on its device waits for
        Ray to have ended it, so that the two never share the device."""
        self._workers.pop(worker.device, None)
        with contextlib.suppress(Exception):
            self._ray.kill(worker.actor)

    def dismiss(self) -> None:
        """End all workers, and their work with them."""
        for worker in list(self._workers.values()):
            self.drop(worker)

    def _start(self, device: tuple[str, int], name: str, resources: dict[str, float]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(device[0], soft=False)
        options = {"max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": there, **resources}
        worker = Worker(device, name, self._ray.remote(self._actor).options(**options).remote())
        self._workers[device] = worker
        self.calls[self._prepare(worker.actor, resources)] = worker


def devices(node: dict[str, Any], on_cpu: Collection[bool]) -> list[dict[str, float]]:
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
