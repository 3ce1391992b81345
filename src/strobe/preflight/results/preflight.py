"""The answer of `strobe preflight`: can this checkpoint work with this data and this robot? Plain data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.preflight.results.open_loop import Hypothesis, OpenLoop
from strobe.preflight.results.wiring import Wiring


class PreflightResult(Answer):
    """A policy's wiring as it was read, and its actions on recorded frames."""

    called: ClassVar[str] = "preflight"

    study: Literal["preflight"] = "preflight"
    wiring: Wiring
    refused: str | None = Field(default=None, description="the command that was not started, because of the findings")
    fixed: list[str] = Field(default_factory=list, description="repairs in a copy of the checkpoint")
    unfixed: str | None = Field(default=None, description="why a fixed copy was not written, in words")
    open_loop: OpenLoop | None = Field(
        default=None, description="errors of its actions on recorded frames; None if only files were read"
    )
    hypotheses: list[Hypothesis] = Field(
        default_factory=list, description="hypotheses on the wiring: the claimed one first, then by increasing error"
    )

    @property
    def serious(self) -> int:
        """The number of findings with which the robot does something else than it was taught."""
        return sum(finding.level == "warning" for finding in self.findings)
