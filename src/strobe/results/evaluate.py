"""The answer of `strobe evaluate`: variants of one policy in a simulator, success against latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from strobe.results.answer import Result
from strobe.results.budget import Line
from strobe.results.data import Finite
from strobe.results.evaluation import EvaluatedVariant
from strobe.results.measurement import Measurement
from strobe.results.video import Video


class EvaluateResult(Result):
    """Variants on the same starts with the same noise, each judged against the first."""

    study: Literal["evaluate"] = "evaluate"
    environment: str = Field(description="its type and task")
    tasks: list[str]
    planned: int = Field(description="episodes of each variant that were asked for, over all tasks")
    margin: Finite = Field(description="loss of success rate that is called not worse, stated beforehand")
    foresight: str = Field(default="", description="what the planned number can decide, as said before it started")
    variants: list[EvaluatedVariant] = Field(
        default_factory=list, description="those that were played; the first first"
    )
    videos: list[Video] = Field(default_factory=list, description="of the first starts, start by start")
    line: Line | None = Field(
        default=None,
        description="latency of a chunk over denoising steps, apart from the episodes, through the variants that "
        "differ in steps alone; its intervals are of a bootstrap over rounds",
    )

    def advised(self) -> Sequence[Measurement]:
        return ()
