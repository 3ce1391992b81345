"""Measurements of one thing: samples, parts, memory, what torch.compile did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Samples, Summary, many, mapping, optional
from strobe.core.results.traits import Traits


class PartLimit(Data):
    """A part's arithmetic and memory traffic against the ceilings of the machine."""

    part: str = Field(description="a name as in a ladder's parts; 'other' for the time in no named part")
    ms: Finite = Field(description="median per iteration")
    gflop: dict[str, Finite] = mapping("dtype of the products → GFLOP per iteration")
    moved_bytes: int | None = optional("minimum bytes read and written per iteration; None if not counted")
    compute_ms: Finite = Field(description="time of its matrix products at the ceilings of their dtypes")
    memory_ms: Finite = Field(description="time of its bytes at the memory ceiling; 0 if either is unknown")
    least_ms: Finite = Field(description="the larger of `compute_ms` and `memory_ms`, at most the measured time")
    bound: Literal["compute", "memory", ""] = Field(description="which of the two is larger; '' if both are 0")


class Lower(Data):
    """The bound if all wider products were made in a dtype of fewer bits."""

    dtype: str
    least_ms: Finite


class Limit(Data):
    """The roofline's lower bound of one measurement, and its share of it."""

    dtype: str = Field(description="dtype of most of its FLOP")
    parts: list[PartLimit] = Field(description="all parts, which add up to the whole")
    ceiling_share: Finite = Field(description="time of the products at their ceilings ÷ the measured time, 0 to 1")
    least_ms: Finite = Field(description="minimum time: the sum over the parts")
    lower: list[Lower] = many("dtypes with a lower minimum time, widest first")


class Cadence(Data):
    """When the calls of one measurement began: one every so many ticks of the robot's control rate."""

    hz: Finite = Field(description="control rate: ticks per second")
    ticks: int = Field(description="control ticks from the start of a call to the start of the next")
    period_ms: Finite = Field(description="milliseconds from the start of a call to the start of the next")
    calls: int
    late: int = Field(description="calls that started late because earlier work took too long")


MeasuredPhase = Literal["inference", "training forward", "training step", "loading", "control tick", "receiving"]
MemorySource = Literal["live tensors", "CUDA allocator", "XPU allocator"]


class Component(Data):
    """A named part of the whole; the rows come in tree order, a parent before its children."""

    path: list[str] = Field(description="path from the top part down, e.g. ['policy', 'denoise step', 'attention']")
    other: bool = Field(default=False, description="the time that its parent spent outside its named children")
    calls: Finite = Field(description="calls per iteration (mean)")
    values: list[Finite] = Field(description="inclusive milliseconds per iteration, aligned with Samples.values")
    summary: Summary
    share: Finite = Field(description="share of the whole, 0 to 1: sum of this part ÷ sum of the whole")
    host_ms: Finite | None = optional("median host time, if `values` are device time")
    gflop: Finite | None = optional("GFLOP per iteration; None if not counted")
    gflop_by_dtype: dict[str, Finite] = mapping("GFLOP by dtype of the matrix products")
    moved_bytes: int | None = optional(
        "minimum bytes per iteration: inputs and weights once, plus outputs; None if not counted"
    )
    ceiling_share: Finite | None = optional(
        "achieved FLOP/s ÷ the ceiling measured on this machine at the part's dtypes, 0 to 1"
    )
    weight_bytes: int | None = optional(
        "parameters and buffers below the part's module; None if it is not a single module"
    )
    kept_bytes: int | None = optional(
        "memory at the end of a call minus memory at its start: outputs, and what autograd stores; "
        "negative if more was freed"
    )
    peak_bytes: int | None = optional(
        "highest memory in a call minus memory at its start, as `Memory.source` counts it"
    )

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path[-1]

    @property
    def depth(self) -> int:
        """Levels below the whole: 1 for a part of the first level."""
        return len(self.path)


class Span(Data):
    """One section of the iteration that the report draws on a time axis."""

    name: str
    start_ms: Finite = Field(description="time since the start of the iteration")
    duration_ms: Finite
    depth: int
    thread: str = "main"


class Memory(Data):
    """Memory of one measurement, in bytes, and what it cost to get it from the kernel."""

    source: MemorySource | None = optional("where activations and the memory of the parts were read")
    weights: int | None = None
    peak_activations: int | None = optional("highest memory above weights and inputs")
    peak_process: int | None = optional("resident set of the process at its highest (CPU)")
    kernel_ms: Finite | None = optional(
        "milliseconds in the operating system's kernel per iteration, summed over threads"
    )
    stays: int | None = optional("freed memory that a treatment keeps in the process")
    page_faults: int | None = optional("pages per iteration that the kernel had to provide")
    peak_device: int | None = optional("allocator's peak on the accelerator, plus what CUDA graphs hold")
    graphs: int | None = optional("what CUDA graphs hold of `peak_device` between replays; None without a graph")


class Blocks(Data):
    """The like blocks of one part, taken together: its children 'block 0', 'block 1' and so on."""

    path: list[str] = Field(description="path of the part that contains the blocks")
    names: list[str]
    medians: list[Finite] = Field(description="median of each block, milliseconds per iteration")
    total: Summary = Field(description="sum over the blocks, per iteration")
    share: Finite = Field(description="share of the whole, 0 to 1: sum of the blocks ÷ sum of the whole")
    average: Finite = Field(description="mean of the blocks' medians, milliseconds")
    spread: Finite = Field(description="standard deviation (n − 1) of the blocks' medians, milliseconds")
    p: Finite | None = optional("Friedman's test that all blocks take the same time; None with too few samples")
    differ: bool = Field(description="these samples show a difference between blocks that matters")


What = Literal["graph break", "not compiled", "recompiled", "no CUDA graph"]


class CompiledPlace(Data):
    """A line at which compiled code stops, is compiled again, or is not captured in a CUDA graph."""

    what: What
    where: str = Field(description="file and line, from the folder that its package was imported from")
    function: str = Field(default="", description="function with the line; if it is not compiled, the whole function")
    times: int = Field(default=1, description="number of compilations, one that a limit refused included")
    late: int = Field(default=0, description="recompilations after the warm-up, in measured calls")
    limit: str = Field(default="", description="limit that recompiling reached: 'recompile_limit=8'; else empty")
    reasons: list[str] = many("torch's reasons or failed guards, a few that differ")


class Compilation(Data):
    """The work of torch.compile from the first call to the last measured one, by torch's own records."""

    graphs: int = Field(description="compiled graphs, forward and backward")
    compile_s: Finite | None = optional("seconds of compiling; None if torch does not tell")
    capture_s: Finite = Field(default=0.0, description="seconds of capturing CUDA graphs")
    warmup_s: Finite = Field(default=0.0, description="seconds of the warm-up samples without those")
    places: list[CompiledPlace] = many("those with the most compilations first")
    unjudged: str = Field(default="", description="what this version of torch does not tell, in a line; else empty")

    def select_places(self, *kinds: What) -> list[CompiledPlace]:
        """Return the places of these kinds."""
        return [place for place in self.places if place.what in kinds]

    @property
    def breaks(self) -> list[str]:
        """The lines at which compiled code stops, each once."""
        return list(dict.fromkeys(place.where for place in self.select_places("graph break", "not compiled")))


class Energy(Data):
    """Energy of a call: that of the whole device over the measured rounds, idle share included, divided by calls."""

    joules: Finite | None = optional("energy of a call; None if it is not judged")
    within: Finite | None = optional("joules by which the steps of the reading can be off")
    watts: Finite | None = optional("mean power over the measured rounds")
    source: str = Field(default="", description="what was read, and of what part of the machine")
    not_judged: str = Field(default="", description="why the energy is not judged; '' if it is")


class Measurement(Data):
    """One thing measured: a phase of a breakdown, or a variant of a comparison."""

    name: str
    phase: MeasuredPhase
    clock: Literal["host", "device"] = Field(default="host", description="clock behind the samples and components")
    samples: Samples
    components: list[Component] = Field(default_factory=list)
    blocks: list[Blocks] = many("blocks of each part that is made of similar blocks")
    memory: Memory = Field(default_factory=Memory)
    spans: list[Span] = many("spans of the iteration nearest the median")
    traits: Traits = Field(default_factory=Traits)
    unseen: dict[str, str] = mapping("section or probe that could not be timed → why (compiled, captured …)")
    limit: Limit | None = optional("minimum time; None if FLOP or the ceiling are unknown")
    cadence: Cadence | None = optional("pace of the calls; None if they were back to back")
    compilation: Compilation | None = optional("what torch.compile did; None if nothing was")
    energy: Energy | None = optional("energy of a call; None if nobody looked")
    losses_not_finite: int = Field(default=0, description="training passes with an infinite loss, or one not a number")
    notes: list[str] = Field(default_factory=list)


def top_level(parts: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    """Return the first level of ``parts``, by path in ms, and of the policy what is in it; equal names are added up."""
    milliseconds: dict[str, float] = {}
    for path, ms in parts.items():
        inside = len(path) == 2 and path[0] == "policy"
        if inside or (
            len(path) == 1 and not (path[0] == "policy" and any(p[:1] == path and len(p) > 1 for p in parts))
        ):
            milliseconds[path[-1]] = milliseconds.get(path[-1], 0.0) + ms
    return milliseconds


AROUND = ("preprocessing", "postprocessing")  # both copy to and from the device, so host and device wait for another
HOST_BOUND = 0.95  # host time over device time from which the device waits; below 1, for the noise in both
MOST = 0.5  # share of the device's time in parts that wait, from which that is what to fix


@dataclass(frozen=True)
class HostAndDevice:
    """Mean milliseconds of the policy's parts on the host and on the device.

    ``waiting``: the share of the device's time in parts that the host does not run ahead of.
    """

    host_ms: float
    device_ms: float
    waiting: float

    @property
    def waits_for_host(self) -> bool:
        """Whether the device waits for Python to launch its work, in most of the time."""
        return self.waiting >= MOST


def host_and_device(measurement: Measurement) -> HostAndDevice:
    """Return the times of the parts on the host and on the device; zeros without a device's clock.

    Where the device is the limit of a part, the host runs ahead of it, and its own time is shorter. The parts are those
    that are two deep, and those one deep without parts of their own.
    """
    named = [each for each in measurement.components if not each.other and not each.name.isdecimal()]
    parents = {each.path[0] for each in named if each.depth > 1}
    parts = [each for each in named if each.depth == 2 or (each.depth == 1 and each.path[0] not in parents)]
    host = device = waiting = 0.0
    for part in parts:
        if measurement.clock != "device" or part.name in AROUND or part.host_ms is None or not part.values:
            continue
        on_device = sum(part.values) / len(part.values)
        host, device = host + part.host_ms, device + on_device
        waiting += on_device if part.host_ms >= HOST_BOUND * on_device else 0.0
    return HostAndDevice(host, device, waiting / device if device > 0 else 0.0)
