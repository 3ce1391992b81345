"""lerobot-train unchanged, which finds its samples in memory: for small datasets without images.

Reading a sample of 40 actions takes LeRobot 12 ms, which is most of a step of a small policy on one core. Here all
columns are read at once. The first samples are compared with LeRobot's own.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.scripts import lerobot_train
from torch import Tensor

COMPARED = 3
READ: Any = LeRobotDataset.__getitem__


@functools.cache
def columns(dataset: LeRobotDataset) -> dict[str, Tensor]:
    """Return all columns of ``dataset``, each (frames, …)."""
    table: dict[str, Any] = dataset.hf_dataset[:]
    return {name: torch.stack(list(values)) for name, values in table.items()}


@functools.cache
def bounds(dataset: LeRobotDataset) -> tuple[Tensor, Tensor]:
    """Return the first frame of each frame's episode, and its last one."""
    episode = columns(dataset)["episode_index"]
    _, of_frame, lengths = torch.unique_consecutive(episode, return_inverse=True, return_counts=True)
    ends = lengths.cumsum(0)
    return (ends - lengths)[of_frame], ends[of_frame] - 1


def sample(dataset: LeRobotDataset, index: int) -> dict[str, Any]:
    """Return the sample at ``index`` as LeRobot does: beyond its episode the nearest frame is padding."""
    found = {name: values[index] for name, values in columns(dataset).items()}
    first, last = (int(each[index]) for each in bounds(dataset))
    for name, seconds in (dataset.delta_timestamps or {}).items():
        wanted = index + (torch.tensor(seconds) * dataset.meta.fps).round().long()
        found[name] = columns(dataset)[name][wanted.clamp(first, last)]
        found[f"{name}_is_pad"] = (wanted < first) | (wanted > last)
    tasks: Any = dataset.meta.tasks
    return {**found, "task": tasks.iloc[int(found["task_index"])].name}


def check_sample(dataset: LeRobotDataset, index: int) -> dict[str, Any]:
    """Return the sample, compared with LeRobot's own for the first few. Raises AssertionError where they differ."""
    made = sample(dataset, index)
    seen = dataset.__dict__.setdefault("compared", [])
    if len(seen) < COMPARED:
        seen.append(index)
        read = READ(dataset, index)
        assert made.keys() == read.keys(), made.keys() ^ read.keys()
        for name, value in read.items():
            alike = torch.equal(value, made[name]) if isinstance(value, Tensor) else value == made[name]
            assert alike, name
    return made


if __name__ == "__main__":
    LeRobotDataset.__getitem__ = check_sample  # type: ignore[method-assign]
    lerobot_train.main()
