"""The same thing measured again and again: one trend for each measurement of each subject on each machine."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from strobe.results.answer import Answer
from strobe.results.comparison import Verdict
from strobe.results.data import Data, Summary


class Point(Data):
    """One run of a trend."""

    run: str = Field(description="the run's folder, or a commit")
    started: datetime
    strobe_version: str
    summary: Summary = Field(description="milliseconds of the whole")
    parts: dict[str, Summary] = Field(default_factory=dict, description="milliseconds of the parts of the first levels")
    verdict: Verdict | None = Field(
        default=None, description="against the runs since the last change; None for the first run"
    )

    @property
    def changes(self) -> bool:
        """Whether a change is shown here."""
        return self.verdict is not None and self.verdict.kind in ("faster", "slower")


class Trend(Data):
    """One measurement over runs, the oldest first."""

    measured: str = Field(description="the study and the measurement's name")
    subject: str
    machine: str = Field(description="its device, in words: runs of other machines are another trend")
    points: list[Point]


class History(Answer):
    """Trends over a folder of runs, or over the commits of one."""

    called: ClassVar[str] = "history"
    study: Literal["history"] = "history"
    trends: list[Trend] = Field(description="those with two runs or more, the latest changed first")
