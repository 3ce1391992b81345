"""The policy or model that was run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.results.data import Data


class SubjectInfo(Data):
    """The policy or model, its weights, and its inputs."""

    name: str
    kind: str = Field(description="the policy's type, e.g. 'act', 'pi05'")
    source: str = Field(description="a folder, a Hub id, or 'random weights'")
    size: Literal["full", "tiny"] = "full"
    parameters: int
    weight_bytes: int
    dtypes: dict[str, int] = Field(default_factory=dict, description="dtype → parameters of it")
    inputs: str = Field(description="where the observations come from, in words")
    stand_ins: list[str] = Field(default_factory=list, description="what stood in for a thing not to be had here")
    anatomy: str = Field(
        default="modules", description="the anatomy that named the parts; 'modules' for none of its own"
    )
    compilable: bool = Field(default=False, description="LeRobot has a setting that compiles it: `compile_model`")
    mps_known: bool = Field(
        default=False, description="the RTC profiling toolkit's times on Apple silicon are of this policy"
    )
