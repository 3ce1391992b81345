"""How a robot, or a policy in a simulator, moved."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval


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
    interval: Interval | None = Field(default=None, description="bootstrap over seams; None with fewer than three")
    seams: int
