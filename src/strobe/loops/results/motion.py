"""How a robot, or a policy in a simulator, moved: the first action, and jumps from chunk to chunk. Plain data."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval, many, optional


class FirstAction(Data):
    """The first action that a loop sent to one joint, in the robot's unit."""

    joint: str
    at: Finite = Field(description="position of the joint in the observation of the same tick")
    sent: Finite = Field(description="the action as the robot took it, after the limit on its step")

    @property
    def jump(self) -> float:
        """The distance from where the joint stood."""
        return abs(self.sent - self.at)


class JointJump(Data):
    """Distances of one joint's action from its state at the first frame of episodes, in the data's unit."""

    joint: str
    spread: Finite = Field(description="σ of the action over all recorded frames; 0 for one that never moves")
    predicted: Finite = Field(description="distance of the first predicted action from the recorded state, median")
    predicted_largest: Finite
    recorded: Finite = Field(description="distance of the first recorded action from that state, median of episodes")
    recorded_largest: Finite = Field(description="largest such distance in all episodes that were read")
    ahead: Finite = Field(description="largest distance of any recorded action from the state of its frame")
    step: Finite = Field(description="largest step from one recorded action to the next")
    run: Finite | None = optional("distance of a run's first action; None without a run")

    @property
    def usual(self) -> float:
        """The most that the recording ever asked of the joint in one tick."""
        return max(self.recorded_largest, self.ahead, self.step)


class FirstJump(Data):
    """How far the first action of a chunk lies from where the arm stands, on the first frames of episodes."""

    episodes: int = Field(default=0, description="number of episodes on whose first frame a chunk was predicted")
    joints: list[JointJump] = Field(default_factory=list)
    run: str | None = optional("folder of a rollout or a rehearsal; None without one")
    unjudged: list[str] = many("what was not judged, and why")


class Motion(Data):
    """Steps and jerk of actions as the simulator got them, in the actions' units, Euclidean over their dimensions."""

    path: Finite = Field(description="mean distance of an action to the one before it, per control tick")
    jerk: Finite | None = Field(description="root mean square of the third difference, per tick³; None: too few ticks")
    within: Finite | None = Field(description="mean distance to the action before, in ticks whose action was queued")
    seam: Finite | None = Field(
        description="mean distance to the action before, at the first action of a new chunk; None, as `within`, if no "
        "tick or each tick began one"
    )


class Jump(Data):
    """The median jump of one joint from chunk to chunk over the 95th percentile of its steps inside chunks."""

    joint: str
    ratio: Finite
    interval: Interval | None = optional("bootstrap over seams; None with fewer than three")
    seams: int
