"""A policy as other projects have them: a class of its own with `infer`, images and state in, a dict of actions out.

It is of no package and knows nothing of LeRobot: an encoder for the camera, and a loop that denoises a chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from arm_parts import HORIZON, JOINTS, DenoisingExpert, VisionEncoder

STEPS = 4


class ArmPolicy:
    def __init__(self) -> None:
        self.vision = VisionEncoder().eval()
        self.expert = DenoisingExpert().eval()

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        with torch.no_grad():
            image = torch.from_numpy(observation["image"]).permute(2, 0, 1)[None].float() / 255
            context = self.vision(image)
            chunk = torch.randn(1, HORIZON, JOINTS)
            for step in range(STEPS):
                chunk = chunk + self.expert(chunk, context, torch.full((1,), step / STEPS)) / STEPS
        return {"actions": chunk[0].numpy(), "state": observation["state"], "timing": {"infer_ms": 3.0}}


def observation(seed: int) -> dict[str, Any]:
    drawn = np.random.default_rng(seed)
    return {
        "image": drawn.integers(0, 256, (48, 64, 3), dtype=np.uint8),
        "state": drawn.normal(size=JOINTS).astype(np.float32),
    }


def make() -> tuple[ArmPolicy, list[dict[str, Any]]]:
    return ArmPolicy(), [observation(seed) for seed in range(3)]


# What a user may get wrong.


def return_policy_only() -> ArmPolicy:
    return ArmPolicy()


def a_class() -> type:
    return ArmPolicy


def return_empty_list() -> tuple[ArmPolicy, list[Any]]:
    return ArmPolicy(), []


def three() -> tuple[int, int, int]:
    return 1, 2, 3


def return_none() -> None:
    return None


def require_width(width: int) -> ArmPolicy:
    raise AssertionError(width)


def fails() -> ArmPolicy:
    raise FileNotFoundError("no weights\nat all")


def ends() -> ArmPolicy:
    raise SystemExit(3)


def fails_on_its_input() -> tuple[ArmPolicy, dict[str, Any]]:
    return ArmPolicy(), {"state": np.zeros(JOINTS, np.float32)}


not_a_function = 7
