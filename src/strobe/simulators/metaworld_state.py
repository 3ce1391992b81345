"""MetaWorld for policies that read numbers in place of images: ``--env.type=metaworld_state``.

Physics, starts and success are those of LeRobot's MetaWorld. ``observation.environment_state`` has numbers of
MetaWorld's own observation, by default the position of the task's object. Nothing is drawn unless a video is made, so
an episode takes a fraction of a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_STATE

from strobe.core.errors import UserError
from strobe.lerobot.envs.environments import choose_opengl
from strobe.simulators.recorder import Frame, Scripted, write
from strobe.simulators.scripted import expert_action, lerobot_metaworld

TASK = "button-press-topdown-v3"
FPS = 80
OBJECT = (4, 5, 6)  # places among MetaWorld's 39 numbers that say where the task's object is, in metres
# Standard deviation of the noise on the executed velocities: the expert is seen to correct errors.
NOISE = 0.3


@EnvConfig.register_subclass("metaworld_state")
@dataclass
class StateArm(EnvConfig):
    """A task of MetaWorld, in which an episode ends after ``episode_length`` ticks.

    ``columns`` of MetaWorld's 39 numbers are the environment's state.
    """

    task: str | None = TASK
    fps: int = FPS
    episode_length: int = 120
    columns: list[int] = field(default_factory=lambda: [4, 5, 6])
    features: dict[str, PolicyFeature] = field(default_factory=dict)
    features_map: dict[str, str] = field(
        default_factory=lambda: {ACTION: ACTION, "agent_pos": OBS_STATE, "environment_state": OBS_ENV_STATE}
    )

    def __post_init__(self) -> None:
        self.features |= {
            ACTION: PolicyFeature(FeatureType.ACTION, (4,)),
            "agent_pos": PolicyFeature(FeatureType.STATE, (4,)),
            "environment_state": PolicyFeature(FeatureType.ENV, (len(self.columns),)),
        }

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Nothing: ``create_envs`` makes the environments itself."""
        return {}

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> Any:
        """Return a vector of ``n_envs`` environments, as LeRobot asks for it."""
        import gymnasium

        task = str(self.task)
        make = partial(arm, task, self.episode_length, tuple(self.columns))
        return {task: {0: gymnasium.vector.SyncVectorEnv([make] * n_envs)}}


def arm(task: str, ticks: int, columns: Sequence[int] = OBJECT) -> Any:
    """Return LeRobot's environment of ``task``, which draws no observation and ends after ``ticks``.

    Raises UserError if MetaWorld is not installed, or has no such task or no such number.
    """
    try:
        choose_opengl()
    except UserError:
        os.environ["MUJOCO_GL"] = "disabled"  # only videos are drawn: they will be missing, and the answer says so
    made: Any = lerobot_metaworld(task, _reading(tuple(columns)))
    from gymnasium import spaces

    made._max_episode_steps = ticks
    shapes = {"agent_pos": 4, "environment_state": len(columns)}
    made.observation_space = spaces.Dict(
        {name: spaces.Box(-1000.0, 1000.0, (size,), np.float64) for name, size in shapes.items()}
    )
    made._ensure_env()
    return made


def _reading(columns: tuple[int, ...]) -> Callable[[type], type]:
    """Return what makes LeRobot's class read ``columns`` in place of drawing."""

    def reading(theirs: type) -> type:
        class Arm(theirs):
            def _format_raw_obs(self, raw_obs: np.ndarray) -> dict[str, np.ndarray]:
                return {"agent_pos": raw_obs[:4], "environment_state": raw_obs[list(columns)]}

        return Arm

    return reading


@dataclass(frozen=True)
class Read:
    """What is recorded of which task."""

    task: str = TASK
    columns: Sequence[int] = OBJECT
    noise: float = NOISE


def record_states(
    root: str | Path,
    episodes: int = 3,
    frames: int = 80,
    fps: int = FPS,
    *,
    read: Read = Read(),
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **_of_images: Any,
) -> Path:
    """Record MetaWorld's own expert into a new dataset at ``root``, without images, and return its folder.

    A frame has ``observation.state`` (the hand's x, y, z in metres and how far the gripper is open),
    ``observation.environment_state`` (``read.columns`` of MetaWorld's 39 numbers) and ``action`` (4,), what the expert
    wants there. What is executed has noise on the hand's velocity, so that the expert is seen to correct errors.

    Raises UserError, see `strobe.simulators.scripted.record_metaworld`.
    """
    return write(root, partial(_start, read, seed), episodes, frames, fps, seed=seed, progress=progress)


def _start(read: Read, seed: int) -> Scripted:
    made = arm(read.task, 10**6, read.columns)
    env, random = made._env, np.random.default_rng(seed)
    shapes = {OBS_STATE: 4, OBS_ENV_STATE: len(read.columns), ACTION: 4}
    features = {
        name: {"dtype": "float32", "shape": (size,), "names": _names(name, size)} for name, size in shapes.items()
    }

    def play(episode_seed: int) -> Iterator[Frame]:
        env.seed(episode_seed)
        raw = env.reset(seed=episode_seed)[0]
        while True:
            action = expert_action(made.expert_policy, raw)
            seen = {OBS_STATE: raw[:4], OBS_ENV_STATE: raw[list(read.columns)]}
            numbers = {name: values.astype(np.float32) for name, values in seen.items()}
            yield {**numbers, ACTION: action, "task": made.task_description}
            moved = action + np.append(random.normal(0, read.noise, 3), 0)
            raw = env.step(moved.clip(-1, 1).astype(np.float32))[0]

    return Scripted("metaworld", features, play, made.close)


def _names(feature: str, size: int) -> list[str]:
    if feature == OBS_ENV_STATE:
        return ["object_x", "object_y", "object_z"] if size == len(OBJECT) else [str(each) for each in range(size)]
    return ["x", "y", "z", "gripper"]
