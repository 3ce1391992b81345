"""Observations that find faults: they differ in frame, state, prompt, its length, and in the cameras that are there.

Faults of caches and masks show when an observation differs from the one before it; four neighbouring ticks with one
prompt do not show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strobe.core.torch_there import is_tensor

Observation = dict[str, Any]  # images, state and task text of one moment, by LeRobot's keys
OBS_IMAGES = "observation.images"  # as LeRobot begins the keys of cameras
COUNT = 16
# Prompts of other lengths, for observations that all have one. A policy's tokenizer makes other tokens of each.
PROMPTS = (
    "stop",
    "pick up the red cube and place it in the box",
    "open the drawer",
    "put the small blue bowl that stands beside the plate onto the upper shelf of the wooden cabinet, then close it",
    "push the button",
)
SHARE = 0.03  # share of the way to another observation: as far as a synthetic neighbour is


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
        first = _cameras(self.observations[0])
        return [index for index, other in enumerate(self.observations) if _cameras(other) == first]

    @property
    def same_shape(self) -> list[int]:
        """Indices of observations with the prompt and cameras of the first, three at most: their shapes match."""
        first = self.observations[0]
        return [
            index
            for index, other in enumerate(self.observations)
            if _prompt(other) == _prompt(first) and _cameras(other) == _cameras(first)
        ][:3]


def vary_checks(checks: Checks, *, reads_words: bool, may_miss: bool) -> Checks:
    """Return ``checks`` with other prompts in some, and without their last camera in some.

    Args:
        reads_words: whether the policy reads its prompt. If all observations have the same one, every second gets
            another, longer or shorter.
        may_miss: whether the policy takes an observation with a camera missing. Two observations with two or more
            cameras then lose one.
    """
    observations = [dict(observation) for observation in checks.observations]
    neighbours = [dict(observation) for observation in checks.neighbours]
    differences: list[str] = []
    prompts = {_prompt(observation) for observation in observations}
    if reads_words and len(prompts) == 1 and len(observations) > 1:
        others = [prompt for prompt in PROMPTS if prompt not in prompts]
        for number, index in enumerate(range(1, len(observations), 2)):
            prompt = others[number % len(others)]
            for observation in (observations[index], neighbours[index]):
                task = observation.get("task", "")
                observation["task"] = prompt if isinstance(task, str) else [prompt] * len(task)
        prompts = {_prompt(observation) for observation in observations}
    if reads_words:
        differences.append(f"{len(prompts)} prompts" if len(prompts) > 1 else "one prompt")
    if may_miss:
        missing = [index for index in (2, 7) if index < len(observations) and len(_cameras(observations[index])) > 1]
        for index in missing:
            for observation in (observations[index], neighbours[index]):
                del observation[_cameras(observation)[-1]]
        differences += [f"a camera missing in {len(missing)}"] if missing else []
    return Checks(", ".join([checks.description, *differences]), observations, neighbours, checks.neighbour)


def blend_observations(observations: Sequence[Observation]) -> list[Observation]:
    """Return a neighbour for each observation: its images and numbers, `SHARE` of the way to the next one's."""
    neighbours = []
    for index, observation in enumerate(observations):
        other = observations[(index + 1) % len(observations)]
        moved = {
            key: value + SHARE * (other[key] - value)
            for key, value in observation.items()
            if is_tensor(value) and value.is_floating_point() and value.shape == other[key].shape
        }
        neighbours.append(observation | moved)
    return neighbours


def _prompt(observation: Observation) -> str:
    task = observation.get("task", "")
    return task if isinstance(task, str) else " ".join(task)


def _cameras(observation: Observation) -> list[str]:
    return [key for key, value in observation.items() if key.startswith(OBS_IMAGES) and is_tensor(value)]
