"""Scripted experts, and recordings of them.

MetaWorld: a Sawyer arm and the expert that comes with each of its 50 tasks. It renders with OpenGL.
PushT: a disc pushes a T-shaped block onto its target. It renders without OpenGL.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.utils.constants import ACTION, OBS_IMAGE, OBS_IMAGES, OBS_STATE

from strobe.core.errors import UserError, install, nearest
from strobe.lerobot.envs.environments import NO_OPENGL, choose_opengl
from strobe.lerobot.quiet import quiet
from strobe.simulators.recorder import Frame, Scripted, write

TASK = "reach-v3"
CAMERAS = ("corner2", "topview")
_AXES = ["x", "y", "z", "gripper"]
# Standard deviation of the noise on the expert's velocities, which are clipped to [-1, 1]. With more, most of the
# actions would be noise.
_NOISE = 0.03


@dataclass(frozen=True)
class Scene:
    """A task of MetaWorld with its cameras; images are ``width`` pixels wide, or as wide as high if that is None."""

    task: str = TASK
    cameras: Sequence[str] = CAMERAS
    width: int | None = None


def record_metaworld(
    root: str | Path,
    episodes: int = 3,
    frames: int = 80,
    fps: int = 80,
    *,
    scene: Scene = Scene(),
    image: int = 480,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Record ``episodes`` of ``frames`` steps each into a new dataset at ``root``, and return its folder.

    A frame has ``observation.images.<camera>`` (``image`` pixels high, video) of each camera of ``scene``,
    ``observation.state`` (the hand's x, y, z in metres and how far the gripper is open) and ``action`` (the
    hand's velocity and the gripper's effort, each in [-1, 1]), all as LeRobot's own environment has them. The expert's
    velocities get some noise; what was executed is what is recorded.

    Raises UserError as `write` does, and if MetaWorld is not installed or cannot render here, or the task or a camera
    is unknown.
    """
    start = partial(_start, scene.task, scene.cameras, (image, scene.width or image), seed)
    return write(root, start, episodes, frames, fps, seed=seed, progress=progress)


@dataclass(frozen=True)
class MetaWorld:
    """A task as LeRobot's environment sets it up, with any number of cameras at any size."""

    env: Any  # MetaWorld's own, whose observation is the full one that the expert needs
    expert: Any
    description: str
    cameras: tuple[str, ...]
    renderer: Any

    def reset(self, seed: int) -> np.ndarray:
        """Begin an episode; return its first observation, (39,). The first four numbers are LeRobot's ``agent_pos``."""
        self.env.seed(seed)
        return self.env.reset(seed=seed)[0]

    def images(self) -> dict[str, np.ndarray]:
        """Return the image of each camera, under its feature's name: (height, width, 3) uint8."""
        seen = {}
        for camera in self.cameras:
            self.renderer.update_scene(self.env.data, camera=camera)
            image = self.renderer.render()
            # MetaWorld's corner2 hangs upside down; LeRobot's environment turns its image too.
            seen[f"{OBS_IMAGES}.{camera}"] = np.ascontiguousarray(image[::-1, ::-1]) if camera == "corner2" else image
        return seen

    def close(self) -> None:
        """Let go of the renderer and the simulator."""
        self.renderer.close()
        self.env.close()


def open_metaworld(
    task: str, cameras: Sequence[str] = CAMERAS, image: int = 480, width: int | None = None
) -> MetaWorld:
    """Set up ``task`` for images ``image`` pixels high, ``width`` or as many wide.

    Raises UserError, see `record_metaworld`.
    """
    size = (image, width or image)
    mujoco, _ = _import()
    theirs = lerobot_metaworld(task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs._ensure_env()  # its public reset and step would render 480 × 480 each time
    env = theirs._env.unwrapped
    known = [env.model.camera(index).name for index in range(env.model.ncam)]
    for camera in cameras:
        if camera not in known:
            raise UserError(f"MetaWorld has no camera '{camera}': {nearest(camera, known)}")
    if not cameras or len(set(cameras)) < len(cameras):
        raise UserError("name at least one camera of MetaWorld, each once")
    buffer = env.model.vis.global_
    buffer.offheight, buffer.offwidth = max(buffer.offheight, size[0]), max(buffer.offwidth, size[1])
    try:
        with quiet():
            renderer = mujoco.Renderer(env.model, *size)
    except Exception as error:  # each of MuJoCo's ways to OpenGL fails with an exception of its own
        raise UserError(NO_OPENGL) from error
    return MetaWorld(env, theirs.expert_policy, theirs.task_description, tuple(cameras), renderer)


def lerobot_metaworld(task: str, changed: Callable[[type], type] = lambda theirs: theirs) -> Any:
    """Return LeRobot's environment of ``task``, of its class or of what ``changed`` makes of that.

    Raises UserError if MetaWorld is not installed or cannot be imported, or has no such task.
    """
    _, lerobot_env = _import()
    name = task.removeprefix("metaworld-")
    if name not in lerobot_env.TASK_DESCRIPTIONS:
        raise UserError(f"unknown MetaWorld task '{task}': {nearest(name, lerobot_env.TASK_DESCRIPTIONS)}")
    return changed(lerobot_env.MetaworldEnv)(name)


def _start(task: str, cameras: Sequence[str], size: tuple[int, int], seed: int) -> Scripted:
    world = open_metaworld(task, cameras, *size)
    picture = {"dtype": "video", "shape": (*size, 3), "names": ["height", "width", "channels"]}
    numbers = {"dtype": "float32", "shape": (4,), "names": _AXES}
    features = {f"{OBS_IMAGES}.{camera}": picture for camera in cameras} | {OBS_STATE: numbers, ACTION: numbers}
    random = np.random.default_rng(seed)

    def play(episode_seed: int) -> Iterator[Frame]:
        observation = world.reset(episode_seed)
        while True:
            action = _act(world.expert, observation, random)
            state = observation[:4].astype(np.float32)
            yield {**world.images(), OBS_STATE: state, ACTION: action, "task": world.description}
            observation, *_ = world.env.step(action)

    return Scripted("metaworld", features, play, world.close)


def _act(expert: Any, observation: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the expert's action, (4,) float32. Noise on the hand's velocity makes it visibly correct itself."""
    action = _raw_action(expert, observation) + np.append(random.normal(0, _NOISE, 3), 0)
    return np.clip(action, -1, 1).astype(np.float32)


def expert_action(expert: Any, observation: np.ndarray) -> np.ndarray:
    """Return the expert's action, (4,) float32 in [-1, 1]."""
    return np.clip(_raw_action(expert, observation), -1, 1)


def _raw_action(expert: Any, observation: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that velocities beyond 1 will be clipped, which the callers do
        return np.asarray(expert.get_action(observation), dtype=np.float32)


def _import() -> tuple[Any, Any]:
    choose_opengl()
    try:
        with quiet():
            import mujoco
            from lerobot.envs import metaworld
    except ModuleNotFoundError as error:
        raise UserError(f"MetaWorld is not installed: {install('metaworld')}") from error
    except (ImportError, AttributeError, RuntimeError) as error:  # from where MuJoCo loads its OpenGL
        raise UserError(NO_OPENGL) from error
    if getattr(mujoco, "mjNEQDATA", 11) != 11:  # numbers of a weld, which MetaWorld 3.0.0 writes as 11
        raise UserError(f"MetaWorld does not run with mujoco {mujoco.__version__}: pip install 'mujoco<3.17'")
    return mujoco, metaworld


PUSHT_TASK = "push the T-shaped block onto the T-shaped target"
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
    return write(root, lambda: _start_pusht(image, frames, seed), episodes, frames, fps, seed=seed, progress=progress)


def _start_pusht(image: int, frames: int, seed: int) -> Scripted:
    env = _make_pusht(image, frames)
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
                "task": PUSHT_TASK,
            }
            observation, *_ = env.step(action)

    return Scripted("pusht", features, play, env.close)


def _make_pusht(image: int, frames: int) -> Any:
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
