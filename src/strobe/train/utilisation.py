"""Model FLOP utilisation (MFU) of a training: one step's FLOP over the time of the steps, over this machine's peak.

Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, appendix B: the FLOP of a forward and a
backward pass, without those that checkpointing or a fused attention computes again, over the time that a step took,
over the peak. The peak is what this machine was measured to reach in a large product (`ceiling.py`), not what a data
sheet says. With the FLOP that are computed again it would be the utilisation of the hardware (HFU).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

import torch
import torch.autograd.graph
import torch.utils.checkpoint

from strobe.core.errors import error_line
from strobe.core.measure.ceiling import measure
from strobe.core.measure.compilations import CompileLog
from strobe.core.measure.components import Iteration
from strobe.core.measure.flop import Args, Operators, operator_name, products
from strobe.core.measure.roofline import compute_ms
from strobe.core.results.subject import Ceiling
from strobe.core.studies.shared.machine_state import MULTIPLIED
from strobe.train.results import Utilisation

R = TypeVar("R")

_CHECKPOINTS, _ENGINE = torch.utils.checkpoint.__file__, torch.autograd.graph.__file__
_AGAIN = ("recompute_fn", "backward")  # functions of torch.utils.checkpoint that run a forward pass again

# The second: the first shows whether it compiles. No step that is compiled runs under the count, which would keep torch
# from compiling it ever after (`torch._dynamo.convert_frame` skips code that it meets under a dispatch mode).
COUNTED = 1
LEAST_STEPS = 4  # the counted step is slow, so it is warm-up; two are needed after it


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


@dataclass
class CountedStep:
    """The step of a training whose FLOP are counted while it runs; its time is no figure's.

    Args:
        steps: that are recorded, at most.
    """

    steps: int = 0
    counter: ModelFlop | None = None
    why_not: str | None = "the counted step did not end"

    @property
    def warmup(self) -> int:
        """How many steps are warm-up for its sake."""
        return COUNTED + 1 if self.counter is not None else 0

    def run(self, step: int, compiled: CompileLog, update: Callable[[], R]) -> R:
        """Return what ``update`` returns: the ``step``-th step, from 0, of a training that has ``compiled`` so far."""
        if step != COUNTED:
            return update()
        reason = self._reason(compiled)
        if reason:
            self.why_not = reason
            return update()
        self.counter = ModelFlop()
        with self.counter:
            output = update()
        self.why_not = _unknown(self.counter)
        return output

    def _reason(self, compiled: CompileLog) -> str | None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            return "this is one of several processes that train together"
        if compiled.compiled or compiled.broken or compiled.unjudged:
            return "the step is compiled, and the operators of compiled code cannot be counted"
        if self.steps < LEAST_STEPS:
            return f"the counted step is left out, so {LEAST_STEPS} or more steps are needed"
        return None


def _unknown(counter: ModelFlop) -> str | None:
    named = ", ".join(f"{error_line(name, 60)} ({calls}×)" for name, calls in sorted(counter.uncounted.items()))
    if named:
        return f"the FLOP of these operators are not known: {named}"
    return None if counter.flop else "the step has no product, convolution or attention"


def peak(counted: CountedStep, device: torch.device) -> Ceiling:
    """Measure what this machine reaches in products of the dtypes that were counted; empty where nothing was.

    Each dtype takes half a second. TF32 and the like are as the training left them.
    """
    if counted.counter is None or counted.why_not:
        return Ceiling()
    return measure(device, [dtype for dtype in counted.counter.flop if dtype in MULTIPLIED], products_only=True)


def step_utilisation(
    counted: CountedStep, steady: Sequence[Iteration], computing: Sequence[float], ceiling: Ceiling
) -> Utilisation:
    """Return the MFU of the ``steady`` steps.

    Args:
        computing: milliseconds of each in the forward and the backward pass.
        ceiling: the peak of each dtype that was counted.
    """
    counter = counted.counter
    if counter is None or counted.why_not:
        return Utilisation(not_judged=counted.why_not)
    gflop = {dtype: n / 1e9 for dtype, n in counter.flop.items() if n}
    found = Utilisation(gflop=gflop)
    without = [dtype for dtype in gflop if ceiling.gflops.get(dtype, 0.0) <= 0]
    if without:
        found.not_judged = f"this machine's peak in {', '.join(without)} was not measured"
        return found
    found.least_ms, passes = compute_ms(gflop, ceiling.gflops), fmean(computing)
    if found.least_ms > passes:
        found.not_judged = "the steps ran above the measured peak: other work used this machine during that measurement"
    else:
        found.share, found.passes_share = found.least_ms / fmean(step.ms for step in steady), found.least_ms / passes
    return found
