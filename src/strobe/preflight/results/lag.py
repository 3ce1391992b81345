"""Lags in a recording, beside those of a run: from an action to the state that follows it, and of camera frames."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval


class JointLag(Data):
    """Control ticks from one joint's action to its state."""

    joint: str
    recorded: Finite | None = Field(default=None, description="in the data set, median of its episodes; None: unknown")
    interval: Interval | None = Field(default=None, description="of that median; None with fewer than six episodes")
    episodes: int = Field(default=0, description="in which it could be seen")
    run: Finite | None = Field(default=None, description="in the run; None without one, or where it could not be seen")


class Lag(Data):
    """How late the state follows the action, and how old frames were: in the recording, and in a run of the policy."""

    joints: list[JointLag]
    fps: Finite = Field(description="of the data set: a tick is 1 / fps seconds")
    run: str = Field(default="", description="the folder of a rollout or a rehearsal; '' without one")
    run_fps: Finite | None = None
    frames_run: dict[str, Finite] = Field(
        default_factory=dict, description="camera → ticks by which its frames were old in the run when they were read"
    )
    observations_run: Finite | None = Field(
        default=None, description="ticks from an observation to the action that rests on it in the run, median"
    )
    unjudged: list[str] = Field(default_factory=list, description="what was not judged, and why")
