"""Its processors: LeRobot's usual steps."""

from __future__ import annotations

from typing import Any

from lerobot.processor import make_default_policy_processor_steps, make_policy_processor_pipelines


def make_turning_arm_pre_post_processors(config: Any, dataset_stats: Any = None) -> Any:
    steps = make_default_policy_processor_steps(config, dataset_stats)
    return make_policy_processor_pipelines(
        input_steps=[steps.rename_observations, steps.add_batch_dim, steps.to_device, steps.normalize],
        output_steps=[steps.unnormalize, steps.to_cpu],
    )
