"""The range of actions that will be sent to each joint, beside its limits and the data's range. Plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.results.data import Data, Finite


class JointReach(Data):
    """Ranges of one joint's action, in the robot's unit."""

    joint: str
    low: Finite = Field(description="of what will be sent, as the statistics of the postprocessor have it")
    high: Finite
    limit_low: Finite | None = Field(default=None, description="of the calibration; None without a calibration file")
    limit_high: Finite | None = None
    data_low: Finite | None = Field(default=None, description="of the data set's actions; None without a data set")
    data_high: Finite | None = None

    @property
    def beyond(self) -> float:
        """How far the range leaves the limits, as a share of their width; 0 within them and without limits."""
        if self.limit_low is None or self.limit_high is None or self.limit_high <= self.limit_low:
            return 0.0
        over = max(self.limit_low - self.low, self.high - self.limit_high, 0.0)
        return over / (self.limit_high - self.limit_low)


class Reach(Data):
    """The range that a policy's actions have on a robot."""

    joints: list[JointReach]
    basis: Literal["min and max", "q01 and q99", "q10 and q90", "mean ± σ"] = Field(
        description="the statistics that the range is taken from"
    )
    unit: str = Field(default="", description="the robot's; '' where it does not say")
    calibration: str = Field(default="", description="the file that the limits are from; '' without one")
    capped: bool = Field(default=False, description="--robot.max_relative_target limits each action's step")
