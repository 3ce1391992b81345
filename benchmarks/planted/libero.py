"""Record LIBERO for `contract.py`: a scripted arm reaches, turns its hand, closes it and opens it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

AXES = ["x", "y", "z", "turn x", "turn y", "turn z"]
OTHER_STARTS = 20  # of the task's list of 50, from where recordings begin: the comparison begins at its first


def record_libero(root: Path, seed: int, options: Mapping[str, Any]) -> None:
    """Write episodes of 90 ticks into a folder, as LeRobot's own environment with ``options`` and its processors do."""
    from lerobot.envs.configs import EnvConfig
    from lerobot.envs.factory import make_env_pre_post_processors
    from lerobot.envs.utils import preprocess_observation

    from strobe.lerobot.envs import environments, libero
    from strobe.simulators.recorder import Scripted, write

    env: Any = EnvConfig.get_choice_class("libero")(**options)
    to_policy, _ = make_env_pre_post_processors(env, None)
    picture = {
        "dtype": "video",
        "shape": (env.observation_height, env.observation_width, 3),
        "names": ["height", "width", "channels"],
    }
    numbers = {"state": [*AXES, "left finger", "right finger"], "action": [*AXES, "gripper"]}
    features = {f"observation.images.{name}": picture for name in ("image", "image2")}
    for name, names in zip(("observation.state", "action"), numbers.values(), strict=True):
        features[name] = {"dtype": "float32", "shape": (len(names),), "names": names}

    def start() -> Scripted:
        vector: Any = next(iter(environments.make(env).values()))

        def observe(raw: Any) -> dict[str, Any]:
            seen = to_policy(preprocess_observation(raw))
            numbers = {name: seen[name][0].numpy() for name in features if name != "action"}
            return {name: (255 * value.transpose(1, 2, 0)).round().astype(np.uint8) if value.ndim == 3 else value
                    for name, value in numbers.items()}  # fmt: skip

        def play(episode_seed: int) -> Iterator[dict[str, Any]]:
            random = np.random.default_rng(episode_seed)
            libero.choose_starts(vector, [OTHER_STARTS + episode_seed])
            seen = observe(vector.reset(seed=episode_seed)[0])
            goals = seen["observation.state"][:3] + random.uniform((-0.15, -0.2, -0.15), (0.2, 0.2, 0.05), (3, 3))
            turn, (close, reopen) = np.zeros(3), np.array([32, 66]) + random.integers(-6, 7, 2)
            for tick in range(10**6):
                away = 8 * (goals[min(tick // 30, 2)] - seen["observation.state"][:3])
                turn = 0.9 * turn + random.normal(0, 0.06, 3)
                grip = 1.0 if close <= tick < reopen else -1.0
                action = np.concatenate([away + random.normal(0, 0.05, 3), turn, [grip]]).clip(-1, 1).astype(np.float32)
                yield {**seen, "action": action, "task": environments.environment_tasks(vector)[0]}
                seen = observe(vector.step(action[None])[0])

        return Scripted("panda", features, play, vector.close)

    write(root, start, 10, 90, 20, seed=seed)
