"""Rotary positions of V-JEPA 2's attention: their angles once, and all three axes rotated together.

Attention in transformers' ``models/vjepa2`` turns queries and keys by the token's frame, row and column. In every layer
and every call it computes sines and cosines again, cuts each head's features into three pieces, and swaps neighbours by
taking pairs apart and stacking them again. All of that is a linear map whose numbers never change: features times
cosines, plus features with neighbours swapped times sines. The swap is a product with a constant matrix. OpenVINO is
slow at cutting and stacking: with it ViT-L's encoder took 5,138 ms, without 4,546 (`benchmarks/ladders.py`, two
cores, bfloat16, 16 frames of 256 px).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo


class _Angles(NamedTuple):
    """Of all tokens: ``cosines`` and ``sines`` with their signs (1, 1, tokens, width), and the swap (width, width)."""

    cosines: Tensor
    sines: Tensor
    swap: Tensor


@dataclass
class RotationsOnce(Switch, key="rotations"):
    """V-JEPA 2's attention with angles that were computed once for each number of tokens, size of grid and dtype.

    Where a mask picks tokens, as in the predictor, attention computes its own.
    """

    _known: dict[object, _Angles] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        return bool(_attentions(subject))

    def apply(self, subject: Subject) -> Undo:
        attentions = _attentions(subject)
        if not attentions:
            raise UserError(f"{subject.info.name}: rotations=once is for V-JEPA 2's attention, and it has none")
        patches = Patches()
        for attention in attentions:
            rotate = attention.apply_rotary_embeddings
            patches.wrap(attention, "get_position_ids", partial(self._positions, attention, rotate))
            patches.put(attention, "apply_rotary_embeddings", partial(_rotate_tokens, rotate))
            # What a module prints is in the name that an engine built of it is kept under.
            patches.put(attention, "extra_repr", lambda: "rotations=once")
        return patches.undo

    def _positions(self, attention: Any, rotate: Callable[..., Tensor], own: Call) -> Call:
        def positions(x: Tensor, masks: Tensor | None = None) -> object:
            if masks is not None or torch.is_grad_enabled() or torch.compiler.is_dynamo_compiling():
                return own(x, masks=masks)
            tokens, width = x.shape[1], attention.attention_head_size
            key = (tokens, attention.grid_size, width, x.dtype, x.device)
            if key in self._known:
                return self._known[key]
            if torch.compiler.is_compiling():  # torch.export: what is traced is no tensor to keep
                return _angles(tokens, width, x, partial(rotate, pos_ids=own(x)))
            with torch.inference_mode(False):
                self._known[key] = _angles(tokens, width, x, partial(rotate, pos_ids=own(x)))
            return self._known[key]

        return positions


def _angles(tokens: int, width: int, like: Tensor, rotate: Callable[[Tensor], Tensor]) -> _Angles:
    first = torch.zeros(1, 1, tokens, width, dtype=like.dtype, device=like.device)
    first[..., ::2] = 1
    is_first = first.bool()
    of_first, of_second = rotate(first), rotate(1 - first)
    neighbour = torch.arange(width, device=like.device) ^ 1
    swap = torch.eye(width, dtype=like.dtype, device=like.device)[neighbour]
    return _Angles(of_first.where(is_first, of_second), of_second.where(is_first, of_first), swap)


def _rotate_tokens(own: Callable[..., Tensor], qk: Tensor, pos_ids: Any) -> Tensor:
    if not isinstance(pos_ids, _Angles):
        return own(qk, pos_ids)
    # Each sum of the product has one term, so it rounds nothing. CUDA may round float32 to TF32 before it multiplies.
    swapped = qk @ pos_ids.swap if qk.device.type == "cpu" else qk.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return qk * pos_ids.cosines + swapped * pos_ids.sines


def _attentions(subject: Subject) -> list[Any]:
    names = ("get_position_ids", "apply_rotary_embeddings", "grid_size", "attention_head_size")
    modules: Iterator[Any] = subject.module.modules()
    return [
        module
        for module in modules
        if all(hasattr(module, name) for name in names) and module.attention_head_size % 2 == 0
    ]


ENTRY = RotationsOnce.entry()
