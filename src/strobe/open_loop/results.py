"""A policy's actions on recorded frames, hypotheses on its wiring, and what it has learnt, as plain data.

Errors are in σ: the spread of each action dimension in the recorded frames.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval, many, mapping, optional
from strobe.loops.results.motion import FirstJump

NaiveName = Literal["hold still", "the mean action", "the last action"]
PartName = Literal["all", "training", "held out"]
LOOKED = 0.02  # σ: RMS of the change of actions, below which the policy does not look at an input


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


class InputEffect(Data):
    """The effect of an input: the change of the actions where it is another frame's, with the same noise."""

    name: str = Field(description="the data set's name of the camera or state, or task")
    moved: Finite = Field(description="σ: root mean square of the change")
    frames: int = Field(description="frames on which it was changed")


class Switch(Data):
    """A dimension that is open or closed, such as a gripper. A chunk changes it if it ends on the other side."""

    name: str
    changes: int = Field(description="recorded chunks that change it")
    caught: int = Field(description="of these, the chunks in which the policy changes it the same way")
    invented: int = Field(description="chunks in which it changes in the prediction alone")
    steady: int = Field(description="recorded chunks that do not change it")
    episodes: int = Field(description="episodes with a change")
    missed: int = Field(description="of these, the episodes in which fewer than half of the chunks are caught")


class SummedSteps(Data):
    """The errors of an action dimension that is a step of the state, added up over the executed actions of a chunk."""

    name: str
    actions: int = Field(description="executed actions of a chunk")
    single: Finite = Field(description="error of an action ÷ the size of an action, root mean squares")
    summed: PairedError | None = optional("error of the sum ÷ the recorded sum, in pairs over episodes")


class Learnt(Data):
    """The measures of a policy's chunks on recorded frames."""

    spread: Finite | None = optional("σ: how much its chunks differ from frame to frame")
    recorded_spread: Finite | None = optional("σ: how much the recorded chunks of these frames differ")
    noise: Finite | None = optional("σ: change of the actions with other noise; 0 for a policy that draws none")
    inputs: list[InputEffect] = Field(default_factory=list)
    simulator_task: Finite | None = optional("σ: change of the actions with a simulator's words; None if not measured")
    from_state: Finite | None = optional("σ: from the state to the last action of its chunks")
    recorded_from_state: Finite | None = optional("σ: from the state to the last action of the recorded chunks")
    held: PairedError | None = optional("the first of these two ÷ the second, in pairs over episodes")
    start_rms: Finite | None = optional("σ: error of chunks that begin within the first chunk of an episode")
    later_rms: Finite | None = optional("σ: error of the other chunks")
    switches: list[Switch] = many("dimensions that are open or closed")
    steps: list[SummedSteps] = many("dimensions whose actions are steps of the state")

    @property
    def looks_at_simulator_task(self) -> bool | None:
        """Whether a simulator's words move its actions; None if that was not measured."""
        return None if self.simulator_task is None else self.simulator_task >= LOOKED


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
    strips: list[Strip] = Field(default_factory=list)
    executed: int = Field(default=0, description="actions per chunk that a robot would execute")
    ranges: list[ActionRange] = many("range of these actions in the policy's numbers; empty if none was predicted")
    learnt: Learnt | None = optional("what its actions show that it has learnt; None if not judged")
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
