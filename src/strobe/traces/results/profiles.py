"""Findings of profilers: operators, kernels, gaps, Python's functions."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite

_ANONYMOUS = "(anonymous namespace)::"
# What stands before the part of a kernel's name that tells it from others.
_SPACES = re.compile(r"\bvoid (?=\S)|\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_])")


class OperatorTime(Data):
    """All calls of one operator of torch, or of one kernel, in one iteration under torch.profiler."""

    name: str
    calls: int
    own_ms: Finite = Field(description="without the operators that it called")
    total_ms: Finite | None = Field(default=None, description="with them; None for a kernel")
    share: Finite = Field(description="own time over the iteration's; kernels side by side may add up to more than 1")
    shapes: str = Field(default="", description="of the tensors of the calls that took longest")


class GapCause(Data):
    """The gaps that have one cause."""

    cause: str = Field(description="in words")
    kind: Literal["start", "end", "queued", "wait", "copy", "idle"] | None = Field(
        default=None, description="None in answers of earlier versions"
    )
    gaps: int
    ms: Finite


class LongGap(Data):
    """A gap that no launch explains, and what ran on either side of it."""

    ms: Finite
    after: str = Field(description="operator or kernel that ended; '' at the iteration's start")
    before: str = Field(description="the one that began; '' at the iteration's end")
    host: str = Field(default="", description="innermost call of the host meanwhile; '' between its calls")


class Gaps(Data):
    """How much of one iteration under torch.profiler nothing ran, and why."""

    span_ms: Finite
    busy_ms: Finite = Field(description="at least one thing ran: busy + idle = span")
    idle_ms: Finite
    threshold_us: Finite = Field(description="only gaps longer than that are counted and explained")
    gaps: int
    gaps_ms: Finite
    causes: list[GapCause] = Field(default_factory=list, description="of the gaps counted, the longest first")
    long_ms: Finite = Field(default=0.0, description="in gaps over a millisecond, which no launch explains")
    longest: list[LongGap] = Field(default_factory=list, description="of those, the longest first")
    exposed: Finite = Field(default=1.0, description="of what the profiler added, the share that can lie in gaps")


class OperatorProfile(Data):
    """One iteration under torch.profiler, which slows what it watches: for looking, not for the numbers above."""

    measurement: str = Field(description="which measurement it is one more iteration of")
    iteration_ms: Finite
    operators: list[OperatorTime] = Field(default_factory=list, description="those with the most own time first")
    operator_calls: int = 0
    operator_median_us: Finite | None = Field(default=None, description="own time of the operator in the middle")
    kernels: list[OperatorTime] = Field(default_factory=list, description="on an accelerator: kernels and copies")
    kernel_calls: int = 0
    kernel_median_us: Finite | None = None
    host: Gaps | None = Field(default=None, description="between torch's operators: Python, and libraries beside torch")
    device: Gaps | None = Field(default=None, description="between the accelerator's kernels and copies")
    device_not_judged: str = Field(default="", description="why nothing is said of kernels that ran")


class PythonFunction(Data):
    """A function, or with `source` one line of it; per iteration."""

    name: str
    where: str = Field(description="file in its package and line, or 'built in'")
    calls: Finite | None = Field(default=None, description="None where the tool does not count them")
    own_ms: Finite | None = Field(default=None, description="None where the tool cannot tell it")
    cumulative_ms: Finite | None = Field(default=None, description="with what it called")
    source: str = ""


class PythonProfile(Data):
    """More iterations under a profiler of Python, which slows what it watches: for looking, not for numbers."""

    tool: Literal["cprofile", "pyinstrument", "line"]
    measurement: str = Field(description="which measurement they are more iterations of")
    iterations: int
    iteration_ms: Finite = Field(description="mean under the profiler")
    files: list[str] = Field(default_factory=list, description="in the run's folder")
    functions: list[PythonFunction] = Field(default_factory=list)
    host: Gaps | None = Field(default=None, description="time outside torch's operators, seen by torch.profiler")
    device: Gaps | None = None


def short_kernel(name: str) -> str:
    """Return a kernel's name without its return type and the names of namespaces; other names stay as they are.

    >>> short_kernel("void at::native::(anonymous namespace)::fill<4, at::native::Add<float> >(int)")
    'fill<4, Add<float> >(int)'
    >>> short_kernel("aten::mm")
    'aten::mm'
    """
    return _SPACES.sub("", name.replace(_ANONYMOUS, "")) if "<" in name or "(" in name else name
