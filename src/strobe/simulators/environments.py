"""Start LeRobot's environments; whatever they raise becomes a UserError of one line.

MuJoCo's simulators are told how to render where there is no screen.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from strobe.errors import UserError, install
from strobe.lerobot.quiet import quiet
from strobe.simulators import libero

NO_OPENGL = "MuJoCo needs OpenGL to render: apt-get install libosmesa6 (Debian, Ubuntu) and set MUJOCO_GL=osmesa"


def choose_opengl() -> None:
    """Set how MuJoCo renders without a screen, which it reads as it is imported; the user's own choice stays.

    Raises UserError if there is no OpenGL that renders without one.
    """
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ or os.environ.get("DISPLAY"):
        return
    for library, name in (("OSMesa", "osmesa"), ("EGL", "egl")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
    raise UserError(NO_OPENGL)


MUJOCO = ("metaworld", "libero", "libero_plus", "aloha")  # types that render by OpenGL


def know(kind: str) -> None:
    """Let LeRobot know the environments of plug-ins (distributions ``lerobot_env_*``), if it knows no ``kind`` yet."""
    from lerobot.envs.configs import EnvConfig
    from lerobot.utils.import_utils import register_third_party_plugins

    if kind not in EnvConfig.get_known_choices():
        with contextlib.suppress(UserError):  # where there is no OpenGL: the plug-in may need none
            choose_opengl()  # before the plug-in imports MuJoCo
        with quiet():
            register_third_party_plugins()


def make(env: Any) -> dict[str, Any]:
    """Return a gymnasium vector of one environment for each task of ``env``, by the task's name."""
    from lerobot.envs.factory import make_env

    if env.type in MUJOCO:
        choose_opengl()
    if env.type in libero.TYPES:
        libero.prepare()
    suites = make_env(env, n_envs=1)
    several = sum(map(len, suites.values())) > 1
    return {
        f"{suite} {number}" if several else suite: vector
        for suite, tasks in suites.items()
        for number, vector in tasks.items()
    }


def task_of(vector: Any) -> list[str]:
    """Return the task of each environment of ``vector``, in words where it has them, as lerobot-eval asks for it."""
    for name in ("task_description", "task"):
        try:
            return [str(task) for task in vector.call(name)]
        except (AttributeError, NotImplementedError):
            continue
    return [""] * vector.num_envs


def called(env: Any, tasks: Sequence[str]) -> str:
    """Name of a simulator: 'PushT-v0', 'metaworld drawer-close-v3', 'libero_spatial (10 tasks)'."""
    kind, task = env.type, env.task
    name = kind if not task else task if kind in task.lower() else f"{kind} {task}"
    return name if len(tasks) == 1 else f"{name} ({len(tasks)} tasks)"


@contextlib.contextmanager
def errors_in_a_line(name: str, failure: str = "cannot be started") -> Iterator[None]:
    """Raises UserError, a line that says ``failure``, for whatever the environment of the type ``name`` raises."""
    try:
        with quiet():
            yield
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(f"the environment '{name}' is not installed: {install(name)}") from error
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"the environment '{name}' {failure}: {reason}") from error
