"""The config of a policy that is a formula: see `modeling_turning_arm`."""

# LeRobot declares these as properties, and its own policies set them as this one does.
# pyright: reportAssignmentType=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs import NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamConfig


@PreTrainedConfig.register_subclass("turning_arm")
@dataclass
class TurningArmConfig(PreTrainedConfig):
    """``turn``: radians a tick. ``blind``: whether it takes no notice of its cameras."""

    chunk_size: int = 8
    n_action_steps: int = 8
    turn: float = 0.314159
    blind: bool = False
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: {
            "STATE": NormalizationMode.MEAN_STD,
            "ACTION": NormalizationMode.MEAN_STD,
            "VISUAL": NormalizationMode.IDENTITY,
        }
    )
    observation_delta_indices = None
    reward_delta_indices = None

    @property
    def action_delta_indices(self) -> list[int]:
        return list(range(self.chunk_size))

    def get_optimizer_preset(self) -> AdamConfig:
        return AdamConfig()

    def get_scheduler_preset(self) -> None:
        return None

    def validate_features(self) -> None:
        pass
