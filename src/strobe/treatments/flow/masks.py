"""Attention masks, positions and rotary angles of the denoising steps, built once a chunk instead of in every step.

They depend on the prefix's mask and on the lengths, which are the same in all steps. LeRobot's `denoise_step` builds
them each time, from Python lists among others: on an accelerator that is a copy from the host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.families.sampling import Flow
from strobe.core.subjects.subject import Subject
from strobe.core.timeline import section
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo
from strobe.treatments.graphs.host_work import EpochCache
from strobe.treatments.parts import STEP, FlowModules, deriving, flow_of

BUILT = "masks"  # the one entry of what is kept


@dataclass
class _Built:
    """For one prefix: the attention mask of a step, its positions, (B, steps), and their cosines and sines."""

    prefix: Tensor
    attention: Tensor
    positions: Tensor
    rotary: dict[torch.dtype, tuple[Tensor, Tensor]] = field(default_factory=dict)


@dataclass
class MasksOnce(Switch, key="masks", of=Flow):
    """A denoising step as LeRobot 0.6.1 does it, with what is the same in all steps kept from the first one.

    The first step of all is done both ways; raises UserError unless all bits are equal.
    """

    _built: EpochCache[str, _Built] = field(default_factory=EpochCache, init=False, repr=False)
    _tried: bool = field(default=False, init=False, repr=False)
    _flow: FlowModules | None = field(default=None, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        if self._flow is None or self._flow.policy is not subject.module:
            self._flow = flow_of(subject)
        flow, patches = self._flow, Patches()
        patches.on_undo(self._built.forget)

        def stepping(denoise_step: Call) -> Call:
            def call(*args: Any, **kwargs: Any) -> Tensor:
                given = flow.step_arguments(args, kwargs)
                if deriving():
                    self._built.clear()
                    return denoise_step(**given)
                if not self._tried and not torch.compiler.is_compiling():
                    self._built.clear()
                    self._try(denoise_step(**given), self._step(flow, **given))
                with section(STEP):  # the anatomy's probe is on LeRobot's own
                    return self._step(flow, **given)

            return call

        def turning(forward: Call) -> Call:
            def call(x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
                built = self._built.now().get(BUILT)
                if built is None or position_ids is not built.positions or deriving():
                    return forward(x, position_ids, *args, **kwargs)
                if x.dtype not in built.rotary:
                    built.rotary[x.dtype] = forward(x, position_ids, *args, **kwargs)
                return built.rotary[x.dtype]

            return call

        patches.wrap(flow.model, "denoise_step", stepping)
        if flow.sampling.layers == "modules":  # others turn queries and keys by a function of their own
            patches.wrap(flow.expert.rotary_emb, "forward", turning)
        return patches.undo

    def _step(
        self,
        flow: FlowModules,
        *,
        prefix_pad_masks: Tensor,
        past_key_values: object,
        x_t: Tensor,
        timestep: Tensor,
        **state: object,
    ) -> Tensor:
        model, config = flow.model, flow.model.config
        embedded, pads, order, *condition = model.embed_suffix(*state.values(), x_t, timestep)
        built = self._built.now().get(BUILT)
        if built is None or built.prefix is not prefix_pad_masks:
            built = self._built[BUILT] = _build(flow, prefix_pad_masks, pads, order)
        suffix = flow.sampling.suffix_pass(
            model, past_key_values, embedded, built.attention, built.positions, condition
        )
        return model.action_out_proj(suffix[:, -config.chunk_size :].to(dtype=torch.float32))

    def _try(self, theirs: Tensor, ours: Tensor) -> None:
        if not torch.equal(theirs.nan_to_num(), ours.nan_to_num()):
            raise UserError(
                "this LeRobot denoises in another way than 0.6.1 does: building the masks once is not exact"
            )
        self._tried = True


def _build(flow: FlowModules, prefix: Tensor, pads: Tensor, order: Tensor) -> _Built:
    module = flow.module_of(flow.model)
    batch, suffix = pads.shape
    before = prefix[:, None, :].expand(batch, suffix, prefix.shape[1])
    attention = torch.cat([before, module.make_att_2d_masks(pads, order)], dim=2)
    positions = torch.sum(prefix, dim=-1)[:, None] + torch.cumsum(pads, dim=1) - 1
    return _Built(prefix, flow.sampling.attention_mask(flow.model, attention), positions)


ENTRY = MasksOnce.entry(parts=(STEP,))
