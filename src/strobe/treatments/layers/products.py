"""Attention in bfloat16 on a CPU, as matrix products.

torch's fused attention for CPUs adds up in float32 and does not use the processor's instructions for 16 bits to the
full. Two products of oneDNN with a softmax between them do, as long as the scores between them stay in the cache, and
heads that share their keys are rows of one product. Measured with 2 cores with AVX512-BF16: 8 heads that share one
key, 560 tokens, 256 numbers a head 16.6 → 8.0 ms; 50 tokens that look at 610 1.8 → 0.8 ms; 16 heads, 256 tokens, 72
numbers a head 2.2 → 1.4 ms. The scores are rounded to bfloat16, which doubles the rounding error of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Spec, Undo
from strobe.treatments.layers.attention import FUSED, Masks, Place, Way, attend, install, places
from strobe.treatments.layers.packed import require_bfloat16
from strobe.treatments.parts import named_parts

SMALLEST = 2**16  # scores; below, three calls cost more than one
PIECE = 2**20  # scores at once: 2 MiB


@dataclass
class AttentionProducts(Switch, key="scores"):
    """Attention of transformers' modules, and SmolVLA's, as products where it runs in bfloat16.

    Left to torch's fused attention: other dtypes, few scores, calls under which gradients are recorded, and what is
    compiled or exported. So a model whose attention is eager gets `attention=sdpa` with it.
    """

    _places: list[Place] | None = field(default=None, init=False, repr=False)
    _module: nn.Module | None = field(default=None, init=False, repr=False)
    _masks: Masks = field(default_factory=Masks, init=False, repr=False)
    dtypes = ("bfloat16",)

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        try:
            require_bfloat16(subject.device, "scores=products")
        except UserError:
            return False
        return next(places(subject, PRODUCTS, Masks()), None) is not None

    def check_device(self, device: torch.device) -> None:
        require_bfloat16(device, "scores=products")

    def apply(self, subject: Subject) -> Undo:
        self.check_device(subject.device)
        if not any(weight.dtype is torch.bfloat16 for weight in subject.module.parameters()):
            raise UserError(
                f"{subject.info.name} has no weights in bfloat16, which scores=products needs: add precision=bf16"
            )
        if self._places is None or self._module is not subject.module:
            self._places, self._module = list(places(subject, PRODUCTS, self._masks)), subject.module
        if not self._places:
            raise UserError(f"{subject.info.name} has no attention of transformers: scores=products changes nothing")
        return install(self._places, PRODUCTS, self._masks)


def products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Attention over heads, (B, H, L, D) and (B, K, S, D) → (B, H, L, D); K divides H. ``mask`` is added to scores."""
    if not _gains(query, key, value, mask):
        return attend(query, key, value, mask, scale)
    batch, heads, rows, width = query.shape
    shared, length = key.shape[1:3]
    together = heads // shared
    scaled = query * (width**-0.5 if scale is None else scale)
    queries = scaled.reshape(batch * shared, together * rows, width)
    keys, values = (each.reshape(batch * shared, length, -1) for each in (key, value))
    out = query.new_empty(batch * shared, together * rows, values.shape[-1])
    added = None
    if mask is not None:
        by_key = mask[:, :, None] if mask.shape[1] == 1 else mask.unflatten(1, (shared, together))
        added = by_key.expand(batch, shared, *by_key.shape[2:]).flatten(0, 1)
    step = max(1, PIECE // (together * rows * length))
    for start in range(0, batch * shared, step):
        some = slice(start, start + step)
        scores = torch.bmm(queries[some], keys[some].transpose(1, 2))
        if added is not None:
            scores.view(-1, together, rows, length).add_(added[some])
        torch.bmm(scores.softmax(-1), values[some], out=out[some])
    return out.view(batch, heads, rows, -1)


def _gains(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or query.device.type != "cpu":
        return False
    alike = {query.dtype, key.dtype, value.dtype, query.dtype if mask is None else mask.dtype} == {torch.bfloat16}
    many = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2] >= SMALLEST
    return alike and many and (mask is None or mask.dim() == 4)


PRODUCTS = Way("strobe_products", ("eager", "sdpa", FUSED.name), products)


def _parts(subject: Subject, _: Spec) -> Sequence[str]:
    return named_parts(subject, [path for place in places(subject, PRODUCTS, Masks()) for path in place.inside])


ENTRY = AttentionProducts.entry(parts=_parts)
