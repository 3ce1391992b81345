"""An episode as data."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite, optional


class Episode(Data):
    """One episode of a policy in a simulator."""

    success: bool
    reward: Finite = Field(description="sum over its control ticks")
    best_reward: Finite = Field(description="largest reward of one control tick")
    ticks: int = Field(description="control ticks until it ended")
    seconds: Finite | None = optional("seconds from its start to its end: by its ticks' rate, or by a virtual clock")
    limit_s: Finite | None = optional("longest time that it may last; None if `seconds` is None: not saved")
