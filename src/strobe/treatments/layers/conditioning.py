"""The work that a denoising step does on the observation alone, once a chunk.

Multi-task DiT modulates each block by a linear layer of the timestep's features and the observation's, joined. At full
size 4108 of its 4364 inputs are the observation's and the same in all steps: of 322 MB of weights, which a batch of
one reads in every one of 100 steps, 303 MB need be read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from strobe.errors import UserError
from strobe.policies.families.family import Conditioning
from strobe.policies.subject import Subject
from strobe.timeline.layers import peeled, within
from strobe.treatments.flow.places import deriving
from strobe.treatments.parts import STEP
from strobe.treatments.patch import Patches
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import Undo


@dataclass
class ConditioningOnce(Switch, key="conditioning", of=lambda family: family.conditioning):
    """Each layer's product is a sum: the observation's share is kept for the chunk, a step adds its own.

    A layer that something else computes already, as with 8-bit weights, stays as it is.
    """

    # While a chunk is sampled: of each layer, how many inputs are the step's own, and the others' share, (B, out).
    _shares: list[tuple[int, Tensor]] = field(default_factory=list, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        self.require(subject)
        record = subject.family.conditioning
        assert record is not None
        layers = [layer for layer in record.layers(subject.module) if _plain(layer)]
        if not layers:
            raise UserError(f"{subject.info.name}: its layers are quantised or hooked, and compute all of it")
        patches, (path, method) = Patches(), record.sampling
        for index, layer in enumerate(layers):
            casts = peeled(layer.forward)[1]
            patches.put(layer, "forward", within(casts, self._step(layer, index)))
        patches.wrap(attrgetter(path)(subject.module), method, self._chunk(record, layers))
        return patches.undo

    def _chunk(self, record: Conditioning, layers: Sequence[nn.Linear]) -> Any:
        def around(sampling: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if deriving():
                    return sampling(*args, **kwargs)
                seen = record.features(*args, **kwargs)
                self._shares[:] = [_share(layer, seen) for layer in layers]
                try:
                    return sampling(*args, **kwargs)
                finally:
                    self._shares.clear()

            return call

        return around

    def _step(self, layer: nn.Linear, index: int) -> Any:
        shares = self._shares

        def call(x: Tensor) -> Tensor:
            # An exported program would hold the share of one chunk for ever.
            if not shares or torch.compiler.is_exporting():
                return linear(x, layer.weight, layer.bias)
            own_inputs, share = shares[index]
            return linear(x[:, :own_inputs], layer.weight[:, :own_inputs]) + share

        return call


def _share(layer: nn.Linear, seen: Tensor) -> tuple[int, Tensor]:
    own_inputs = layer.in_features - seen.shape[-1]
    return own_inputs, linear(seen.to(layer.weight.dtype), layer.weight[:, own_inputs:], layer.bias)


def _plain(layer: Any) -> bool:
    """Whether it is nn.Linear's own product; casts and probes may stand around it."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks
    product = getattr(peeled(layer.forward)[0], "__func__", None) is nn.Linear.forward
    return type(layer) is nn.Linear and product and type(layer.weight.data) is Tensor and not hooked


ENTRY = ConditioningOnce.entry(parts=(STEP,))
