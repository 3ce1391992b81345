"""LeRobot's standard processors: images are normalised here, states and actions pass through as they are."""

from __future__ import annotations

from typing import Any

from lerobot.processor import PolicyAction, PolicyProcessorPipeline, make_default_pre_post_processors
from torch import Tensor

from .configuration_act_relative_rtc import ACTRelativeRTCConfig


def make_act_relative_rtc_pre_post_processors(
    config: ACTRelativeRTCConfig, dataset_stats: dict[str, dict[str, Tensor]] | None = None
) -> tuple[
    PolicyProcessorPipeline[dict[str, Any], dict[str, Any]],
    PolicyProcessorPipeline[PolicyAction, PolicyAction],
]:
    """Before: rename, add the batch dimension, move to the device, normalise images. After: move to the CPU.

    The config's IDENTITY for ACTION makes the un-normalising step do nothing; it is there because LeRobot overrides
    it by name when training goes on from a checkpoint.
    """
    return make_default_pre_post_processors(config, dataset_stats, normalizer_device=config.device)
