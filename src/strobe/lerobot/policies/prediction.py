"""One chunk of a policy, in the way of its family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from strobe.core.families.registry import registered
from strobe.lerobot.families import answers


def predict(policy: Any, batch: dict[str, Any], options: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Return one chunk, (B, chunk, action dim), of a preprocessed ``batch``, in the way of the policy's family.

    Args:
        options: of ``predict_action_chunk``.
    """
    family = registered(getattr(policy.config, "type", ""))
    if family is not None and family.chunk is not None:
        return family.chunk(policy, batch, options)
    return answers.chunk(policy, batch, options)
