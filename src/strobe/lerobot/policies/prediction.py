"""One chunk of a policy, in the way of its family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from strobe.core.families.capabilities import Calls
from strobe.core.families.registry import registered
from strobe.lerobot.families import answers


def predict(policy: Any, batch: dict[str, Any], options: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Return one chunk, (B, chunk, action dim), of a preprocessed ``batch``, in the way of the policy's family.

    Args:
        options: of ``predict_action_chunk``.
    """
    chunk = Calls.of(registered(getattr(policy.config, "type", ""))).chunk
    return (chunk or answers.chunk)(policy, batch, options)
