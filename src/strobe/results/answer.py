"""The answer of a study."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from strobe.results.comparison import Comparison
from strobe.results.data import SCHEMA_VERSION, Data, Finite
from strobe.results.episodes import PairedEpisodes
from strobe.results.finding import Finding
from strobe.results.ladder import Ladder
from strobe.results.machine import Machine
from strobe.results.measurement import Measurement
from strobe.results.profiles import OperatorProfile, PythonProfile
from strobe.results.subject import SubjectInfo
from strobe.results.training import Training


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
