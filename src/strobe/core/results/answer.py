"""The envelope of every answer, and the answers that were measured on one subject: one class per study."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from pydantic import Field

from strobe.core.results.agreement import Check, Outcome, Yardstick
from strobe.core.results.comparison import Comparison
from strobe.core.results.data import SCHEMA_VERSION, Data, Finite
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Machine, SubjectInfo
from strobe.environments.results import Environment, PassDifference
from strobe.evaluate.results.episodes import PairedEpisodes
from strobe.ladder.results import Ladder
from strobe.preflight.results.wiring import Wiring
from strobe.traces.results.profiles import OperatorProfile, PythonProfile
from strobe.train.results import Training


class Answer(Data):
    """The answer of a study. Each study has a class of its own, whose ``study`` is a Literal with its name."""

    called: ClassVar[str] = "result"  # in messages: "… is a sweep"

    schema_version: int = SCHEMA_VERSION
    strobe_version: str
    study: Any = ""  # a str; Any, since a class may not narrow a str that can be assigned to
    title: str
    command: list[str] = Field(default_factory=list)
    config: dict[str, object] = Field(default_factory=dict)
    started: datetime = Field(default_factory=lambda: datetime.now(UTC))
    duration_s: Finite = 0.0
    status: Literal["complete", "interrupted", "failed"] = "complete"
    machine: Machine | None = Field(default=None, description="the measured machine; None if none, or several")
    findings: list[Finding] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    caveats: list[str] = Field(
        default_factory=list, description="notes that limit or contradict the verdict, and are shown with it"
    )

    @property
    def about(self) -> str:
        """Name of its subject, for the run's folder."""
        return self.title.split(":")[0]


class Result(Answer, ABC):
    """An answer that was measured: one subject, one machine, one or more measurements."""

    subject: SubjectInfo
    machine: Machine  # type: ignore[assignment]  # required, where the envelope's may be None
    measurements: list[Measurement] = Field(default_factory=list)
    wiring: Wiring | None = Field(default=None, description="the checkpoint's wiring, from its files; None if not read")

    @property
    def about(self) -> str:
        return self.subject.name

    def measurement(self, name: str) -> Measurement:
        """Return the measurement called ``name``. Raises KeyError."""
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(name)

    @abstractmethod
    def advised(self) -> Sequence[Measurement]:
        """Return the measurements that findings are about, without those that only serve as a comparison."""

    def judged(self) -> Sequence[Comparison]:
        """Return the comparisons of its measurements with each other; () for a study without any."""
        return ()


class BreakdownResult(Result):
    """Where the time of one or more phases goes."""

    study: Literal["breakdown"] = "breakdown"
    gap: Comparison | None = Field(
        default=None, description="inference at the robot's pace compared with back-to-back calls of the same rounds"
    )
    operators: OperatorProfile | None = None
    python: PythonProfile | None = None

    def advised(self) -> Sequence[Measurement]:
        paced = self.gap.candidate if self.gap is not None else None
        return [m for m in self.measurements if m.name != paced]


class CompareResult(Result):
    """Variants of one subject, judged against the first of them."""

    study: Literal["compare"] = "compare"
    comparisons: list[Comparison] = Field(default_factory=list)
    yardsticks: list[Yardstick] = Field(
        default_factory=list, description="how far the untouched policy's own actions move; empty for a backbone"
    )
    operators: OperatorProfile | None = None
    python: PythonProfile | None = None
    environments: list[Environment] = Field(
        default_factory=list,
        description="environment of each measurement, if every variant ran in its own Python environment",
    )
    passes: list[PassDifference] = Field(
        default_factory=list, description="first place where each environment's pass differs from the first one's"
    )

    def advised(self) -> Sequence[Measurement]:
        return () if self.environments else self.measurements[:1]

    def judged(self) -> Sequence[Comparison]:
        return self.comparisons


class TrainResult(Result):
    """A run of lerobot-train: the time of its steps, and what they waited for."""

    study: Literal["train"] = "train"
    training: Training
    python: PythonProfile | None = None

    def advised(self) -> Sequence[Measurement]:
        return self.measurements


class OptimizeResult(Result):
    """A ladder of treatments to a target rate; its measurements are the rungs."""

    study: Literal["optimize"] = "optimize"
    comparisons: list[Comparison] = Field(default_factory=list)
    yardsticks: list[Yardstick] = Field(
        default_factory=list, description="how far the untouched policy's own actions move; empty for a backbone"
    )
    episodes: list[PairedEpisodes] = Field(
        default_factory=list, description="pairs in a simulator, as they were judged"
    )
    ladder: Ladder | None = Field(default=None, description="the ladder of treatments; None only while the study runs")

    def advised(self) -> Sequence[Measurement]:
        return [m for m in self.measurements if self.ladder is None or m.name == self.ladder.chosen]

    def judged(self) -> Sequence[Comparison]:
        return self.comparisons


class VerifyResult(Result):
    """Whether a policy acts the same with a recipe as without it. Nothing is timed."""

    study: Literal["verify"] = "verify"
    recipe: str = Field(description="file name of the recipe")
    guard: str = Field(description="the guard that was requested")
    checks: list[Check] = Field(default_factory=list, description="all checks, in order")
    yardsticks: list[Yardstick] = Field(
        default_factory=list, description="how far the untouched policy's own actions move; empty for a backbone"
    )
    limited: str = Field(default="", description="why fewer observations were used than requested, in words")
    exported: str = Field(default="", description="folder of the exported policy, if one was verified, not a recipe")
    environments: list[Environment] = Field(
        default_factory=list, description="the two environments, if they were compared instead of a recipe"
    )
    passes: list[PassDifference] = Field(default_factory=list, description="first difference in the second one's pass")

    @property
    def passed(self) -> bool:
        """Whether all checks were made, and all held."""
        return self.outcome == "held"

    @property
    def outcome(self) -> Outcome:
        """The outcome of the verification. It is held only if all checks were made and held."""
        outcomes = {check.outcome for check in self.checks}
        if "broken" in outcomes:
            return "broken"
        return "held" if self.status == "complete" and outcomes == {"held"} else "not judged"

    def advised(self) -> Sequence[Measurement]:
        return ()


Profiled = BreakdownResult | CompareResult  # profilers look at one more iteration of them
