"""Values that depend on the timestep alone, computed once for all chunks.

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

from strobe.core.families.sampling import Flow
from strobe.core.subjects.subject import Subject
from strobe.core.timeline.layers import Call
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.switch import Switch
from strobe.core.treatments.treatment import Undo
from strobe.treatments.graphs.host_work import in_region
from strobe.treatments.parts import STEP, FlowModules, deriving, flow_of, weights_seen


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

        All samples share one timestep. On a GPU it cannot be looked at, since that would wait for it.
        """
        equal = self.times == timestep[:1]
        looks = equal.device.type == "cpu" and not torch.compiler.is_compiling() and not in_region()
        if looks and not bool(equal.any()):
            return None
        return torch.cat([equal, ~equal.any(0, keepdim=True)]).int().argmax(0, keepdim=True)


@dataclass
class PrecomputedTimesteps(Switch, key="timesteps", of=Flow):
    """Timestep embeddings and the modulation of adaptive norms, for as many steps as the policy's config has."""

    _table: _Table | None = field(default=None, init=False, repr=False)
    _seen: Any = field(default=None, init=False, repr=False)
    _index: Tensor | None = field(default=None, init=False, repr=False)
    _now: list[Tensor] = field(default_factory=list, init=False, repr=False)

    def apply(self, subject: Subject) -> Undo:
        flow = flow_of(subject)
        norms = _adaptive(flow)
        steps = flow.steps
        made_of = [flow.model.action_in_proj, *(norm.dense for norm in norms)]
        made_of += [getattr(flow.model, name) for name in ("time_mlp_in", "time_mlp_out") if hasattr(flow.model, name)]
        seen = (steps, flow.model.action_in_proj.weight.device, weights_seen(*made_of))
        if seen != self._seen:
            self._table, self._seen = _table(flow, norms, steps), seen
        patches = Patches()
        module = flow.module_of(flow.model)
        self._embedding(flow, module, patches)
        for number, norm in enumerate(norms):
            patches.put(norm.dense, "forward", self._modulating(norm.dense.forward, number))
        return patches.undo

    def _embedding(self, flow: FlowModules, module: object, patches: Patches) -> None:
        model = flow.model
        now = self._now  # the embedding of the step that is running, while its suffix is embedded, and its time

        def known(own: Call) -> Call:
            def sinusoidal(time: Tensor, *args: object, **kwargs: object) -> Tensor:
                # Another policy, also on another thread, passes through here with its own.
                mine = bool(now) and now[1] is time
                return now[0].expand(len(time), -1) if mine else own(time, *args, **kwargs)

            return sinusoidal

        def around(embed_suffix: Call) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                timestep = kwargs["timestep"] if "timestep" in kwargs else args[-1]
                table = self._table
                self._index = None if table is None or deriving() else table.index(timestep)
                if table is None or self._index is None:
                    return embed_suffix(*args, **kwargs)
                now[:] = [table.embeddings.index_select(0, self._index), timestep]
                try:
                    return embed_suffix(*args, **kwargs)
                finally:
                    now.clear()

            return call

        patches.share(module, "create_sinusoidal_pos_embedding", known)
        patches.wrap(model, "embed_suffix", around)
        if hasattr(model, "time_mlp_in"):
            patches.put(model.time_mlp_in, "forward", self._first(model.time_mlp_in.forward, now))
            patches.put(model.time_mlp_out, "forward", self._second(model.time_mlp_out.forward, now))

    def _first(self, forward: Call, now: list[Tensor]) -> Call:
        # The result goes through an activation into the second layer, which ignores it while ``now`` is set.
        return lambda x: x if now else forward(x)

    def _second(self, forward: Call, now: list[Tensor]) -> Call:
        def call(x: Tensor) -> Tensor:
            table = self._table
            if not now or table is None or table.conditions is None or self._index is None:
                return forward(x)
            return table.conditions.index_select(0, self._index).expand(len(x), -1)

        return call

    def _modulating(self, forward: Call, number: int) -> Call:
        def call(condition: Tensor) -> Tensor:
            table, index = self._table, self._index
            if table is None or index is None or deriving():
                return forward(condition)
            return table.modulations[number].index_select(0, index).expand(len(condition), -1)

        return call


@torch.no_grad()
def _table(flow: FlowModules, norms: list[Any], steps: int) -> _Table:
    """Make the table row by row, as the policy computes each step, so that the bits are the same."""
    model = flow.model
    device = model.action_in_proj.weight.device
    times = [
        torch.tensor(1.0 + step * (-1.0 / steps), dtype=torch.float32, device=device)[None] for step in range(steps)
    ]
    width = model.action_in_proj.out_features
    periods = {"min_period": model.config.min_period, "max_period": model.config.max_period}
    sinusoidal = flow.module_of(model).create_sinusoidal_pos_embedding
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
    """Return ``rows`` below each other, and a row that is not a number."""
    return torch.cat([*rows, torch.full_like(rows[0], torch.nan)])


def _adaptive(flow: FlowModules) -> list[Any]:
    """Return the norms of the action expert that the timestep modulates, as pi0.5 has them."""
    norms: list[object] = [module for module in flow.expert.modules() if getattr(module, "cond_dim", None) is not None]
    return [norm for norm in norms if isinstance(getattr(norm, "dense", None), nn.Linear)]


ENTRY = PrecomputedTimesteps.entry(parts=(STEP,))
