"""Draw only the observations that the policy looks at: the others get the last image.

Without a GPU, drawing is most of an episode's time (LeRobot's MetaWorld draws 480 × 480 pixels at every control tick).
A policy that executes 8 actions of a chunk looks at one image in 8 ticks. The physics of the simulators here do not
depend on drawing, so actions and outcome stay the same to the bit.

Images are skipped only if all of this is known: the policy looks at images in the calls of the model and nowhere else;
the processors keep no images (`Looks`); in a tick the simulator draws observations only.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from strobe.core.families.capabilities import Calls
from strobe.core.families.registry import find_family
from strobe.core.timeline.probe import Attached, Hook
from strobe.lerobot.envs import environments, libero
from strobe.lerobot.versions import actions_left

if TYPE_CHECKING:
    from gymnasium.vector import SyncVectorEnv
    from lerobot.configs import PreTrainedConfig
    from lerobot.envs.configs import EnvConfig
    from lerobot.policies.pretrained import PreTrainedPolicy

    from strobe.core.timeline.layers import Call

Rendering = Literal["needed", "always"]

STEP, DRAW = "step", "draw"

# Simulators that draw each camera once a tick, for the observation. MetaWorld's draws again when an episode has ended,
# for a reset whose observation LeRobot drops.
_ONLY_OBSERVATIONS = ("gym_pusht.", "lerobot.envs.metaworld")
_UNWATCHED = (*_ONLY_OBSERVATIONS, "lerobot.envs.libero")  # a video of LIBERO has the images of its observations


class Looking(Protocol):
    """Tells which observations are looked at."""

    def looks_next(self) -> bool:
        """Return whether the next observation is looked at. It is called before the simulator's step."""
        ...


class SeldomRendered:
    """Gives the last image again in place of drawing one that nobody looks at, while it is attached.

    Attributes:
        drawn: control ticks whose observation was drawn.
        kept: how often the last image was given again.
        seen: whether the simulator was seen to draw.
    """

    def __init__(self, looks: Looking | None, modules: tuple[str, ...] = _ONLY_OBSERVATIONS) -> None:
        """Take what tells which observations are looked at, None to draw all of them; and whose images may be kept."""
        self._looks, self._modules = looks, modules
        self.drawn, self.kept, self.seen = 0, 0, False
        self._due, self._drew, self._stepping = True, set[str](), False
        self._known: set[int] = set()
        self._last: dict[str, object] = {}

    def hooks(self, vector: SyncVectorEnv) -> list[Hook]:
        """Return the hooks that `wrap` is for."""
        places = list(_places(vector))
        known = [owner for inside, owner, _ in places if type(inside).__module__.startswith(self._modules)]
        self._known = {id(owner) for owner in known}
        return [Hook(vector, "step", STEP), *(Hook(owner, method, DRAW) for _, owner, method in places)]

    def wrap(self, inner: Call, hook: Hook, _takes_self: bool) -> Call:
        """Return the wrapper of a hook's callable."""
        return self._step(inner) if hook.name == STEP else self._draw(inner, hook.owner)

    def _step(self, inner: Call) -> Call:
        @functools.wraps(inner)
        def step(*args: object, **kwargs: object) -> object:
            self._due = self._looks is None or self._looks.looks_next()
            self._drew, self._stepping = set(), True
            try:
                return inner(*args, **kwargs)
            finally:
                self._stepping = False
                self.drawn += bool(self._drew)

        return step

    def _draw(self, inner: Call, owner: object) -> Call:
        may_keep = self._looks is not None and id(owner) in self._known

        @functools.wraps(inner)
        def draw(*args: object, **kwargs: object) -> object:
            self.seen = True
            key = repr((args[isinstance(owner, type) :], kwargs))  # the camera, of a class without the object
            # Outside of a tick it is the first observation, or a video: those are drawn.
            if may_keep and self._stepping and key in self._last and (key in self._drew or not self._due):
                self.kept += key not in self._drew
                return self._last[key]
            if self._stepping:
                self._drew.add(key)
            self._last[key] = image = inner(*args, **kwargs)
            return image

        return draw


def drawing(vector: SyncVectorEnv, name: str) -> list[Hook]:
    """Return hooks called ``name`` on the methods by which the simulator of ``vector`` draws, if they are known."""
    return [Hook(owner, method, name) for _, owner, method in _places(vector)]


def _places(vector: SyncVectorEnv) -> Iterator[tuple[Any, Any, str]]:
    for env in getattr(vector, "envs", ()):
        inside = getattr(env, "unwrapped", env)
        if callable(start := getattr(inside, "_ensure_env", None)):
            start()  # LeRobot starts some simulators only at the first reset
        if (cameras := libero.simulation(inside)) is not None:
            yield inside, cameras, "render"
            continue
        # gym-pusht draws in _render, also for observations; LeRobot's MetaWorld calls the simulator that it holds.
        for owner, method in ((inside, "_render"), (getattr(inside, "_env", None), "render"), (inside, "render")):
            if callable(getattr(owner, method, None)):
                yield inside, owner, method
                break


# Which observations of an episode a policy looks at. Only policies whose code was read are skipped for: some have an
# action queue and still look at the images in between.


class Looks:
    """Tells which observations the policy looks at."""

    def __init__(self, policy: PreTrainedPolicy, steps: Iterable[object], early: int = 0) -> None:
        """Watch the queue of ``policy``.

        Args:
            steps: the steps of all processors that observations go through.
            early: ticks by which an observation may be older when the policy looks at it.
        """
        self._policy, self._early = policy, early
        known = {type(step).__module__.split(".")[0] for step in steps} <= {"lerobot", "strobe"}  # which keep no image
        self._predictable = _looks_at_calls(policy) and known

    def looks_next(self) -> bool:
        """Return whether the policy looks at the next observation. Call it after this tick's action was taken."""
        if not self._predictable or getattr(self._policy.config, "temporal_ensemble_coeff", None) is not None:
            return True
        # The call comes when the queue is empty. -1, no queue: every time.
        return actions_left(self._policy) < _observations(self._policy) + self._early


def _looks_at_calls(policy: object) -> bool:
    where = getattr(getattr(type(policy), "select_action", None), "__module__", "")
    parts = where.split(".")  # LeRobot's folder of a type is called like it
    known = parts[:2] == ["lerobot", "policies"] and len(parts) > 2
    return known and Calls.from_family(find_family(parts[2])).seldom_looks


def _observations(policy: PreTrainedPolicy) -> int:
    config = policy.config
    deltas = getattr(config, "observation_delta_indices", None) or (0,)
    queues = (queue for name, queue in (getattr(policy, "_queues", None) or {}).items() if name != "action")
    held = (getattr(queue, "maxlen", None) or 1 for queue in queues)
    return max(getattr(config, "n_obs_steps", None) or 1, 1 - min(deltas), *held, 1)


# Episodes from which a policy's observations are taken: few of their images are read.

Tick = environments.Observation  # as LeRobot's processors of the environment hand it to the policy's


class PlayedEpisodes:
    """A few episodes with random or given actions, played again when images are requested that were not drawn.

    Drawing is most of an episode's cost, and few of its images are read. If the simulator is not known to draw
    observations only, all images are drawn at once.

    Args:
        env: LeRobot's ``EnvConfig``; its first task is played.
        episodes, ticks: number of episodes, and the ticks of each.
        seed: seed of the actions and of the first episode; each further episode adds 1.
        actions: of each episode, (ticks, dimensions), in place of random ones. It ends with them, or before.
    """

    def __init__(
        self, env: EnvConfig, config: PreTrainedConfig | None, episodes: int, ticks: int, seed: int,
        actions: Sequence[np.ndarray] = (),
    ) -> None:  # fmt: skip
        self._env, self._config, self._episodes, self._ticks, self._seed = env, config, episodes, ticks, seed
        self._actions = actions
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
        import torch
        from lerobot.envs.factory import make_env_pre_post_processors
        from lerobot.envs.utils import preprocess_observation
        from lerobot.utils.constants import ACTION

        looks = _ReadTicks(read)
        seldom = SeldomRendered(looks if read is not None else None, _UNWATCHED)
        runs: list[list[Tick]] = []
        with environments.errors_in_a_line(self._env.type):
            vector = next(iter(environments.make(self._env).values()))
            try:
                self.space: Any = vector.single_action_space  # a Box: actions are numbers
                self.tasks = environments.environment_tasks(vector)
                vector.action_space.seed(self._seed)
                to_policy, to_env = make_env_pre_post_processors(self._env, self._config)
                with Attached(seldom.hooks(vector), seldom.wrap):
                    for episode in range(self._episodes):
                        raw, _ = vector.reset(seed=self._seed + episode)
                        looks.tick, over = 0, []
                        runs.append([])
                        while True:
                            tick: Tick = preprocess_observation(raw)
                            tick["task"] = environments.environment_tasks(vector)
                            runs[-1].append(to_policy(tick))
                            if not self._actions:
                                action = vector.action_space.sample()
                            else:
                                left = self._actions[episode][looks.tick : looks.tick + 1]
                                if np.any(over) or not len(left):
                                    break
                                action = np.asarray(to_env({ACTION: torch.from_numpy(left)})[ACTION])
                            if len(runs[-1]) == self._ticks:
                                break
                            looks.tick += 1
                            raw, _, *over, _ = vector.step(action)
            finally:
                vector.close()
        return runs, seldom.kept > 0


class _ReadTicks:
    """Tells `SeldomRendered` whether the next observation is read."""

    def __init__(self, read: Container[int] | None) -> None:
        self.tick, self._read = 0, read

    def looks_next(self) -> bool:
        return self._read is None or self.tick in self._read
