"""A policy's chunk and loss as LeRobot's own programs take them; what they could not take is refused in a line."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from strobe.errors import UserError


def chunk(policy: Any, batch: dict[str, Any], options: Mapping[str, Any]) -> Tensor:
    """Return ``predict_action_chunk``'s chunk, (B, chunk, action dim).

    A policy that has none raises NotImplementedError there, as LeRobot's own do: then it is one action of
    ``select_action``, after a reset, as a chunk of length 1.

    Raises:
        UserError: it gives something else than a tensor.
    """
    try:
        actions, method = policy.predict_action_chunk(batch, **options), "predict_action_chunk"
    except NotImplementedError as error:
        if options or not _itself(error, "predict_action_chunk"):
            raise
        policy.reset()  # no action depends on the one before it
        actions, method = policy.select_action(batch), "select_action"
    if not isinstance(actions, Tensor):
        raise UserError(
            f"{_name(policy)}: its {method} gives {_kind(actions)}, where LeRobot takes a tensor of actions"
        )
    return actions if method == "predict_action_chunk" else actions[:, None]


def loss(policy: Any, batch: dict[str, Any]) -> Tensor:
    """Return the loss that ``forward`` gives for a training batch.

    Raises:
        UserError: it gives something else than a loss and a dictionary, which lerobot-train unpacks.
    """
    given = policy.forward(batch)
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], Tensor):
        return given[0]
    raise UserError(
        f"{_name(policy)}: its forward gives {_kind(given)}, where lerobot-train takes a loss and a dictionary, "
        "`return loss, {}`"
    )


def _itself(error: NotImplementedError, method: str) -> bool:
    """Whether ``method`` raised it, and nothing that it calls."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1].f_code.co_name == method


def _name(policy: Any) -> str:
    return getattr(policy, "name", type(policy).__name__)


def _kind(given: Any) -> str:
    if isinstance(given, tuple | list):
        return f"a {type(given).__name__} of {len(given)}"
    return "a tensor alone" if isinstance(given, Tensor) else f"a {type(given).__name__}"
