"""The answer of `strobe doctor`: the parts of Strobe that can be trusted on this machine."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from typing_extensions import Self

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, mapping, optional

Outcome = Literal["holds", "doubtful", "fails", "missing", "not here"]
Area = Literal["machine", "versions", "noise", "steadiness", "loaders", "tools"]

TITLES: dict[Area, str] = {
    "machine": "Devices, memory, disk",
    "versions": "Versions",
    "noise": "Noise",
    "steadiness": "Steadiness",
    "loaders": "Data loaders",
    "tools": "Tools",
}


class SelfCheck(Data):
    """One thing that was tried on the machine.

    ``outcome``: *holds*; *doubtful*, where numbers need care; *fails*, where something cannot be trusted; *missing*,
    where something is not installed; *not here*, where the machine has nothing to try it on.
    """

    area: Area
    name: str
    outcome: Outcome
    seen: str = Field(description="what was seen, with the figures and their units")
    means: str | None = optional("consequence for the user's numbers; None if the check holds")
    do: str | None = optional("the remedy: a command or a change")
    evidence: dict[str, Finite | str | None] = mapping("figures; empty in newer answers, whose `seen` has them")

    @classmethod
    def judge(
        cls,
        area: Area,
        name: str,
        good: bool,
        seen: str,
        means: str,
        do: str | None = None,
        *,
        bad: Outcome = "doubtful",
    ) -> Self:
        """Return a self-check with the outcome holds if ``good``, then without ``means`` and ``do``; else ``bad``."""
        outcome: Outcome = "holds" if good else bad
        more = {} if good else {"means": means, "do": do}
        return cls(area=area, name=name, outcome=outcome, seen=seen, **more)


class DoctorResult(Answer):
    """All self-checks, in the order in which they were made."""

    called: ClassVar[str] = "self-check"

    study: Literal["doctor"] = "doctor"
    checks: list[SelfCheck] = Field(default_factory=list)

    @property
    def is_trusted(self) -> bool:
        """Whether all self-checks were made and none fails."""
        return self.status == "complete" and bool(self.checks) and not self.checks_with_outcome("fails")

    def checks_with_outcome(self, outcome: Outcome) -> list[SelfCheck]:
        """Return the self-checks with this outcome."""
        return [check for check in self.checks if check.outcome == outcome]
