"""The finding of a rule."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite


class Finding(Data):
    """A rule that fired: what it found, why it matters, what to do, what that gains."""

    rule: str = Field(description="the rule's id, e.g. 'backbone-dominates'")
    level: Literal["good", "info", "warning"]
    title: str
    found: str = Field(description="what the rule found, with the numbers and their units")
    why: str
    do: str = ""
    gain: str = Field(default="", description="what the advice should gain, and how that is known")
    evidence: dict[str, Finite | str | None] = Field(default_factory=dict)
