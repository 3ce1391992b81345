"""The range of actions that will be sent to each joint, its limits and the data's range. Plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite

RangeBasis = Literal["min and max", "q01 and q99", "q10 and q90", "mean ± σ"]


def share_beyond(low: float, high: float, limit_low: float | None, limit_high: float | None) -> float:
    """Return how far a range leaves its limits, as a share of their width; 0 within them and without limits."""
    if limit_low is None or limit_high is None or limit_high <= limit_low:
        return 0.0
    return max(limit_low - low, high - limit_high, 0.0) / (limit_high - limit_low)


class JointReach(Data):
    """Ranges of one joint's action, in the robot's unit."""

    joint: str
    low: Finite | None = Field(
        default=None, description="lower end of the commands, by the postprocessor's statistics; None if it lacks them"
    )
    high: Finite | None = None
    outer: bool = Field(
        default=False,
        description="the action is relative to the state: low and high are the action's ends plus those of the data's "
        "state, an outer bound",
    )
    limit_low: Finite | None = Field(default=None, description="lower limit; None without a calibration file")
    limit_high: Finite | None = None
    data_low: Finite | None = Field(default=None, description="lower end in the data set; None without a data set")
    data_high: Finite | None = None

    @property
    def excess_share(self) -> float:
        """How far the range leaves the limits, as a share of their width; 0 for a range that is an outer bound."""
        if self.low is None or self.high is None or self.outer:
            return 0.0
        return share_beyond(self.low, self.high, self.limit_low, self.limit_high)


class Reach(Data):
    """The range that a policy's actions have on a robot."""

    joints: list[JointReach] = Field(description="all joints, in the order of the policy's numbers")
    basis: RangeBasis | None = Field(
        default=None, description="the statistics that give the range; None if they do not"
    )
    unit: str | None = Field(default=None, description="the robot's unit; None if unknown")
    calibration: str | None = Field(default=None, description="file that the limits are read from; None without one")
    capped: bool = Field(default=False, description="--robot.max_relative_target limits each action's step")
    unjudged: list[str] = Field(default_factory=list, description="what was not judged, and why")
