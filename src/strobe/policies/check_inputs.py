"""Observations that find faults: they differ in frame, state, prompt, its length, and in the cameras that are there.

A policy's caches and masks go wrong where an observation is unlike the one before it; four neighbouring ticks with one
prompt show nothing of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lerobot.utils.constants import OBS_IMAGES
from torch import Tensor

COUNT = 16
# Prompts of other lengths, for observations that all have one. A policy's tokenizer makes other tokens of each.
PROMPTS = (
    "stop",
    "pick up the red cube and place it in the box",
    "open the drawer",
    "put the small blue bowl that stands beside the plate onto the upper shelf of the wooden cabinet, then close it",
    "push the button",
)
SHARE = 0.03  # of the way to another observation: as far as a synthetic neighbour is


@dataclass(frozen=True)
class Checks:
    """Raw observations as `Inputs` has them, and for each one that is near it.

    Args:
        description: where they are from and what they differ in, in words.
        neighbours: one for each observation, with its prompt and its cameras.
        neighbour: what a neighbour is, in words.
    """

    description: str
    observations: list[dict[str, Any]]
    neighbours: list[dict[str, Any]]
    neighbour: str

    @property
    def alike(self) -> list[int]:
        """Those that have the first one's prompt and cameras, at most three: they make tensors of the same shapes."""
        first = self.observations[0]
        return [
            index
            for index, one in enumerate(self.observations)
            if _prompt(one) == _prompt(first) and _cameras(one) == _cameras(first)
        ][:3]


def varied(checks: Checks, *, reads_words: bool, may_miss: bool) -> Checks:
    """Return ``checks`` with other prompts in some, and without their last camera in some.

    Args:
        reads_words: whether the policy reads its prompt. Where all observations have the same one, every other gets
            another, longer or shorter.
        may_miss: whether the policy takes an observation with a camera missing; two get one less, of those that have
            two or more.
    """
    observations = [dict(one) for one in checks.observations]
    neighbours = [dict(one) for one in checks.neighbours]
    said: list[str] = []
    prompts = {_prompt(one) for one in observations}
    if reads_words and len(prompts) == 1 and len(observations) > 1:
        others = [prompt for prompt in PROMPTS if prompt not in prompts]
        for number, index in enumerate(range(1, len(observations), 2)):
            for one in (observations[index], neighbours[index]):
                one["task"] = _like(one.get("task", ""), others[number % len(others)])
        prompts = {_prompt(one) for one in observations}
    if reads_words:
        said.append(f"{len(prompts)} prompts" if len(prompts) > 1 else "one prompt")
    if may_miss:
        missing = [index for index in (2, 7) if index < len(observations) and len(_cameras(observations[index])) > 1]
        for index in missing:
            for one in (observations[index], neighbours[index]):
                del one[_cameras(one)[-1]]
        said += [f"a camera missing in {len(missing)}"] if missing else []
    return Checks(", ".join([checks.description, *said]), observations, neighbours, checks.neighbour)


def blended(observations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a neighbour for each observation: its images and numbers, `SHARE` of the way to the next one's."""
    found = []
    for index, one in enumerate(observations):
        other = observations[(index + 1) % len(observations)]
        moved = {
            key: value + SHARE * (other[key] - value)
            for key, value in one.items()
            if isinstance(value, Tensor) and value.is_floating_point() and value.shape == other[key].shape
        }
        found.append(one | moved)
    return found


def _prompt(observation: dict[str, Any]) -> str:
    task = observation.get("task", "")
    return task if isinstance(task, str) else " ".join(task)


def _like(task: Any, prompt: str) -> Any:
    """``prompt`` in the form that the task has: a text, or a list of one for each in the batch."""
    return prompt if isinstance(task, str) else [prompt] * len(task)


def _cameras(observation: dict[str, Any]) -> list[str]:
    return [key for key, value in observation.items() if key.startswith(OBS_IMAGES) and isinstance(value, Tensor)]
