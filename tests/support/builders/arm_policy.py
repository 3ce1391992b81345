"""A policy for the emulated arm."""

from __future__ import annotations

from pathlib import Path

from strobe.rehearse.emulator import calibration

JOINTS = list(calibration.so101())


def save_act(folder: Path, width: int, height: int) -> None:
    """A tiny ACT of random weights for an SO-101 with cameras front and wrist: a few degrees around the middle."""
    import torch
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    cameras = {
        f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, height, width))
        for name in ("front", "wrist")
    }
    state = PolicyFeature(FeatureType.STATE, (len(JOINTS),))
    config = ACTConfig(
        input_features={"observation.state": state} | cameras,
        output_features={"action": PolicyFeature(FeatureType.ACTION, (len(JOINTS),))},
        device="cpu", chunk_size=30, n_action_steps=30, dim_model=32, n_heads=2, dim_feedforward=32, n_encoder_layers=1,
        n_decoder_layers=1, use_vae=False, pretrained_backbone_weights=None,
    )  # fmt: skip
    told = {"mean": torch.zeros(len(JOINTS)), "std": torch.full((len(JOINTS),), 5.0)}
    images = {name: {"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)} for name in cameras}
    policy = ACTPolicy(config)
    processors = make_pre_post_processors(config, dataset_stats={"action": told, "observation.state": told} | images)
    for part in (policy, *processors):
        part.save_pretrained(folder)
