"""Take the sums of a model in another order: the same arithmetic, with other rounding.

Each product sums over a dimension that both factors share, a convolution over its input channels, attention over its
features and its keys. In `ReorderedSums` these are shuffled on both sides, which changes the order in which the numbers
are added and nothing else. How far the actions move by that is what no exact treatment can be held to fall below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from strobe.core.errors import UserError, error_line
from strobe.core.measure.agreement import agree_features, agree_outputs, doubles
from strobe.core.measure.flop import SUMS, Operators, operator_name, products
from strobe.core.measure.time_limit import LookInterrupted, TimeLimit, TimeUpError
from strobe.core.results.agreement import Yardstick
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.treatment import Variant

Args = tuple[Any, ...]
Run = Call  # the operator
Order = Callable[[int], Tensor]  # of so many summands: where each one goes


class ReorderedSums(Operators):
    """Inside, sums on this thread take an order drawn with ``seed``: double time. Raises TimeUpError past ``limit``."""

    def __init__(self, seed: int = 0, limit: TimeLimit | None = None) -> None:
        super().__init__()
        self.same: dict[str, int] = {}  # operator with products whose sums stayed as they were → calls
        self._limit = limit
        self._generator = torch.Generator().manual_seed(seed)

    def __str__(self) -> str:
        """The sums that were not reordered, in words."""
        calls = sum(self.same.values())
        return f"but not those of {', '.join(sorted(self.same))} ({calls} call{'s' * (calls != 1)})" if calls else ""

    def run_operator(self, operator: Any, args: Args, kwargs: dict[str, Any]) -> Any:
        """Run ``operator`` with its sums in another order, where a way is known."""
        if self._limit is not None and self._limit.is_spent:
            raise TimeUpError
        name = operator_name(operator)
        way = _WAYS.get(name, _sums if name in SUMS else None)
        if way is not None:
            # Drawn on the CPU: the program's own generators, which draw the policy's noise, are left as they are.
            call = _Call(operator, args, kwargs, lambda size: torch.randperm(size, generator=self._generator))
            with contextlib.suppress(Exception):  # other shapes; what the operator refuses, it refuses again below
                return way(call)
        out = operator(*args, **kwargs)
        multiplied = products(operator, args, kwargs, out)
        if multiplied.flop != 0 and multiplied.dtype != "int8":  # sums of integers do not round
            self.same[name] = self.same.get(name, 0) + 1
        return out


@dataclass(frozen=True)
class _Call:
    operator: Run
    args: Args
    kwargs: Mapping[str, Any]
    order: Order

    def __call__(self, changed: Mapping[int, object], **kwargs: object) -> Any:
        """Run the operator with the arguments at some places changed."""
        args = tuple(changed.get(at, value) for at, value in enumerate(self.args))
        return self.operator(*args, **{**self.kwargs, **kwargs})


def _pick(tensor: Tensor, dim: int, order: Tensor) -> Tensor:
    drawn = order.to(tensor.device)
    if tensor.dim() > 1 and tensor.stride(-2) == 1 and dim in (-1, -2):
        return tensor.mT.index_select(-3 - dim, drawn).mT
    return tensor.index_select(dim, drawn)


def _sums(call: _Call) -> object:
    (left, along), (right, down) = SUMS[operator_name(call.operator)]
    drawn = call.order(call.args[left].shape[along])
    return call({left: _pick(call.args[left], along, drawn), right: _pick(call.args[right], down, drawn)})


def _added_batch(call: _Call) -> object:
    left, right = call.args[1:3]
    inner, batch = call.order(left.shape[-1]), call.order(left.shape[0])
    return call({1: _pick(left, -1, inner).index_select(0, batch), 2: _pick(right, -2, inner).index_select(0, batch)})


def _distances(call: _Call) -> object:
    drawn = call.order(call.args[0].shape[-1])
    return call({0: _pick(call.args[0], -1, drawn), 1: _pick(call.args[1], -1, drawn)})


def _convolution(call: _Call) -> object:
    inputs, weight, _, stride, padding, dilation, transposed, _, groups = call.args[:9]
    kernel = weight.shape[2:]
    channels = inputs.shape[1] // groups  # that a number sums over
    if channels > 1:
        drawn = call.order(channels)
        every = (torch.arange(groups)[:, None] * channels + drawn).flatten()
        return call({0: _pick(inputs, 1, every), 1: _pick(weight, 0, every) if transposed else _pick(weight, 1, drawn)})
    if transposed:
        raise NotImplementedError
    if kernel.numel() == 1:
        return call({})
    # One channel to a number: what is summed over is the kernel, which is read from its end, as is the input.
    space = range(2, weight.dim())
    edges: list[int] = []
    for dim in space:
        at = dim - 2
        reach = dilation[at] * (kernel[at] - 1) + 1
        whole = inputs.shape[dim] + 2 * padding[at]
        unread = (whole - reach) % stride[at]
        edges = [padding[at], padding[at] - unread, *edges]  # the last dimension comes first
    flipped = pad(inputs, edges).flip(*space)
    return call({0: flipped, 1: weight.flip(*space), 4: [0] * len(padding)}).flip(*space)


def _attention(causal: int, mask: int | None = None) -> Callable[[_Call], object]:
    """Of scaled dot product attention.

    Args:
        causal: the argument that says whether a query looks at no later key.
        mask: the argument that is the mask; None for the keyword ``attn_mask``.
    """

    def way(call: _Call) -> Any:
        query, key, value = call.args[:3]
        features = call.order(query.shape[-1])
        changed: dict[int, Any] = {0: _pick(query, -1, features), 1: _pick(key, -1, features)}
        if len(call.args) > causal and call.args[causal]:
            return call(changed)  # each query sums over the keys before it, in their order
        keys = call.order(key.shape[-2])
        changed |= {1: _pick(changed[1], -2, keys), 2: _pick(value, -2, keys)}
        if mask is None:
            found = call.kwargs.get("attn_mask")
            return call(changed, attn_mask=_reorder_mask(found, keys)) if found is not None else call(changed)
        found = call.args[mask] if len(call.args) > mask else None
        return call(changed | {mask: _reorder_mask(found, keys)})

    return way


def _reorder_mask(mask: Tensor | None, order: Tensor) -> Tensor | None:
    return _pick(mask, -1, order) if mask is not None and mask.shape[-1] > 1 else mask


def _heads(width: int, heads: int, order: Order) -> tuple[Tensor, Tensor]:
    """An order of ``width`` numbers in which each head keeps its own, and the same for query, key and value at once."""
    inside = order(width // heads)
    one = (torch.arange(heads)[:, None] * (width // heads) + inside).flatten()
    return one, torch.cat([one, one + width, one + 2 * width])


def _multi_head(call: _Call) -> object:
    query, key, value, width, heads, weight, bias, out_weight = call.args[:8]
    features = call.order(width)
    head, three = _heads(width, heads, call.order)
    # The same tensor stays the same.
    shuffled = {id(tensor): _pick(tensor, -1, features) for tensor in (query, key, value)}
    return call(
        {
            **{at: shuffled[id(tensor)] for at, tensor in enumerate((query, key, value))},
            5: _pick(_pick(weight, -1, features), -2, three),
            6: _pick(bias, -1, three),
            7: _pick(out_weight, -1, head),
        }
    )


def _encoder_layer(call: _Call) -> object:
    width, heads = call.args[1:3]
    features, hidden = call.order(width), call.order(call.args[14].shape[0])
    head, three = _heads(width, heads, call.order)
    # Argument → the orders of its last dimension, and of the one before.
    places: dict[int, Sequence[Tensor]] = {
        0: [features],
        3: [features, three],
        4: [three],
        5: [head, features],
        6: [features],
        **{at: [features] for at in (10, 11, 12, 13, 17)},
        14: [features, hidden],
        15: [hidden],
        16: [hidden, features],
    }
    changed = {}
    for at, orders in places.items():
        changed[at] = call.args[at]
        for dim, order in enumerate(orders, 1):
            changed[at] = _pick(changed[at], -dim, order)
    return _pick(call(changed), -1, features.argsort())


def _recurrent(call: _Call) -> object:
    inputs, weight, again, bias, other_bias, hidden, cell = call.args[:7]
    width = hidden.shape[-1]
    features, inside = call.order(inputs.shape[-1]), call.order(width)
    gates = (torch.arange(weight.shape[0] // width)[:, None] * width + inside).flatten()
    out, *states = call(
        {
            0: _pick(inputs, -1, features),
            1: _pick(_pick(weight, -1, features), -2, gates),
            2: _pick(_pick(again, -1, inside), -2, gates),
            **{at: _pick(tensor, -1, gates) for at, tensor in ((3, bias), (4, other_bias)) if tensor.numel()},
            **{at: _pick(tensor, -1, inside) for at, tensor in ((5, hidden), (6, cell)) if tensor.numel()},
        }
    )
    back = inside.argsort()
    states[:2] = [_pick(tensor, -1, back) if tensor.shape[-1] == width else tensor for tensor in states[:2]]
    return (_pick(out, -1, back), *states)


_WAYS: dict[str, Callable[[_Call], Any]] = {
    "aten::addbmm": _added_batch,
    "aten::_cdist_forward": _distances,
    "aten::convolution": _convolution,
    "aten::_native_multi_head_attention": _multi_head,
    "aten::_transformer_encoder_layer_fwd": _encoder_layer,
    "aten::mkldnn_rnn_layer": _recurrent,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(4),
    "aten::_scaled_dot_product_flash_attention": _attention(4),
    "aten::_scaled_dot_product_efficient_attention": _attention(6, mask=3),
    "aten::_scaled_dot_product_cudnn_attention": _attention(6, mask=3),
}


FEATURES_SEED = 0
Shapes = Sequence[tuple[str, tuple[int, ...]]]  # path → shape of the arrays of an output


def features_reordered(
    subject: Subject,
    baseline: Variant,
    count: int,
    progress: Callable[[int, int], None] | None = None,
    limit: TimeLimit | None = None,
) -> Yardstick | None:
    """Measure how far the features of ``baseline`` change on ``count`` clips when its sums are taken in another order.

    Of an object in Python these are its outputs on its inputs. Fewer are taken once ``limit`` is over, one at least.

    Returns:
        None if the features have too few tokens to have a spread, and where ``limit`` was spent before the first
        clip was done.

    Raises:
        UserError: a call fails.
        LookInterrupted: Ctrl-C, after the first clip.
    """
    call = subject.call("inference", 1)
    before: list[np.ndarray] = []
    after: list[np.ndarray] = []
    undo = baseline.apply(subject)
    try:
        for index in range(count):
            if limit is not None and limit.is_work_over and after:
                break
            plain = np.array(doubles(call(index)), np.float32)
            with ReorderedSums(FEATURES_SEED + index, limit):
                after.append(np.array(doubles(call(index)), np.float32))
            before.append(plain)
            if progress is not None:
                progress(index + 1, count)
    except UserError:
        raise
    except TimeUpError:
        pass
    except KeyboardInterrupt:
        if (moved := _make_yardstick(before, after, _shapes(subject))) is None:
            raise
        raise LookInterrupted(moved) from None
    except Exception as error:
        raise UserError(f"the baseline fails with its sums reordered: {error_line(error, 200)}") from error
    finally:
        undo()
    return _make_yardstick(before, after, _shapes(subject))


def _shapes(subject: Subject) -> Shapes | None:
    form = subject.latest.form
    return form.shapes if form is not None else None


def _make_yardstick(
    before: Sequence[np.ndarray], after: Sequence[np.ndarray], shapes: Shapes | None
) -> Yardstick | None:
    """The yardstick of outputs before and after their sums were reordered; None if there is none.

    Args:
        shapes: of what an object in Python returns; None for features.
    """
    if not before:
        return None
    if any(plain.shape != moved.shape for plain, moved in zip(before, after, strict=False)):
        return None  # it answers in other shapes each time
    pairs = before, after[: len(before)]
    agreement = agree_outputs(*pairs, shapes) if shapes is not None else agree_features(*pairs)
    if agreement.rms is None or agreement.worst is None:
        return None
    return Yardstick(
        name="reordered sums",
        about="the same arithmetic, its sums taken in another order",
        rms=agreement.rms,
        worst=agreement.worst,
        token=agreement.token,
        observations=len(before),
        dimensions=agreement.dimensions,
    )
