"""The finding of a rule."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite


class Finding(Data):
    """A rule that fired: what was seen, why it matters, what to do, what that should buy."""

    rule: str = Field(description="the rule's id, e.g. 'backbone-dominates'")
    level: Literal["good", "info", "warning"]
    title: str
    seen: str = Field(description="what was seen, with the numbers and their units")
    why: str
    do: str = ""
    gain: str = Field(default="", description="what the advice should gain, and how that is known")
    evidence: dict[str, Finite | str | None] = Field(default_factory=dict)
