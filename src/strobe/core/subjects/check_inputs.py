"""Observations that find faults: they differ in frame, state, prompt, its length, and in the cameras that are there.

Faults of caches and masks show when an observation differs from the one before it; four neighbouring ticks with one
prompt do not show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strobe.core.torch_there import is_tensor

Observation = dict[str, Any]  # images, state and task text of one moment, by LeRobot's keys
OBS_IMAGES = "observation.images"  # as LeRobot begins the keys of cameras
COUNT = 16


@dataclass(frozen=True)
class Checks:
    """Raw observations as `Inputs` has them, each with a neighbour.

    Args:
        description: their source and their differences, in words.
        neighbours: a slightly different observation for each, with the same prompt and cameras.
        neighbour: the meaning of a neighbour, in words.
    """

    description: str
    observations: list[Observation]
    neighbours: list[Observation]
    neighbour: str

    @property
    def same_cameras(self) -> list[int]:
        """Indices of observations with the cameras of the first."""
        first = list_cameras(self.observations[0])
        return [index for index, other in enumerate(self.observations) if list_cameras(other) == first]

    @property
    def same_shape(self) -> list[int]:
        """Indices of observations with the prompt and cameras of the first, three at most: their shapes match."""
        first = self.observations[0]
        return [
            index
            for index, other in enumerate(self.observations)
            if find_prompt(other) == find_prompt(first) and list_cameras(other) == list_cameras(first)
        ][:3]


def find_prompt(observation: Observation) -> str:
    """Return the task of ``observation``, '' without one."""
    task = observation.get("task", "")
    return task if isinstance(task, str) else " ".join(task)


def list_cameras(observation: Observation) -> list[str]:
    """Return the keys of the images of ``observation``."""
    return [key for key, value in observation.items() if key.startswith(OBS_IMAGES) and is_tensor(value)]
