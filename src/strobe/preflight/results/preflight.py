"""The answer of `strobe preflight`: can this checkpoint work with this data and this robot? Plain data.

Open loop, it has the actions that the policy predicts on recorded frames, against the recorded ones. Errors are in σ:
the spread of each action dimension in the recorded frames.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, Interval, many, mapping, optional
from strobe.loops.results.motion import FirstJump
from strobe.preflight.results.wiring import Wiring

NaiveName = Literal["hold still", "the mean action", "the last action"]
PartName = Literal["all", "training", "held out"]


class PairedError(Data):
    """An error over another one on the same frames, in pairs over episodes."""

    ratio: Finite = Field(description="ratio of RMS errors, geometric mean over episodes; below 1: smaller")
    interval: Interval | None = optional("Student's t on the ratio's logarithm over episodes; None with fewer than 4")
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
    rms: Finite | None = optional("σ: root mean square of the errors")
    paired: PairedError | None = optional("the policy's error ÷ this one")
    unjudged: str | None = optional("why it was not judged, in words")


class DimensionError(Data):
    """Errors of one action dimension, in σ."""

    name: str
    spread: Finite = Field(description="σ: standard deviation in the recorded frames, in the action's own units")
    rms: Finite = Field(description="σ: root mean square of the errors")
    offset: Finite = Field(description="σ: mean error, with its sign")
    explained: Finite | None = Field(description="1 − MSE / MSE of the mean action; None if the dimension never moves")
    naive: dict[str, Finite] = mapping("yardstick → σ: root mean square of the errors")


class PartErrors(Data):
    """Errors on a part of the episodes."""

    name: PartName
    episodes: int
    frames: int
    rms: Finite = Field(description="σ: root mean square of the policy's errors")
    explained: Finite = Field(description="1 − MSE / MSE of the mean action; at most 1, negative if the mean is closer")
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

    tick: int = Field(description="the episode's tick at which its first action is due")
    every: int = Field(default=1, description="ticks between two values")
    values: list[list[Finite]] = Field(description="each dimension along the chunk, in the action's own units")


class Strip(Data):
    """An episode's recorded actions with predicted chunks over them, thinned for a picture."""

    episode: int
    held_out: bool = False
    ticks: list[int]
    recorded: list[list[Finite]] = Field(description="each dimension at the ticks, in the action's own units")
    chunks: list[PredictedChunk]


class ActionRange(Data):
    """The range of one action dimension in what a policy predicted on recorded frames, in the action's own units."""

    name: str
    low: Finite
    high: Finite


class OpenLoop(Data):
    """A policy's actions on recorded frames, none of which was executed."""

    frames: int = Field(default=0, description="number of frames on which a chunk was predicted")
    episodes: int = Field(default=0, description="number of episodes with such frames")
    chunk: int = Field(default=0, description="actions per chunk")
    fps: Finite = Field(default=0.0, description="frame rate of the data set (Hz)")
    seconds: Finite = Field(default=0.0, description="duration, with the hypotheses")
    call_ms: Finite | None = optional("median time of a call from observation to actions, the first call excluded")
    names: list[str] = many("names of the action's dimensions; in strips the first")
    parts: list[PartErrors] = many("errors by part, all episodes first")
    dimensions: list[DimensionError] = Field(default_factory=list)
    along: list[Finite | None] = many("σ: RMS error at each action of the chunk")
    naive_along: dict[str, list[Finite | None]] = mapping("yardstick → σ: RMS error at each action of the chunk")
    by_episode: list[EpisodeErrors] = Field(default_factory=list)
    strips: list[Strip] = Field(default_factory=list)
    executed: int = Field(default=0, description="actions per chunk that a robot would execute")
    ranges: list[ActionRange] = many("range of these actions in the policy's numbers; empty if none was predicted")
    first_jump: FirstJump | None = optional("jump to the first action; None if not judged")
    stopped: bool = Field(default=False, description="Ctrl-C ended it before the last frame")
    unjudged: str | None = optional("why it was not judged, in words; None if it was")

    @property
    def whole(self) -> PartErrors | None:
        """The errors on all episodes."""
        return self.parts[0] if self.parts else None


HypothesisKind = Literal[
    "cameras", "channels", "image-range", "state-order", "action-order", "order", "units", "statistics", "sign",
    "relative", "shift", "rate", "prompt",
]  # fmt: skip
# 'surpassed': judged like a claimed one, and another one explains the data better. 'not shown': its error is smaller by
# the margin, and its interval over these episodes is too wide to say so.
HypothesisOutcome = Literal["claimed", "surpassed", "not shown", "not better", "not looked at", "not judged"]


class Hypothesis(Data):
    """The data is as it would be if the policy were wired otherwise: on the way in, on the way out, or both."""

    kind: HypothesisKind
    name: str = Field(description="the other wiring, in words")
    outcome: HypothesisOutcome = "not judged"
    why: str | None = optional("reason for the outcome, in words")
    fix: str | None = optional("how to change the wiring accordingly")
    inputs: list[str] = many("inputs that it changes; empty if only actions change")
    explained: Finite | None = optional("1 − MSE / MSE of the mean action, under the hypothesis")
    wired: Finite | None = optional("1 − MSE / MSE of the mean action, under the present wiring")
    paired: PairedError | None = optional("error under the hypothesis ÷ under this wiring")
    over_mean: PairedError | None = optional("error under the hypothesis ÷ error of the mean action")
    moved: Finite | None = optional("σ: RMS change of the actions if these inputs come from another frame")


class PreflightResult(Answer):
    """A policy's wiring as it was read, and its actions on recorded frames."""

    called: ClassVar[str] = "preflight"

    study: Literal["preflight"] = "preflight"
    wiring: Wiring
    refused: str | None = optional("the command that was not started, because of the findings")
    fixed: list[str] = many("repairs in a copy of the checkpoint")
    unfixed: str | None = optional("why a fixed copy was not written, in words")
    open_loop: OpenLoop | None = optional("errors of its actions on recorded frames; None if only files were read")
    hypotheses: list[Hypothesis] = many("hypotheses on the wiring: the claimed one first, then by increasing error")

    @property
    def serious(self) -> int:
        """The number of findings with which the robot does something else than it was taught."""
        return sum(finding.level == "warning" for finding in self.findings)
