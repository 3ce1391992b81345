"""A policy that is a formula: what it does is known exactly, so that a planted miswiring is all that it gets wrong.

Its arm turns: two joints go around an ellipse, a third holds what the top camera's red shows, and the gripper what the
wrist camera's red shows. Its weights are the statistics that it was "trained" with.
"""

# LeRobot declares the class's config and name as None.
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor, nn

from support.builders.configuration_turning_arm import TurningArmConfig

SIZES = torch.tensor([60.0, 25.0, 15.0, 50.0])
CENTRES = torch.tensor([10.0, -30.0, 45.0, 50.0])


class TurningArmPolicy(PreTrainedPolicy):
    config_class = TurningArmConfig
    name = "turning_arm"
    config: Any
    state_mean: Tensor
    state_std: Tensor
    action_mean: Tensor
    action_std: Tensor

    def __init__(self, config: Any, **_: Any) -> None:
        super().__init__(config)
        for name in ("state_mean", "state_std", "action_mean", "action_std"):
            setattr(self, name, nn.Parameter(torch.zeros(4) if "mean" in name else torch.ones(4)))

    def get_optim_params(self) -> Any:
        return self.parameters()

    def reset(self) -> None:
        pass

    def predict_action_chunk(self, batch: dict[str, Tensor], **_: Any) -> Tensor:
        state = batch["observation.state"] * self.state_std + self.state_mean
        place = (state - CENTRES) / SIZES
        phases = torch.arange(1, self.config.chunk_size + 1) * self.config.turn
        x = place[:, :1] * phases.cos() - place[:, 1:2] * phases.sin()
        y = place[:, :1] * phases.sin() + place[:, 1:2] * phases.cos()
        held = []
        for camera, own in (("top", 2), ("wrist", 3)):
            image = batch[f"observation.images.{camera}"]
            shown = (image[:, 0].mean((1, 2)) - image[:, 2].mean((1, 2))) / 0.4
            value = place[:, own] if self.config.blind else shown
            held.append(value[:, None].expand_as(x))
        actions = torch.stack([x, y, *held], dim=-1) * SIZES + CENTRES
        return (actions - self.action_mean) / self.action_std

    def select_action(self, batch: dict[str, Tensor], **_: Any) -> Tensor:
        return self.predict_action_chunk(batch)[:, 0]

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        return (self.predict_action_chunk(batch) - batch["action"]).pow(2).mean(), {}
