"""Formulas for FLOP by operator: torch's own (``torch.utils.flop_counter``), and ours for fused attention.

Torch has none for the CPU's fused attention, so that a transformer's attention would go uncounted there, and its own
for CUDA's raise where key and value have fewer heads than the query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry


def attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Two products, as torch counts them: scores, and their sum over the values; masks spare nothing.

    Args:
        query: ``(batch, heads, queries, width)``; key and value likewise, value's width being its own.
    """
    batch, heads, queries, width = query.shape
    return 2 * batch * heads * queries * key.shape[-2] * (width + value.shape[-1])


def attention_backward(_: Tensor, query: Tensor, key: Tensor, value: Tensor, *__: Any, **___: Any) -> int:
    """Five products, as torch counts them: the scores once more, and the gradients of scores, value, query and key."""
    batch, heads, queries, width = query.shape
    return 2 * batch * heads * queries * key.shape[-2] * (3 * width + 2 * value.shape[-1])


def product(left: Tensor, right: Tensor, *_: Any, **__: Any) -> int:
    """``(rows, inner) @ (inner, columns)``, of integers too, for which torch has no formula."""
    return 2 * left.shape[0] * left.shape[1] * right.shape[1]


def packed_linear(inputs: Tensor, weight: Tensor, *_: Any, **__: Any) -> int:
    """oneDNN's linear layer: ``(…, inner)`` by a weight of ``(columns, inner)``, whatever its packing."""
    return 2 * inputs.numel() * weight.shape[0]


def packed_int8(inputs: Tensor, _scale: Any, _zero: Any, weight: Tensor, *_: Any, **__: Any) -> int:
    """oneDNN's linear layer in int8: ``(rows, inner)`` by a weight of ``(inner, columns)``."""
    return 2 * inputs.shape[0] * weight.numel()


def packed_by_mkl(inputs: Tensor, _packed: Tensor, weight: Tensor, *_: Any, **__: Any) -> int:
    """MKL's linear layer: ``(…, inner)`` by a weight of ``(columns, inner)``, packed for so many rows."""
    return packed_linear(inputs, weight)


def packed_convolution(_: Tensor, weight: Tensor, *__: Any, out_val: Tensor, **___: Any) -> int:
    """oneDNN's convolution: each output value is one product with a weight of ``(out, in / groups, …)``."""
    return 2 * out_val.numel() * (weight.numel() // weight.shape[0])


_KINDS = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")


def _formulas() -> dict[Any, Callable[..., int]]:
    found: dict[Any, Callable[..., int]] = dict(flop_registry)
    for kind in _KINDS:
        for suffix, formula in (("", attention), ("_backward", attention_backward)):
            operator = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}{suffix}", None)
            if operator is not None:
                found[operator] = formula
    found.setdefault(torch.ops.aten._int_mm, product)
    found.setdefault(torch.ops.aten._scaled_mm, product)
    for library, name, formula in (
        (torch.ops.mkldnn, "_linear_pointwise", packed_linear),
        (torch.ops.mkldnn, "_convolution_pointwise", packed_convolution),
        (torch.ops.mkl, "_mkl_linear", packed_by_mkl),
        (torch.ops.onednn, "qlinear_pointwise", packed_int8),
    ):
        if (operator := getattr(library, name, None)) is not None:  # not in builds without oneDNN or MKL
            found.setdefault(operator, formula)
    return found


FORMULAS = _formulas()
