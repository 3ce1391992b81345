"""A saved run in short: what a list of runs shows of it, and what a history needs of it. Plain data.

It is stored next to the run's answer, so that a thousand runs are read in the time of a few.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Summary, many, optional

FORMAT = 1  # a summary of another format is made again


class Level(Data):
    """Where a run's times lie: the logarithm of their median (ms), and its standard error within the run."""

    log_ms: Finite
    error: Finite


class MeasurementSummary(Data):
    """One measurement of a run, without its samples."""

    name: str
    advised: bool = Field(description="findings use it; other measurements only serve for comparison")
    summary: Summary = Field(description="milliseconds for the whole")
    level: Level | None = Field(description="level of the samples; None with too few, or if one is zero")
    parts: dict[str, Summary] = Field(description="'part / part of it' → milliseconds, for the first levels")
    settings: dict[str, str] = Field(description="settings that comparable runs must share")


class SubjectSummary(Data):
    """The subject and the machine that a run was measured on."""

    name: str = Field(description="name, with the size if it is not the full one")
    kind: str = Field(description="the policy's type, or 'model'")
    device: str
    threads: int
    versions: dict[str, str] = Field(description="versions used in the run, Strobe's among them")


class RunSummary(Data):
    """A saved run, in short."""

    format: int = FORMAT
    digest: str = Field(description="digest of the answer's file")
    written: list[int] = Field(description="size (bytes) and time (ns) of that file")
    study: str
    about: str
    headline: str = Field(description="the first sentence of its answer")
    started: datetime
    status: Literal["complete", "interrupted", "failed"]
    strobe_version: str
    machine: str = Field(
        description="the machine, in words; empty without measurements, or if several machines were measured"
    )
    subject: SubjectSummary | None = optional("the measured subject; None if there is none")
    measurements: list[MeasurementSummary] = many("measurements with samples")
