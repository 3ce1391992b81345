"""Crews that play episodes side by side (`play.ParallelEpisodeRunner`): processes here, or on a Ray cluster.

Each of a crew plays whole episodes, one at a time, by the code that one player here would play them by, with a policy
and a simulator of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tqdm import tqdm

from strobe.core.cli.live import Live
from strobe.core.errors import UserError, error_line
from strobe.core.processes.isolate import CallRaisedError, Pool, ProcessEndedError
from strobe.core.processes.lifetime import Closing
from strobe.core.untrusted import JsonObject
from strobe.evaluate.episode_flags import EpisodeFlags, episode_threads, parse_parallel
from strobe.evaluate.episode_log import EpisodeLine, Key
from strobe.version import __version__

if TYPE_CHECKING:  # torch is not needed here, and takes seconds
    from strobe.evaluate.episodes.play import Candidate

# Imported while the parent loads its policy; they take seconds.
PRELOADED = ("strobe.evaluate.episodes.player_spec", "lerobot.scripts.lerobot_eval", "lerobot.policies.factory")

P = ParamSpec("P")
T = TypeVar("T")
Files = dict[str, bytes]  # by their path in the run's folder
Play = Callable[[str, str, int], EpisodeLine]  # variant's name, task, seed
PlayThere = Callable[[str, str, int], tuple[EpisodeLine, Files]]


class PoolEpisodeRunner(Closing):
    """A crew of ``count`` processes, which import ``preloaded`` at once; they end with this one, however that ends.

    They are started, not forked: torch has threads.
    """

    def __init__(self, count: int, preloaded: Sequence[str] = PRELOADED) -> None:
        self.pool = Pool(count)
        self.pool.make(_import, tuple(preloaded))

    def begin(self, make: Callable[[], Play]) -> None:
        """Let each process make what it plays with. ``make`` must be picklable; what it raises, `ended` raises."""
        self._call_checked(self.pool.make, make)

    @property
    def free(self) -> int:
        """The number of episodes that they can take now."""
        return self.pool.free

    def hand(self, candidate: Candidate, task: str, seed: int) -> None:
        """Let a process that is free play an episode; it waits there while the process still makes its policy."""
        self._call_checked(self.pool.order, candidate.name, task, seed)

    def wait_for_episode(self) -> EpisodeLine:
        """Wait for an episode to end.

        Raises:
            UserError: it failed, or a process ended.
        """
        line: EpisodeLine = self._call_checked(self.pool.answer)
        return line.model_copy(update={"concurrent": len(self.pool.workers) - 1})

    def close(self) -> None:
        """End them with all that they started, at once: an episode that is being played is lost."""
        self.pool.close()

    def _call_checked(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        try:
            return call(*arguments, **options)
        except UserError as error:
            raise UserError(error_line(error, 400)) from None
        except CallRaisedError as error:
            raise UserError(error_line(f"{error.kind}: {error.text}", 400)) from None
        except ProcessEndedError as error:
            processes = f"one of the {len(self.pool.workers)} processes that play episodes ended ({error.ending})"
            raise UserError(f"{processes}: if memory ran out, give a smaller --parallel") from None


def _import(names: tuple[str, ...]) -> None:
    # tqdm's own lock is a semaphore of the system, of which Python would say that it leaked when this is killed.
    tqdm.set_lock(threading.RLock())
    for name in names:
        importlib.import_module(name)


class RayEpisodeRunner(Closing):
    """A crew of actors, ``each`` of them on every device of every node of a Ray cluster; nodes may come and go.

    They send back what they made, the episode and its videos: nodes need not share files with this machine. An episode
    under which a node is lost is played again on another; what the lost one may still answer is dropped with it, so
    that none counts twice.

    Args:
        address: of the cluster, as `strobe_ray.fleet.connect` has it.
        each: players on a device; None for one on each GPU, and one on each CPU where a node has no GPU.
        report: gets a line for each node that is lost.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """

    def __init__(self, address: str | None, each: int | None, report: Callable[[str], None]) -> None:
        from strobe_ray.fleet import Fleet, device_resources

        self._report = report
        self._on_cpu = True
        self._content: Any = None
        self._keep: Callable[[Files], None] = lambda files: None
        self._again: deque[Key] = deque()

        def devices(node: JsonObject) -> list[dict[str, float]]:
            return [
                part for device in device_resources(node, {self._on_cpu}) for part in _share_out_device(device, each)
            ]

        self._fleet = Fleet(address, _RayActor, devices, lambda _: (_versions(), self._content), "play episodes")

    def begin(self, make: Callable[[], PlayThere], on_cpu: bool, keep: Callable[[Files], None]) -> None:
        """Let the nodes make what they play with.

        Args:
            make: picklable; a UserError of its is one of `ended`, with the node's name.
            on_cpu: whether the policy runs on the CPU.
            keep: takes the files of an episode that has ended.
        """
        self._on_cpu, self._keep = on_cpu, keep
        self._content = self._fleet.ray.put(pickle.dumps(make))
        self._fleet.grow()

    @property
    def free(self) -> int:
        """The number of episodes that they can take now."""
        return max(0, self._fleet.free - len(self._again))

    def hand(self, candidate: Candidate, task: str, seed: int) -> None:
        """Let a player that is free play an episode, on the node where the fewest play."""
        self._give((candidate.name, task, seed))

    def wait_for_episode(self) -> EpisodeLine | None:
        """Wait for an episode to end, a moment at most; None if none has.

        Raises:
            UserError: it failed, a node cannot play, or no node is left.
        """
        from strobe_ray.fleet import Answered, Lost

        match self._fleet.wait():
            case Answered(_, worker, (line, files)):
                self._keep(files)
                return line.model_copy(update={"concurrent": self._fleet.count_node_peers(worker), "node": worker.node})
            case Lost(key, _, reasons) as lost:
                name, task, seed = key
                if not lost.may_retry:
                    times = f"{len(reasons)} nodes that played it were lost"
                    raise UserError(f"'{name}' on {task}, seed {seed}: {times}; {reasons[-1]}")
                self._again.append(key)
                self._report(f"lost: {reasons[-1]}; '{name}' on {task}, seed {seed} is played again elsewhere")
        while self._again and self._fleet.free:
            self._give(self._again.popleft())
        return None

    def close(self) -> None:
        """End all players, at once: an episode that is being played is lost."""
        self._fleet.close()

    def _give(self, key: Key) -> None:
        self._fleet.give(key, *key)


class _RayActor:
    """The actor: plays episodes on its node, one at a time, on its main thread.

    An error of the user's comes back as its words; any other one is an exception, which means that the node cannot
    play.
    """

    def prepare(self, home: str, threads: str | None, versions: dict[str, str], content: bytes) -> str | None:
        """Make the node like the driver, and what it plays with."""
        from strobe_ray.fleet import settle

        settle(home, threads)
        for name, version in _versions().items():
            if version != versions[name]:
                return f"it has {name} {version}, and the driver {versions[name]}: every node needs the same"
        try:
            self._play: PlayThere = pickle.loads(content)()
        except UserError as error:
            return error_line(error, 400)
        return None

    def run(self, name: str, task: str, seed: int) -> tuple[EpisodeLine, Files] | str:
        """Play one episode. Return it and its files."""
        try:
            return self._play(name, task, seed)
        except UserError as error:
            return error_line(error, 400)


def _versions() -> dict[str, str]:
    """Return the versions that must be the same on every node for episodes to end alike."""
    return {"Strobe": __version__} | {name: metadata.version(name) for name in ("lerobot", "torch")}


def _share_out_device(device: dict[str, float], each: int | None) -> list[dict[str, float]]:
    """Return the resources of a device, shared out among ``each`` players; rounded down to Ray's four figures."""
    if each is None:
        each = 1 if device.get("num_gpus") else max(1, int(device["num_cpus"]))
    return [{name: int(10_000 * amount / each) / 10_000 for name, amount in device.items()}] * each


@dataclass(frozen=True)
class Crew:
    """Who plays episodes.

    Args:
        workers: those in addition to this process; None if it plays alone.
        threads: torch's, of whoever plays.
    """

    workers: PoolEpisodeRunner | RayEpisodeRunner | None
    threads: int


@contextlib.contextmanager
def crew(config: EpisodeFlags, live: Live) -> Iterator[Crew]:
    """Yield who plays episodes. They end with the context. The threads of this process are set.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """
    import torch

    count = parse_parallel(config.parallel)
    threads = episode_threads(config.threads, count, config.resume)
    if threads is not None and (count == 1 or config.threads is not None):
        torch.set_num_threads(threads)
    workers = None
    if config.launcher == "ray":
        live.stage("joining the Ray cluster")
        each = None if config.parallel == "auto" else count  # auto: one on each core
        workers = RayEpisodeRunner(config.ray.address, each, live.say)
    elif count > 1:  # started before the policy is loaded here: they import torch and LeRobot meanwhile
        workers = PoolEpisodeRunner(count)
    with workers or contextlib.nullcontext():
        yield Crew(workers, threads or torch.get_num_threads())
