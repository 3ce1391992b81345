"""Players for tests of processes that play side by side. Processes import this file: it must not need torch at once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from strobe.core.errors import UserError
from strobe.evaluate.episode_log import EpisodeLog, EvaluationRequest
from strobe.evaluate.episodes.crews import PoolEpisodeRunner, RayEpisodeRunner
from strobe.evaluate.episodes.play import PairsInOrder, Plan, play
from support.fakes.made_up_episodes import made_up


@dataclass(frozen=True)
class Slow:
    """Makes a `MadeUp` player whose episodes take longer; each says in a folder who played it.

    Args:
        folder: gets a file for each episode that was begun: its name says which, its content by which process.
        took: seconds, by seed; others take none.
        dies: seed of the episode in which the process kills itself.
        fails: seed of the episode that fails.
    """

    folder: Path
    took: dict[int, float] = field(default_factory=dict)
    dies: int | None = None
    fails: int | None = None

    def __call__(self) -> Callable[[str, str, int], Any]:
        def play_episode(name: str, task: str, seed: int) -> Any:
            with open(self.folder / f"{name} {task} {seed}", "a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(self.took.get(seed, 0.0))
            if seed == self.dies:
                os.kill(os.getpid(), signal.SIGKILL)
            if seed == self.fails:
                raise UserError(f"'{name}' failed on {task}, seed {seed}: no torque")
            return made_up(name, task, seed)

        return play_episode


@dataclass(frozen=True)
class OnNodes:
    """`Slow` for players on nodes: each file says the node too, and an episode comes with a video.

    Args:
        once: seconds of the first episode that is begun from a seed; when it is played again it takes ``slow``'s.
    """

    slow: Slow
    once: dict[int, float] = field(default_factory=dict)

    def __call__(self) -> Callable[[str, str, int], Any]:
        play = self.slow()

        def play_episode(name: str, task: str, seed: int) -> Any:
            with open(self.slow.folder / "nodes", "a") as file:
                file.write(f"{os.environ['LIGHT_NODE']} {os.getpid()} {seed}\n")
            if seed in self.once and not (been := self.slow.folder / f"been {seed}").exists():
                been.touch()
                time.sleep(self.once[seed])
            return play(name, task, seed), {f"videos/{seed}-{name}.mp4": name.encode()}

        return play_episode


def main(folder: Path, begun: Path, asked: str, seconds: float, address: str = "") -> None:
    """Play for long with two processes, in a process that a test ends.

    Args:
        folder: gets the log.
        address: of a Ray cluster; '' to play here.
        begun: gets a file for each episode that was begun.
        asked: the request, as JSON.
        seconds: of an episode from the first three seeds; others take ten minutes.
    """
    request = EvaluationRequest.model_validate_json(asked)
    named: Any = [SimpleNamespace(name=name) for name in request.variants]
    plan = Plan(named, request.tasks, request.episodes, request.margin, request.seed)
    nobody: Any = SimpleNamespace(say=lambda line: None, progress=lambda progress: None)
    slow = Slow(begun, {seed: seconds if seed < 3 else 600.0 for seed in range(60)})
    if address:
        with RayEpisodeRunner(address, 1, print) as players:
            players.begin(OnNodes(slow), True, lambda files: None)
            play(PairsInOrder(plan), players, EpisodeLog.begin(folder, request), nobody)
        return
    with PoolEpisodeRunner(2, ()) as workers:
        workers.begin(slow)
        play(PairsInOrder(plan), workers, EpisodeLog.begin(folder, request), nobody)


if __name__ == "__main__":
    from support.programs import side_by_side  # under its own name, by which other processes find what is pickled here

    side_by_side.main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]), *sys.argv[5:])
