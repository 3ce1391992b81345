"""An engine that was built for one call's shapes, and what of the policy it stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from strobe.treatments.engines.backends import Run
from strobe.treatments.engines.draws import Draw
from strobe.treatments.engines.recorded import Results, cast_to_float32


@dataclass(frozen=True)
class Target:
    """The call that an engine replaces: ``method`` of ``owner``, with the weights of ``module``, which is ``call``."""

    module: nn.Module
    owner: nn.Module
    method: str
    call: Callable[..., object]

    def state(self) -> tuple[object, ...]:
        """Return what tells whether weights or settings are others than before."""
        weights = (*self.module.parameters(), *self.module.buffers())
        return (self.settings(), *((tensor.data_ptr(), tensor._version, tensor.dtype) for tensor in weights))

    def settings(self) -> dict[str, str]:
        """Return what else the results depend on: the owner's config and plain attributes, such as the steps."""
        if self.method == "forward":
            return {}  # a module's own are in its repr, or in its config
        return {
            name: str(getattr(value, "config", value))
            for name, value in vars(self.owner).items()
            if isinstance(value, (bool, int, float, str)) or hasattr(value, "config") or name == "config"
        }


@dataclass
class Built:
    """An engine for one call's shapes."""

    call: Run
    dtypes: list[torch.dtype]
    results: Results
    draws: Sequence[Draw] = ()
    cached: bool = False
    seconds: float = 0.0

    def run(self, tensors: Sequence[Tensor], noise: Sequence[Tensor] | None = None) -> Any:
        """Return the results for ``tensors``; ``noise``: what is drawn, None for a draw of torch's generator."""
        drawn = [draw.draw_again() for draw in self.draws] if noise is None else noise
        # By way of the dtype that was recorded: a mask of another kind means another thing.
        inputs = [value.to(dtype) for value, dtype in zip(tensors, self.dtypes, strict=True)]
        return self.results.fill_tensors(self.call([cast_to_float32(value) for value in (*inputs, *drawn)]))
