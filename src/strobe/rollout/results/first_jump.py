"""The first action of an episode or a run, and its distance from where the arm stands. Plain data."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite


class FirstAction(Data):
    """The first action that a loop sent to one joint, in the robot's unit."""

    joint: str
    at: Finite = Field(description="where the joint stood: its position in the observation of the same tick")
    sent: Finite = Field(description="as the robot took it, after what limits its step")

    @property
    def jump(self) -> float:
        """The distance from where the joint stood."""
        return abs(self.sent - self.at)


class JointJump(Data):
    """Distances of one joint's action from its state at the first frame of episodes, in the data's unit."""

    joint: str
    spread: Finite = Field(description="σ: of the action in all recorded frames; 0 for one that never moves")
    predicted: Finite = Field(description="of the first predicted action from the recorded state, median of episodes")
    predicted_largest: Finite
    recorded: Finite = Field(description="of the first recorded action from it, median of episodes")
    recorded_largest: Finite = Field(description="of all episodes that were read")
    ahead: Finite = Field(description="largest distance of any recorded action from the state of its frame")
    step: Finite = Field(description="largest step from a recorded action to the next")
    run: Finite | None = Field(default=None, description="of the first action that a run sent; None without a run")

    @property
    def usual(self) -> float:
        """The most that the recording ever asked of the joint in one tick."""
        return max(self.recorded_largest, self.ahead, self.step)


class FirstJump(Data):
    """How far the first action of a chunk lies from where the arm stands, on the first frames of episodes."""

    episodes: int = Field(default=0, description="on whose first frame a chunk was predicted")
    joints: list[JointJump] = Field(default_factory=list)
    run: str = Field(default="", description="the folder of a rollout or a rehearsal; '' without one")
    unjudged: list[str] = Field(default_factory=list, description="what was not judged, and why")
