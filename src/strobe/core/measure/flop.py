"""FLOP of an operator: a multiply-add counts as two, masks spare nothing, biases and elementwise work are free.

One table serves the count and the yardstick of reordered sums: `SUMS` names the dimension that a product sums over.
Other formulas are those of ``torch.utils.flop_counter`` where they are right. Torch has none for the CPU's fused
attention, fused encoder layers, recurrent layers, packed and quantised weights, products with a vector, and operators
in place; its own raise for attention with fewer heads of key and value than of query, and take the gradient of a
grouped convolution for that of a dense one. An operator that seems to multiply and is not known is never 0: it is
`UNKNOWN`, and is named.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

Args = Sequence[Any]
Formula = Callable[[Args, Any], int]  # from the operator's arguments and its result


class Products(NamedTuple):
    """The products of one call of an operator: its FLOP, None if they are not known, and torch's name of a dtype."""

    flop: int | None
    dtype: str = ""


NONE, UNKNOWN = Products(0), Products(None)
COMPLEX = 4  # multiply-adds of real numbers in one of complex numbers

# Operator → two arguments, each with the dimension that is summed over: every number of the result is such a sum.
SUMS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_int_mm", "aten::_scaled_mm"), ((0, -1), (1, -2))),
    **dict.fromkeys(("aten::addmm", "aten::_addmm_activation", "aten::baddbmm"), ((1, -1), (2, -2))),
    **dict.fromkeys(("aten::mv", "aten::dot", "aten::vdot", "aten::_euclidean_dist"), ((0, -1), (1, -1))),
    **dict.fromkeys(("aten::linear", "aten::mkldnn_linear", "aten::_weight_int8pack_mm"), ((0, -1), (1, -1))),
    "aten::addmv": ((1, -1), (2, -1)),
}


def products(operator: object, args: Args, kwargs: Mapping[str, object], out: Any) -> Products:
    """Return what ``operator`` multiplied when it made ``out`` from its arguments: `NONE`, or `UNKNOWN`, in doubt."""
    name = operator_name(operator)
    formula = _FORMULAS.get(name)
    try:
        if formula is not None:
            flop = formula(args, out)
        elif name in SUMS:
            (at, dim), _ = SUMS[name]
            flop = 2 * out.numel() * args[at].shape[dim]
        elif (of_torch := flop_registry.get(getattr(operator, "_overloadpacket", None))) is not None:
            flop = of_torch(*args, **kwargs, out_val=out)
        else:
            return UNKNOWN if _seems_to_multiply(name, args) else NONE
    except Exception:  # shapes that the formula is not for, such as nested tensors
        return UNKNOWN
    if not flop:
        return NONE
    dtype = _dtype(name, args)
    return Products(flop * (COMPLEX if dtype.startswith("complex") else 1), dtype)


def knows(operator: object) -> bool:
    """Whether there is a formula for ``operator`` itself: then it need not be taken apart."""
    name = operator_name(operator)
    return name in _FORMULAS or name in SUMS or getattr(operator, "_overloadpacket", None) in flop_registry


def operator_name(operator: object) -> str:
    """The operator's name with its library, such as ``aten::addmm``, in place or not."""
    schema = getattr(operator, "_schema", None)
    return str(operator) if schema is None else schema.name.removesuffix("_")


def _dtype(name: str, args: Args) -> str:
    if name.startswith("quantized::") and "fp16" not in name:
        return "int8"  # of inputs in float32 that the operator rounds itself, too
    operand = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor))
    dtype = str(operand.dtype).removeprefix("torch.")
    return "int8" if dtype in ("uint8", "quint8", "qint8") else dtype  # int8 as CPUs without AMX multiply it


def _convolution_flop(of: Tensor, weight: Tensor) -> int:
    """Each number of ``of``, the smaller side, meets a kernel of ``(channels, channels / groups, …)``."""
    return 2 * of.numel() * (weight.numel() // weight.shape[0])


def _convolution(args: Args, out: Tensor) -> int:
    transposed = len(args) > 6 and args[6] is True
    return _convolution_flop(args[0] if transposed else out, args[1])


def _convolution_backward(transposed: int) -> Formula:
    def formula(args: Args, _: object) -> int:
        wanted = args[transposed + 3]  # the gradients of input, weight and bias
        return (wanted[0] + wanted[1]) * _convolution_flop(args[1] if args[transposed] else args[0], args[2])

    return formula


def _attention(args: Args, _: object) -> int:
    """Two products, as torch counts them: scores ``(batch, heads, queries, keys)``, and their sum over the values."""
    query, key, value = args[:3]
    return 2 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _attention_backward(args: Args, _: object) -> int:
    """Five products, as torch counts them: the scores once more, and the gradients of scores, value, query and key."""
    query, key, value = args[1:4]
    return 2 * query.shape[:-1].numel() * key.shape[-2] * (3 * query.shape[-1] + 2 * value.shape[-1])


def _lengths(tokens: Tensor) -> list[int]:
    """Tokens of each sequence of a batch ``(batch, tokens, width)``, which may be nested."""
    if tokens.is_nested:
        return tokens._nested_tensor_size()[:, 0].tolist()
    return [tokens.shape[1]] * tokens.shape[0]


def _heads(args: Args, _: object) -> int:
    """Attention with its four projections of ``(width, width)``."""
    queries, keys, width = _lengths(args[0]), _lengths(args[1]), args[3]
    pairs = sum(ours * theirs for ours, theirs in zip(queries, keys, strict=True))
    return 4 * width * (width * (sum(queries) + sum(keys)) + pairs)


def _encoder_layer(args: Args, out: object) -> int:
    source, width = args[0], args[1]
    return _heads((source, source, source, width), out) + 2 * sum(_lengths(source)) * (
        args[14].numel() + args[16].numel()
    )


def _recurrent(weights: Callable[[Args], Sequence[Tensor]], passes: int = 1) -> Formula:
    """Every token is multiplied by each matrix once; the way back takes two passes."""

    def formula(args: Args, _: object) -> int:
        matrices = sum(weight.numel() for weight in weights(args) if weight.dim() == 2)
        return 2 * passes * args[0].shape[:-1].numel() * matrices

    return formula


def _distances(of: Callable[[Args, Any], Tensor], power: int, features: int) -> Formula:
    def formula(args: Args, out: object) -> int:
        euclidean = len(args) <= power or args[power] == 2  # torch leaves out a default
        return 2 * of(args, out).numel() * args[features].shape[-1] if euclidean else 0

    return formula


def _three_factors(args: Args, _: object) -> int:
    """``_trilinear``: the sums of products of the first two over what the third lacks, then of these with the third.

    Where the third lacks nothing that is summed over, the first two are multiplied element by element, which is free.
    """
    tensors = list(args[:3])
    for at, places in enumerate(args[3:6]):
        for place in sorted(places):
            tensors[at] = tensors[at].unsqueeze(place)
    first, second, third = tensors
    pairs = list(torch.broadcast_shapes(first.shape, second.shape))
    inner = [dim for dim in args[6] if dim in args[5]]
    sums = [1 if dim in inner else size for dim, size in enumerate(pairs)]
    return 2 * (prod(pairs) * bool(inner) + prod(torch.broadcast_shapes(sums, third.shape)))


def _formulas() -> dict[str, Formula]:
    formulas: dict[str, Formula] = {
        "aten::addbmm": lambda args, out: 2 * out.numel() * args[1].shape[0] * args[1].shape[-1],
        "aten::addr": lambda _, out: 2 * out.numel(),
        "aten::convolution_backward": _convolution_backward(7),
        "aten::convolution_backward_overrideable": _convolution_backward(6),
        "aten::conv_tbc": lambda args, out: 2 * out.numel() * args[1].shape[:2].numel(),
        "aten::_scaled_dot_product_attention_math_for_mps": _attention,
        "flex_attention": _attention,
        "flex_attention_backward": lambda args, out: _attention_backward((None, *args), out),
        "aten::_native_multi_head_attention": _heads,
        "aten::_transformer_encoder_layer_fwd": _encoder_layer,
        "aten::mkldnn_rnn_layer": _recurrent(lambda args: args[1:3]),
        "aten::mkldnn_rnn_layer_backward": _recurrent(lambda args: args[1:3], passes=2),
        "aten::_cdist_forward": _distances(lambda _, out: out, power=2, features=0),
        "aten::_cdist_backward": _distances(lambda args, _: args[0], power=3, features=1),
        "aten::_pdist_forward": _distances(lambda _, out: out, power=1, features=0),
        "aten::_pdist_backward": _distances(lambda args, _: args[0], power=2, features=1),
        "aten::_trilinear": _three_factors,
        # With another operand to add, which comes second, the weight is the third.
        "mkldnn::_convolution_pointwise": lambda args, out: _convolution_flop(
            out, args[1 if type(args[3]) is list else 2]
        ),
    }
    for name in ("_cudnn_rnn", "miopen_rnn"):
        formulas[f"aten::{name}"] = _recurrent(lambda args: args[1])
        formulas[f"aten::{name}_backward"] = _recurrent(lambda args: args[1], passes=2)
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention"):
        formulas[f"aten::_scaled_dot_product_{kind}"] = _attention
        formulas[f"aten::_scaled_dot_product_{kind}_backward"] = _attention_backward
    formulas["aten::_scaled_dot_product_fused_attention_overrideable"] = _attention
    formulas["aten::_scaled_dot_product_fused_attention_overrideable_backward"] = _attention_backward
    for name in _CONVOLUTIONS:
        formulas[f"aten::{name}"] = _convolution
    for name in _TRANSPOSED_CONVOLUTIONS:
        formulas[f"aten::{name}"] = lambda args, _: _convolution_flop(args[0], args[1])
    for name in _LINEAR_LAYERS:
        # A linear layer, whatever the packing of its weight, by its inputs (…, inner).
        formulas[name] = lambda args, out: 2 * out.numel() * args[0].shape[-1]
    for name in _ELEMENTWISE:
        formulas[f"aten::{name}"] = lambda _, __: 0
    return formulas


_CONVOLUTIONS = (
    *(f"{library}convolution" for library in ("", "_", "cudnn_", "miopen_", "mkldnn_", "_mps_")),
    *(f"{library}_convolution_{fused}" for library in ("cudnn", "miopen") for fused in ("relu", "add_relu")),
    "convolution_overrideable",
    "miopen_depthwise_convolution",
    "_conv_depthwise2d",
    "conv_depthwise3d",
    "_slow_conv2d_forward",
    *(f"slow_conv{kind}" for kind in ("3d_forward", "_dilated2d", "_dilated3d")),
)
_TRANSPOSED_CONVOLUTIONS = (
    *(f"{library}_convolution_transpose" for library in ("cudnn", "miopen", "_mps")),
    *(f"slow_conv_transpose{dimensions}d" for dimensions in (2, 3)),
)
_LINEAR_LAYERS = (
    "mkldnn::_linear_pointwise",
    "mkl::_mkl_linear",
    "onednn::qlinear_pointwise",
    "strobe::packed_linear",
    *(f"quantized::linear{kind}" for kind in ("", "_relu", "_leaky_relu", "_tanh")),
    *(f"quantized::linear{kind}_dynamic{bits}" for kind in ("", "_relu") for bits in ("", "_fp16")),
)
# Their names sound like products.
_ELEMENTWISE = (
    "_thnn_fused_lstm_cell",
    "_thnn_fused_lstm_cell_backward",
    "_thnn_fused_lstm_cell_backward_impl",
    "_thnn_fused_gru_cell",
    "_thnn_fused_gru_cell_backward",
    "linalg_vector_norm",
    "linalg_cross",
    "_linalg_check_errors",
)
_FORMULAS = _formulas()

_OF_TORCH = ("aten", "prim", "prims", "mkldnn", "mkl", "onednn", "quantized")
# Words of the names of operators that multiply, and words that make another thing of them.
_MULTIPLY = re.compile(
    r"mm|(add|b|addb|baddb|s|hs|sspadd)mm|matmul|gemm|linear|(add)?mv|v?dot|(bi|tri)linear|einsum|q?conv|convolution|"
    r"qlinear|attention|rnn|lstm|gru|fft|linalg|(sp)?solve|cholesky|qr|geqrf|orgqr|ormqr|svd|eig|inverse"
)
_PREPARE = re.compile(r"upsample|(un|pre)?pack|reorder|flatten|quantize")


def _seems_to_multiply(name: str, args: Args) -> bool:
    library, _, plain = name.rpartition("::")
    words = re.split(r"[_\W\d]+", plain.lower())
    if any(map(_MULTIPLY.fullmatch, words)) and not any(map(_PREPARE.fullmatch, words)):
        return True
    matrices = [
        leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim() > 1
    ]
    return library not in _OF_TORCH and len(matrices) > 1


# Each operator as it reaches the device's kernels, whatever called it, under inference_mode as under no_grad.
#
# Under inference_mode torch hands a dispatch mode the operators that users write (``linear``, ``matmul``, ``lstm``),
# under no_grad those that these are made of. Here they are always taken apart, by the code that torch itself would run.


class Operators(TorchDispatchMode):
    """A dispatch mode whose `ran` sees every operator of this thread that is not made of others."""

    supports_higher_order_operators = True

    @abstractmethod
    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``operator`` and return its result; what it runs inside is not seen."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl for kind in types):
            return NotImplemented  # a class of tensors of its own computes by other operators, which are seen in turn
        if isinstance(func, OpOverload) and _made_of_others(func, args, kwargs):
            with self:
                return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        return self.run_operator(func, args, kwargs)


def _made_of_others(operator: OpOverload, args: object, kwargs: object) -> bool:
    if knows(operator):
        return False
    if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), DispatchKey.CompositeImplicitAutograd):
        return False
    # Nested tensors have kernels of their own for many of these.
    return not any(isinstance(leaf, Tensor) and leaf.is_nested for leaf in tree_leaves((args, kwargs)))
