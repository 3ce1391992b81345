"""Play episodes of an environment with random actions. A policy's observations are taken from them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from lerobot.configs import PreTrainedConfig

from strobe.core.timeline.probe import Attached
from strobe.simulators import environments
from strobe.simulators.seldom_rendered import SeldomRendered

Tick = dict[str, Any]  # as LeRobot's processors of the environment hand it to the policy's


class RandomEpisodes:
    """A few episodes, played again when images are requested that were not drawn.

    Drawing is most of an episode's cost, and few of its images are read. If the simulator is not known to draw
    observations only, all images are drawn at once.

    Args:
        env: LeRobot's ``EnvConfig``; its first task is played.
        episodes, ticks: number of episodes, and the ticks of each.
        seed: seed of the actions and of the first episode; each further episode adds 1.
    """

    def __init__(self, env: Any, config: PreTrainedConfig, episodes: int, ticks: int, seed: int) -> None:
        self._env, self._config, self._episodes, self._ticks, self._seed = env, config, episodes, ticks, seed
        self._whole: list[list[Tick]] | None = None

    def runs(self, read: Iterable[int] | None = None) -> list[list[Tick]]:
        """Return the ticks of each episode.

        Args:
            read: ticks of each episode, from 0, whose images are needed. Others may hold an older image. None: all.

        Raises:
            UserError: the environment cannot be started.
        """
        if self._whole is not None:
            return self._whole
        runs, outdated = self._play(None if read is None else frozenset(read))
        if not outdated:
            self._whole = runs
        return runs

    def _play(self, read: Container[int] | None) -> tuple[list[list[Tick]], bool]:
        """Return the episodes, and whether any tick holds an older image."""
        from lerobot.envs.factory import make_env_pre_post_processors
        from lerobot.envs.utils import preprocess_observation

        looks = _ReadTicks(read)
        seldom = SeldomRendered(looks if read is not None else None)
        runs: list[list[Tick]] = []
        with environments.errors_in_a_line(self._env.type):
            vector: Any = next(iter(environments.make(self._env).values()))
            try:
                self.space = vector.single_action_space
                vector.action_space.seed(self._seed)
                to_policy, _ = make_env_pre_post_processors(self._env, self._config)
                with Attached(seldom.hooks(vector), seldom.wrap):
                    for episode in range(self._episodes):
                        raw, _ = vector.reset(seed=self._seed + episode)
                        looks.tick = 0
                        runs.append([])
                        while True:
                            tick: Tick = preprocess_observation(raw)
                            tick["task"] = environments.task_of(vector)
                            runs[-1].append(to_policy(tick))
                            action = vector.action_space.sample()
                            if len(runs[-1]) == self._ticks:
                                break
                            looks.tick += 1
                            raw, *_ = vector.step(action)
            finally:
                vector.close()
        return runs, seldom.kept > 0


class _ReadTicks:
    """Tells `SeldomRendered` whether the next observation is read."""

    def __init__(self, read: Container[int] | None) -> None:
        self.tick, self._read = 0, read

    def looks_next(self) -> bool:
        return self._read is None or self.tick in self._read
