"""The small flow policy: a context of the state, and Euler steps of a velocity over it.

It wastes on purpose: every step encodes the context again. If ``shaped``, its noise goes through what is no module.
"""

from __future__ import annotations

from typing import Any

import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor, nn

from .configuration_small_flow import SmallFlowConfig


class Encoder(nn.Sequential):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))


class Velocity(nn.Module):
    def __init__(self, actions: int, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(actions + width + 1, width), nn.ReLU(), nn.Linear(width, actions))

    def forward(self, x: Tensor, context: Tensor, time: Tensor) -> Tensor:
        """``x``, (B, chunk · actions); ``context``, (B, width); ``time``, (B, 1) → the velocity, of ``x``'s shape."""
        return self.net(torch.cat([x, context, time], dim=-1))


class Shaping:
    """No module, so that what it holds is registered nowhere; as large as weights that are filled in late."""

    def __init__(self, actions: int) -> None:
        self.layers = [nn.Linear(actions, 1 << 15), nn.Linear(1 << 15, actions)]

    def __call__(self, noise: Tensor) -> Tensor:
        return noise + self.layers[1](self.layers[0](noise))


class SmallFlowPolicy(PreTrainedPolicy):
    config_class = SmallFlowConfig  # type: ignore[assignment]  # LeRobot declares both as None
    name = "small_flow"  # type: ignore[assignment]
    config: SmallFlowConfig

    def __init__(self, config: Any, **_: Any) -> None:
        super().__init__(config)
        self.actions = config.action_feature.shape[0]
        self.encoder = Encoder(config.robot_state_feature.shape[0], config.width)
        self.velocity = Velocity(config.chunk_size * self.actions, config.width)
        self.shaping = Shaping(config.chunk_size * self.actions) if config.shaped else nn.Identity()

    def get_optim_params(self) -> Any:
        return self.parameters()

    def reset(self) -> None:
        pass

    def denoise_step(self, x: Tensor, state: Tensor, time: Tensor) -> Tensor:
        return self.velocity(x, self.encoder(state), time)

    def predict_action_chunk(self, batch: dict[str, Tensor], **_: Any) -> Tensor:
        state, steps = batch["observation.state"], self.config.euler_steps
        x = self.shaping(torch.randn(len(state), self.config.chunk_size * self.actions, device=state.device))
        for step in range(steps):
            time = torch.full((len(state), 1), 1 - step / steps, device=state.device)
            x = x - self.denoise_step(x, state, time) / steps
        return x.view(len(state), self.config.chunk_size, self.actions)

    def select_action(self, batch: dict[str, Tensor], **_: Any) -> Tensor:
        return self.predict_action_chunk(batch)[:, 0]

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        actions = batch["action"].flatten(1)
        noise, time = self.shaping(torch.randn_like(actions)), torch.rand(len(actions), 1, device=actions.device)
        x = time * noise + (1 - time) * actions
        loss = (self.denoise_step(x, batch["observation.state"], time) - (noise - actions)).pow(2).mean()
        return loss, {}
