"""A saved run in short: what a list of runs shows of it, and what a history needs of it. Plain data.

It stands beside the run's answer, so that a thousand runs are read in the time of a few.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Summary

FORMAT = 1  # a summary of another format is made again


class Level(Data):
    """Where a run's times lie: the logarithm of their median (ms), and its standard error within the run."""

    log_ms: Finite
    error: Finite


class MeasurementSummary(Data):
    """One measurement of a run, without its samples."""

    name: str
    advised: bool = Field(description="whether findings are about it; the others only serve as a comparison")
    summary: Summary = Field(description="milliseconds of the whole")
    level: Level | None = Field(description="None with too few samples, or where one is zero")
    parts: dict[str, Summary] = Field(description="'part / part of it' → milliseconds, of the first levels")
    settings: dict[str, str] = Field(description="all that must be equal in runs that are held against each other")


class SubjectSummary(Data):
    """The subject and the machine that a run was measured on."""

    name: str = Field(description="with the size, where it is not the full one")
    kind: str = Field(description="the policy's type, or 'model'")
    device: str
    threads: int
    versions: dict[str, str] = Field(description="that the run was made with, Strobe's among them")


class RunSummary(Data):
    """A saved run, in short."""

    format: int = FORMAT
    digest: str = Field(description="of the file of the answer that it was made of")
    written: list[int] = Field(description="that file's size (bytes), and when it was written (ns)")
    study: str
    about: str
    headline: str = Field(description="the first sentence of its answer")
    started: datetime
    status: Literal["complete", "interrupted", "failed"]
    strobe_version: str
    machine: str = Field(description="in words; '' where nothing was measured, or on several")
    subject: SubjectSummary | None = Field(default=None, description="None where no subject was measured")
    measurements: list[MeasurementSummary] = Field(default_factory=list, description="those with samples")
