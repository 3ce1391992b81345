"""The same thing measured again and again: one trend for each measurement of each subject on each machine."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from strobe.core.results.answer import Answer
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Data, Finite, Interval, Summary


class Point(Data):
    """One run of a trend."""

    run: str = Field(description="the run's folder, or a commit")
    started: datetime
    strobe_version: str
    summary: Summary = Field(description="milliseconds of the whole")
    parts: dict[str, Summary] = Field(default_factory=dict, description="milliseconds of the parts of the first levels")
    verdict: Verdict | None = Field(
        default=None,
        description="against the reference; None for the first run, and for one with too few samples",
    )
    together: int = Field(default=1, description="latest runs that the verdict judges at once")
    alone: Interval | None = Field(
        default=None, description="of this run's ratio to the reference; each end holds in 95 %"
    )
    change: Literal["slower", "faster", "mended", "accepted"] | None = Field(
        default=None, description="what is shown here first; *accepted*: the reference was moved here by hand"
    )
    standing: Finite | None = Field(
        default=None, description="ratio of a slow-down that was shown, here or before, and is not mended"
    )
    shown_in: str = Field(default="", description="the run in which it was shown")
    differs: list[str] = Field(default_factory=list, description="versions that are not those of the run before")

    @property
    def changes(self) -> bool:
        """Whether a change is shown here."""
        return self.change in ("slower", "faster", "mended")

    @model_validator(mode="before")
    @classmethod
    def _of_older(cls, data: object) -> object:
        """Read a point from before ``change`` existed: a verdict of faster or slower was the change."""
        if not isinstance(data, dict) or "change" in data:
            return data
        verdict = data.get("verdict")
        shown = verdict.get("kind") if isinstance(verdict, dict) else None
        return {**data, "change": shown} if shown in ("faster", "slower") else data


class Trend(Data):
    """One measurement over runs, the oldest first."""

    measured: str = Field(description="the study and the measurement's name")
    subject: str
    machine: str = Field(description="its device, in words: runs of other machines are another trend")
    settings: dict[str, str] = Field(default_factory=dict, description="what all its runs have in common")
    reference: list[str] = Field(default_factory=list, description="the runs that the last one is judged against")
    between_runs: Finite | None = Field(
        default=None, description="standard deviation between runs of the same thing, as a fraction"
    )
    known: int = Field(default=0, description="runs that it is known from; 0 where it is assumed")
    visible: Finite | None = Field(
        default=None, description="the slow-down of one run that the last judgement of one would have shown"
    )
    points: list[Point]


class History(Answer):
    """Trends over a folder of runs, or over the commits of one."""

    called: ClassVar[str] = "history"
    study: Literal["history"] = "history"
    trends: list[Trend] = Field(description="those with two runs or more, the latest changed first")
    not_judged: list[str] = Field(
        default_factory=list, description="what a newest run lacks to be judged: runs like it, or a measurement"
    )
