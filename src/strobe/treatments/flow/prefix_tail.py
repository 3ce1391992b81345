"""The end of the prefix pass that nobody reads: of its last layer, only keys and values are used.

The prefix is run to fill the key-value cache. What its last layer makes of them (attention, its output, the MLP) goes
into hidden states that LeRobot throws away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.subjects.subject import Subject
from strobe.treatments.flow.places import FlowModules, deriving, flow_of
from strobe.treatments.parts import PREFIX
from strobe.treatments.patch import Patches
from strobe.treatments.switch import Switch
from strobe.treatments.treatment import Undo


@dataclass
class SkippedTail(Switch, key="prefix_tail", of=lambda family: family.flow):
    """The last layer of the prefix pass stops once its keys and values, (B, heads, L, width), are in the cache."""

    _skipping: list[bool] = field(default_factory=lambda: [False], init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        flow = flow_of(subject)
        patches = Patches()
        if flow.sampling.layers == "methods":
            _of_methods(flow, patches, self._skipping)
        else:
            _of_modules(flow, patches)
        return patches.undo


def _of_modules(flow: FlowModules, patches: Patches) -> None:
    # At inference the layer runs as a module when the prefix fills the cache, and then only.
    last = flow.language.layers[-1]
    rotate = flow.module_of(flow.model).modeling_gemma.apply_rotary_pos_emb

    def around(forward: Any) -> Any:
        def call(
            hidden: Tensor,
            *args: Any,
            past_key_values: Any = None,
            position_embeddings: Any = None,
            use_cache: bool = False,
            **kwargs: Any,
        ) -> Tensor:
            if deriving() or not use_cache or past_key_values is None or position_embeddings is None:
                given = {"past_key_values": past_key_values, "position_embeddings": position_embeddings}
                return forward(hidden, *args, use_cache=use_cache, **given, **kwargs)
            attention = last.self_attn
            normed, _ = last.input_layernorm(hidden, cond=kwargs.get("adarms_cond"))
            shape = (*normed.shape[:-1], -1, attention.head_dim)
            keys = attention.k_proj(normed).view(shape).transpose(1, 2)
            values = attention.v_proj(normed).view(shape).transpose(1, 2)
            _, keys = rotate(keys[:, :1], keys, *position_embeddings)  # it turns queries too, of which there are none
            past_key_values.update(keys, values, attention.layer_idx)
            return hidden

        return call

    patches.wrap(last, "forward", around)


def _of_methods(flow: FlowModules, patches: Patches, skipping: list[bool]) -> None:
    # The layers are no modules of their own here: attention is a method of the whole, and what follows is called apart.
    last = flow.joint.num_vlm_layers - 1
    layer = flow.language.layers[last]
    rotate = flow.module_of(flow.joint).apply_rope

    def attention(forward: Any) -> Any:
        def call(
            model_layers: Any, inputs_embeds: Any, layer_idx: int, position_ids: Tensor, *args: Any, **kwargs: Any
        ) -> Any:
            cache = kwargs.get("past_key_values")
            prefix_only = inputs_embeds[0] is not None and inputs_embeds[1] is None
            skipping[0] = bool(
                layer_idx == last and prefix_only and kwargs.get("use_cache") and cache is not None and not deriving()
            )
            if not skipping[0]:
                return forward(model_layers, inputs_embeds, layer_idx, position_ids, *args, **kwargs)
            hidden = inputs_embeds[0]
            normed = layer.input_layernorm(hidden).to(dtype=layer.self_attn.q_proj.weight.dtype)
            shape = (*normed.shape[:-1], -1, layer.self_attn.head_dim)
            keys = rotate(layer.self_attn.k_proj(normed).view(shape), position_ids[:, : hidden.shape[1]])
            values = layer.self_attn.v_proj(normed).view(shape)
            assert cache is not None
            cache.update(keys.transpose(1, 2), values.transpose(1, 2), last)
            return [hidden], cache

        return call

    def output(forward: Any) -> Any:
        # What is returned is added to in place.
        return lambda x: torch.zeros_like(x) if skipping[0] else forward(x)

    def mlp(forward: Any) -> Any:
        def call(x: Tensor) -> Tensor:
            if not skipping[0]:
                return forward(x)
            skipping[0] = False
            return x

        return call

    patches.wrap(flow.joint, "forward_attn_layer", attention)
    patches.wrap(layer.self_attn.o_proj, "forward", output)
    patches.wrap(layer.mlp, "forward", mlp)


ENTRY = SkippedTail.entry(parts=(PREFIX,))
