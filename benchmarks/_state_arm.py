"""MetaWorld for policies that read states in place of images: no GPU is needed to train them, or to play thousands.

The physics, the starts and the success are those of LeRobot's MetaWorld. ``observation.environment_state`` has the
hand's position, the object's position and orientation, and the goal, as MetaWorld gives them to its own experts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_STATE

from strobe.simulators.environments import choose_opengl
from strobe.simulators.held_action import MOVEMENTS
from strobe.simulators.recorder import Frame, Scripted, write

FPS = 80
READ = [*range(3), *range(4, 11), *range(36, 39)]  # of MetaWorld's 39 numbers: the hand, the object's pose, the goal
NOISE = 0.1  # standard deviation of the noise on the recorded velocities, so that the expert is seen to correct errors


@EnvConfig.register_subclass("metaworld_state")
@dataclass
class StateArm(EnvConfig):
    """A task of MetaWorld. An episode ends after ``episode_length`` ticks."""

    task: str | None = "button-press-topdown-v3"
    fps: int = FPS
    episode_length: int = 200
    features: dict[str, PolicyFeature] = field(
        default_factory=lambda: {
            ACTION: PolicyFeature(FeatureType.ACTION, (4,)),
            "agent_pos": PolicyFeature(FeatureType.STATE, (4,)),
            "environment_state": PolicyFeature(FeatureType.ENV, (len(READ),)),
        }
    )
    features_map: dict[str, str] = field(
        default_factory=lambda: {ACTION: ACTION, "agent_pos": OBS_STATE, "environment_state": OBS_ENV_STATE}
    )

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        return {}

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> Any:
        task = str(self.task)
        return {task: {0: gymnasium.vector.SyncVectorEnv([lambda: arm(task, self.episode_length)] * n_envs)}}


MOVEMENTS["metaworld_state"] = MOVEMENTS["metaworld"]  # Strobe holds this arm as it holds MetaWorld's


def arm(task: str, ticks: int) -> Any:
    """Return LeRobot's environment of ``task``, which draws nothing and ends after ``ticks``."""
    choose_opengl()  # LeRobot's module reads how MuJoCo renders when it is imported
    from lerobot.envs.metaworld import MetaworldEnv

    class Arm(MetaworldEnv):
        def _format_raw_obs(self, raw_obs: np.ndarray) -> dict[str, np.ndarray]:
            return {"agent_pos": raw_obs[:4], "environment_state": raw_obs[READ]}

    made = Arm(task)
    made._max_episode_steps = ticks
    shapes = {"agent_pos": 4, "environment_state": len(READ)}
    made.observation_space = spaces.Dict(
        {name: spaces.Box(-1000.0, 1000.0, (size,), np.float64) for name, size in shapes.items()}
    )
    made._ensure_env()
    return made


def record(root: Path, task: str, episodes: int, frames: int) -> None:
    """Record MetaWorld's own expert, with noise, into a new dataset at ``root``."""

    def start() -> Scripted:
        made = arm(task, frames + 1)
        env: Any = made._env
        random = np.random.default_rng(0)
        shapes = {OBS_STATE: 4, OBS_ENV_STATE: len(READ), ACTION: 4}
        features = {
            name: {"dtype": "float32", "shape": (size,), "names": [str(each) for each in range(size)]}
            for name, size in shapes.items()
        }

        def play(seed: int) -> Iterator[Frame]:
            env.seed(seed)
            raw = env.reset(seed=seed)[0]
            while True:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that velocities beyond 1 are clipped
                    wanted = np.asarray(made.expert_policy.get_action(raw), np.float32).clip(-1, 1)
                seen = {OBS_STATE: raw[:4], OBS_ENV_STATE: raw[READ]}
                yield {
                    **{name: values.astype(np.float32) for name, values in seen.items()},
                    ACTION: wanted,
                    "task": made.task_description,
                }
                raw = env.step((wanted + np.append(random.normal(0, NOISE, 3), 0)).clip(-1, 1).astype(np.float32))[0]

        return Scripted("metaworld", features, play, made.close)

    write(root, start, episodes, frames, FPS)
