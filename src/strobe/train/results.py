"""A training: its rate, its stalls, its workers and ranks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval

Bound = Literal["data", "compute", "host", "memory", "interruptions"]


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
    fastest_ms: Finite | None = Field(default=None, description="least time to load a batch; None in older runs")
    busy: Finite = Field(description="share of its life in which it loaded, 0 to 1")
    cpu: Finite = Field(description="CPU time of its process over loading time: above 1 with several threads")


class LoaderPart(Data):
    """Time of all workers in one part of loading."""

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
    """Rate of a training, and where the time of its steps goes."""

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
    bound: Bound
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
    losses: list[Finite | None] = Field(
        default_factory=list, description="of the steps recorded; None for one that is infinite or not a number"
    )
    overhead: Finite = Field(description="share of the steps that recording took, computed from its price here")
    loader_overhead: Finite | None = Field(default=None, description="the same of the workers' loading")
    error: str = Field(default="", description="what ended the run early, in a line")
