"""The config of the small flow policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs import NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamConfig


@PreTrainedConfig.register_subclass("small_flow")
@dataclass
class SmallFlowConfig(PreTrainedConfig):
    """``euler_steps``: denoising steps of a chunk; no other family calls them so."""

    chunk_size: int = 8
    n_action_steps: int = 8
    width: int = 64
    euler_steps: int = 8
    shaped: bool = False
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: {
            "STATE": NormalizationMode.MEAN_STD,
            "ACTION": NormalizationMode.MEAN_STD,
            "VISUAL": NormalizationMode.IDENTITY,
        }
    )

    @property
    def observation_delta_indices(self) -> None:
        return None

    @property
    def reward_delta_indices(self) -> None:
        return None

    @property
    def action_delta_indices(self) -> list[int]:
        return list(range(self.chunk_size))

    def get_optimizer_preset(self) -> AdamConfig:
        return AdamConfig()

    def get_scheduler_preset(self) -> None:
        return None

    def validate_features(self) -> None:
        pass
