"""Take the sums of a model in another order: the same arithmetic, with other rounding.

Each product of matrices sums over a dimension that both factors share, a convolution over its input channels, attention
over its keys. Inside `reordered` these are shuffled on both sides, which changes the order in which the numbers are
added and nothing else. How far the actions move by that is what no exact treatment can be held to fall below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@contextlib.contextmanager
def reordered(seed: int = 0) -> Iterator[None]:
    """Inside, sums on this thread are taken in an order drawn with ``seed``. It takes about twice the time."""
    with _Reordered(seed):
        yield


class _Reordered(TorchDispatchMode):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        shuffle = _SHUFFLED.get(func._schema.name)
        if shuffle is not None:
            args = shuffle(args, named, self._order)
        return func(*args, **named)

    def _order(self, like: Tensor, dim: int) -> Tensor:
        # Drawn on the CPU: the program's own generators, which draw the policy's noise, are left as they are.
        return torch.randperm(like.shape[dim], generator=self._generator).to(like.device)


Args = tuple[Any, ...]
Order = Callable[[Tensor, int], Tensor]


def _product(first: int) -> Callable[[Args, dict[str, Any], Order], Args]:
    """Shuffle for a product of the arguments ``first`` and the one after it."""

    def shuffle(args: Args, _: dict[str, Any], order: Order) -> Args:
        left, right = args[first], args[first + 1]
        drawn = order(left, -1)
        return _with(args, first, left.index_select(-1, drawn), right.index_select(-2, drawn))

    return shuffle


def _linear(args: Args, _: dict[str, Any], order: Order) -> Args:
    inputs, weight = args[0], args[1]
    drawn = order(inputs, -1)
    return _with(args, 0, inputs.index_select(-1, drawn), weight.index_select(-1, drawn))


def _convolution(args: Args, _: dict[str, Any], order: Order) -> Args:
    inputs, weight = args[0], args[1]
    transposed, groups = (args[6], args[8]) if len(args) > 8 else (True, 0)
    if transposed or groups != 1:
        return args
    drawn = order(weight, 1)
    return _with(args, 0, inputs.index_select(-weight.dim() + 1, drawn), weight.index_select(1, drawn))


def _attention(mask: str) -> Callable[[Args, dict[str, Any], Order], Args]:
    """Shuffle the keys of a scaled dot product attention, whose mask is ``'keyword'`` or stands at ``'position'``."""

    def shuffle(args: Args, kwargs: dict[str, Any], order: Order) -> Args:
        causal = kwargs.get("is_causal", False) or any(one is True for one in args[3:])
        if causal or len(args) < 3:
            return args
        key, value = args[1], args[2]
        drawn = order(key, -2)
        args = _with(args, 1, key.index_select(-2, drawn), value.index_select(-2, drawn))
        if mask == "position" and len(args) > 3 and isinstance(args[3], Tensor) and args[3].shape[-1] > 1:
            args = _with(args, 3, args[3].index_select(-1, drawn))
        if isinstance(kwargs.get("attn_mask"), Tensor) and kwargs["attn_mask"].shape[-1] > 1:
            kwargs["attn_mask"] = kwargs["attn_mask"].index_select(-1, drawn)
        return args

    return shuffle


def _with(args: Args, at: int, *values: Tensor) -> Args:
    return (*args[:at], *values, *args[at + len(values) :])


_SHUFFLED: dict[str, Callable[[Args, dict[str, Any], Order], Args]] = {
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::addmm": _product(1),
    "aten::baddbmm": _product(1),
    "aten::linear": _linear,
    "aten::convolution": _convolution,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention("keyword"),
    "aten::_scaled_dot_product_flash_attention": _attention("keyword"),
    "aten::_scaled_dot_product_efficient_attention": _attention("position"),
    "aten::_scaled_dot_product_cudnn_attention": _attention("position"),
    "aten::scaled_dot_product_attention": _attention("position"),
}
