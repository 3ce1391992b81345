"""Both sides of the contract: a training set as it was recorded, and a simulator as LeRobot starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from strobe.core.errors import UserError, error_line
from strobe.lerobot.datasets import recording
from strobe.lerobot.datasets.fault import DatasetError, sentence
from strobe.lerobot.datasets.frames import ImageReader, task_names
from strobe.lerobot.datasets.numbers import ACTION, STATE, is_switch, read_numbers
from strobe.lerobot.envs.environments import Observation
from strobe.lerobot.envs.seldom_rendered import PlayedEpisodes

if TYPE_CHECKING:
    from lerobot.envs.configs import EnvConfig

STARTS, TICKS, FLIPPED = 12, 80, 12  # resets; actions executed after each; the last of them, with grippers flipped
EPISODES = 200  # most episodes of the training set


@dataclass(frozen=True)
class Side:
    """One side: the images and states at the start of episodes, and the actions with the states that follow.

    Args:
        tasks: in words.
        images: camera → the first image of some episodes, (height, width, 3), 0 to 255.
        states, actions: of each episode, (ticks, dimensions); a state is that before the action.
        names: of the dimensions of the state and of the action; of a simulator none.
        bounds: the least and the greatest action of each dimension, (2, dimensions); of recordings nearly (1 %).
    """

    fps: float
    tasks: list[str]
    images: dict[str, list[np.ndarray]]
    states: list[np.ndarray]
    actions: list[np.ndarray]
    names: tuple[list[str], list[str]]
    bounds: np.ndarray


def read_set(root: Path, episodes: Sequence[int] | None = None) -> Side:
    """Return a training set, or some of its episodes. Raises UserError if it cannot be read or has no actions."""
    try:
        read = recording.read(root)
        numbers, tasks = read_numbers(read), list(task_names(read).values())
        bounds = [each for each in numbers.bounds if episodes is None or int(numbers.episode[each[0]]) in episodes]
        if not bounds or not numbers.vectors.keys() >= {STATE, ACTION}:
            raise UserError(f"the dataset at {root} has no episode with {STATE} and {ACTION}: --env needs both")
        first = [int(numbers.episode[bounds[at][0]]) for at in recording.evenly_spaced(len(bounds), STARTS)]
        with closing(ImageReader(read)) as reader:
            images = {camera: [reader.image(each, camera, 0) for each in first] for camera in reader.cameras}
    except DatasetError as error:
        raise UserError(f"the dataset at {root}: {sentence(error.fault, ())}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"the dataset at {root} is not as LeRobot writes it: {error_line(error, 120)}") from None
    bounds = [bounds[at] for at in recording.evenly_spaced(len(bounds), EPISODES)]
    states, actions = ([numbers.vectors[name][start:end] for start, end in bounds] for name in (STATE, ACTION))
    listed = [recording.dimension_names(read.features[name]) for name in (STATE, ACTION)]
    names = [own if len(own) == values[0].shape[1] else [f"number {at}" for at in range(values[0].shape[1])]
             for own, values in zip(listed, (states, actions), strict=True)]  # fmt: skip
    reach = np.nanquantile(np.concatenate(actions), (0.01, 0.99), axis=0)
    return Side(read.fps, tasks, images, states, actions, (names[0], names[1]), reach)


def look(env: EnvConfig, recorded: Side, rename: Mapping[str, str]) -> Side:
    """Start a simulator several times, and execute recorded actions in it. Raises UserError if it cannot be started.

    Args:
        rename: names in the simulator's observations → names in the training set.
    """
    chosen = recording.evenly_spaced(len(recorded.actions), STARTS)
    taken = env.features.get(ACTION)
    fits = taken is not None and taken.shape == recorded.bounds.shape[1:]
    actions = [_flip_switches(recorded.actions[at][: TICKS - FLIPPED], recorded) for at in chosen] if fits else []
    episodes = PlayedEpisodes(env, None, len(actions) or STARTS, TICKS if actions else 1, 0, actions)
    runs = [[_observe(tick, rename) for tick in run] for run in episodes.runs({0})]
    cameras = [name for name, value in runs[0][0].items() if value.ndim == 3]
    return Side(
        fps=float(env.fps), tasks=episodes.tasks, actions=actions, names=([], []),
        images={name: [255 * run[0][name].transpose(1, 2, 0) for run in runs] for name in cameras},
        states=[np.stack([tick.get(STATE, np.zeros(0)) for tick in run]) for run in runs],
        bounds=np.stack([episodes.space.low, episodes.space.high]),
    )  # fmt: skip


def _flip_switches(actions: np.ndarray, recorded: Side) -> np.ndarray:
    """Return recorded actions that go on with the last one, each switch at its other end; without any, as they are."""
    switches = is_switch(np.concatenate(recorded.actions))
    last = np.where(switches, recorded.bounds.sum(axis=0) - actions[-1], actions[-1])
    return np.concatenate([actions, np.tile(last, (FLIPPED, 1))]) if switches.any() else actions


def _observe(tick: Observation, rename: Mapping[str, str]) -> dict[str, np.ndarray]:
    return {rename.get(name, name): value[0].cpu().numpy() for name, value in tick.items() if hasattr(value, "cpu")}
