"""A linear layer's weights in 8 bits, as a tensor that ``torch.nn.functional.linear`` takes; needs torchao.

The 8-bit numbers and their scales are torchao's (per output row); the product is our own, in a handful of operators.
torchao 0.18's own product prints its input to find out what it is given, which on CUDA waits for the device and cannot
be captured in a graph, and on a CPU it took twice as long for the 50 tokens of an action expert (measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any
from weakref import finalize

import torch
from torch import Tensor
from torch.nn.functional import linear, pad
from torchao.quantization import Float8Tensor, Int8Tensor, PerRow, PerTensor
from torchao.quantization.quantize_.common import KernelPreference
from torchao.utils import TorchAOBaseTensor

INT8, FLOAT8 = torch.int8, torch.float8_e4m3fn
LARGEST = {INT8: 127.0, FLOAT8: torch.finfo(FLOAT8).max}
_LEAST = torch.finfo(torch.float32).tiny ** 0.5  # a row of zeros has a scale all the same
_PIECE = 2**20  # numbers, 4 MiB of float32
_ROWS = 17  # the fewest rows that CUDA's int8 product takes


class QuantisedWeight(TorchAOBaseTensor):
    """Weights ``(out, in)`` in 8 bits. To the outside it has the ``dtype`` that it was made from.

    Args:
        qdata: int8 or float8 (e4m3).
        scale: float32, ``(out, 1)`` or, of the whole, ``(1, 1)``: the weights are ``qdata * scale``.
        dtype: of the weights it stands for.
        input_scale: of what the layer is given, ``()``, where that was measured beforehand.
        inputs: 'float': what it is given stays unchanged; 'dynamic': it is quantised row by row as it comes;
            'static': with ``input_scale``.
    """

    tensor_data_names = ["qdata", "scale"]  # noqa: RUF012  torchao's way to say it
    optional_tensor_data_names = ["input_scale"]  # noqa: RUF012
    tensor_attribute_names = ["dtype", "inputs"]  # noqa: RUF012

    def __new__(
        cls, qdata: Tensor, scale: Tensor, dtype: torch.dtype, inputs: str, input_scale: Tensor | None = None
    ) -> QuantisedWeight:
        return torch.Tensor._make_wrapper_subclass(
            cls, qdata.shape, dtype=dtype, device=qdata.device, requires_grad=False
        )

    def __init__(
        self, qdata: Tensor, scale: Tensor, dtype: torch.dtype, inputs: str, input_scale: Tensor | None = None
    ) -> None:
        super().__init__()
        self.qdata, self.scale, self.inputs, self.input_scale = qdata, scale, inputs, input_scale

    def dequantize(self) -> Tensor:
        """Return the weights that the arithmetic stands for, in their own dtype."""
        return (self.qdata.float() * self.scale).to(self.dtype)


def quantize_weight(
    weight: Tensor, kind: torch.dtype, inputs: str, input_scale: Tensor | None = None
) -> QuantisedWeight:
    """Return ``weight`` in ``kind`` (INT8 or FLOAT8), scaled by torchao; see `QuantisedWeight` for the rest."""
    if kind is INT8:
        made: Any = Int8Tensor.from_hp(weight, granularity=PerRow())
    else:
        # One scale for each row wants bfloat16 (torch._scaled_mm), and one for each of the inputs' rows.
        by_row = inputs == "float" or (inputs == "dynamic" and weight.dtype is torch.bfloat16 and weight.is_cuda)
        made = Float8Tensor.from_hp(
            weight,
            float8_dtype=FLOAT8,
            granularity=PerRow() if by_row else PerTensor(),
            kernel_preference=KernelPreference.TORCH,
        )
    scale, data = made.scale.float().reshape(-1, 1), made.qdata.contiguous()
    nothing = ~(scale > 0)  # rows, or a whole weight, of zeros: 0 / 0 is no number
    if bool(nothing.any()):
        data = data.float().masked_fill(nothing, 0.0).to(data.dtype)
        scale = scale.masked_fill(nothing, 1.0)
    return QuantisedWeight(data, scale, weight.dtype, inputs, input_scale)


@QuantisedWeight.implements([torch.ops.aten.linear.default])
@QuantisedWeight.implements_torch_function([linear])
def _linear(_func: object, _types: object, args: Any, kwargs: Any) -> Tensor:
    return _product(*args, **(kwargs or {}))


def _product(input: Tensor, weight: QuantisedWeight, bias: Tensor | None = None) -> Tensor:
    rows = input.reshape(-1, input.shape[-1])
    if weight.inputs == "float":
        # In float32, as a product scaled in bfloat16 is what Inductor 2.11 takes for a pattern that it cannot compile.
        out = (rows @ weight.qdata.t().to(rows.dtype)).float() * weight.scale.t()
        out = out if bias is None else out + bias
    elif weight.qdata.dtype is INT8:
        out = _int8(rows, weight, bias)
    else:
        out = _float8(rows, weight, bias)
    return out.to(input.dtype).reshape(*input.shape[:-1], weight.shape[0])


def _int8(rows: Tensor, weight: QuantisedWeight, bias: Tensor | None) -> Tensor:
    # Symmetric, one scale for each row of the input: a token's outlier is no other token's trouble.
    if not (rows.is_cuda or torch.compiler.is_compiling()):
        return _int8_in_pieces(rows, weight, bias)
    scale = _row_scale(rows)
    data = (rows / scale).round().to(INT8)
    count = len(rows)
    if rows.is_cuda and count < _ROWS:
        data = pad(data, (0, 0, 0, _ROWS - count))
    out = torch._int_mm(data, weight.qdata.t())[:count] * scale * weight.scale.t()
    return out if bias is None else out + bias


def _int8_in_pieces(rows: Tensor, weight: QuantisedWeight, bias: Tensor | None) -> Tensor:
    """Return the same numbers, by way of temporaries that fit into a CPU's cache.

    As whole tensors they cost what the product saves: 562 tokens, 2048 to 16384 features, took 105 ms, and 57 in pieces
    (92 in bfloat16).
    """
    packed = packs() and type(rows) is Tensor  # torch.compile tries with tensors that hold no numbers
    # In bfloat16 scaling the product costs a tenth.
    scale = rows.new_empty(len(rows), 1, dtype=rows.dtype if packed and rows.dtype is torch.bfloat16 else torch.float32)
    data = rows.new_empty(rows.shape, dtype=INT8)
    for some in _pieces(len(rows), rows.shape[1]):
        # In float32 a row's largest number is found four times as fast. A copy: it is scaled in place.
        piece = rows[some].to(torch.float32, copy=True)
        exact = _row_scale(piece)
        scale[some] = exact * _UP if scale.dtype is torch.bfloat16 else exact
        data[some] = piece.div_(scale[some].float()).round_()
    if packed:
        return _int8_packed(data, scale, weight, bias)
    out = rows.new_empty(len(rows), len(weight.qdata))
    for some in _pieces(len(weight.qdata), len(rows)):
        piece = torch._int_mm(data, weight.qdata[some].t()).float().mul_(weight.scale[some].t()).mul_(scale)
        out[:, some] = piece if bias is None else piece.add_(bias[some])
    return out


_UP = 1 + 2**-8  # rounds up to the next bfloat16, so that no number leaves int8's range

# ``id`` of a weight → its numbers as a CPU's kernels read them, the scales and the zeros of its rows. Not kept on the
# weight: torch.compile looks at all of that.
_PACKED: dict[int, tuple[Tensor, Tensor, Tensor]] = {}


@cache
def packs() -> bool:
    """Return whether torch has oneDNN's product of packed int8, and this CPU the instructions for it (AVX-512 VNNI)."""
    supported = getattr(torch.cpu, "_is_vnni_supported", None)
    return supported is not None and supported() and hasattr(torch.ops.onednn, "qlinear_prepack")


@cache
def _multiplies_signed() -> bool:
    """Return whether this CPU multiplies packed int8 with signs (AMX). With VNNI alone oneDNN does so one by one."""
    supported = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return supported is not None and supported()


def _int8_packed(data: Tensor, scale: Tensor, weight: QuantisedWeight, bias: Tensor | None) -> Tensor:
    """Return the product from weights that lie as the CPU's kernels read them.

    Measured with 2 cores with AMX, 600 rows, 2048 to 16384 features: 30 ms from weights as they are, 16 packed (25 in
    packed bfloat16); 50 rows, 1024 to 4096 features: 0.64 and 0.34 ms (0.55).
    """
    key = id(weight)
    if key not in _PACKED:
        columns = weight.scale.flatten()
        packed = torch.ops.onednn.qlinear_prepack(weight.qdata, list(data.shape))
        _PACKED[key] = packed, columns, torch.zeros(len(columns), dtype=torch.int64)
        finalize(weight, _PACKED.pop, key, None)
    packed, columns, zeros = _PACKED[key]
    zero = 0
    if not _multiplies_signed():
        data, zero = data.view(torch.uint8).bitwise_xor_(128), 128  # adds 128: the same numbers, without signs
    out = torch.ops.onednn.qlinear_pointwise(
        data, 1.0, zero, packed, columns, zeros, None, 1.0, 0, scale.dtype, "none", [], ""
    ).mul_(scale)
    return out if bias is None else out.add_(bias)


def _pieces(count: int, width: int) -> Iterator[slice]:
    step = max(1, _PIECE // max(1, width))
    return (slice(start, start + step) for start in range(0, count, step))


def _row_scale(rows: Tensor) -> Tensor:
    return (rows.abs().amax(-1, keepdim=True).float() / LARGEST[INT8]).clamp(min=_LEAST)


def _float8(rows: Tensor, weight: QuantisedWeight, bias: Tensor | None) -> Tensor:
    by_row = len(weight.scale) > 1
    scale = weight.input_scale
    if scale is None:
        highest = rows.abs().amax(-1, keepdim=True) if by_row else rows.abs().amax()
        scale = (highest.float() / LARGEST[FLOAT8]).clamp(min=_LEAST)
    # Beyond the largest number float8 has only NaN: what calibration did not see is cut off.
    data = (rows / scale).clamp(-LARGEST[FLOAT8], LARGEST[FLOAT8]).to(FLOAT8)
    of_weight = weight.scale.t() if by_row else weight.scale.reshape(())
    out_dtype = rows.dtype if rows.dtype in (torch.bfloat16, torch.float16) else torch.float32
    out = torch._scaled_mm(
        data, weight.qdata.t(), scale_a=scale, scale_b=of_weight, out_dtype=out_dtype, use_fast_accum=rows.is_cuda
    )
    return out if bias is None else out + bias


@QuantisedWeight.implements([torch.ops.aten.cat.default])
@QuantisedWeight.implements_torch_function([torch.cat, torch.concat])
def _cat(_func: object, _types: object, args: Any, kwargs: Any) -> QuantisedWeight:
    weights, *rest = args
    first = weights[0]
    dim = rest[0] if rest else (kwargs or {}).get("dim", 0)
    alike = all(isinstance(w, QuantisedWeight) for w in weights)
    if dim != 0 or not alike or len({(w.dtype, w.inputs, w.qdata.dtype) for w in weights}) > 1:
        raise NotImplementedError(
            "quantised weights can be joined only along their rows, and only with weights of the same kind"
        )
    if first.inputs != "float" and first.qdata.dtype is FLOAT8 and any(len(w.scale) == 1 for w in weights):
        raise NotImplementedError("float8 weights with one scale each cannot be joined")
    scales = [w.scale.expand(len(w.qdata), 1) for w in weights]
    return QuantisedWeight(
        torch.cat([w.qdata for w in weights]), torch.cat(scales), weights[0].dtype, weights[0].inputs
    )
