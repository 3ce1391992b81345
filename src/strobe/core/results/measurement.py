"""Measurements of one thing: samples, parts, memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Samples, Summary
from strobe.core.results.traits import Traits


class PartLimit(Data):
    """A part's arithmetic and memory traffic against the ceilings of the machine."""

    part: str = Field(description="a name as in a ladder's parts; 'other' for what is in none of them")
    ms: Finite = Field(description="per iteration, median")
    gflop: dict[str, Finite] = Field(default_factory=dict, description="dtype of the products → GFLOP per iteration")
    moved_bytes: int | None = Field(
        default=None, description="the least that must be read and written per iteration; None where not counted"
    )
    compute_ms: Finite = Field(description="of its products at the ceilings of their dtypes")
    memory_ms: Finite = Field(description="of its bytes at the ceiling of memory; 0 where one of them is not known")
    least_ms: Finite = Field(description="the larger of both, and no more than it took")
    bound: Literal["compute", "memory", ""] = Field(description="the larger of both; '' where both are 0")


class Lower(Data):
    """The bound if all wider products were made in a dtype of fewer bits."""

    dtype: str
    least_ms: Finite


class Limit(Data):
    """The roofline's lower bound of one measurement, and its share of it."""

    dtype: str = Field(description="that most of its FLOP are in")
    parts: list[PartLimit] = Field(description="they add up to the whole")
    ceiling_share: Finite = Field(description="time of the products at their ceilings over the time taken, 0 to 1")
    least_ms: Finite = Field(description="sum over the parts")
    lower: list[Lower] = Field(default_factory=list, description="dtypes in which less is possible, widest first")


class Cadence(Data):
    """When the calls of one measurement began: one every so many ticks of the robot's control rate."""

    hz: Finite = Field(description="control rate: ticks per second")
    ticks: int = Field(description="from the beginning of a call to that of the next")
    period_ms: Finite = Field(description="the same in milliseconds")
    calls: int
    late: int = Field(description="calls that could not begin in time, because what came before took too long")


MeasuredPhase = Literal["inference", "training forward", "training step", "loading", "control tick", "receiving"]
MemorySource = Literal["live tensors", "CUDA allocator", "XPU allocator"]


class Component(Data):
    """A named part of the whole; the rows come in tree order, a parent before its children."""

    path: list[str] = Field(description="from the top part down, e.g. ['policy', 'denoise step', 'attention']")
    other: bool = Field(default=False, description="what its parent spent outside its named children")
    calls: Finite = Field(description="calls per iteration (mean)")
    values: list[Finite] = Field(description="inclusive milliseconds per iteration, aligned with Samples.values")
    summary: Summary
    share: Finite = Field(description="of the whole, 0 to 1: sum of this part over sum of the whole")
    host_ms: Finite | None = Field(default=None, description="median host time, where `values` are device time")
    gflop: Finite | None = Field(default=None, description="GFLOP per iteration; None where it was not counted")
    gflop_by_dtype: dict[str, Finite] = Field(default_factory=dict, description="the same by the products' dtype")
    moved_bytes: int | None = Field(
        default=None,
        description="the least that the part must read and write per iteration: what was there before each call, such "
        "as weights, once a call, and what is left of it afterwards; None where it was not counted",
    )
    ceiling_share: Finite | None = Field(
        default=None,
        description="achieved FLOP/s over the ceiling measured on this machine at the part's dtypes, 0 to 1",
    )
    weight_bytes: int | None = Field(
        default=None, description="parameters and buffers below the part's module; None where it is no one module"
    )
    kept_bytes: int | None = Field(
        default=None,
        description="memory at the end of a call above that at its start: outputs, and what autograd keeps; negative "
        "where the part freed more than it kept",
    )
    peak_bytes: int | None = Field(
        default=None, description="highest memory in a call above that at its start, as `Memory.source` counts it"
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
    start_ms: Finite = Field(description="from the start of the iteration")
    duration_ms: Finite
    depth: int
    thread: str = "main"


class Memory(Data):
    """Memory of one measurement, in bytes, and what it cost to get it from the kernel."""

    source: MemorySource | None = Field(
        default=None, description="where activations, and the memory of the parts, were read"
    )
    weights: int | None = None
    peak_activations: int | None = Field(default=None, description="highest memory above weights and inputs")
    peak_process: int | None = Field(default=None, description="resident set of the process at its highest (CPU)")
    kernel_ms: Finite | None = Field(
        default=None, description="milliseconds in the operating system's kernel per iteration, over all threads"
    )
    stays: int | None = Field(
        default=None, description="freed memory that a treatment keeps with the process instead of giving it back"
    )
    page_faults: int | None = Field(default=None, description="per iteration: pages that the kernel had to hand out")
    peak_device: int | None = Field(
        default=None, description="allocator's peak on the accelerator, and what graphs hold beside it"
    )


class Blocks(Data):
    """The like blocks of one part, taken together: its children 'block 0', 'block 1' and so on."""

    path: list[str] = Field(description="of the part that they are in")
    names: list[str]
    medians: list[Finite] = Field(description="of each block, milliseconds per iteration")
    total: Summary = Field(description="of the sum over the blocks, per iteration")
    share: Finite = Field(description="of the whole, 0 to 1: sum of the blocks over sum of the whole")
    average: Finite = Field(description="mean of the blocks' medians, milliseconds")
    spread: Finite = Field(description="standard deviation (n − 1) of the blocks' medians, milliseconds")
    p: Finite | None = Field(
        default=None, description="Friedman's test that no block differs from the others; None with too few samples"
    )
    differ: bool = Field(description="whether these samples show that the blocks differ, by more than a trifle")


class Measurement(Data):
    """One thing measured: a phase of a breakdown, or a variant of a comparison."""

    name: str
    phase: MeasuredPhase
    clock: Literal["host", "device"] = Field(default="host", description="what the samples and components are made of")
    samples: Samples
    components: list[Component] = Field(default_factory=list)
    blocks: list[Blocks] = Field(default_factory=list, description="of every part that is made of like blocks")
    memory: Memory = Field(default_factory=Memory)
    spans: list[Span] = Field(default_factory=list, description="of the iteration nearest the median")
    traits: Traits = Field(default_factory=Traits)
    unseen: dict[str, str] = Field(
        default_factory=dict, description="section or probe that could not be timed → why (compiled, captured …)"
    )
    limit: Limit | None = Field(default=None, description="None where FLOP or the ceiling are not known")
    cadence: Cadence | None = Field(default=None, description="None where the calls were back to back")
    notes: list[str] = Field(default_factory=list)
