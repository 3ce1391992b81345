"""Make up ticks, batches and statistics from a policy's features, without a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE, OBS_STR, REWARD
from torch import Tensor
from torch.nn.functional import interpolate

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Arm
from strobe.core.subjects.subject import Batch, Observation

TINY_IMAGE = (64, 64)  # height and width of a tiny policy's synthetic cameras
TASK = "pick up the red cube and place it in the box"
_DEGREES = 100.0  # the range of a joint, either way


def make_features(
    arm: Arm,
    tiny: bool = False,
    image_size: tuple[int, int] | None = None,
    cameras: int | None = None,
    vectors: Mapping[str, int] | None = None,
) -> dict[str, PolicyFeature]:
    """Return the features of ``arm``, with ``cameras`` cameras; None for two, or fewer if it has no more.

    Args:
        vectors: numbers of values in its state and action, by name, where they are not the arm's.

    Raises:
        UserError: more cameras than the arm may have.
    """
    usual = arm.tiny_image or TINY_IMAGE if tiny else arm.image or (480, 640)
    image = (3, *(image_size or usual))
    most = len(arm.cameras) or arm.most
    if cameras is not None and most is not None and cameras > most:
        raise UserError(f"--cameras={cameras}: this policy takes {most} at most")
    count = cameras or min(2, most or 2)
    names = arm.cameras or [f"{OBS_IMAGES}.{name}" for name in ("front", "wrist")]
    names = [*names, *(f"{OBS_IMAGES}.camera_{number}" for number in range(len(names) + 1, count + 1))][:count]
    numbers = {OBS_STATE: arm.state, ACTION: arm.action, **(vectors or {})}
    return {
        **{name: PolicyFeature(FeatureType.VISUAL, image) for name in names},
        OBS_STATE: PolicyFeature(FeatureType.STATE, (numbers[OBS_STATE],)),
        ACTION: PolicyFeature(FeatureType.ACTION, (numbers[ACTION],)),
    }


def ranges(features: dict[str, PolicyFeature]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the lowest and highest value of each vector feature, as of a joint in degrees."""
    return {
        key: (torch.full(tuple(ft.shape), -_DEGREES), torch.full(tuple(ft.shape), _DEGREES))
        for key, ft in features.items()
        if ft.type is not FeatureType.VISUAL
    }


def stats(features: dict[str, PolicyFeature], ranges: dict[str, tuple[Tensor, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """Return statistics for every normalisation mode, of values spread evenly over their range."""
    statistics = {}
    for key, feature in features.items():
        if feature.type is FeatureType.VISUAL:
            shape = (feature.shape[0], 1, 1)
            low, high = torch.zeros(shape), torch.ones(shape)
        else:
            low, high = ranges[key]
        width = high - low
        statistics[key] = {"min": low, "max": high, "mean": (low + high) / 2, "std": width / 12**0.5}
        statistics[key] |= {f"q{q:02d}": low + width * q / 100 for q in (1, 10, 50, 90, 99)}
    return statistics


def tick(
    features: dict[str, PolicyFeature], ranges: dict[str, tuple[Tensor, Tensor]], generator: torch.Generator
) -> Observation:
    """Return one tick's observation: images ``(1, C, H, W)`` of smooth noise in [0, 1], vectors ``(1, D)``."""
    values: dict[str, object] = {}
    for key, feature in features.items():
        if feature.type is FeatureType.VISUAL:
            values[key] = smooth_noise((1, *feature.shape), generator)
        elif feature.type in (FeatureType.STATE, FeatureType.ENV):
            values[key] = _draw(ranges[key], (1,), generator)
    return values


def smooth_noise(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return images of smooth noise in [0, 1], of ``shape`` (images, channels, height, width)."""
    *images, height, width = shape
    coarse = torch.rand(*images, max(height // 32, 2), max(width // 32, 2), generator=generator)
    return interpolate(coarse, (height, width), mode="bilinear", align_corners=False)


def _draw(limits: tuple[Tensor, Tensor], lead: tuple[int, ...], generator: torch.Generator) -> Tensor:
    low, high = limits
    return low + (high - low) * torch.rand(*lead, *low.shape, generator=generator)


def batch(
    config: PreTrainedConfig,
    features: dict[str, PolicyFeature],
    ranges: dict[str, tuple[Tensor, Tensor]],
    ticks: list[Observation],
    size: int,
    generator: torch.Generator,
) -> Batch:
    """Return a training batch with the policy's deltas, as a DataLoader over a LeRobotDataset collates it.

    Observations are ticks picked at random, actions drawn from their range; nothing is padding.
    """
    from lerobot.utils.collate import lerobot_collate_fn

    items = []
    for index in range(size):
        at = int(torch.randint(len(ticks), (1,), generator=generator))
        item: dict[str, object] = {}
        for key, value in ticks[at].items():
            if not (key.startswith(OBS_STR) and isinstance(value, Tensor)):
                continue
            deltas = config.observation_delta_indices
            item[key] = value[0]
            if deltas is not None:
                item[key] = torch.cat([ticks[(at + d) % len(ticks)][key] for d in deltas])
                item[f"{key}_is_pad"] = torch.zeros(len(deltas), dtype=torch.bool)
        for key, feature in features.items():
            if feature.type is FeatureType.ACTION:
                deltas = config.action_delta_indices
                item[key] = _draw(ranges[key], () if deltas is None else (len(deltas),), generator)
                if deltas is not None:
                    item[f"{key}_is_pad"] = torch.zeros(len(deltas), dtype=torch.bool)
        if config.reward_delta_indices is not None:
            item[REWARD] = torch.rand(len(config.reward_delta_indices), generator=generator)
            item[f"{REWARD}_is_pad"] = torch.zeros(len(config.reward_delta_indices), dtype=torch.bool)
        task = ticks[at]["task"]
        item |= {
            "index": torch.tensor(index),
            "task_index": torch.tensor(0),
            "episode_index": torch.tensor(0),
        }
        items.append(item | {"task": task if isinstance(task, str) else task[0]})
    return lerobot_collate_fn(items) or {}


class Meta:
    """Stands for a LeRobotDatasetMetadata: features, statistics, rate."""

    def __init__(
        self, features: dict[str, PolicyFeature], stats: dict[str, dict[str, Tensor]], fps: int, word: str = "joint_"
    ) -> None:
        self.stats = stats
        self._word = word  # for a dimension, before its number
        self.fps = fps
        self.robot_type = None
        self._features = features

    @cached_property
    def features(self) -> dict[str, dict[str, object]]:
        """In the dataset's own form: images (H, W, C)."""
        described: dict[str, dict[str, object]] = {}
        for key, feature in self._features.items():
            if feature.type is FeatureType.VISUAL:
                channels, height, width = feature.shape
                shape, dtype, names = (height, width, channels), "video", ["height", "width", "channels"]
            else:
                shape, dtype = tuple(feature.shape), "float32"
                names = [f"{self._word}{i}" for i in range(feature.shape[0])]
            described[key] = {"dtype": dtype, "shape": shape, "names": names}
        return described

    @property
    def camera_keys(self) -> list[str]:
        """The names of its images."""
        return [key for key, feature in self._features.items() if feature.type is FeatureType.VISUAL]
