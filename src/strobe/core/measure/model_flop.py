"""Model FLOP of a training step and their utilisation (MFU): what the model needs, not what is computed twice.

Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, appendix B: the FLOP of a forward and a
backward pass, without those that checkpointing or a fused attention computes again, over the time that a step took,
over the peak. The peak is what this machine was measured to reach in a large product (`ceiling.py`), not what a data
sheet says. With the FLOP that are computed again it would be the utilisation of the hardware (HFU).
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import torch.autograd.graph
import torch.utils.checkpoint

from strobe.core.measure.flop import Args, Operators, operator_name, products

_CHECKPOINTS, _ENGINE = torch.utils.checkpoint.__file__, torch.autograd.graph.__file__
_AGAIN = ("recompute_fn", "backward")  # functions of torch.utils.checkpoint that run a forward pass again


class ModelFlop(Operators):
    """Counts the FLOP of what runs while it is entered, by dtype. Nothing that is computed changes."""

    def __init__(self) -> None:
        super().__init__()
        self.flop: Counter[str] = Counter()
        self.again: Counter[str] = Counter()  # computed a second time: no part of ``flop``
        self.uncounted: Counter[str] = Counter()  # operator that seems to multiply and has no formula → its calls

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``operator``, count its FLOP, and return its result."""
        out = operator(*args, **kwargs)
        multiplied = products(operator, args, kwargs, out)
        if multiplied.flop is None:
            self.uncounted[operator_name(operator)] += 1
        elif multiplied.flop:
            second = (
                multiplied.flop if _recomputing() else _scores_again(operator_name(operator), args, multiplied.flop)
            )
            self.again[multiplied.dtype] += second
            self.flop[multiplied.dtype] += multiplied.flop - second
        return out


def _recomputing() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file == _CHECKPOINTS and name in _AGAIN:
            return True
        if file == _ENGINE and name == "_engine_run_backward":
            return False
        frame = frame.f_back
    return False


def _scores_again(name: str, args: Args, flop: int) -> int:
    if "attention" not in name or not name.endswith("_backward"):
        return 0
    query, _, value = args[0:3] if name == "flex_attention_backward" else args[1:4]
    width, of_values = query.shape[-1], value.shape[-1]
    return flop * width // (3 * width + 2 * of_values)
