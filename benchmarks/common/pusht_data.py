"""The human demonstrations of PushT as a data set of LeRobot's with states, from the Diffusion Policy's own file.

    python benchmarks/common/pusht_data.py pusht_cchi_v7_replay.zarr FOLDER/data/pusht

LeRobot publishes the same demonstrations as ``lerobot/pusht_keypoints``. This is for a machine without the Hub. The
file comes with the data of https://diffusion-policy.cs.columbia.edu (206 episodes, 25,650 frames). Needs ``zarr``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_STATE

FPS, TASK = 10, "Push the T-shaped block onto the T-shaped target."
SHAPES = {OBS_STATE: 2, OBS_ENV_STATE: 16, ACTION: 2}


def frames(states: np.ndarray, actions: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield a frame for each tick: the agent's position, the block's corners as the simulator gives them, the action.

    Args:
        states: (ticks, 5), the agent's x and y, the block's x, y and angle.
        actions: (ticks, 2), where the agent shall go, in pixels.
    """
    from gym_pusht.envs.pusht import PushTEnv

    env: Any = PushTEnv(obs_type="environment_state_agent_pos")
    env.reset(seed=0)
    for state, action in zip(states.astype(float), actions, strict=True):
        env.agent.position = tuple(state[:2])
        env.block.angle = state[4]
        env.block.position = tuple(state[2:4])
        seen = env.get_obs()
        arrays = {OBS_STATE: seen["agent_pos"], OBS_ENV_STATE: seen["environment_state"], ACTION: action}
        yield {**{name: np.asarray(values, np.float32) for name, values in arrays.items()}, "task": TASK}


def main() -> None:
    file, root = sys.argv[1:]
    try:
        import zarr  # pyright: ignore[reportMissingImports]
    except ImportError:
        sys.exit("reading the file needs zarr: pip install 'zarr<3'")
    replay = zarr.open(file, "r")
    states, actions, ends = replay["data/state"][:], replay["data/action"][:], replay["meta/episode_ends"][:]
    features = {
        name: {"dtype": "float32", "shape": (size,), "names": [str(number) for number in range(size)]}
        for name, size in SHAPES.items()
    }
    made = LeRobotDataset.create("local/pusht", FPS, features, root=Path(root), robot_type="pusht", use_videos=False)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        for frame in frames(states[start:end], actions[start:end]):
            made.add_frame(frame)
        made.save_episode()
    made.finalize()
    print(f"{len(ends)} episodes, {len(states)} frames: {root}")


if __name__ == "__main__":
    main()
