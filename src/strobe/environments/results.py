"""Two Python environments that ran the same policy, and where their passes first differ."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite


class Environment(Data):
    """A Python environment, as its side of the comparison described itself."""

    name: str
    python: str = Field(description="version of Python")
    packages: dict[str, str] = Field(default_factory=dict, description="distribution → version")
    checkout: str = Field(default="", description="commit of the LeRobot that the user named, else its folder's name")
    threads: int = Field(description="torch's intra-op threads")


class StageDifference(Data):
    """A place in a pass at which two environments differ."""

    kind: Literal["setting", "type", "weights", "values", "shape", "calls"]
    stage: str = Field(description="in words: 'preprocessing', 'vision', 'prefix', 'denoising step 3', …")
    place: str = Field(description="a step or module and what of it, e.g. 'NormalizerProcessorStep observation.state'")
    distance: Finite | None = Field(
        default=None, description="of the values: length of the difference over the length of the first side's"
    )
    rounding: Finite | None = Field(
        default=None, description="the same for the first side alone, with its sums in another order"
    )
    words: str = Field(description="what differs, in words")


class PassDifference(Data):
    """How the passes of one observation differ, from the first stage on."""

    candidate: str = Field(description="the side that was held against the first one")
    observation: int = Field(description="of the check, from 1: the one whose actions differ most")
    compared: int = Field(description="tensors and texts that both sides have")
    unmatched: list[str] = Field(default_factory=list, description="modules that only one side has, some of them")
    stages: list[StageDifference] = Field(default_factory=list, description="one for each stage, in order of the pass")
    inside: list[StageDifference] = Field(
        default_factory=list, description="stages of the policy that differ and lead to the same actions"
    )
    settings: list[StageDifference] = Field(default_factory=list, description="settings that differ")
    training: list[StageDifference] = Field(default_factory=list, description="gradients of a training step")
    note: str = Field(default="", description="what could not be looked at, in words")

    @property
    def first(self) -> StageDifference | None:
        """The first stage that differs; None where none does."""
        return self.stages[0] if self.stages else None
