"""Read frames of a LeRobotDataset as a policy gets them: observations, batches and the observations of a check."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from lerobot.configs import PreTrainedConfig
from lerobot.utils.constants import OBS_STR
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.subjects.check_inputs import Checks
from strobe.core.subjects.subject import Batch, Observation
from strobe.lerobot.datasets import finder
from strobe.lerobot.datasets.recording import evenly_spaced
from strobe.lerobot.policies.options import check_dataset
from strobe.lerobot.policies.standins import hub_reachable
from strobe.lerobot.quiet import quiet


class DatasetFrames:
    """The frames of a dataset, with the policy's deltas of time.

    Camera statistics are ImageNet's, as in training.

    Args:
        root, repo_id: the folder, or the name in the cache or on the Hub; at least one of them.
        episodes: the episodes to read; None for all.
        video_backend: LeRobot's decoder; None for its own choice.
        stacked: whether an observation holds all ticks that the policy looks at.

    Attributes:
        meta: LeRobot's ``LeRobotDatasetMetadata``.
        faults: faults of the dataset that do not stop reading, in words.

    Raises:
        UserError: the dataset is missing, has no frames, or cannot be read.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        root: str | Path | None,
        repo_id: str | None,
        episodes: list[int] | None,
        video_backend: str | None,
        *,
        stacked: bool,
        seed: int,
    ) -> None:
        from lerobot.datasets.factory import IMAGENET_STATS, resolve_delta_timestamps
        from lerobot.datasets.lerobot_dataset import LeRobotDataset, LeRobotDatasetMetadata

        where = locate_dataset(root, repo_id)
        name = repo_id or f"local/{where.name}"
        self._where = where
        self._label = repo_id or where
        self._reading = partial(finder.reading, where, repo_id, episodes)
        options: dict[str, Any] = {"root": where, "episodes": episodes, "video_backend": video_backend}
        with self._reading(), quiet():
            self.meta: Any = LeRobotDatasetMetadata(name, root=where)
            deltas = resolve_delta_timestamps(config, self.meta)
            self._training: Any = LeRobotDataset(name, delta_timestamps=deltas, return_uint8=True, **options)
            ticks = {key: times for key, times in (deltas or {}).items() if key.startswith(OBS_STR)}
            self._frames: Any = LeRobotDataset(name, delta_timestamps=ticks if stacked else None, **options)
        if len(self._frames) == 0:
            raise UserError(f"the dataset at {where} has no frames: record some first")
        self.faults = finder.note_dataset_faults(where, repo_id, episodes)
        for key in self.meta.camera_keys:
            self.meta.stats[key] |= {k: torch.tensor(v, dtype=torch.float32) for k, v in IMAGENET_STATS.items()}
        self._keys = [key for key in self.meta.features if key.startswith(OBS_STR)]
        self._generator = torch.Generator().manual_seed(seed)

    def describe(self, count: int) -> str:
        """Return ``count`` frames of it in words."""
        return f"{count} frames of the dataset {self._label}"

    def observation(self, index: int) -> Observation:
        """Return frame ``index`` as `Inputs.observations` has it. Raises UserError if it holds NaN or infinity."""
        with self._reading():
            item = self._frames[index]
        tensors = {key: item[key] for key in self._keys if isinstance(item[key], Tensor)}
        if not all(value.isfinite().all() for value in tensors.values()):
            episode = int(item["episode_index"])
            place = f"episode {episode} of the dataset at {self._where} has NaN or infinite values"
            raise UserError("; ".join([place, *self.faults[:1]]))
        seen: Observation = {key: value.unsqueeze(0) for key, value in tensors.items()}
        return seen | {"task": item["task"], "robot_type": self.meta.robot_type or ""}

    def observations(self, count: int) -> list[Observation]:
        """Return ``count`` observations, or as many as there are frames, spread over all of them."""
        return [self.observation(index) for index in evenly_spaced(len(self._frames), count)]

    def checks(self, count: int) -> Checks:
        """Return observations to compare actions on, each with the next frame of its episode."""
        chosen = evenly_spaced(len(self._frames), count)
        return Checks(
            description=self.describe(len(chosen)),
            observations=[self.observation(index) for index in chosen],
            neighbours=[self.observation(self._next(index)) for index in chosen],
            neighbour="the next frame of the episode",
        )

    def column(self, key: str) -> object:
        """Return a feature's vectors of all frames that are read, (frames, dimensions), as an array of numpy."""
        import numpy as np

        with self._reading():
            values = self._frames.hf_dataset.with_format("numpy")[key][:]
        return np.stack([np.atleast_1d(value) for value in values])

    def batch(self, size: int) -> Batch:
        """Return a training batch of ``size`` frames drawn at random, collated, images float in [0, 1]."""
        from lerobot.utils.collate import lerobot_collate_fn

        picks = torch.randint(len(self._training), (size,), generator=self._generator).tolist()
        with self._reading():
            batch = lerobot_collate_fn([self._training[index] for index in picks]) or {}
        for key in self.meta.camera_keys:
            if batch[key].dtype == torch.uint8:
                batch[key] = batch[key].to(torch.float32) / 255.0
        return batch

    def _next(self, index: int) -> int:
        episodes = self._frames.hf_dataset["episode_index"]
        for other in (index + 1, index - 1):
            if 0 <= other < len(self._frames) and int(episodes[other]) == int(episodes[index]):
                return other
        return index


def locate_dataset(root: str | Path | None, repo_id: str | None) -> Path:
    """Return the folder of a LeRobotDataset, fetched from the Hub if need be. Raises UserError if there is none."""
    from lerobot.utils.constants import HF_LEROBOT_HOME

    if root is None and repo_id is None:
        raise UserError("the dataset is missing: use --dataset.root=FOLDER or --dataset.repo_id=OWNER/NAME")
    where = Path(root) if root is not None else HF_LEROBOT_HOME / str(repo_id)
    # Checked first, because LeRobot makes the folder that it does not find.
    if (where / "meta" / "info.json").is_file():
        return where
    if root is not None:
        check_dataset(where)
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    if not hub_reachable():
        raise UserError(
            f"the dataset {repo_id} is not at {where} and the Hub cannot be reached; "
            "use a local one with --dataset.root=FOLDER"
        )
    try:
        with quiet():
            return Path(LeRobotDataset(str(repo_id)).root)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"the dataset {repo_id} cannot be fetched from the Hub: {reason}") from error
