"""The policy that LeRobot's server is to load, and observations as a robot of LeRobot's gives them: numbers by joint.

The server puts a robot's numbers together by the features that its client names on connecting. They come from a data
set, from a file, or from the config of a checkpoint on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strobe.errors import UserError, in_a_line
from strobe.policies.servers.observations import STATE, TASK, Observations, Source

IMAGES = "observation.images."


@dataclass(frozen=True)
class ServedPolicy:
    """The policy that a client of LeRobot's server chooses. Other servers choose theirs when they begin.

    Args:
        path: a checkpoint's folder on the server's machine, or its id on the Hub.
        kind: the policy's type, such as 'act'; '' to read it in the folder.
        device: torch's name of the server's device.
        actions: of a chunk.
    """

    path: str
    kind: str = ""
    device: str = "cpu"
    actions: int = 50

    def config(self) -> Mapping[str, Any]:
        """Return the config of the checkpoint, where its folder is on this machine too; else an empty map."""
        file = Path(self.path) / "config.json"
        try:
            read = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read: {in_a_line(error, 120)}") from None
        return read if isinstance(read, dict) else {}

    @property
    def type(self) -> str:
        """The policy's type. Raises UserError where nothing says it."""
        kind = self.kind or str(self.config().get("type", ""))
        if not kind:
            raise UserError(f"{self.path} is not on this machine: give the policy's type with --policy.type")
        return kind


@dataclass(frozen=True)
class Robot:
    """What a client says of its robot, and the robot's observations.

    Args:
        features: as LeRobot's data sets describe them.
        joints: names of the state's numbers.
    """

    features: Mapping[str, Mapping[str, Any]]
    joints: Sequence[str]
    observations: Observations

    def state(self, observation: Mapping[str, Any]) -> np.ndarray:
        """Return the state of an observation, of shape (state dim,)."""
        return np.array([observation[name] for name in self.joints])


def robot_of(source: Source, policy: ServedPolicy) -> Robot:
    """Return the robot that gives the observations of ``source``. Raises UserError where its features are not known."""
    if source.frames:
        rename = source.rename
        frames = [{rename.get(name, name): value for name, value in frame.items()} for frame in source.frames]
        tasks = [source.task(frame) for frame in source.frames]
        recorded_as = next((name for name, new in rename.items() if new == STATE), STATE)
        names = _joints(source.features.get(recorded_as, {}).get("names"))
        words, recorded = source.description, True
    elif source.given is not None:
        frames, names, recorded = [dict(source.given)], [], source.recorded
        tasks = [source.options.prompt or str(source.given.get("task", source.given.get("prompt", TASK)))]
        words = source.description
    else:
        frames, names, recorded = [_synthetic(source, policy)], [], False
        tasks = [source.options.prompt or TASK]
        words = f"a synthetic observation of the shapes in the config of {Path(policy.path).name}"
    state = frames[0].get(STATE)
    if not isinstance(state, np.ndarray) or state.ndim != 1:
        raise UserError(f"LeRobot's server needs {STATE} of shape (joints,); --rename_map names it in a data set")
    joints = names if len(names) == len(state) else [f"joint_{number}.pos" for number in range(len(state))]
    cameras = {name: value for name, value in frames[0].items() if name.startswith(IMAGES)}
    if wrong := [name for name, value in cameras.items() if value.dtype != np.uint8 or value.ndim != 3]:
        raise UserError(f"LeRobot's server takes images of (height, width, 3) in uint8, and {wrong[0]} is none")
    features: dict[str, dict[str, Any]] = {STATE: {"dtype": "float32", "shape": (len(state),), "names": joints}}
    for name, value in cameras.items():
        features[name] = {"dtype": "image", "shape": tuple(value.shape), "names": ["height", "width", "channels"]}
    each = [
        {
            **dict(zip(joints, frame[STATE].tolist(), strict=True)),
            **{name.removeprefix(IMAGES): frame[name] for name in cameras},
            "task": task,
        }
        for frame, task in zip(frames, tasks, strict=True)
    ]
    return Robot(features, joints, Observations(each, words, recorded))


def _joints(names: Any) -> list[str]:
    """Return the names of a state's numbers, which some data sets keep in a map; none where they are not unique."""
    if isinstance(names, Mapping):
        names = next(iter(names.values()), None)
    read = [str(name) for name in names] if isinstance(names, list) else []
    return read if len(set(read)) == len(read) else []


def _synthetic(source: Source, policy: ServedPolicy) -> dict[str, Any]:
    """Return an observation of the shapes that a checkpoint's config names."""
    features = policy.config().get("input_features")
    if not isinstance(features, dict) or not features:
        raise UserError(
            f"{policy.path} is not on this machine, so nothing says what its observations are: give --dataset.root or "
            "--policy.observation"
        )
    generator, made = source.generator, {}
    for name, feature in features.items():
        shape = [int(size) for size in feature.get("shape", ())]
        if name.startswith(IMAGES) and len(shape) == 3:
            height, width = source.options.image_size or (shape[1], shape[2])
            made[name] = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        elif name == STATE:
            made[name] = generator.standard_normal(shape).astype(np.float32)
    return made
