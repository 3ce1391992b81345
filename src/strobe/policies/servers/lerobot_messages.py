"""The messages of LeRobot's policy server: pickles of LeRobot's own classes.

A pickle can run any code. What a server sends is read with the few names that a chunk of actions needs, and all others
are refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from strobe.policies.servers.lerobot_observations import ServedPolicy

_HELPERS = "lerobot.async_inference.helpers"
_NAMES = {
    (_HELPERS, "TimedAction"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch", "device"),
    ("collections", "OrderedDict"),
}


def instructions(policy: ServedPolicy, features: Mapping[str, Any]) -> bytes:
    """Return the message that has the server load ``policy`` for a robot of ``features``."""
    from lerobot.async_inference.helpers import RemotePolicyConfig

    described: dict[str, Any] = {name: dict(feature) for name, feature in features.items()}
    return pickle.dumps(RemotePolicyConfig(policy.type, policy.path, described, policy.actions, policy.device))


def encode(observation: Mapping[str, Any], now: float, step: int, *, must_go: bool) -> bytes:
    """Return the message of an observation.

    Args:
        now: seconds since 1970.
        step: its number, by which the server knows what it has answered.
        must_go: whether the server's filter lets it through.
    """
    from lerobot.async_inference.helpers import TimedObservation

    return pickle.dumps(TimedObservation(now, step, dict(observation), must_go))


def decode(data: bytes) -> Any:
    """Return what a server answers. Raises ValueError for what is no pickle, or one of other things."""
    try:
        return _Reader(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle raises whatever its bytes make it
        raise ValueError(f"{type(error).__name__}: {error}") from None


def actions_of(answer: Any) -> tuple[np.ndarray | None, str]:
    """Return the actions of an answer, of shape (actions, action dim); None and what it holds for one without any."""
    import torch

    values = [getattr(each, "action", None) for each in answer] if isinstance(answer, list) else []
    actions = [value for value in values if isinstance(value, torch.Tensor)]
    if not actions or len(actions) != len(values):
        kind = f"a list of {len(answer)}" if isinstance(answer, list) else f"a {type(answer).__name__}"
        return None, f"TypeError: no list of actions; the answer is {kind}"
    if len({tuple(value.shape) for value in actions}) > 1:
        return None, "ValueError: its actions differ in shape"
    return torch.stack(actions).float().cpu().numpy(), ""


class _Reader(pickle.Unpickler):
    """Reads a pickle of a chunk, and no other."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _storage
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"a chunk of actions has no {module}.{name}")
        return super().find_class(module, name)


def _storage(data: bytes) -> Any:
    """Return the numbers of a tensor, on this machine's CPU."""
    import torch

    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
