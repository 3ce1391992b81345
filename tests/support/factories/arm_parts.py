"""The modules of `arm.py`, which imports them from the same folder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, HORIZON, JOINTS = 64, 16, 7


class VisionEncoder(nn.Module):
    """Two convolutions over each camera's image, (B, 3, H, W), to (B, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Conv2d(3, 16, 5, stride=2)
        self.far = nn.Conv2d(16, 32, 5, stride=2)
        self.out = nn.Linear(32, WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        seen = self.far(self.near(images).relu()).relu()
        return self.out(seen.mean((-1, -2)))


class DenoisingExpert(nn.Module):
    """The velocity of a noisy chunk, (B, HORIZON, JOINTS), under a context, (B, WIDTH), at a time, (B,)."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(JOINTS + 1, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.0, batch_first=True)
        self.leave = nn.Linear(WIDTH, JOINTS)

    def forward(self, noisy: Tensor, context: Tensor, time: Tensor) -> Tensor:
        at = time.to(noisy.dtype)[:, None, None].expand(*noisy.shape[:2], 1)
        tokens = self.enter(torch.cat([noisy, at], -1)) + context[:, None]
        return self.leave(self.block(tokens))
