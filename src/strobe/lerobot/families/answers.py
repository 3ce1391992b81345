"""A policy's chunk and loss as LeRobot's own programs take them. Anything else is refused in a line."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.families.capabilities import Calls
from strobe.core.families.registry import find_family
from strobe.core.subjects.subject import Batch
from strobe.lerobot.families import answers


def chunk(policy: object, batch: Batch, options: Mapping[str, object]) -> Tensor:
    """Return ``predict_action_chunk``'s chunk, (B, chunk, action dim).

    A policy without that method raises NotImplementedError in it, as LeRobot's own do. The chunk is then one action of
    ``select_action``, after a reset, with length 1.

    Raises:
        UserError: the result is not a tensor, or has a wrong number of dimensions; or a method does not take the
            arguments of LeRobot's call.
    """
    try:
        actions, single = _call(policy, "predict_action_chunk", batch, **options), False
    except NotImplementedError as error:
        *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
        if options or innermost.f_code.co_name != "predict_action_chunk":
            raise
        _call(policy, "reset")  # no action depends on the one before it
        actions, single = _call(policy, "select_action", batch), True
    if not isinstance(actions, Tensor) or actions.ndim != (2 if single else 3):
        method = "select_action" if single else "predict_action_chunk"
        shape = "(batch, action dim)" if single else "(batch, chunk, action dim)"
        raise UserError(
            f"{_name(policy)}: its {method} gives {_kind(actions)}, where LeRobot takes a tensor of actions, {shape}"
        )
    return actions[:, None] if single else actions


def loss(policy: object, batch: Batch, *, back: bool = False) -> Tensor:
    """Return the loss that ``forward`` gives for a training batch, a single number.

    Args:
        back: whether a backward pass is to start from it.

    Raises:
        UserError: ``forward`` does not return a loss and a dictionary, which lerobot-train unpacks; or no backward pass
            can start from the loss.
    """
    output = _call(policy, "forward", batch)
    if not (isinstance(output, tuple | list) and len(output) == 2 and isinstance(output[0], Tensor)):
        raise UserError(
            f"{_name(policy)}: its forward gives {'a tensor alone' if isinstance(output, Tensor) else _kind(output)}, "
            "where lerobot-train takes a loss and a dictionary, `return loss, {}`"
        )
    value = output[0]
    if value.numel() != 1:
        fault = f"gives {_kind(value)} as the loss, where lerobot-train takes one number"
        raise UserError(f"{_name(policy)}: its forward {fault}")
    if back and not value.requires_grad:
        raise UserError(f"{_name(policy)}: its forward gives a loss without a gradient: nothing of it can be trained")
    return value


def _call(policy: object, method: str, *args: object, **options: object) -> Any:
    """Call ``method`` as LeRobot calls it. Raises UserError if it takes other arguments."""
    function = getattr(policy, method)
    try:
        return function(*args, **options)
    except TypeError as error:
        try:
            inspect.signature(function).bind(*args, **options)
        except TypeError as unfit:
            arguments = " and ".join([*("a batch" for _ in args), *options]) or "nothing"
            raise UserError(f"{_name(policy)}: LeRobot calls its {method} with {arguments}, but: {unfit}") from error
        raise


def _name(policy: object) -> str:
    return getattr(policy, "name", type(policy).__name__)


def _kind(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


# One chunk of a policy, in the way of its family.


def predict(policy: Any, batch: Batch, options: Mapping[str, object] = MappingProxyType({})) -> Tensor:
    """Return one chunk, (B, chunk, action dim), of a preprocessed ``batch``, in the way of the policy's family.

    Args:
        options: of ``predict_action_chunk``.
    """
    chunk = Calls.from_family(find_family(getattr(policy.config, "type", ""))).chunk
    return (chunk or answers.chunk)(policy, batch, options)
