"""Changes between two runs."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Data, Finite, Samples


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
    before_ms: Finite | None = Field(default=None, description="median before; None if the part is new")
    after_ms: Finite | None = Field(default=None, description="median after; None if the part is gone")
    verdict: Verdict | None = Field(default=None, description="verdict, its interval widened for the many parts judged")


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
    components: list[ComponentChange] = Field(default_factory=list, description="the parts that changed")
    judged: int = Field(default=0, description="number of parts judged together")
    memory: list[MemoryChange] = Field(default_factory=list)
    unlike: list[str] = Field(
        default_factory=list, description="why they are not comparable: another machine, other inputs"
    )


class FigureChange(Data):
    """One figure of both runs that is no measurement with samples, such as the time without an action."""

    name: str
    unit: str = ""
    before: Finite | None = Field(default=None, description="the figure in the run before; None if it has none")
    after: Finite | None = None


class Difference(Answer):
    """Changes between two runs of the same study. Its notes say what else differs: machine, versions, config."""

    called: ClassVar[str] = "diff"

    study: Literal["diff"] = "diff"
    of: str = Field(description="the study of both runs, e.g. 'breakdown'")
    before: RunLabel
    after: RunLabel
    measurements: list[MeasurementChange]
    missing: list[str] = Field(default_factory=list, description="measurements that only the earlier run has")
    figures: list[FigureChange] = Field(default_factory=list, description="figures of rollouts, without verdicts")
