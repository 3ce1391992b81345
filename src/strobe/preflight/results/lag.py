"""Lags in a recording, and those of a run: from an action to the state that follows it, and of camera frames."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval


class JointLag(Data):
    """Control ticks from one joint's action to its state."""

    joint: str
    recorded: Finite | None = Field(default=None, description="lag in the data set, median of episodes; None: unknown")
    interval: Interval | None = Field(default=None, description="interval of it; None with fewer than six episodes")
    episodes: int = Field(default=0, description="number of episodes that show it")
    run: Finite | None = Field(default=None, description="lag in the run; None without one, or if it could not be seen")


class Lag(Data):
    """How late the state follows the action, and how old frames were: in the recording, and in a run of the policy."""

    joints: list[JointLag]
    fps: Finite = Field(description="frame rate of the data set: a tick is 1 / fps seconds")
    run: str | None = Field(default=None, description="folder of a rollout or a rehearsal; None without one")
    run_fps: Finite | None = None
    frames_run: dict[str, Finite] = Field(
        default_factory=dict, description="camera → age (ticks) of its frames in the run when they were read"
    )
    observations_run: Finite | None = Field(
        default=None, description="median ticks in the run from an observation to the action computed from it"
    )
    unjudged: list[str] = Field(default_factory=list, description="what was not judged, and why")
