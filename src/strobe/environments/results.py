"""Two Python environments that ran the same policy, and where their passes first differ."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, many, mapping, optional


class Environment(Data):
    """A Python environment, as its side of the comparison described itself."""

    name: str
    python: str = Field(description="version of Python")
    packages: dict[str, str] = mapping("distribution → version")
    checkout: str = Field(default="", description="commit of the LeRobot that the user named, else its folder's name")
    threads: int = Field(description="torch's intra-op threads")


class StageDifference(Data):
    """A place in a pass at which two environments differ."""

    kind: Literal["setting", "type", "weights", "values", "shape", "calls"]
    stage: str = Field(description="name of the stage: 'preprocessing', 'vision', 'prefix', 'denoising step 3', …")
    place: str = Field(description="step or module and its value, e.g. 'NormalizerProcessorStep observation.state'")
    distance: Finite | None = optional("length of the values' difference ÷ length of the first side's values")
    rounding: Finite | None = optional("the same distance for the first side with its sums in another order")
    words: str = Field(description="what differs, in words")


class PassDifference(Data):
    """How the passes of one observation differ, from the first stage on."""

    candidate: str = Field(description="the side that is compared with the first one")
    observation: int = Field(description="observation of the check whose actions differ most, counted from 1")
    compared: int = Field(description="count of tensors and texts that both sides have")
    unmatched: list[str] = many("examples of modules that only one side has")
    stages: list[StageDifference] = many("all stages, in order of the pass")
    inside: list[StageDifference] = many("stages of the policy that differ without changing the actions")
    settings: list[StageDifference] = many("settings that differ")
    training: list[StageDifference] = many("gradients of one training step")
    note: str | None = optional("the part that could not be compared")

    @property
    def first(self) -> StageDifference | None:
        """The first stage that differs; None if none does."""
        return self.stages[0] if self.stages else None
