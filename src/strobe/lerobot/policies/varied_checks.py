"""Observations of a policy that find faults: other prompts, a camera that is missing, and neighbours in between."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.subjects.check_inputs import Checks, Observation, find_prompt, list_cameras
from strobe.core.torch_there import is_tensor

# Prompts of other lengths, for observations that all have one. A policy's tokenizer makes other tokens of each.
PROMPTS = (
    "stop",
    "pick up the red cube and place it in the box",
    "open the drawer",
    "put the small blue bowl that stands beside the plate onto the upper shelf of the wooden cabinet, then close it",
    "push the button",
)
SHARE = 0.03  # share of the way to another observation: as far as a synthetic neighbour is


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
    prompts = {find_prompt(observation) for observation in observations}
    if reads_words and len(prompts) == 1 and len(observations) > 1:
        others = [prompt for prompt in PROMPTS if prompt not in prompts]
        for number, index in enumerate(range(1, len(observations), 2)):
            prompt = others[number % len(others)]
            for observation in (observations[index], neighbours[index]):
                task = observation.get("task", "")
                observation["task"] = prompt if isinstance(task, str) else [prompt] * len(task)
        prompts = {find_prompt(observation) for observation in observations}
    if reads_words:
        differences.append(f"{len(prompts)} prompts" if len(prompts) > 1 else "one prompt")
    if may_miss:
        missing = [
            index for index in (2, 7) if index < len(observations) and len(list_cameras(observations[index])) > 1
        ]
        for index in missing:
            for observation in (observations[index], neighbours[index]):
                del observation[list_cameras(observation)[-1]]
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
