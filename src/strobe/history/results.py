"""Changes between two runs, and trends: the same thing measured again and again, on each machine."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Data, Finite, Interval, Samples, Summary, many, mapping, optional


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
    before_ms: Finite | None = optional("median before; None if the part is new")
    after_ms: Finite | None = optional("median after; None if the part is gone")
    verdict: Verdict | None = optional("verdict, its interval widened for the many parts judged")


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
    components: list[ComponentChange] = many("the parts that changed")
    judged: int = Field(default=0, description="number of parts judged together")
    memory: list[MemoryChange] = Field(default_factory=list)
    unlike: list[str] = many("why they are not comparable, such as other inputs")


class FigureChange(Data):
    """One figure of both runs that is no measurement with samples, such as the time without an action."""

    name: str
    unit: str = ""
    before: Finite | None = optional("the figure in the run before; None if it has none")
    after: Finite | None = None


class Difference(Answer):
    """Changes between two runs of the same study. Its notes say what else differs: machine, versions, config."""

    called: ClassVar[str] = "diff"

    study: Literal["diff"] = "diff"
    of: str = Field(description="the study of both runs, e.g. 'breakdown'")
    before: RunLabel
    after: RunLabel
    measurements: list[MeasurementChange]
    missing: list[str] = many("measurements that only the earlier run has")
    figures: list[FigureChange] = many("figures of rollouts, without verdicts")


class Point(Data):
    """One run of a trend."""

    run: str = Field(description="folder of the run, or a commit")
    started: datetime
    strobe_version: str
    summary: Summary = Field(description="milliseconds for the whole")
    parts: dict[str, Summary] = mapping("milliseconds for parts of the first levels")
    verdict: Verdict | None = optional(
        "verdict against the reference; None for the first run, and with too few samples"
    )
    together: int = Field(default=1, description="number of latest runs that the verdict judges together")
    alone: Interval | None = optional("interval of this run's ratio to the reference; each end holds in 95 %")
    change: Literal["slower", "faster", "fixed", "accepted"] | None = optional(
        "change first shown in this run; *accepted*: the reference was moved here by hand"
    )
    standing: Finite | None = optional("ratio of a slow-down that was shown and still stands")
    shown_in: str | None = optional("the run that first showed it")
    stay: int | None = optional("further runs that would show what may be only another level")
    differs: list[str] = many("versions that differ from those of the run before")

    @property
    def changes(self) -> bool:
        """Whether a change is shown here."""
        return self.change in ("slower", "faster", "fixed")


class Trend(Data):
    """One measurement over runs, the oldest first."""

    measured: str = Field(description="name of the study and of the measurement")
    subject: str
    machine: str = Field(description="device of the machine, in words: each machine has its own trend")
    settings: dict[str, str] = mapping("settings that all its runs share")
    reference: list[str] = many("runs that the last one is compared with")
    between_runs: Finite | None = optional("standard deviation between runs of the same code, as a fraction")
    between_levels: Finite | None = optional("the same between levels that stay for some runs")
    known: int = Field(default=0, description="number of runs that it was estimated from; 0 if it is assumed")
    visible: Finite | None = optional("smallest slow-down that the last judgement of a single run would have shown")
    points: list[Point]

    @property
    def doubt(self) -> str | None:
        """Why a slow-down of the last runs is not shown as yet; None where there is none."""
        last = self.points[-1]
        if last.stay is None or last.verdict is None or last.verdict.ratio < 1:
            return None
        wander, slower = 100 * (self.between_levels or 0.0), 100 * (last.verdict.ratio - 1)
        return (
            f"the level of these runs may wander by {wander:.2g} % (standard deviation, {len(self.points)} runs); a "
            f"slow-down of {slower:.2g} % would have to stay for {last.stay} more run{'s' * (last.stay > 1)}"
        )


class History(Answer):
    """Trends over a folder of runs, or over the commits of one."""

    called: ClassVar[str] = "history"
    study: Literal["history"] = "history"
    trends: list[Trend] = Field(description="trends of two runs or more, latest change first")
    not_judged: list[str] = many("what the newest runs lack to be judged")
