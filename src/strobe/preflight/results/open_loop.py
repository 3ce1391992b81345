"""Open loop: the actions that a policy predicts on recorded frames, against the recorded ones. Plain data.

Errors are in σ: the spread of each action dimension in the recorded frames.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval
from strobe.rollout.results.first_jump import FirstJump

NaiveName = Literal["hold still", "the mean action", "the last action"]
PartName = Literal["all", "training", "held out"]


class PairedError(Data):
    """An error over another one on the same frames, in pairs over episodes."""

    ratio: Finite = Field(description="root mean squares, geometric mean over episodes; below 1 the error is smaller")
    interval: Interval | None = Field(
        default=None, description="of the ratio, Student's t on its logarithm over episodes; None with fewer than 4"
    )
    episodes: int

    @property
    def smaller(self) -> bool | None:
        """Whether the error is shown to be smaller (True) or larger (False) than the other; None for neither."""
        if self.interval is None or self.interval.low <= 1 <= self.interval.high:
            return None
        return self.interval.high < 1


class NaiveError(Data):
    """A prediction that takes no policy, as a yardstick on the same frames."""

    name: NaiveName
    rms: Finite | None = Field(default=None, description="σ: root mean square of its errors")
    paired: PairedError | None = Field(default=None, description="the policy's error over this one")
    unjudged: str = Field(default="", description="why it was not looked at, in words")


class DimensionError(Data):
    """Errors of one action dimension, in σ."""

    name: str
    spread: Finite = Field(description="σ: standard deviation in the recorded frames, in the action's own units")
    rms: Finite = Field(description="σ: root mean square of the errors")
    offset: Finite = Field(description="σ: mean error, with its sign")
    explained: Finite | None = Field(description="1 − MSE / MSE of the mean action; None where it never moves")
    naive: dict[str, Finite] = Field(default_factory=dict, description="yardstick → σ: root mean square of its errors")


class PartErrors(Data):
    """Errors on a part of the episodes."""

    name: PartName
    episodes: int
    frames: int
    rms: Finite = Field(description="σ: root mean square of the policy's errors")
    explained: Finite = Field(
        description="1 − MSE / MSE of the mean action; at most 1, below 0 where the mean is nearer"
    )
    naive: list[NaiveError] = Field(default_factory=list)


class EpisodeErrors(Data):
    """Errors on one episode."""

    episode: int
    held_out: bool
    frames: int
    rms: Finite = Field(description="σ: root mean square of the errors")
    explained: Finite | None


class PredictedChunk(Data):
    """A predicted chunk, thinned for a picture."""

    tick: int = Field(description="of the episode, at which its first action is due")
    every: int = Field(default=1, description="ticks from one value to the next")
    values: list[list[Finite]] = Field(description="of each dimension along the chunk, in the action's own units")


class Strip(Data):
    """An episode's recorded actions with predicted chunks over them, thinned for a picture."""

    episode: int
    held_out: bool = False
    ticks: list[int]
    recorded: list[list[Finite]] = Field(description="of each dimension at the ticks, in the action's own units")
    chunks: list[PredictedChunk]


class ActionRange(Data):
    """The range of one action dimension in what a policy predicted on recorded frames, in the action's own units."""

    name: str
    low: Finite
    high: Finite


class OpenLoop(Data):
    """A policy's actions on recorded frames, none of which was executed."""

    frames: int = Field(default=0, description="on which a chunk was predicted")
    episodes: int = Field(default=0, description="from which these frames are")
    chunk: int = Field(default=0, description="actions of a chunk")
    fps: Finite = Field(default=0.0, description="Hz: of the data set")
    seconds: Finite = Field(default=0.0, description="that it took, with the hypotheses")
    call_ms: Finite | None = Field(
        default=None, description="of a call, from an observation to its actions: median of those after the first"
    )
    names: list[str] = Field(default_factory=list, description="of the action's dimensions, of strips the first ones")
    parts: list[PartErrors] = Field(default_factory=list, description="all episodes first")
    dimensions: list[DimensionError] = Field(default_factory=list)
    along: list[Finite | None] = Field(default_factory=list, description="σ: RMS at each action of the chunk")
    naive_along: dict[str, list[Finite | None]] = Field(
        default_factory=dict, description="yardstick → σ at each action"
    )
    by_episode: list[EpisodeErrors] = Field(default_factory=list)
    strips: list[Strip] = Field(default_factory=list)
    executed: int = Field(default=0, description="actions of each chunk that a robot would execute")
    ranges: list[ActionRange] = Field(
        default_factory=list, description="of these actions, by the policy's numbers; empty where none was predicted"
    )
    first_jump: FirstJump | None = Field(default=None, description="None where it was not looked at")
    stopped: bool = Field(default=False, description="whether Ctrl-C ended it before all frames were looked at")
    unjudged: str = Field(default="", description="why it was not judged, in words; '' where it was")

    @property
    def whole(self) -> PartErrors | None:
        """The errors on all episodes."""
        return self.parts[0] if self.parts else None
