"""What denoising steps compute again though it is known: values of the timestep alone, masks and positions.

A policy that denoises in ten steps meets ten timesteps, always the same. pi0.5 makes an embedding of each, two linear
layers of that, and with a third one per norm the scale, shift and gate of its adaptive norms (37 of them, float32
weights of 465 MB at full size, read in every step of every chunk). pi0 and SmolVLA join the embedding to the actions,
so that only the embedding itself can be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from strobe.core.errors import UserError
from strobe.core.subjects.subject import Subject
from strobe.core.timeline import section
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo
from strobe.lerobot.families.flow_parts import STEP
from strobe.lerobot.sampling import Flow
from strobe.treatments.graphs.host_work import EpochCache, is_building, is_in_region
from strobe.treatments.parts import FlowModules, deriving, require_flow, weights_seen


@dataclass
class _Table:
    """By timestep: ``times`` (steps,), embeddings (steps + 1, width), and what the adaptive norms take from them.

    The last row of all but ``times`` is not a number: an unknown timestep must not pass for a known one.
    """

    times: Tensor
    embeddings: Tensor
    conditions: Tensor | None
    modulations: list[Tensor]

    def index(self, timestep: Tensor) -> Tensor | None:
        """Return the table's row of ``timestep``, (B,), as (1,); None if it is seen to have none.

        All samples share one timestep. On a GPU it cannot be looked at, because that would wait for it.
        """
        equal = self.times == timestep[:1]
        looks = equal.device.type == "cpu" and not torch.compiler.is_compiling() and not is_in_region()
        if looks and not bool(equal.any()):
            return None
        return torch.cat([equal, ~equal.any(0, keepdim=True)]).int().argmax(0, keepdim=True)


@dataclass
class PrecomputedTimesteps(Switch, key="timesteps", of=Flow):
    """Timestep embeddings and the modulation of adaptive norms, for as many steps as the policy's config has."""

    _table: _Table | None = field(default=None, init=False, repr=False)
    _seen: Any = field(default=None, init=False, repr=False)
    _index: Tensor | None = field(default=None, init=False, repr=False)
    _building: bool = field(default=False, init=False, repr=False)  # whether the index was made while one builds
    _now: list[Tensor] = field(default_factory=list, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        flow = require_flow(subject)
        norms = _adaptive(flow)
        steps = flow.steps
        made_of = [flow.model.action_in_proj, *(norm.dense for norm in norms)]
        made_of += [getattr(flow.model, name) for name in ("time_mlp_in", "time_mlp_out") if hasattr(flow.model, name)]
        seen = (steps, flow.model.action_in_proj.weight.device, weights_seen(*made_of))
        if seen != self._seen:
            self._table, self._seen = _table(flow, norms, steps), seen
        patches = Patches()
        module = flow.defining_module(flow.model)
        self._embedding(flow, module, patches)
        for number, norm in enumerate(norms):
            patches.put(norm.dense, "forward", self._modulating(norm.dense.forward, number))
        return patches.undo

    def _embedding(self, flow: FlowModules, module: object, patches: Patches) -> None:
        model = flow.model
        now = self._now  # the embedding of the step that is running, while its suffix is embedded, and its time

        def wrap_sinusoidal(own: Call) -> Call:
            def sinusoidal(time: Tensor, *args: object, **kwargs: object) -> Tensor:
                # Another policy, also on another thread, passes through here with its own.
                mine = bool(now) and now[1] is time
                return now[0].expand(len(time), -1) if mine else own(time, *args, **kwargs)

            return sinusoidal

        def wrap_call(embed_suffix: Call) -> Call:
            def call(*args: Any, **kwargs: Any) -> object:
                timestep = kwargs["timestep"] if "timestep" in kwargs else args[-1]
                table = self._table
                self._index = None if table is None or deriving() else table.index(timestep)
                self._building = is_building()
                if table is None or self._index is None:
                    return embed_suffix(*args, **kwargs)
                now[:] = [table.embeddings.index_select(0, self._index), timestep]
                try:
                    return embed_suffix(*args, **kwargs)
                finally:
                    now.clear()

            return call

        patches.share(module, "create_sinusoidal_pos_embedding", wrap_sinusoidal)
        patches.wrap(model, "embed_suffix", wrap_call)
        if hasattr(model, "time_mlp_in"):
            patches.put(model.time_mlp_in, "forward", self._first(model.time_mlp_in.forward, now))
            patches.put(model.time_mlp_out, "forward", self._second(model.time_mlp_out.forward, now))

    def _first(self, forward: Call, now: list[Tensor]) -> Call:
        # The result goes through an activation into the second layer, which ignores it while ``now`` is set.
        return lambda x: x if now and self._is_current() else forward(x)

    def _second(self, forward: Call, now: list[Tensor]) -> Call:
        def call(x: Tensor) -> Tensor:
            table = self._table
            if not now or table is None or table.conditions is None or self._index is None or not self._is_current():
                return forward(x)
            return table.conditions.index_select(0, self._index).expand(len(x), -1)

        return call

    def _is_current(self) -> bool:
        """Return whether the index is that of this step: in an engine of a part it would become a constant."""
        return self._building == is_building()

    def _modulating(self, forward: Call, number: int) -> Call:
        def call(condition: Tensor) -> Tensor:
            table, index = self._table, self._index
            if table is None or index is None or deriving() or not self._is_current():
                return forward(condition)
            return table.modulations[number].index_select(0, index).expand(len(condition), -1)

        return call


@torch.no_grad()
def _table(flow: FlowModules, norms: list[Any], steps: int) -> _Table:
    model = flow.model
    device = model.action_in_proj.weight.device
    times = [torch.tensor(time, dtype=torch.float32, device=device)[None] for time in flow.sampling.times(steps)]
    width = model.action_in_proj.out_features
    shortest, longest = flow.sampling.periods or (model.config.min_period, model.config.max_period)
    periods = {"min_period": shortest, "max_period": longest}
    sinusoidal = flow.defining_module(model).create_sinusoidal_pos_embedding
    embeddings = [sinusoidal(time, width, device=time.device, **periods) for time in times]
    if not hasattr(model, "time_mlp_in"):
        return _Table(torch.cat(times), _rows(embeddings), None, [])
    conditions, modulations = [], [list[Tensor]() for _ in norms]
    for time, embedding in zip(times, embeddings, strict=True):
        hidden = functional.silu(model.time_mlp_in(embedding.type(time.dtype)))
        conditions.append(model.time_mlp_out(hidden))
        for rows, norm in zip(modulations, norms, strict=True):
            rows.append(norm.dense(functional.silu(conditions[-1])))
    return _Table(torch.cat(times), _rows(embeddings), _rows(conditions), [_rows(rows) for rows in modulations])


def _rows(rows: list[Tensor]) -> Tensor:
    return torch.cat([*rows, torch.full_like(rows[0], torch.nan)])


def _adaptive(flow: FlowModules) -> list[Any]:
    """Return the norms of the action expert that the timestep modulates, as pi0.5 has them."""
    norms: list[object] = [module for module in flow.expert.modules() if getattr(module, "cond_dim", None) is not None]
    return [norm for norm in norms if isinstance(getattr(norm, "dense", None), nn.Linear)]


TIMESTEPS = PrecomputedTimesteps.entry(parts=(STEP,))


# Attention masks, positions and rotary angles of the denoising steps, built once a chunk instead of in every step.
#
# They depend on the prefix's mask and on the lengths, which are the same in all steps. LeRobot's `denoise_step` builds
# them each time, from Python lists among others: on an accelerator that is a copy from the host.

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
            self._flow = require_flow(subject)
        flow, patches = self._flow, Patches()
        patches.register_undo(self._built.forget)

        def stepping(denoise_step: Call) -> Call:
            def call(*args: object, **kwargs: object) -> Tensor:
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
            def call(x: Tensor, position_ids: Tensor, *args: object, **kwargs: object) -> object:
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
        model = flow.model
        embedded, pads, order, *condition = model.embed_suffix(*state.values(), x_t, timestep)
        built = self._built.now().get(BUILT)
        if built is None or built.prefix is not prefix_pad_masks:
            built = self._built[BUILT] = _build(flow, prefix_pad_masks, pads, order)
        suffix = flow.sampling.suffix_pass(
            model, past_key_values, embedded, built.attention, built.positions, condition
        )
        return model.action_out_proj(suffix[:, -x_t.shape[1] :].to(dtype=torch.float32))

    def _try(self, theirs: Tensor, ours: Tensor) -> None:
        if not torch.equal(theirs.nan_to_num(), ours.nan_to_num()):
            raise UserError(
                "this policy denoises differently from LeRobot 0.6.1 and openpi: building the masks once is not exact"
            )
        self._tried = True


def _build(flow: FlowModules, prefix: Tensor, pads: Tensor, order: Tensor) -> _Built:
    module = flow.defining_module(flow.model)
    batch, suffix = pads.shape
    before = prefix[:, None, :].expand(batch, suffix, prefix.shape[1])
    attention = torch.cat([before, module.make_att_2d_masks(pads, order)], dim=2)
    positions = torch.sum(prefix, dim=-1)[:, None] + torch.cumsum(pads, dim=1) - 1
    return _Built(prefix, flow.sampling.attention_mask(flow.model, attention), positions)


MASKS = MasksOnce.entry(parts=(STEP,))
