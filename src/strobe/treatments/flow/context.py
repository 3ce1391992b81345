"""Work of denoising steps on the context and the observation alone, once a chunk: keys and values, modulations.

The transformers of GR00T, VLA-JEPA and others attend to the backbone's tokens in every step, and project the same
tokens to the same keys and values each time. Which modules see the context alone stands in the family's record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import linear

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call, peel_layers, rewrap_layers
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo
from strobe.lerobot.families.flow_parts import STEP
from strobe.lerobot.sampling import Conditioning, Context
from strobe.treatments.graphs.host_work import EpochCache, is_in_region
from strobe.treatments.parts import deriving, require_capability

_MOST = 4  # contexts of one chunk that a module is remembered for: with guidance there are two


@dataclass
class _Seen:
    """A cache entry: a context with its version, and the module's output for it."""

    context: Tensor
    version: int | None
    made: object

    def holds(self, context: Tensor) -> bool:
        """Return whether it is this tensor, unchanged, or a copy of it, as LingBot-VA makes one for each pass."""
        if self.context is context:
            return self.version == _version(context)
        if self.version != _version(self.context) or is_in_region() or torch.compiler.is_compiling():
            return False
        return self.context.dtype == context.dtype and torch.equal(self.context, context)


@dataclass
class ContextOnce(Switch, key="context_keys", of=Context):
    """A module runs once for a context: all steps of the chunk that give it the same one get the same."""

    _outputs: EpochCache[int, list[_Seen]] = field(default_factory=EpochCache, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        policy: Any = subject.module
        modules = require_capability(subject, Context, self.key).modules(policy)
        if not modules:
            raise UserError(f"{subject.info.name} has no cross-attention to a context in its denoising steps")
        patches, cached = Patches(), self._outputs
        patches.register_undo(cached.forget)

        def compute_once(index: int, make: Callable[[Tensor], object], context: Tensor) -> object:
            seen = cached.now().setdefault(index, [])
            known = next((entry for entry in seen if entry.holds(context)), None)
            if known is None:
                known = _Seen(context, _version(context), make(context))
                seen[:] = [*seen[1 - _MOST :], known]
            return known.made

        def make_wrapper(index: int, module: object) -> Callable[[Call], Call]:
            def wrap_call(forward: Call) -> Call:
                if isinstance(module, nn.MultiheadAttention):
                    return _attending(module, forward, lambda make, context: compute_once(index, make, context))
                return lambda x: forward(x) if deriving() else compute_once(index, forward, x)

            return wrap_call

        for index, module in enumerate(modules):
            patches.wrap(module, "forward", make_wrapper(index, module))
        # A graph may write the next context into the same tensor.
        patches.bracket(policy, "predict_action_chunk", after=cached.forget)
        return patches.undo


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _attending(module: nn.MultiheadAttention, forward: Call, once: Call) -> Call:
    """Return the forward pass of ``module`` with its keys and values from ``once``, in torch's own order of sums.

    It stands for torch's where keys and values are one context, in eval mode; anything else goes to torch.
    """
    width, heads = module.embed_dim, module.num_heads
    own = module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn

    def call(query: Tensor, key: Tensor, value: Tensor, *args: object, **kwargs: Any) -> object:
        given = {"key_padding_mask", "need_weights", "average_attn_weights"}
        plain = not args and kwargs.keys() <= given and key is value and query is not key and query.ndim == 3
        if deriving() or module.training or not (own and plain and module.batch_first):
            return forward(query, key, value, *args, **kwargs)
        weight, bias = module.in_proj_weight, module.in_proj_bias

        def split(projected: Tensor) -> Tensor:  # (L, B, width) → (B, heads, L, width of a head)
            length, batch = projected.shape[:2]
            return projected.view(length, batch * heads, width // heads).transpose(0, 1).unflatten(0, (batch, heads))

        def project(context: Tensor) -> tuple[Tensor, Tensor]:
            rows = functional.linear(context.transpose(0, 1), weight[width:], None if bias is None else bias[width:])
            both = rows.unflatten(-1, (2, width)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
            return split(both[0]), split(both[1])

        keys, values = once(project, key)
        first = None if bias is None else bias[:width]
        queries = split(functional.linear(query.transpose(0, 1), weight[:width], first))
        mask, padding = None, kwargs.get("key_padding_mask")
        if padding is not None:
            mask = torch.zeros_like(padding, dtype=queries.dtype).masked_fill_(padding, -math.inf)[:, None, None, :]
        if not kwargs.get("need_weights", True):
            attended, weights = functional.scaled_dot_product_attention(queries, keys, values, mask), None
        else:
            scaled = queries * math.sqrt(1.0 / float(width // heads))
            scores = scaled @ keys.transpose(-2, -1)
            scores = functional.softmax(scores if mask is None else scores + mask, dim=-1)
            attended = scores @ values
            weights = scores.mean(dim=1) if kwargs.get("average_attn_weights", True) else scores
        return module.out_proj(attended.transpose(1, 2).flatten(2)), weights

    return call


KEYS = ContextOnce.entry(parts=(STEP,))


# Multi-task DiT modulates each block by a linear layer of the timestep's features and the observation's, joined. At
# full size 4108 of its 4364 inputs are the observation's and the same in all steps: of 322 MB of weights, which a batch
# of one reads in every one of 100 steps, 303 MB need be read once.


@dataclass
class ConditioningOnce(Switch, key="conditioning", of=Conditioning):
    """Each layer's product is a sum: the observation's share is kept for the chunk, a step adds its own.

    A layer that something else computes already, as with 8-bit weights, stays unchanged.
    """

    # While a chunk is sampled: of each layer, how many inputs are the step's own, and the others' share, (B, out).
    _shares: list[tuple[int, Tensor]] = field(default_factory=list, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        record = require_capability(subject, Conditioning, self.key)
        layers = [layer for layer in record.layers(subject.module) if _plain(layer)]
        if not layers:
            raise UserError(f"{subject.info.name}: its layers are quantised or hooked, and compute all of it")
        patches, (path, method) = Patches(), record.sampling
        for index, layer in enumerate(layers):
            casts = peel_layers(layer.forward)[1]
            patches.put(layer, "forward", rewrap_layers(casts, self._step(layer, index)))
        patches.wrap(attrgetter(path)(subject.module), method, self._chunk(record, layers))
        return patches.undo

    def _chunk(self, record: Conditioning, layers: Sequence[nn.Linear]) -> Call:
        def wrap_call(sampling: Call) -> Call:
            def call(*args: object, **kwargs: object) -> object:
                if deriving():
                    return sampling(*args, **kwargs)
                seen = record.features(*args, **kwargs)
                self._shares[:] = [_share(layer, seen) for layer in layers]
                try:
                    return sampling(*args, **kwargs)
                finally:
                    self._shares.clear()

            return call

        return wrap_call

    def _step(self, layer: nn.Linear, index: int) -> Call:
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
    hooked = layer._forward_hooks or layer._forward_pre_hooks
    product = getattr(peel_layers(layer.forward)[0], "__func__", None) is nn.Linear.forward
    return type(layer) is nn.Linear and product and type(layer.weight.data) is Tensor and not hooked


CONDITIONING = ConditioningOnce.entry(parts=(STEP,))
