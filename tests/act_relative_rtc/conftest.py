"""Tiny policies of the plug-in in packages/, which these tests use from its source folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.utils.constants import ACTION, OBS_ENV_STATE, OBS_STATE
from torch import Tensor

SOURCE = Path(__file__).parents[2] / "packages" / "lerobot_policy_act_relative_rtc" / "src"
sys.path.insert(0, str(SOURCE))

Made = tuple[Any, dict[str, Tensor]]


def make_policy(
    *, seed: int = 0, batch: int = 2, state: int = 3, action: int = 4, image: int = 0, past: bool = True, **options: Any
) -> Made:
    """A policy of a few thousand weights in float64 without dropout, in training mode, and a batch for it.

    It sees an environment state, or with ``image`` one camera of that size. ``past``: the batch's states have a time
    axis, as LeRobot's training batches do.
    """
    from lerobot_policy_act_relative_rtc import ACTRelativeRTCConfig, ACTRelativeRTCPolicy

    small = {"dim_model": 8, "n_heads": 2, "dim_feedforward": 12, "n_encoder_layers": 2, "n_vae_encoder_layers": 1}
    small |= {"latent_dim": 3, "chunk_size": 6, "rtc_max_delay": 3, "dropout": 0.0}
    inputs = {OBS_STATE: PolicyFeature(FeatureType.STATE, (state,))}
    if image:
        inputs["observation.images.top"] = PolicyFeature(FeatureType.VISUAL, (3, image, image))
    else:
        inputs[OBS_ENV_STATE] = PolicyFeature(FeatureType.ENV, (2,))
    config = ACTRelativeRTCConfig(
        input_features=inputs,
        output_features={ACTION: PolicyFeature(FeatureType.ACTION, (action,))},
        pretrained_backbone_weights=None,
        device="cpu",
        **{**small, **options},
    )
    torch.manual_seed(seed)
    stats = {
        key: {"mean": torch.randn(n), "std": torch.rand(n) + 0.5} for key, n in ((OBS_STATE, state), (ACTION, action))
    }
    policy = ACTRelativeRTCPolicy(config, dataset_stats=stats).double().train()
    times = (2,) if past else ()
    values = {key: torch.randn(batch, *times, *feature.shape).double() for key, feature in inputs.items()}
    values[ACTION] = torch.randn(batch, config.chunk_size, action).double()
    values["action_is_pad"] = torch.zeros(batch, config.chunk_size, dtype=torch.bool)
    return policy, values


@pytest.fixture(scope="session")
def make() -> Callable[..., Made]:
    return make_policy


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LeRobotDataset without images, of three episodes, one of them shorter than a chunk; its folder.

    The state walks, and the actions go ahead of it: relative ones can be learnt from the state's change.
    """
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    root = tmp_path_factory.mktemp("data") / "walks"
    shapes = {OBS_STATE: 2, OBS_ENV_STATE: 2, ACTION: 3}
    features = {
        k: {"dtype": "float32", "shape": (n,), "names": [f"{i}.pos" for i in range(n)]} for k, n in shapes.items()
    }
    made = LeRobotDataset.create("local/walks", 10, features, root=root, use_videos=False)
    torch.manual_seed(3)
    for length in (4, 30, 11):
        speed, state = torch.randn(2), 100 * torch.rand(2)
        for _ in range(length):
            speed = speed + 0.1 * torch.randn(2)
            state = state + speed
            action = torch.cat([state + speed, speed.sum()[None]])
            made.add_frame(
                {OBS_STATE: state.numpy(), OBS_ENV_STATE: speed.numpy(), ACTION: action.numpy(), "task": "walk"}
            )
        made.save_episode()
    made.finalize()
    return root
