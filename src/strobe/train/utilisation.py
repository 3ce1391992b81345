"""Model FLOP utilisation (MFU) of a training: one step's FLOP over the time of the steps, over this machine's peak."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

import torch

from strobe.core.errors import error_line
from strobe.core.measure.ceiling import measure
from strobe.core.measure.compilations import CompileLog
from strobe.core.measure.components import Iteration
from strobe.core.measure.model_flop import ModelFlop
from strobe.core.measure.roofline import compute_ms
from strobe.core.results.subject import Ceiling
from strobe.core.studies.shared.machine_state import MULTIPLIED
from strobe.train.results import Utilisation

R = TypeVar("R")

# The second: the first shows whether it compiles. No step that is compiled runs under the count, which would keep torch
# from compiling it ever after (`torch._dynamo.convert_frame` skips code that it meets under a dispatch mode).
COUNTED = 1
LEAST_STEPS = 4  # the counted step is slow, so it is warm-up; two are needed after it


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
    gflop, again = ({dtype: n / 1e9 for dtype, n in of.items() if n} for of in (counter.flop, counter.again))
    found = Utilisation(gflop=gflop, again_gflop=again)
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
