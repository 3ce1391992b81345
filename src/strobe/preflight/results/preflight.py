"""The answer of `strobe preflight`: can this checkpoint work with this data and this robot? Plain data."""

from __future__ import annotations

from typing import ClassVar, Literal

from strobe.contract.results import Contract
from strobe.core.results.answer import Answer
from strobe.core.results.data import many, optional
from strobe.open_loop.results import Hypothesis, OpenLoop
from strobe.preflight.results.wiring import Wiring


class PreflightResult(Answer):
    """A policy's wiring as it was read, and its actions on recorded frames."""

    called: ClassVar[str] = "preflight"

    study: Literal["preflight"] = "preflight"
    wiring: Wiring
    refused: str | None = optional("the command that was not started, because of the findings")
    fixed: list[str] = many("repairs in a copy of the checkpoint")
    unfixed: str | None = optional("why a fixed copy was not written, in words")
    contract: Contract | None = optional("a simulator compared with the data set; None without a simulator")
    open_loop: OpenLoop | None = optional("errors of its actions on recorded frames; None if only files were read")
    hypotheses: list[Hypothesis] = many("hypotheses on the wiring: the claimed one first, then by increasing error")

    @property
    def serious(self) -> int:
        """The number of findings with which the robot does something else than it was taught."""
        return sum(finding.level == "warning" for finding in self.findings)
