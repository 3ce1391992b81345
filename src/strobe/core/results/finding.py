"""The finding of a rule."""

from __future__ import annotations

import re
from functools import partial
from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, mapping

Evidence = dict[str, float | str | None]


class Finding(Data):
    """A rule that fired: what it found, why it matters, what to do, what that gains."""

    rule: str = Field(description="the rule's id, e.g. 'backbone-dominates'")
    level: Literal["good", "info", "warning"]
    title: str
    found: str = Field(description="what the rule found, with the numbers and their units")
    why: str
    do: str = ""
    gain: str = Field(default="", description="what the advice should gain, and how that is known")
    evidence: dict[str, Finite | str | None] = mapping("figures that a program reads, such as gain_share, which sorts")

    @property
    def first_step(self) -> str:
        """The first sentence of the advice, after "Next: "; of a condition, also its alternative."""
        first = self.do if self.do.startswith("If ") else re.split(r"(?<=\w\.|\)\.) (?=[A-Z])", self.do, maxsplit=1)[0]
        return first if first.startswith("LeRobot") else first[:1].lower() + first[1:]


good = partial(Finding, level="good")
info = partial(Finding, level="info")
warning = partial(Finding, level="warning")
