"""Treatments of results that are never read: a language head, a prompt's half, the ends of two passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo
from strobe.lerobot.families.flow_parts import PREFIX, STEP
from strobe.lerobot.sampling import Flow, LastBlock, UnreadHalf, UnreadHead
from strobe.treatments.parts import FlowModules, capability, deriving, parts_at, require_capability, require_flow

# The language head: the backbone's logits are computed for every token, and nobody reads them.
# GR00T and VLA-JEPA run Qwen3-VL with its head on top, a product with the whole vocabulary (152 k words), and read the
# hidden states of a layer below it.


class Unread:
    """Stands where the logits were. Whoever reads it gets a `UserError`: the head was needed after all."""

    def _read(self, *_: object, **__: object) -> NoReturn:
        raise UserError("lm_head=skipped: this policy uses its language head: remove the treatment")

    __bool__ = __len__ = __iter__ = __getitem__ = __array__ = _read  # pyright: ignore[reportAssignmentType]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __matmul__ = __neg__ = _read

    @classmethod
    def __torch_function__(cls, *_: object, **__: object) -> NoReturn:
        cls()._read()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python's own questions, such as whether it can be copied
            raise AttributeError(name)
        self._read()


@dataclass
class SkippedHead(Switch, key="lm_head", of=UnreadHead):
    """The head gives nothing; a policy that reads it fails. Where gradients are wanted it runs."""

    def apply(self, subject: Subject) -> Undo:
        head: Any = subject.module.get_submodule(require_capability(subject, UnreadHead, self.key).path)
        patches = Patches()

        def skipping(forward: Call) -> Call:
            return lambda hidden: forward(hidden) if deriving() else Unread()

        patches.wrap(head, "forward", skipping)
        return patches.undo


HEAD = SkippedHead.entry(parts=parts_at(UnreadHead, lambda head: head.path))


# The end of the prefix pass: of its last layer, only keys and values are used.
# The prefix is run to fill the key-value cache. What its last layer makes of them (attention, its output, the MLP) goes
# into hidden states that LeRobot throws away.


@dataclass
class SkippedTail(Switch, key="prefix_tail", of=Flow):
    """The last layer of the prefix pass stops once its keys and values, (B, heads, L, width), are in the cache."""

    _skipping: list[bool] = field(default_factory=lambda: [False], init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        flow = require_flow(subject)
        patches = Patches()
        if flow.sampling.layers == "methods":
            _wrap_methods(flow, patches, self._skipping)
        else:
            _wrap_modules(flow, patches)
        return patches.undo


def _wrap_modules(flow: FlowModules, patches: Patches) -> None:
    # At inference the layer runs as a module when the prefix fills the cache, and then only.
    last = flow.language.layers[-1]
    rotate = flow.defining_module(flow.model).modeling_gemma.apply_rotary_pos_emb

    def wrap_call(forward: Call) -> Call:
        def call(
            hidden: Tensor,
            *args: object,
            past_key_values: Any = None,
            position_embeddings: Any = None,
            use_cache: bool = False,
            **kwargs: object,
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

    patches.wrap(last, "forward", wrap_call)


def _wrap_methods(flow: FlowModules, patches: Patches, skipping: list[bool]) -> None:
    # The layers are no modules of their own here: attention is a method of the whole, what follows is separate.
    last = flow.joint.num_vlm_layers - 1
    layer = flow.language.layers[last]
    rotate = flow.defining_module(flow.joint).apply_rope

    def attention(forward: Call) -> Call:
        def call(
            model_layers: Any, inputs_embeds: Any, layer_idx: int, position_ids: Tensor, *args: object, **kwargs: Any
        ) -> object:
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

    def output(forward: Call) -> Call:
        # What is returned is added to in place.
        return lambda x: torch.zeros_like(x) if skipping[0] else forward(x)

    def mlp(forward: Call) -> Call:
        def call(x: Tensor) -> Tensor:
            if not skipping[0]:
                return forward(x)
            skipping[0] = False
            return x

        return call

    patches.wrap(flow.joint, "forward_attn_layer", attention)
    patches.wrap(layer.self_attn.o_proj, "forward", output)
    patches.wrap(layer.mlp, "forward", mlp)


TAIL = SkippedTail.entry(parts=(PREFIX,))


# The negative prompt's half of passes whose guidance is off: it is computed, and nobody reads it.
# Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598) runs a model on two prompts and moves from the one
# answer to the other. LingBot-VA guides the video and not the actions, and runs both prompts in the actions' 50 passes
# all the same. The first half of a batch of two does not depend on the second.


@dataclass
class SkippedHalf(Switch, key="unread_half", of=UnreadHalf):
    """Passes that are not guided run one prompt; the family's record says which, and what they need for it.

    The products have half as many rows, so that a library may take their sums in another order.
    """

    @classmethod
    def fits(cls, subject: Subject) -> bool:
        half = capability(subject, UnreadHalf)
        return half is not None and bool(half.passes(subject.module))

    def apply(self, subject: Subject) -> Undo:
        passes = require_capability(subject, UnreadHalf, self.key).passes(subject.module)
        if not passes:
            raise UserError(f"{subject.info.name}: with its guidance settings, all of a pass is used")
        patches = Patches()
        for owner, name, around in passes:
            patches.wrap(owner, name, around)
        return patches.undo


HALF = SkippedHalf.entry(parts=(STEP,))


# The last block of a denoising transformer for the rows that are read: those of the actions.
# A policy without a prefix cache runs actions and context through every block of every step. Of the last block it reads
# the actions' rows alone. The context still gives that block keys and values; its attention's output and its MLP are
# computed for nothing. Of X-VLA's 228 rows 32 are read, and two thirds of a block's arithmetic go.


@dataclass
class ReadRows(Switch, key="last_block", of=LastBlock):
    """The last block's output is (B, rows, width), with as many rows as the policy's record says are read."""

    def apply(self, subject: Subject) -> Undo:
        record = require_capability(subject, LastBlock, self.key)
        module: Any = subject.module
        last, rows, narrowed = module.get_submodule(record.blocks)[-1], record.rows(module.config), record.narrowed

        def wrap_call(forward: Call) -> Call:
            return lambda x: forward(x) if deriving() else narrowed(last, x, rows)

        patches = Patches()
        patches.wrap(last, "forward", wrap_call)
        return patches.undo


LAST_BLOCK = ReadRows.entry(parts=(STEP,))
