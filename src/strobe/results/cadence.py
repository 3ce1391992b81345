"""Calls spaced as on a robot."""

from __future__ import annotations

from pydantic import Field

from strobe.results.data import Data, Finite


class Cadence(Data):
    """When the calls of one measurement began: one every so many ticks of the robot's control rate."""

    hz: Finite = Field(description="control rate: ticks per second")
    ticks: int = Field(description="from the beginning of a call to that of the next")
    period_ms: Finite = Field(description="the same in milliseconds")
    calls: int
    late: int = Field(description="calls that could not begin in time, because what came before took too long")
