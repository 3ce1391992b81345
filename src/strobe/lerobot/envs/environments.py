"""Start LeRobot's environments. Whatever they raise becomes a UserError of one line.

Without a screen, MuJoCo's simulators are set to render off-screen.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from strobe.core import slices
from strobe.core.errors import UserError, install
from strobe.lerobot.envs import libero
from strobe.lerobot.quiet import quiet

if TYPE_CHECKING:  # they take seconds
    from gymnasium.vector import SyncVectorEnv
    from lerobot.envs.configs import EnvConfig

Observation = dict[str, Any]  # name → array, tensor or words, before or after one of LeRobot's processors
NO_OPENGL = "MuJoCo needs OpenGL to render: apt-get install libosmesa6 (Debian, Ubuntu) and set MUJOCO_GL=osmesa"


def choose_opengl() -> None:
    """Set ``MUJOCO_GL``, which MuJoCo reads when it is imported, if there is no screen. The user's own choice stays.

    Raises UserError if no OpenGL here renders without a screen.
    """
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ or os.environ.get("DISPLAY"):
        return
    for library, name in (("OSMesa", "osmesa"), ("EGL", "egl")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
    raise UserError(NO_OPENGL)


# Types that render by OpenGL → the package that does.
MUJOCO = {"metaworld": "metaworld", "libero": "libero", "libero_plus": "libero", "aloha": "gym_aloha"}
PACKAGES = {**MUJOCO, "pusht": "gym_pusht", "metaworld_state": "metaworld"}


def require_simulator(kind: str) -> None:
    """Raise UserError if the simulator is not installed, lacks its assets, or cannot render here.

    It takes a moment: call it before a policy is loaded. A plug-in's simulator says it when it is started.
    """
    if kind in PACKAGES and importlib.util.find_spec(PACKAGES[kind]) is None:
        own = "`make libero` makes an environment of its own for it, .venv-libero; or " * (kind in libero.TYPES)
        extra = PACKAGES[kind].removeprefix("gym_")
        raise UserError(f"the environment '{kind}' is not installed: {own}{install(extra)}")
    if kind in MUJOCO:
        choose_opengl()
    if kind in libero.TYPES:
        libero.prepare()


def register_plugins(kind: str) -> None:
    """Register environments of slices and of plug-ins (``lerobot_env_*``) with LeRobot, if it lacks ``kind``."""
    from lerobot.envs.configs import EnvConfig
    from lerobot.utils.import_utils import register_third_party_plugins

    for each in slices.slices().values():
        for name in each.environments:
            slices.load(name)
    if kind not in EnvConfig.get_known_choices():
        with contextlib.suppress(UserError):  # no OpenGL here: the plug-in may need none
            choose_opengl()  # before the plug-in imports MuJoCo
        with quiet():
            register_third_party_plugins()


def make(env: EnvConfig) -> dict[str, SyncVectorEnv]:
    """Return a gymnasium vector of one environment for each task of ``env``, by the task's name."""
    from lerobot.envs.factory import make_env

    require_simulator(env.type)
    suites: Any = make_env(env, n_envs=1)
    several = sum(map(len, suites.values())) > 1
    return {
        f"{suite} {number}" if several else suite: vector
        for suite, tasks in suites.items()
        for number, vector in tasks.items()
    }


def environment_tasks(vector: SyncVectorEnv) -> list[str]:
    """Return the task of each environment of ``vector`` as lerobot-eval reads it: in words, else its name, else ''."""
    for name in ("task_description", "task"):
        try:
            return [str(task) for task in vector.call(name)]
        except (AttributeError, NotImplementedError):
            continue
    return [""] * vector.num_envs


def display_name(env: EnvConfig, tasks: Sequence[str]) -> str:
    """Return the name of a simulator: 'PushT-v0', 'metaworld drawer-close-v3', 'libero_spatial (10 tasks)'."""
    kind, task = env.type, env.task
    name = kind if not task else task if kind in task.lower() else f"{kind} {task}"
    return name if len(tasks) == 1 else f"{name} ({len(tasks)} tasks)"


@contextlib.contextmanager
def errors_in_a_line(name: str, failure: str = "cannot be started") -> Iterator[None]:
    """Turn whatever the environment of type ``name`` raises inside into a UserError of one line with ``failure``."""
    try:
        with quiet():
            yield
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(f"the environment '{name}' is not installed: {install(name)}") from error
    except Exception as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        reason = f"it has no {line} (--env.task names the task)" if isinstance(error, KeyError) else line
        raise UserError(f"the environment '{name}' {failure}: {reason}") from error
