"""The envelope of every answer, and the answers that were measured on one subject: one class per study."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from strobe.core import slices
from strobe.core.results.agreement import Agreement, Check, Effect, Outcome, Yardstick
from strobe.core.results.comparison import Comparison
from strobe.core.results.data import SCHEMA_VERSION, Data, Figure, Finite, many, optional
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.core.results.subject import Machine, SubjectInfo

# Records that slices add to the answers of the core. What they are is known where the slice is there. Without it, a
# record in a saved run is read as `Unknown`: the run can be shown, and saved again as it was.


class Unknown(Data):
    """A record of a slice that is not there: its fields as they were saved."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class Recorded:
    """Annotates a field with a slice's record: ``wiring: Annotated[Any, Recorded("wiring")] = None``.

    Args:
        name: of the record in the slice's `Slice.records`.
        many: whether the field is a list of them; else it is one, or None.
    """

    name: str
    many: bool = False

    def read(self, value: Any, info: ValidationInfo) -> Any:
        """Return the record of what was saved, or the list of them. Raises ValueError for anything else."""
        if not self.many:
            return self._one(value, info)
        if not isinstance(value, list):
            raise ValueError("a list of records is needed")
        return [self._one(each, info) for each in value]

    def _one(self, value: Any, info: ValidationInfo) -> Any:
        if value is None or isinstance(value, Data):
            return value
        record = slices.record_class(self.name) or Unknown
        if info.mode == "json":  # of a file, which is read strictly
            return record.model_validate_json(json.dumps(value), strict=True)
        return record.model_validate(value)

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_before_validator_function(self.read, handler(Any))

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        one = handler((slices.record_class(self.name) or Unknown).__pydantic_core_schema__)
        return {"type": "array", "items": one} if self.many else {"anyOf": [one, {"type": "null"}]}


class Answer(Data):
    """The answer of a study. Each study has a class of its own, whose ``study`` is a Literal with its name."""

    called: ClassVar[str] = "result"  # in messages: "… is a sweep"

    schema_version: int = SCHEMA_VERSION
    strobe_version: str
    study: Any = ""  # a str; Any, since a class may not narrow a str that can be assigned to
    title: str
    command: list[str] = Field(default_factory=list)
    config: dict[str, object] = Field(default_factory=dict)
    started: datetime = Field(default_factory=lambda: datetime.now(timezone.utc))
    duration_s: Finite = 0.0
    status: Literal["complete", "interrupted", "failed"] = "complete"
    machine: Machine | None = optional("the measured machine; None if none, or several")
    findings: list[Finding] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    caveats: list[str] = many("notes that limit or contradict the verdict, and are shown with it")

    @property
    def subject_name(self) -> str:
        """Name of its subject, for the run's folder."""
        return self.title.split(":")[0]


class Result(Answer):
    """An answer that was measured: one subject, one machine, one or more measurements."""

    subject: SubjectInfo
    machine: Machine  # type: ignore[assignment]  # required, where the envelope's may be None
    measurements: list[Measurement] = Field(default_factory=list)
    wiring: Annotated[Any, Recorded("wiring")] = optional(
        "wiring of the checkpoint, from its files; None if no checkpoint was read"
    )

    @property
    def subject_name(self) -> str:
        return self.subject.name

    def measurement(self, name: str) -> Measurement:
        """Return the measurement called ``name``. Raises KeyError."""
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(name)

    def advised_measurements(self) -> Sequence[Measurement]:
        """Return the measurements that findings are about, without those that only serve as a comparison."""
        return ()

    def judged_comparisons(self) -> Sequence[Comparison]:
        """Return the comparisons of its measurements with each other; () for a study without any."""
        return ()

    def figures(self) -> Iterable[Figure]:
        """Return the figures of this kind of answer besides its measurements, for `strobe diff`; none twice."""
        return ()


class BreakdownResult(Result):
    """Where the time of one or more phases goes."""

    study: Literal["breakdown"] = "breakdown"
    gap: Comparison | None = optional(
        "inference at the robot's pace compared with back-to-back calls of the same rounds"
    )
    operators: Annotated[Any, Recorded("operators")] = None
    python: Annotated[Any, Recorded("python")] = None

    def advised_measurements(self) -> Sequence[Measurement]:
        paced = self.gap.candidate if self.gap is not None else None
        return [m for m in self.measurements if m.name != paced]


@dataclass(frozen=True)
class Held:
    """Treated actions compared with the baseline's, and the guard that judged them.

    Args:
        name: of the candidate, as the report has it.
        treatment: as written on a command line; '' if that is not known.
    """

    name: str
    treatment: str
    agreement: Agreement | None
    effect: Effect | None
    guard: str | None
    broken: str | None
    unjudged: str | None = None

    @property
    def has_spread_errors(self) -> bool:
        """Whether its errors are known in units of the spread."""
        return self.agreement is not None and self.agreement.rms is not None


class Guarded(Result, ABC):
    """An answer in which treated actions were compared with the baseline's."""

    stacked: ClassVar[bool] = False  # whether each contains those before it, so that the first broken one is to blame

    yardsticks: list[Yardstick] = many("how far the baseline's own actions change; none of a backbone")

    @abstractmethod
    def guarded_actions(self) -> list[Held]:
        """Return the treated actions that were compared with the baseline's, in order."""

    def guards(self) -> list[str]:
        """Return guards of the whole answer, besides those of what was held."""
        return []

    def rejected_treatments(self) -> list[Held]:
        """Return exact treatments that were tried and rejected, because they are not exact."""
        return []

    @property
    def chosen_candidate(self) -> str | None:
        """The name of the only candidate whose figures matter, which contains all before it; None if all matter."""
        return None


def make_guarded_actions(judged: Comparison | Check, name: str, treatment: str) -> Held:
    """Return a comparison or a check as treated actions that were compared with the baseline's."""
    return Held(name, treatment, judged.agreement, judged.effect, judged.guard, judged.broken, judged.unjudged)


class CompareResult(Guarded):
    """Variants of one subject, judged against the first of them."""

    study: Literal["compare"] = "compare"
    comparisons: list[Comparison] = Field(default_factory=list)
    operators: Annotated[Any, Recorded("operators")] = None
    python: Annotated[Any, Recorded("python")] = None
    environments: Annotated[list[Any], Recorded("environments", many=True)] = many(
        "environment of each measurement, if every variant ran in its own Python environment"
    )
    passes: Annotated[list[Any], Recorded("passes", many=True)] = many(
        "where the pass of each environment first differs from the first one's"
    )

    def advised_measurements(self) -> Sequence[Measurement]:
        return () if self.environments else self.measurements[:1]

    def judged_comparisons(self) -> Sequence[Comparison]:
        return self.comparisons

    def guarded_actions(self) -> list[Held]:
        return [make_guarded_actions(each, each.candidate, "") for each in self.comparisons]


class VerifyResult(Guarded):
    """Whether a policy acts the same with a recipe as without it. Nothing is timed."""

    study: Literal["verify"] = "verify"
    recipe: str = Field(description="the file's name")
    guard: str = Field(description="as it was asked for")
    checks: list[Check] = many("in the order in which they were made")
    limited: str = Field(default="", description="why fewer observations were looked at than asked for, in words")
    exported: str = Field(default="", description="folder of an exported policy, in place of a recipe")
    environments: Annotated[list[Any], Recorded("environments", many=True)] = many(
        "the two that were compared with each other, in place of a recipe"
    )
    passes: Annotated[list[Any], Recorded("passes", many=True)] = many("where the second one's pass first differs")

    @property
    def has_passed(self) -> bool:
        """Whether all checks were made, and all held."""
        return self.outcome == "held"

    @property
    def outcome(self) -> Outcome:
        """The outcome of the verification. It is held only if all checks were made and held."""
        outcomes = {check.outcome for check in self.checks}
        if "broken" in outcomes:
            return "broken"
        return "held" if self.status == "complete" and outcomes == {"held"} else "not judged"

    def guarded_actions(self) -> list[Held]:
        return [make_guarded_actions(check, check.name, ", ".join(check.treatments)) for check in self.checks]

    def guards(self) -> list[str]:
        return [self.guard]


Profiled = BreakdownResult | CompareResult  # profilers look at one more iteration of them
