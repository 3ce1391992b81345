"""A policy's chunk and loss as LeRobot's own programs take them; what they could not take is refused in a line."""

from __future__ import annotations

import inspect
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
        UserError: it gives something else than a tensor, or one of another number of dimensions; or a method does not
            take what LeRobot calls it with.
    """
    try:
        actions, single = _called(policy, "predict_action_chunk", batch, **options), False
    except NotImplementedError as error:
        if options or not _itself(error, "predict_action_chunk"):
            raise
        _called(policy, "reset")  # no action depends on the one before it
        actions, single = _called(policy, "select_action", batch), True
    if not isinstance(actions, Tensor) or actions.ndim != (2 if single else 3):
        method = "select_action" if single else "predict_action_chunk"
        shape = "(batch, action dim)" if single else "(batch, chunk, action dim)"
        raise UserError(
            f"{_name(policy)}: its {method} gives {_kind(actions)}, where LeRobot takes a tensor of actions, {shape}"
        )
    return actions[:, None] if single else actions


def loss(policy: Any, batch: dict[str, Any], *, back: bool = False) -> Tensor:
    """Return the loss that ``forward`` gives for a training batch, a single number.

    Args:
        back: whether a backward pass is to start from it.

    Raises:
        UserError: it gives something else than a loss and a dictionary, which lerobot-train unpacks; or a loss that no
            backward pass can start from.
    """
    given = _called(policy, "forward", batch)
    if not (isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], Tensor)):
        raise UserError(
            f"{_name(policy)}: its forward gives {'a tensor alone' if isinstance(given, Tensor) else _kind(given)}, "
            "where lerobot-train takes a loss and a dictionary, `return loss, {}`"
        )
    found = given[0]
    if found.numel() != 1:
        said = f"gives {_kind(found)} as the loss, where lerobot-train takes one number"
        raise UserError(f"{_name(policy)}: its forward {said}")
    if back and not found.requires_grad:
        raise UserError(f"{_name(policy)}: its forward gives a loss without a gradient: nothing of it can be trained")
    return found


def _called(policy: Any, method: str, *args: Any, **options: Any) -> Any:
    """Call ``method`` as LeRobot calls it. Raises UserError where it takes other arguments."""
    function = getattr(policy, method)
    try:
        return function(*args, **options)
    except TypeError as error:
        try:
            inspect.signature(function).bind(*args, **options)
        except TypeError as unfit:
            given = " and ".join([*("a batch" for _ in args), *options]) or "nothing"
            raise UserError(f"{_name(policy)}: LeRobot calls its {method} with {given}, but: {unfit}") from error
        raise


def _itself(error: NotImplementedError, method: str) -> bool:
    """Whether ``method`` raised it, and nothing that it calls."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1].f_code.co_name == method


def _name(policy: Any) -> str:
    return getattr(policy, "name", type(policy).__name__)


def _kind(given: Any) -> str:
    if isinstance(given, tuple | list):
        return f"a {type(given).__name__} of {len(given)}"
    return f"a tensor of {tuple(given.shape)}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
