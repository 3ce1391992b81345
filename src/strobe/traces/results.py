"""Figures of profilers: operators, kernels, gaps, Python's functions, and traces by rank of a program. Plain data."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, many, mapping, optional

NANOSECOND_MS = 1e-6  # a shorter span was not measured but made up
_ANONYMOUS = "(anonymous namespace)::"
# What stands before the part of a kernel's name that tells it from others.
_SPACES = re.compile(r"\bvoid (?=\S)|\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_])")


class OperatorTime(Data):
    """All calls of one operator of torch, or of one kernel, in one iteration under torch.profiler."""

    name: str
    calls: int
    own_ms: Finite = Field(description="time without the operators that it called")
    total_ms: Finite | None = optional("time with operators that it called; None for a kernel")
    share: Finite = Field(description="share of the iteration in which it runs itself; calls side by side count once")
    shapes: str = Field(default="", description="tensor shapes of the slowest calls")


class GapCause(Data):
    """The gaps that have one cause."""

    cause: str = Field(description="what caused the gaps, in words")
    kind: Literal["start", "end", "queued", "wait", "copy", "unknown", "idle"] | None = optional(
        "kind of cause; None in older answers"
    )
    gaps: int
    ms: Finite


class LongGap(Data):
    """A gap that no launch explains, and what ran on either side of it."""

    ms: Finite
    after: str = Field(description="operator or kernel before the gap; '' at the start of the iteration")
    before: str = Field(description="operator or kernel after the gap; '' at the end of the iteration")
    host: str = Field(default="", description="innermost host call meanwhile; '' between calls")


class Gaps(Data):
    """How much of one iteration under torch.profiler nothing ran, and why."""

    span_ms: Finite = Field(description="the time that is judged")
    busy_ms: Finite = Field(description="time with any work running: busy + idle = span")
    idle_ms: Finite
    threshold_us: Finite = Field(description="minimum length of a gap that is counted and explained")
    gaps: int
    gaps_ms: Finite
    causes: list[GapCause] = many("causes of the counted gaps, longest first")
    long_ms: Finite = Field(default=0.0, description="time in gaps over a millisecond, which no launch explains")
    longest: list[LongGap] = many("the longest of those gaps, in order")
    exposed: Finite = Field(default=1.0, description="share of the profiler's own time that can lie in gaps")
    unjudged_ms: Finite = Field(default=0.0, description="time from which kernels are missing: no part of the span")

    @property
    def is_judged(self) -> bool:
        """Whether no more than half of the time lacks kernels: of less nothing can be said."""
        return self.unjudged_ms <= self.span_ms

    def share(self, ms: float) -> float:
        """Return the share of a time in the span; 0 where that has no length."""
        return ms / self.span_ms if self.span_ms >= NANOSECOND_MS else 0.0


class TracePart(Data):
    """All annotations (`record_function`) of one path."""

    path: list[str]
    calls: int
    host_ms: Finite = Field(description="sum, including nested parts")
    device_ms: Finite = Field(description="sum of the work launched in it")
    work: int = Field(description="kernels and copies launched in it")
    busy_ms: Finite | None = optional("time with any of this work running")
    median_us: Finite | None = optional("median of this work; None without any")
    lost: int = Field(default=0, description="number of launches in it that lack kernels: its device time is too short")


class GraphWork(Data):
    """Work on a device that replayed graphs launched."""

    work: int = Field(description="kernels and copies of all replays")
    device_ms: Finite = Field(description="sum of their time")
    busy_ms: Finite = Field(description="time with any of them running")
    median_us: Finite


class GraphPart(GraphWork):
    """A part of a graph: what the part launches where there is no graph."""

    path: list[str]
    alone_ms: Finite = Field(description="sum of the time of the same kernels launched one by one")


class GraphTime(GraphWork):
    """All replays of one graph, with its parts where the same kernels were seen without the graph."""

    name: str = Field(description="annotation around its launches; 'graph' without one")
    replays: int
    matched: int = Field(description="kernels of a replay, from its first, that come in this order without the graph")
    parts: list[GraphPart] = many("the longest first within each part")
    not_judged: str | None = optional("why it has no parts")


class KernelClass(Data):
    """The kernels, or copies, that do one kind of work."""

    name: str = Field(description="what they compute, as their names tell it; for products with the dtype")
    calls: int
    ms: Finite = Field(description="sum on the device")
    median_us: Finite


class OperatorProfile(Data):
    """One iteration under torch.profiler, which slows what it watches: for looking, not for the numbers above."""

    measurement: str = Field(description="the measurement that this extra iteration belongs to")
    iteration_ms: Finite
    operators: list[OperatorTime] = many("operators, by decreasing own time")
    operator_calls: int = 0
    operator_median_us: Finite | None = optional("median operator's own time")
    kernels: list[OperatorTime] = many("kernels and copies on an accelerator")
    kernel_calls: int = 0
    kernel_median_us: Finite | None = None
    kernel_classes: list[KernelClass] = many("by decreasing time")
    parts: list[TracePart] = many("parts with the device's work launched in each")
    graph_kernels: int = Field(default=0, description="kernels among them that a replayed graph launched")
    graphs: list[GraphTime] = many("replayed graphs, with parts of a run without")
    host: Gaps | None = optional("gaps between torch's operators: Python, and other libraries")
    device: Gaps | None = optional("gaps between the accelerator's kernels and copies")
    device_not_judged: str | None = optional("why the gaps on the device are not judged")


class PythonFunction(Data):
    """A function, or with `source` one line of it; per iteration."""

    name: str
    where: str = Field(description="file in its package and line, or 'built in'")
    calls: Finite | None = optional("number of calls; None if the tool does not count them")
    own_ms: Finite | None = optional("own time; None if the tool does not measure it")
    cumulative_ms: Finite | None = optional("time with the functions that it called")
    source: str = ""


class PythonProfile(Data):
    """More iterations under a profiler of Python, which slows what it watches: for looking, not for numbers."""

    tool: Literal["cprofile", "pyinstrument", "line"]
    measurement: str = Field(description="the measurement that these extra iterations belong to")
    iterations: int
    iteration_ms: Finite = Field(description="mean under the profiler")
    files: list[str] = many("names in the run's folder")
    functions: list[PythonFunction] = Field(default_factory=list)
    host: Gaps | None = optional("gaps between torch's operators, as torch.profiler saw them")
    device: Gaps | None = None


def short_kernel(name: str) -> str:
    """Return a kernel's name without its return type and the names of namespaces; other names stay as they are.

    >>> short_kernel("void at::native::(anonymous namespace)::fill<4, at::native::Add<float> >(int)")
    'fill<4, Add<float> >(int)'
    >>> short_kernel("aten::mm")
    'aten::mm'
    """
    return _SPACES.sub("", name.replace(_ANONYMOUS, "")) if "<" in name or "(" in name else name


class LaunchBound(Data):
    """Stretches in which the device ran as fast as the host launched: kernel after kernel began at once."""

    stretches: int
    kernels: int
    ms: Finite = Field(description="time from each one's first kernel to its last")
    idle_ms: Finite = Field(description="time among it without any work")
    longest_ms: Finite
    within: str | None = optional("annotation in which the longest one was launched")


class DeviceTime(Data):
    """One device from its first work to its last. Each time is that of a union: work side by side counts once."""

    device: str = Field(description="number of the device")
    name: str = Field(default="", description="name of the device; '' if the trace lacks it")
    streams: int
    gaps: Gaps
    compute_ms: Finite = Field(description="kernels other than collective communication")
    communication_ms: Finite
    exposed_communication_ms: Finite = Field(description="communication while nothing was computed")
    copies_ms: Finite = Field(description="copies and memsets")
    exposed_copies_ms: Finite = Field(description="copies while no kernel ran")
    kernels: int
    graph_kernels: int = Field(default=0, description="kernels that a replayed graph launched")
    launch_bound: LaunchBound | None = None
    waited_ms: Finite | None = optional("time in which the host waits for the device")
    lacks: str | None = optional("what the trace lacks of its work, with numbers")
    busy_shares: list[Finite | None] = many("busy share of equal slices of time, 0 to 1; None if it is not judged")


class CopyTime(Data):
    """The copies of one kind."""

    kind: str = Field(description="the profiler's name for it, e.g. 'Memcpy HtoD (Pageable -> Device)'")
    calls: int
    ms: Finite = Field(description="sum on the device")
    size: int | None = optional("bytes; None if the trace has no sizes")
    waited: int = Field(default=0, description="number of copies whose call blocked the host until they were done")
    waited_ms: Finite = Field(default=0.0, description="host time of these calls")
    callers: list[str] = many("operators around them, most calls first")


class SyncTime(Data):
    """The calls of one kind in which the host waits for the device."""

    name: str
    calls: int
    ms: Finite = Field(description="sum on the host")
    callers: list[str] = many("operators around them, most calls first")


class TraceIterations(Data):
    """An annotation that repeats over the trace, such as the profiler's own step."""

    name: str
    ms: list[Finite] = Field(description="duration of each iteration, in order")
    median_ms: Finite
    busy_ms: list[Finite | None] = many("device work; None if kernels are missing")
    work: list[int | None] = many("kernels and copies that began in each, or None")


class TracedRank(Data):
    """One trace: a program, or one process of several."""

    name: str = Field(description="'rank 3', or the file's name if the trace has no rank")
    file: str
    rank: int | None = None
    ranks: int | None = optional("number of processes in its group")
    operators: OperatorProfile = Field(description="operators of the whole trace; gaps on the device are in `devices`")
    devices: list[DeviceTime] = many("devices; empty for a trace of a CPU")
    copies: list[CopyTime] = Field(default_factory=list)
    syncs: list[SyncTime] = Field(default_factory=list)
    iterations: TraceIterations | None = None
    parts: list[TracePart] = Field(default_factory=list)
    crossing: list[str] = many("annotations that cross others of their thread: they are no parts")
    graphs: list[GraphTime] = many("replayed graphs")
    left_out: dict[str, int] = mapping("reason → count of events that were skipped")
    launches: int = Field(default=0, description="number of launches of kernels and graphs")
    lost_launches: int = Field(default=0, description="number of launches without a kernel in the trace")
    launches_known: bool = Field(default=True, description="whether any kernel has the number of its launch")
    lost_first: bool = Field(default=False, description="whether most of these are the first launches of the trace")

    def device_label(self, device: DeviceTime) -> str:
        """Return the name of one of its devices."""
        several = f", device {device.device}" if len(self.devices) > 1 else ""
        return f"{self.name}{several}{f' ({device.name})' if device.name else ''}"


class RankWait(Data):
    """The time that one rank waited for the others in collectives."""

    name: str
    waiting_ms: Finite = Field(description="time in collective kernels beyond the shortest of all ranks")
    last: int = Field(description="number of collectives in which its kernel was the shortest: it came last")


class RankWaits(Data):
    """Collectives that all ranks ran in the same order, laid side by side."""

    collectives: int
    ranks: list[RankWait]


class TraceAnswer(Answer):
    """The answer of a study of torch.profiler's traces, of any program."""

    called: ClassVar[str] = "reading of traces"

    study: Literal["trace"] = "trace"
    ranks: list[TracedRank]
    waits: RankWaits | None = None
    not_judged: list[str] = many("what these traces cannot show, with the reason")
