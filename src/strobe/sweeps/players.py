"""Episodes on a Ray cluster: a crew whose players are actors on its nodes (`strobe.studies.evaluate.play.Crew`).

An actor plays whole episodes, one at a time, by the code that one process here would play them by, and sends back what
it made: the episode and its videos. The nodes need not share files with this machine. An episode under which a node is
lost is played again on another; what the lost one may still answer is dropped with it, so that none counts twice.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections import Counter, deque
from collections.abc import Callable
from importlib import metadata
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import strobe
from strobe.errors import UserError, in_a_line
from strobe.runs.episode_log import EpisodeLine, Key
from strobe.sweeps.fleet import LOST_AT_MOST, Fleet, Resources, Worker, devices
from strobe.sweeps.ray_cluster import LostError, answer, answered, connected

if TYPE_CHECKING:  # torch is not needed here, and takes seconds
    from strobe.studies.evaluate.variants import Candidate

Files = dict[str, bytes]  # by their path in the run's folder
Play = Callable[[str, str, int], tuple[EpisodeLine, Files]]  # variant's name, task, seed

_TO = "play episodes"


class Players:
    """A crew of actors, ``each`` of them on every device of every node; nodes may come and go.

    Args:
        address: of the cluster, as `run_on_ray` has it.
        each: players on a device; None for one on each GPU, and one on each CPU where a node has no GPU.
        said: gets a line for each node that is lost.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """

    def __init__(self, address: str | None, each: int | None, said: Callable[[str], None]) -> None:
        self._each, self._said = each, said
        self._fleet: Fleet | None = None
        self._again: deque[Key] = deque()
        self._losses: Counter[Key] = Counter()
        self._ray, self._ours = connected(address)

    def begin(self, make: Callable[[], Play], on_cpu: bool, keep: Callable[[Files], None]) -> None:
        """Let the nodes make what they play with.

        Args:
            make: picklable; a UserError of its is one of `ended`, with the node's name.
            on_cpu: whether the policy runs on the CPU.
            keep: takes the files of an episode that has ended.
        """
        self._keep = keep
        content = self._ray.put(pickle.dumps(make))
        here = (os.getcwd(), os.environ.get("OMP_NUM_THREADS"), _versions())

        def prepare(actor: Any, _resources: Resources) -> Any:
            return actor.prepare.remote(*here, content)

        def shared(node: dict[str, Any]) -> list[dict[str, float]]:
            return [part for device in devices(node, {on_cpu}) for part in _shared(device, self._each)]

        self._fleet = Fleet(self._ray, _Player, shared, prepare, "play an episode")
        self._fleet.grow()

    @property
    def free(self) -> int:
        """How many more episodes it can take now."""
        return max(0, len(self._fleet.free()) - len(self._again)) if self._fleet is not None else 0

    def hand(self, candidate: Candidate, task: str, seed: int) -> None:
        """Let a player that is free play an episode, on the node where the fewest play."""
        self._hand((candidate.name, task, seed))

    def ended(self) -> EpisodeLine | None:
        """Wait for an episode to end; None where instead a player has come who can take one.

        Raises:
            UserError: it failed, a node cannot play, or no node is left.
        """
        fleet = self._fleet
        assert fleet is not None, "begin first"
        while True:
            fleet.grow()
            while self._again and fleet.free():
                self._hand(self._again.popleft())
            call = answered(self._ray, list(fleet.calls))
            if call is None:
                continue
            worker = fleet.calls.pop(call)
            key, worker.job = worker.job, None
            try:
                found = answer(self._ray, call, worker.node, _TO)
            except LostError as loss:
                self._lost(fleet, worker, key, f"node {worker.node}: {loss}")
                continue
            if isinstance(found, str):
                raise UserError(f"node {worker.node}: {found}")
            if key is None:
                worker.ready = True
                return None
            line, files = found
            self._keep(files)
            beside = sum(one.device[0] == worker.device[0] for one in fleet.workers) - 1
            return line.model_copy(update={"beside": beside, "node": worker.node})

    def close(self) -> None:
        """End all players, at once: an episode that is being played is lost."""
        if self._fleet is not None:
            self._fleet.dismiss()
            self._fleet = None
        if self._ours:
            self._ray.shutdown()
            self._ours = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _hand(self, key: Key) -> None:
        assert self._fleet is not None
        playing = Counter(one.device[0] for one in self._fleet.workers if one.job is not None)
        worker = min(self._fleet.free(), key=lambda one: playing[one.device[0]])
        worker.job = key
        self._fleet.calls[worker.actor.play.remote(*key)] = worker

    def _lost(self, fleet: Fleet, worker: Worker, key: Key | None, why: str) -> None:
        if key is None:
            fleet.never_ready(worker, why)
            return
        fleet.drop(worker)
        self._losses[key] += 1
        name, task, seed = key
        if self._losses[key] >= LOST_AT_MOST:
            raise UserError(f"'{name}' on {task}, seed {seed}: {LOST_AT_MOST} nodes were lost under it; {why}")
        self._again.append(key)
        self._said(f"lost: {why}; '{name}' on {task}, seed {seed} is played again elsewhere")


class _Player:
    """The actor: plays episodes on its node, one at a time, on its main thread.

    An error of the user's comes back as its words; any other one is an exception, which says that the node cannot play.
    """

    def prepare(self, home: str, threads: str | None, versions: dict[str, str], content: bytes) -> str | None:
        """Make the node like the driver, and what it plays with."""
        with contextlib.suppress(OSError):
            os.chdir(home)  # relative paths among the flags; where there is no such folder, what needs it says so
        # Ray sets it to the CPUs that an actor asked for; torch's threads are what the driver says.
        os.environ.pop("OMP_NUM_THREADS", None)
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads
        for name, version in _versions().items():
            if version != versions[name]:
                return f"it has {name} {version}, and the driver {versions[name]}: every node needs the same"
        try:
            self._play: Play = pickle.loads(content)()
        except UserError as error:
            return _line(error)
        return None

    def play(self, name: str, task: str, seed: int) -> tuple[EpisodeLine, Files] | str:
        """One episode, and its files."""
        try:
            return self._play(name, task, seed)
        except UserError as error:
            return _line(error)


def _line(error: UserError) -> str:
    return in_a_line(error, 400)


def _versions() -> dict[str, str]:
    """Return the versions that must be the same on every node for episodes to end alike."""
    return {"Strobe": strobe.__version__} | {name: metadata.version(name) for name in ("lerobot", "torch")}


def _shared(device: dict[str, float], each: int | None) -> list[dict[str, float]]:
    """The resources of a device, shared out among ``each`` players; rounded down, as Ray counts to four figures."""
    if each is None:
        each = 1 if device.get("num_gpus") else max(1, int(device["num_cpus"]))
    return [{name: int(10_000 * amount / each) / 10_000 for name, amount in device.items()}] * each
