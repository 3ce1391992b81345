"""PushT: a disc pushes a T-shaped block onto its target. It renders without OpenGL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.utils.constants import ACTION, OBS_IMAGE, OBS_STATE

from strobe.core.errors import UserError, install
from strobe.lerobot.quiet import quiet
from strobe.simulators.recorder import Frame, Scripted, write

TASK = "push the T-shaped block onto the T-shaped target"
_REACH = 90.0  # how far behind the block's centre the pusher starts, in the table's 512 units


def record_pusht(
    root: str | Path,
    episodes: int = 3,
    frames: int = 40,
    fps: int = 10,
    *,
    image: int = 480,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Record ``episodes`` of ``frames`` steps each into a new dataset at ``root``, and return its folder.

    A frame has ``observation.image`` (``image`` × ``image``, video), ``observation.state`` and ``action``,
    both the pusher's (x, y) on a table of 512 × 512. The pusher is scripted: it goes behind the block and
    pushes it towards the target, with some noise.

    Raises UserError as `write` does, and if gym-pusht is not installed.
    """
    return write(root, lambda: _start(image, frames, seed), episodes, frames, fps, seed=seed, progress=progress)


def _start(image: int, frames: int, seed: int) -> Scripted:
    env = _environment(image, frames)
    axes = ["x", "y"]
    features = {
        OBS_IMAGE: {"dtype": "video", "shape": (image, image, 3), "names": ["height", "width", "channels"]},
        OBS_STATE: {"dtype": "float32", "shape": (2,), "names": axes},
        ACTION: {"dtype": "float32", "shape": (2,), "names": axes},
    }
    random = np.random.default_rng(seed)

    def play(episode_seed: int) -> Iterator[Frame]:
        observation, _ = env.reset(seed=episode_seed)
        while True:
            action = _push(env.unwrapped, random)
            yield {
                OBS_IMAGE: observation["pixels"],
                OBS_STATE: observation["agent_pos"].astype(np.float32),
                ACTION: action,
                "task": TASK,
            }
            observation, *_ = env.step(action)

    return Scripted("pusht", features, play, env.close)


def _environment(image: int, frames: int) -> Any:
    import gymnasium as gym
    from lerobot.envs.configs import PushtEnv

    # LeRobot's config leaves the observation at 96 × 96, smaller than the cameras policies see.
    config = PushtEnv(episode_length=frames + 1)
    size = {"observation_width": image, "observation_height": image}
    try:
        with quiet():
            __import__(config.package_name)
            return gym.make(config.gym_id, disable_env_checker=True, **config.gym_kwargs, **size)
    except ModuleNotFoundError as error:
        raise UserError(f"PushT is not installed: {install('pusht')}") from error


def _push(env: Any, random: np.random.Generator) -> np.ndarray:
    """Return the pusher's next position, ``(2,)`` float32: behind the block, then through it to the target."""
    agent, block = np.array(env.agent.position), np.array(env.block.position)
    ahead = env.goal_pose[:2] - block
    ahead = ahead / max(float(np.linalg.norm(ahead)), 1e-6)
    behind = block - _REACH * ahead
    in_place = np.linalg.norm(agent - behind) < _REACH / 3 or (agent - block) @ ahead < -_REACH / 3
    aim = block + ahead * 20 if in_place else behind
    step = aim - agent
    step *= min(1.0, 60.0 / max(float(np.linalg.norm(step)), 1e-6))
    return np.clip(agent + step + random.normal(0, 6, 2), 0, 512).astype(np.float32)
