"""The figures of torch.profiler's traces, one for each rank of a program. Plain data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite
from strobe.traces.results.profiles import Gaps, OperatorProfile


class LaunchBound(Data):
    """Stretches in which the device ran as fast as the host launched: kernel after kernel began at once."""

    stretches: int
    kernels: int
    ms: Finite = Field(description="time from each one's first kernel to its last")
    idle_ms: Finite = Field(description="time among it without any work")
    longest_ms: Finite
    within: str = Field(default="", description="annotation in which the longest one was launched")


class DeviceTime(Data):
    """One device from its first work to its last. Each time is that of a union: work side by side counts once."""

    device: str = Field(description="number of the device")
    name: str = Field(default="", description="name of the device; '' if the trace lacks it")
    streams: int
    gaps: Gaps
    kernels_ms: Finite
    compute_ms: Finite = Field(description="kernels other than collective communication")
    communication_ms: Finite
    exposed_communication_ms: Finite = Field(description="communication while nothing was computed")
    copies_ms: Finite = Field(description="copies and memsets")
    exposed_copies_ms: Finite = Field(description="copies while no kernel ran")
    kernels: int
    small_kernels: int = Field(description="number of kernels that took less than 10 µs")
    launch_bound: LaunchBound | None = None
    busy_shares: list[Finite] = Field(default_factory=list, description="busy share of equal slices of time, 0 to 1")


class CopyTime(Data):
    """The copies of one kind."""

    kind: str = Field(description="the profiler's name for it, e.g. 'Memcpy HtoD (Pageable -> Device)'")
    calls: int
    ms: Finite = Field(description="sum on the device")
    size: int | None = Field(default=None, description="bytes; None if the trace has no sizes")
    waited: int = Field(default=0, description="number of copies whose call blocked the host until they were done")
    waited_ms: Finite = Field(default=0.0, description="host time of these calls")
    callers: list[str] = Field(default_factory=list, description="operators around them, most calls first")


class SyncTime(Data):
    """The calls of one kind in which the host waits for the device."""

    name: str
    calls: int
    ms: Finite = Field(description="sum on the host")
    callers: list[str] = Field(default_factory=list, description="operators around them, most calls first")


class TraceIterations(Data):
    """An annotation that repeats over the trace, such as the profiler's own step."""

    name: str
    ms: list[Finite] = Field(description="duration of each iteration, in order")
    median_ms: Finite
    busy_ms: list[Finite] = Field(default_factory=list, description="device work within each; empty without a device")
    work: list[int] = Field(default_factory=list, description="kernels and copies that began within each")


class TracePart(Data):
    """All annotations (`record_function`) of one path."""

    path: list[str]
    calls: int
    host_ms: Finite = Field(description="sum, including nested parts")
    device_ms: Finite = Field(description="sum of the work launched in it")
    work: int = Field(description="kernels and copies launched in it")


class TracedRank(Data):
    """One trace: a program, or one process of several."""

    name: str = Field(description="'rank 3', or the file's name if the trace has no rank")
    file: str
    rank: int | None = None
    ranks: int | None = Field(default=None, description="number of processes in its group")
    operators: OperatorProfile = Field(description="operators of the whole trace; gaps on the device are in `devices`")
    devices: list[DeviceTime] = Field(default_factory=list, description="devices; empty for a trace of a CPU")
    copies: list[CopyTime] = Field(default_factory=list)
    syncs: list[SyncTime] = Field(default_factory=list)
    iterations: TraceIterations | None = None
    parts: list[TracePart] = Field(default_factory=list)
    left_out: dict[str, int] = Field(default_factory=dict, description="reason → count of events that were skipped")


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
    not_judged: list[str] = Field(default_factory=list, description="what these traces cannot show, with the reason")
