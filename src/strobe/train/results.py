"""A training: its rate, its stalls, its workers and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from pydantic import Field

from strobe.core.results.answer import Result
from strobe.core.results.data import Data, Finite, Interval, many, mapping, optional
from strobe.core.results.measurement import Measurement
from strobe.traces.results import PythonProfile

Bound = Literal["data", "compute", "host", "memory", "interruptions"]


class Stall(Data):
    """Time that some steps of a training took beyond the others, by its cause."""

    cause: str = Field(description="'first batch', 'start of an epoch', 'checkpoint' …")
    steps: int = Field(description="number of recorded steps that it hit")
    each_ms: Finite = Field(description="median over those steps")
    share: Finite = Field(description="share of the recorded time, 0 to 1")
    planned_hours: Finite | None = optional("hours in the planned run; None if it comes once")
    sentence: str


class LoaderWorker(Data):
    """One worker process of the training's DataLoader."""

    name: str
    batches: int
    batch_ms: Finite = Field(description="median time to load a batch")
    fastest_ms: Finite | None = optional("least time to load a batch; None in older runs")
    busy: Finite = Field(description="share of its life spent loading, 0 to 1")
    cpu: Finite = Field(description="CPU time of its process ÷ loading time: above 1 with several threads")


class LoaderPart(Data):
    """Time of all workers in one part of loading."""

    name: str
    ms: Finite = Field(description="mean per batch")
    share: Finite = Field(description="share of loading, 0 to 1")
    waiting: Finite | None = optional("lower bound of the share in which the worker's process used no CPU, 0 to 1")


STRAGGLER = 0.1  # excess time of a rank over the others, in steps


class Rank(Data):
    """One process of a training on several devices."""

    rank: int
    steps: int
    step_ms: Finite = Field(description="mean time of a step")
    own_ms: Finite = Field(description="mean without exposed communication: the rank's own work")
    own_interval: Interval | None = None
    communication_ms: Finite = Field(description="mean time waiting for other ranks and the network, per step")
    exposed_ms: Finite = Field(default=0.0, description="exposed communication at the end of the backward pass")
    parts: dict[str, Finite] = mapping("mean milliseconds for the parts of a step")


class Adapter(Data):
    """A PEFT adapter: what it does to the weights before the first step."""

    method: str = Field(description="PEFT's name of it: LORA …")
    applied: bool = Field(description="whether the policy runs with it")
    loaded: bool = Field(description="whether it came with the checkpoint; else this run made it")
    layers: int = Field(default=0, description="layers of the policy that it changes, those trained in full among them")
    idle: int = Field(default=0, description="layers whose weights with it have the bits of the base's")
    not_judged: int = Field(default=0, description="layers whose weights with it were not computed")


class Gradients(Data):
    """Gradients of the trained weights after the backward pass of one step."""

    trained: int = Field(description="weights that are trained, as numbers")
    without: int = Field(description="those of tensors without a gradient, or with one of zeros alone")
    modules: list[str] = many("the outermost modules all of whose trained weights are such")


class Resumed(Data):
    """The checkpoint that a run continues, and what the run changes against it."""

    checkpoint: str
    step: int | None = optional("its number of steps; None if its file does not say it")
    changed: dict[str, tuple[str, str]] | None = optional(
        "setting: its value in the checkpoint's train_config.json, and now; None: not read"
    )


class TrainedOn(Data):
    """What a training trained on. What concerns batches was seen in the recorded steps of this process."""

    dataset: str
    streaming: bool = False
    episodes_there: int
    episodes_asked: int | None = optional("episodes that the run was to read; None: all")
    frames_seen: int | None = optional("samples in the recorded steps; None: without indices")
    frames_distinct: int | None = None
    episodes_seen: int | None = None
    not_asked: list[int] = many("episodes seen that the run was not to read")
    never_came: list[int] | None = optional("episodes that did not come though an epoch ended; None: no epoch ended")
    in_order: Finite | None = optional("share of samples that follow the frame before them")
    first_batch_ms: Finite | None = optional("wait for the first batch, start-up included")
    startup_ms: Finite | None = optional("wait for the first batch, less the time that its worker took to load it")
    loader_rate: Finite | None = optional("samples/s that the workers can load together")
    samples_per_step: int = Field(description="batch × processes × accumulated batches")
    accumulation: int = Field(default=1, description="gradient accumulation that accelerate was given")
    precision: str | None = optional("mixed precision as accelerate has it; None: not seen")
    amp_asked: bool = Field(default=False, description="whether policy.use_amp asked for it")
    learning_rate: Finite | None = optional("of the first group, as LeRobot logged it for the last recorded step")
    gradients: Gradients | None = optional("None: not judged")
    normalised_by: Literal["the data's statistics", "the checkpoint's statistics", ""] = Field(
        default="", description="the statistics that normalise the data; empty if no normaliser was seen"
    )
    statistics_off: dict[str, Finite] = mapping(
        "feature: how far its statistics lie from the data's, in the data's spread"
    )
    statistics_not_compared: list[str] = many("features of another shape")
    resumed: Resumed | None = None
    adapter: Adapter | None = None
    transforms: list[str] | None = optional("image transforms in use; None: off")
    transforms_idle: list[str] = many("those that change no image of the data set, and the same in floating point")
    transforms_each: int = Field(default=0, description="most transforms that an image gets")


class Utilisation(Data):
    """Model FLOP utilisation (MFU), as in PaLM's appendix B, of the peak that was measured (`machine.ceiling`)."""

    share: Finite | None = optional(
        "time of the model's FLOP at the peaks of their dtypes ÷ the mean step; None: not judged"
    )
    passes_share: Finite | None = optional("the same ÷ the mean forward and backward pass alone")
    least_ms: Finite | None = optional("milliseconds of these FLOP at the peaks of their dtypes")
    gflop: dict[str, Finite] = mapping("dtype → GFLOP of a forward and a backward pass, in the step that was counted")
    not_judged: str | None = optional("why there is no share")


class Training(Data):
    """Rate of a training, and where the time of its steps goes."""

    batch_size: int = Field(description="samples per step of one process")
    processes: int = 1
    workers: int = Field(description="DataLoader workers per process; 0 if the training process loads data itself")
    steps: int = Field(description="number of steps recorded, warm-up included")
    run_steps: int = Field(description="number of steps requested")
    planned_steps: int
    samples_per_s: Finite = Field(description="throughput over all processes, without warm-up")
    samples_interval: Interval | None = None
    planned_hours: Finite = Field(description="hours for the planned steps, with checkpoints and evaluations")
    hours: dict[str, Finite] = mapping("hours by part of the step")
    bound: Bound
    data_share: Finite = Field(description="share of steps spent waiting for data: what better loading can gain")
    shares: dict[str, Finite] = mapping("data, compute, host, interruptions; 0 to 1")
    kernel_share: Finite | None = optional("share of steps that the kernel spends on memory")
    idle: dict[str, Finite] = mapping("share of the steps with an idle accelerator, by cause")
    machine_cpu: Finite | None = optional("busy share of all cores of the machine, 0 to 1, whatever ran on them")
    stalls: list[Stall] = Field(default_factory=list)
    loader: list[LoaderWorker] = Field(default_factory=list)
    loader_parts: list[LoaderPart] = Field(default_factory=list)
    ranks: list[Rank] = Field(default_factory=list)
    mfu: Utilisation | None = optional("None in older runs")
    trained_on: TrainedOn | None = optional("None in older runs")
    losses: list[Finite | None] = many("loss of each recorded step; None if it is infinite or not a number")
    overhead: Finite = Field(description="share of the steps that recording took, computed from its price here")
    loader_overhead: Finite | None = optional("share of the workers' loading that recording took")
    error: str | None = optional("the error that ended the run early, in a line")

    @property
    def straggler(self) -> tuple[Rank, float] | None:
        """The rank that the others wait for, and by how many milliseconds its own work in a step is longer."""
        if len(self.ranks) < 2:
            return None
        slowest = max(self.ranks, key=lambda rank: rank.own_ms)
        late = slowest.own_ms - fmean(rank.own_ms for rank in self.ranks if rank is not slowest)
        return (slowest, late) if late > 0 and late >= STRAGGLER * fmean(r.step_ms for r in self.ranks) else None


class TrainResult(Result):
    """A run of lerobot-train: the time of its steps, and what they waited for."""

    study: Literal["train"] = "train"
    training: Training
    python: PythonProfile | None = None

    def advised_measurements(self) -> Sequence[Measurement]:
        return self.measurements
