"""The result of a study: plain data with a version, which outlives the code that measured it.

Every time is in milliseconds, every size in bytes, every rate per second, unless the name says otherwise.
Nothing here imports another part of Strobe, and nothing here computes: numbers arrive finished.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

# JSON has no infinities: a figure that could not be computed is None, never nan or inf.
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Data(BaseModel):
    """Base of every record: unknown fields are refused, so that a misspelt one is never lost in silence."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Interval(Data):
    """A confidence interval ``[low, high]`` at ``level``."""

    low: Finite
    high: Finite
    level: Finite = 0.95


class Summary(Data):
    """What a list of samples amounts to, in the unit of the samples (milliseconds unless said otherwise)."""

    n: int
    median: Finite
    interval: Interval | None = Field(default=None, description="of the median; None with fewer than six samples")
    mean: Finite
    std: Finite = Field(description="sample standard deviation (n − 1); 0 for one sample")
    min: Finite
    max: Finite
    p95: Finite


class Samples(Data):
    """Raw measurements of one whole (a chunk, a step), in the order they were taken, in milliseconds."""

    warmup: list[Finite] = Field(default_factory=list, description="found to be warm-up, not in the summary")
    values: list[Finite]
    summary: Summary
    notes: list[str] = Field(default_factory=list, description="drift, throttling, noise: what to know about them")


MemorySource = Literal["live tensors", "CUDA allocator"]


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
        return self.path[-1]

    @property
    def depth(self) -> int:
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
    page_faults: int | None = Field(default=None, description="per iteration: pages that the kernel had to hand out")
    peak_device: int | None = Field(default=None, description="allocator's peak on the accelerator")


class Blocks(Data):
    """The like blocks of one part, taken together: its children 'block 0', 'block 1' …"""

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
    phase: Literal["inference", "training forward", "training step", "loading"]
    clock: Literal["host", "device"] = Field(default="host", description="what the samples and components are made of")
    samples: Samples
    components: list[Component] = Field(default_factory=list)
    blocks: list[Blocks] = Field(default_factory=list, description="of every part that is made of like blocks")
    memory: Memory = Field(default_factory=Memory)
    spans: list[Span] = Field(default_factory=list, description="of the iteration nearest the median")
    facts: dict[str, str | int | float | bool | None] = Field(
        default_factory=dict, description="batch size, chunk size, denoising steps, treatments …"
    )
    unseen: dict[str, str] = Field(
        default_factory=dict, description="section or probe that could not be timed → why (compiled, captured …)"
    )
    notes: list[str] = Field(default_factory=list)


class Verdict(Data):
    """What a comparison showed. ``ratio`` is candidate over baseline: below 1 the candidate is faster."""

    kind: Literal["faster", "slower", "no difference shown", "too noisy"]
    ratio: Finite
    interval: Interval
    pairs: int = Field(description="pairs of samples judged; 0 where the runs were not interleaved")
    sentence: str = Field(description="the verdict in words, with its numbers")


# What an agreement's note says of such numbers.
NOT_FINITE = "infinite or not a number, so the cosine is given as 0"


class Agreement(Data):
    """How far two variants' actions differ on the same observations with the same noise."""

    cosine: Finite
    largest_error: Finite = Field(description="largest absolute difference, in the action's own units")
    mean_error: Finite
    observations: int
    note: str = ""


class GradientAgreement(Data):
    """How far the loss and the gradient of two variants differ on the same batch, with the same weights and seed."""

    loss: Finite | None = Field(description="the candidate's; None where it is infinite or not a number")
    baseline_loss: Finite | None
    loss_error: Finite | None = Field(default=None, description="absolute difference over the baseline's loss")
    cosine: Finite = Field(description="of the two gradients, all parameters as one vector; 0 where one is not finite")
    error: Finite | None = Field(default=None, description="length of the gradients' difference over the baseline's")
    seed_cosine: Finite | None = Field(
        default=None, description="of the baseline's gradients under two seeds: what other noise alone changes"
    )
    own_noise: bool = Field(default=False, description="the candidate draws other noise than the baseline does")
    underflow: Finite | None = Field(
        default=None, description="float16: share of the baseline's numbers that are lost to 0 without a loss scaler"
    )
    overflow: int | None = Field(default=None, description="float16: numbers that are not finite without a loss scaler")
    note: str = ""


class Comparison(Data):
    """A candidate judged against a baseline; both are names of measurements in the same result."""

    baseline: str
    candidate: str
    verdict: Verdict
    difference: Interval | None = Field(default=None, description="of the medians, candidate − baseline, milliseconds")
    difference_ms: Finite
    agreement: Agreement | None = None
    gradient: GradientAgreement | None = None


class Episode(Data):
    """One episode of a policy in a simulator."""

    success: bool
    reward: Finite = Field(description="sum over its control ticks")
    best_reward: Finite = Field(description="of one control tick")
    ticks: int = Field(description="control ticks until it ended")


class EpisodePair(Data):
    """Two episodes from the same start with the same noise."""

    task: str
    seed: int
    baseline: Episode
    candidate: Episode
    same_ticks: int = Field(description="control ticks from the start with the same action, to the bit")
    largest_error: Finite = Field(
        description="largest absolute difference of two actions of one tick, in the action's own units"
    )

    @property
    def same(self) -> bool:
        """Whether every action of the two is the same."""
        return self.same_ticks == self.baseline.ticks == self.candidate.ticks


class PairedEpisodes(Data):
    """A candidate judged against a baseline by what they do in a simulator; both are names of measurements.

    Differences are candidate − baseline: below 0 the candidate is worse.
    """

    baseline: str
    candidate: str
    environment: str = Field(description="its type and task")
    planned: int = Field(description="pairs that were asked for")
    pairs: list[EpisodePair]
    kind: Literal["the same", "worse", "better", "no difference shown", "too few"]
    by: Literal["success", "reward"] = Field(description="what it is judged by: reward where neither ever succeeded")
    baseline_success: Finite = Field(description="share of its episodes, 0 to 1")
    candidate_success: Finite
    success: Finite = Field(description="difference of the success rates, −1 to 1")
    success_interval: Interval
    possible_drop: Finite = Field(description="loss of success rate that these pairs do not exclude, 0 to 1")
    reward: Finite = Field(description="centre of the pairs' differences in reward")
    reward_interval: Interval | None = Field(description="of it; None with fewer than six pairs")
    broken: str = Field(default="", description="what speaks against the candidate, in words; '' where nothing does")
    sentence: str = Field(description="the verdict in words, with its numbers")


class Finding(Data):
    """A rule that fired: what was seen, why it matters, what to do, what that should buy."""

    rule: str = Field(description="the rule's id, e.g. 'backbone-dominates'")
    level: Literal["good", "info", "warning"]
    title: str
    seen: str = Field(description="with the numbers and their units")
    why: str
    do: str = ""
    gain: str = Field(default="", description="what doing it should buy, and how that is known")
    evidence: dict[str, Finite | str | None] = Field(default_factory=dict)


class Ceiling(Data):
    """What this machine was measured to do, in the same run."""

    gflops: dict[str, Finite] = Field(
        default_factory=dict, description="dtype name → GFLOP/s of a large matrix product"
    )
    memory_gbps: Finite | None = Field(default=None, description="GB/s (1e9 bytes) read + written by a large copy")


class Machine(Data):
    """Where the numbers come from."""

    system: str
    cpu: str
    cores: int
    threads: int = Field(description="torch's intra-op threads")
    memory_bytes: int
    device: str = Field(description="torch device, e.g. 'cpu', 'cuda:0'")
    device_name: str
    device_memory_bytes: int | None = None
    power: dict[str, str] = Field(default_factory=dict, description="governor, clocks, limits, temperatures seen")
    versions: dict[str, str] = Field(default_factory=dict)
    ceiling: Ceiling = Field(default_factory=lambda: Ceiling())


class SubjectInfo(Data):
    """What was run, and on what."""

    name: str
    kind: str = Field(description="the policy's type, e.g. 'act', 'pi05'")
    source: str = Field(description="a folder, a Hub id, or 'random weights'")
    size: Literal["full", "tiny"] = "full"
    parameters: int
    weight_bytes: int
    dtypes: dict[str, int] = Field(default_factory=dict, description="dtype → parameters of it")
    inputs: str = Field(description="where the observations come from, in words")
    stand_ins: list[str] = Field(default_factory=list, description="what stood in for a thing not to be had here")
    anatomy: str = Field(
        default="modules", description="the anatomy that named the parts; 'modules' for none of its own"
    )


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

    cause: str
    gaps: int
    ms: Finite


class LongGap(Data):
    """A gap that no launch explains, and what ran on either side of it."""

    ms: Finite
    after: str = Field(description="operator or kernel that ended; '' at the iteration's start")
    before: str = Field(description="the one that began; '' at the iteration's end")


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


class Stall(Data):
    """Time that some steps of a training took beyond the others, by its cause."""

    cause: str = Field(description="'first batch', 'start of an epoch', 'one step in n', 'checkpoint' …")
    steps: int = Field(description="steps that it hit, of those recorded")
    each_ms: Finite = Field(description="median over those steps")
    share: Finite = Field(description="of all that was recorded, 0 to 1")
    planned_hours: Finite | None = Field(default=None, description="in the planned training; None if it comes once")
    sentence: str


class LoaderWorker(Data):
    """One worker process of the training's DataLoader."""

    name: str
    batches: int
    batch_ms: Finite = Field(description="median time to load a batch")
    busy: Finite = Field(description="share of its life in which it loaded, 0 to 1")
    cpu: Finite = Field(description="CPU time of its process over loading time: above 1 with several threads")


class LoaderPart(Data):
    """What all workers spent in one part of loading."""

    name: str
    ms: Finite = Field(description="per batch, mean")
    share: Finite = Field(description="of loading, 0 to 1")
    waiting: Finite | None = Field(
        default=None, description="share of it in which the worker's process used no CPU, 0 to 1, at least"
    )


class Rank(Data):
    """One process of a training on several devices."""

    rank: int
    steps: int
    step_ms: Finite = Field(description="mean")
    own_ms: Finite = Field(description="mean without the communication that nothing hid: what it needs by itself")
    own_interval: Interval | None = None
    communication_ms: Finite = Field(description="mean of what is waited for other ranks and the network, per step")
    exposed_ms: Finite = Field(default=0.0, description="of it, at the end of the backward pass")
    parts: dict[str, Finite] = Field(default_factory=dict, description="mean milliseconds of the step's parts")


class Training(Data):
    """What a training waited for."""

    batch_size: int = Field(description="samples in a step of one process")
    processes: int = 1
    workers: int = Field(description="of the DataLoader, per process; 0 where the training process loads itself")
    steps: int = Field(description="recorded, with warm-up")
    run_steps: int = Field(description="that the run was asked to make")
    planned_steps: int
    samples_per_s: Finite = Field(description="over all processes, warm-up left out")
    samples_interval: Interval | None = None
    planned_hours: Finite = Field(description="of the planned steps, with their checkpoints and evaluations")
    hours: dict[str, Finite] = Field(default_factory=dict, description="of them, by part of the step")
    bound: Literal["data", "compute", "host", "memory", "interruptions"]
    sentence: str
    data_share: Finite = Field(description="of the steps, spent waiting for data: what better loading could win")
    shares: dict[str, Finite] = Field(default_factory=dict, description="data, compute, host, interruptions; 0 to 1")
    kernel_share: Finite | None = Field(default=None, description="of the steps, in the kernel handing out memory")
    idle: dict[str, Finite] = Field(
        default_factory=dict, description="share of the steps in which the accelerator had nothing to do, by cause"
    )
    machine_cpu: Finite | None = Field(
        default=None, description="busy share of all cores of the machine, by whatever ran on it, 0 to 1"
    )
    stalls: list[Stall] = Field(default_factory=list)
    loader: list[LoaderWorker] = Field(default_factory=list)
    loader_parts: list[LoaderPart] = Field(default_factory=list)
    ranks: list[Rank] = Field(default_factory=list)
    losses: list[Finite] = Field(default_factory=list, description="of the steps recorded")
    overhead: Finite = Field(description="share of the steps that recording took, computed from its price here")
    loader_overhead: Finite | None = Field(default=None, description="the same of the workers' loading")
    error: str = Field(default="", description="what ended the run early, in a line")


class Need(Data):
    """What one part would have to fall to for a target rate, all others as they are."""

    part: str
    ms: Finite
    share: Finite = Field(description="of the total, 0 to 1")
    needed_ms: Finite | None = Field(description="None where even nothing would not do")
    named_ms: Finite | None = Field(description="the same, leaving out of account what is in no named part")
    treatments: list[str] = Field(default_factory=list, description="what could be tried on it, or was: in words")


Outcome = Literal[
    "kept", "slower", "no difference shown", "too noisy", "guard", "does not apply", "failed", "not tried"
]


class Try(Data):
    """One treatment tried on top of what was kept before it."""

    treatment: str = Field(description="as it is written on a command line")
    rung: int = Field(description="that it would have been, from 1")
    part: str = Field(default="", description="the costliest part that it speeds up; '' for the whole")
    parts: list[str] = Field(default_factory=list, description="all that it speeds up; none for the whole")
    part_share: Finite = Field(default=1.0, description="of `part` in the whole before, 0 to 1")
    before_ms: Finite = Field(description="the whole before, median")
    outcome: Outcome
    reason: str = Field(default="", description="why it was not kept")
    verdict: Verdict | None = Field(default=None, description="against what was kept before; None if never timed")
    agreement: Agreement | None = Field(default=None, description="of all together with the untouched policy")
    build_s: Finite | None = Field(default=None, description="its first call, beyond what a call takes")


class Rung(Data):
    """A treatment that was kept, with all below it. The first rung is the policy as it is."""

    name: str = Field(description="of its measurement")
    treatment: str = Field(default="", description="what was added to the rung below; '' for the policy as it is")
    treatments: list[dict[str, str | int | float | bool | None]] = Field(
        default_factory=list, description="all that are on, in the order in which they are put on"
    )
    effect: Literal["exact", "rounding", "lossy"] = Field(default="exact", description="of the treatment added")
    part: str = Field(default="", description="that it was tried for; '' for the whole")
    build_s: Finite | None = None
    parts: dict[str, Finite] = Field(
        default_factory=dict, description="milliseconds of its parts; what they leave of the whole is in none of them"
    )
    guarded: bool = Field(
        default=True, description="whether the guard held in the run that the figures come from, and in episodes"
    )
    refused: str = Field(default="", description="why not, in words")


class Ladder(Data):
    """Treatments kept one after the other on the way to a target rate, each judged on top of those before it.

    The figures of a rung are those of its measurement, and of its comparisons with the rung before and the first.
    """

    target_hz: Finite
    target_ms: Finite = Field(description="within which a chunk must be ready")
    guard: str
    met: bool = Field(description="whether the median of the chosen rung is within the target")
    ended: str = Field(description="why the climbing stopped, in words")
    interleaved: bool = Field(default=True, description="whether all rungs were measured in alternation, in one run")
    chosen: str = Field(description="the measurement of the highest rung for which the guard held")
    rungs: list[Rung] = Field(description="the policy as it is first")
    tries: list[Try] = Field(default_factory=list, description="in the order in which they were made")
    needs: list[Need] = Field(default_factory=list, description="what is missing to the target")


class Result(Data):
    """One study's answer."""

    schema_version: int = SCHEMA_VERSION
    strobe_version: str
    study: Literal["breakdown", "compare", "train", "optimize"]
    title: str
    command: list[str] = Field(default_factory=list)
    config: dict[str, object] = Field(default_factory=dict)
    started: datetime = Field(default_factory=lambda: datetime.now(UTC))
    duration_s: Finite = 0.0
    status: Literal["complete", "interrupted", "failed"] = "complete"
    subject: SubjectInfo
    machine: Machine
    measurements: list[Measurement] = Field(default_factory=list)
    comparisons: list[Comparison] = Field(default_factory=list)
    episodes: list[PairedEpisodes] = Field(default_factory=list, description="in a simulator, in the order judged")
    findings: list[Finding] = Field(default_factory=list)
    operators: OperatorProfile | None = None
    python: PythonProfile | None = None
    training: Training | None = Field(default=None, description="of a run of lerobot-train")
    ladder: Ladder | None = Field(default=None, description="of `strobe optimize`")
    notes: list[str] = Field(default_factory=list)

    def measurement(self, name: str) -> Measurement:
        """The measurement called ``name``; raises KeyError."""
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(name)


class RunLabel(Data):
    """Which run a figure of a `Difference` comes from."""

    title: str
    started: datetime
    strobe_version: str
    status: Literal["complete", "interrupted", "failed"] = "complete"


class ComponentChange(Data):
    """A part that changed between two runs, or that only one of them has."""

    path: list[str]
    change: Literal["faster", "slower", "appeared", "gone"]
    before_ms: Finite | None = Field(default=None, description="median; None where the part appeared")
    after_ms: Finite | None = Field(default=None, description="median; None where the part is gone")
    verdict: Verdict | None = Field(default=None, description="with the interval widened for the many parts judged")


class MemoryChange(Data):
    """A memory figure that both runs have, in bytes."""

    name: str
    before: int
    after: int


class MeasurementChange(Data):
    """One measurement that both runs have, judged after against before."""

    name: str
    phase: str
    before: Samples
    after: Samples
    verdict: Verdict
    components: list[ComponentChange] = Field(default_factory=list, description="those that changed")
    judged: int = Field(default=0, description="parts that were judged at once")
    memory: list[MemoryChange] = Field(default_factory=list)


class Difference(Data):
    """What changed between two runs of the same study."""

    study: str
    before: RunLabel
    after: RunLabel
    measurements: list[MeasurementChange]
    notes: list[str] = Field(default_factory=list, description="what else differs: machine, versions, config")
