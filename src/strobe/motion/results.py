"""The motion of a recording: findings, traces and lags as plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, many, mapping, optional
from strobe.lerobot.datasets.results import JointLag


class Oddity(Data):
    """A finding of a check: one fault, in all episodes that have it."""

    check: str | None = optional("name of the check, e.g. 'levels'")
    level: Literal["info", "warning"] = "warning"
    title: str
    found: str = Field(description="what the check found, with the numbers and their units")
    why: str = Field(default="", description="what it does to a policy")
    do: str
    episodes: list[int] = many("the episodes that have it")
    share: Finite = Field(default=0.0, description="rows of these episodes, as a share of those that were looked at")
    feature: str | None = optional("the data set's name of the feature; None if it is of none")
    joints: list[str] = Field(default_factory=list)


class RestPoints(Data):
    """State against action of one joint while both rest: the median of each episode, in the data's unit."""

    joint: str
    action: list[Finite]
    state: list[Finite]
    odd: list[bool] = Field(description="whether a check names the joint in that episode")


class Trace(Data):
    """A dimension over a part of an episode, where a check found something."""

    name: str
    episode: int
    first: int = Field(description="the episode's frame of the first value")
    values: list[Finite]


class CameraLag(Data):
    """How the change of a camera's images goes with the speed of the joints, or another camera's change, over lags."""

    camera: str
    against: str | None = optional("the other camera; None: the joints")
    lags_s: list[Finite] = Field(description="seconds by which the images are behind the rows, or the other camera")
    correlation: list[Finite] = Field(description="mean over the episodes, −1 to 1")
    episodes: dict[int, Finite] = mapping("episode → ticks by which its images are late, where that is shown")
    peaks: dict[int, Finite] = mapping("episode → the correlation at that lag")
    looked_at: int = Field(description="episodes of which images were decoded")


class Motion(Data):
    """The looks at a recording's motion, and their findings."""

    checks: list[str] = Field(description="names of the checks that could judge the set")
    found: list[Oddity] = Field(default_factory=list)
    unjudged: list[str] = many("what could not be judged, and why")
    rows: dict[int, int] = mapping("episode → its rows")
    lags: list[JointLag] = Field(default_factory=list)
    rests: list[RestPoints] = Field(default_factory=list)
    traces: list[Trace] = Field(default_factory=list)
    cameras: list[CameraLag] = Field(default_factory=list)
