"""A sweep: one study over a grid of configurations. Plain data, with the schema's version.

Raw samples stay in the cells' own results, in the folders that `CellRun.folder` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import Answer
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Data, Finite, Interval, Summary, many, optional
from strobe.core.results.measurement import MeasuredPhase
from strobe.core.results.subject import Machine

Status = Literal["done", "out of memory", "timed out", "crashed", "invalid", "not run"]


AxisEffect = Literal["shown", "none", "ignored", "inconclusive"]


class Axis(Data):
    """One setting that the grid varies."""

    name: str = Field(description="the flag without its dashes, e.g. 'batch_size', 'policy.vision_backbone'")
    values: list[str]
    numbers: list[Finite] | None = optional("the values as numbers; '240x320' is its pixels")
    unit: str = Field(default="", description="what the numbers count, e.g. 'pixels'")


class PartFigure(Data):
    """A component of a cell's measurement, its repeats taken together."""

    path: list[str]
    other: bool = False
    ms: Finite = Field(description="median, inclusive")
    share: Finite = Field(description="share of the whole, 0 to 1")


class Row(Data):
    """One measurement of one cell, its repeats taken together."""

    measurement: str
    phase: MeasuredPhase
    batch: int = Field(description="samples per call")
    ms: Summary = Field(description="milliseconds per call, over the samples of all repeats")
    repeats: list[Finite] = Field(description="median of each repeat, in milliseconds")
    throughput: Finite = Field(description="samples per second at the median")
    memory_bytes: int | None = optional(
        "peak of the allocator on an accelerator, else peak resident set of the process"
    )
    activation_bytes: int | None = optional("highest live tensor memory above weights and inputs")
    gflop: Finite | None = None
    parts: list[PartFigure] = Field(default_factory=list)
    verdict: Verdict | None = optional("comparison with the cell's own baseline, if it has one")
    agreement: Agreement | None = None


def label(settings: Mapping[str, str]) -> str:
    """Settings in words: ``batch_size=8, cameras=2``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


class CellRun(Data):
    """One execution of a cell, in a process of its own."""

    repeat: int = Field(description="1 for the first")
    status: Status
    reason: str = Field(default="", description="reason for the status in one line; '' if it is done")
    folder: str = Field(description="folder of the run, relative to the sweep's")
    started: datetime | None = None
    duration_s: Finite | None = optional("time from the start of the process to its end")
    machine: int | None = optional("index into Sweep.machines")
    node: str = Field(default="", description="node of the cluster that ran it")


class Cell(Data):
    """One configuration."""

    key: str
    settings: dict[str, str] = Field(description="axis name → value")
    status: Status = Field(description="'done' if every repeat is; otherwise the status of the first that is not")
    reason: str = ""
    predicted_bytes: int | None = optional("memory predicted before it ran")
    runs: list[CellRun] = Field(default_factory=list)
    rows: list[Row] = Field(default_factory=list)

    @property
    def machine(self) -> int | None:
        """The machine that ran it, as an index into `Sweep.machines`; the first, if repeats ran on several."""
        return next((run.machine for run in self.runs if run.machine is not None), None)


class Scaling(Data):
    """How a figure grows along a numeric axis: ``figure ∝ axis ** exponent``, all other settings held."""

    measurement: str
    figure: Literal["time", "memory", "activations"]
    axis: str
    unit: str = Field(description="unit of the axis: 'samples', 'pixels', 'steps' …")
    exponent: Finite
    interval: Interval | None = optional("None if no data remain to judge the fit")
    slope: Finite | None = optional("increase per unit of the axis, in milliseconds or bytes; None for several groups")
    slope_interval: Interval | None = None
    fixed: Finite | None = optional("value of that line at zero, in milliseconds or bytes")
    points: int
    groups: int = Field(description="number of combinations of the other settings that the fit pools")
    curved: bool = Field(default=False, description="neither a power nor a line describes it within 10 %")
    effect: AxisEffect = Field(
        default="shown", description="ignored: the phase does not use the axis; none: the interval includes no effect"
    )
    sentence: str


class Best(Data):
    """The best cell under a constraint."""

    asked: str
    key: str | None = Field(description="key of the best cell; None if no cell meets the constraint")
    settings: dict[str, str] = Field(default_factory=dict)
    measurement: str = ""
    ties: list[dict[str, str]] = many("cells not shown to be worse")
    unjudged: list[dict[str, str]] = many("cells with too few samples to judge")
    sentence: str = Field(description="the decision in words")
    details: list[str] = many("its figure, and what is as good or not judged")


class Sweep(Answer):
    """A study over a grid: one row per configuration, whatever became of it."""

    called: ClassVar[str] = "sweep"

    study: Literal["sweep"] = "sweep"
    of: str = Field(description="the study that every cell runs, e.g. 'breakdown'")
    axes: list[Axis]
    chain: bool = Field(default=False, description="each cell changes one value of the cell before")
    repeats: int = 1
    cells: list[Cell]
    machines: list[Machine] = many("machines that ran cells, listed once each")
    scaling: list[Scaling] = Field(default_factory=list)
    best: list[Best] = Field(default_factory=list)
