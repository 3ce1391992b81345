"""The same policy's calls on the robot and on the bench, and the parts of their difference."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.results.comparison import Verdict
from strobe.results.data import Data, Finite

Place = Literal["bench", "bench at the robot's pace", "robot"]
Cause = Literal["clocks and gaps", "waiting for a CPU", "blocked", "on the CPU"]


class CallTimes(Data):
    """The median call in milliseconds, divided by what its own thread did, as the middle half of the calls is."""

    place: Place
    calls: int = Field(description="all of them; the middle half is the one by wall time")
    wall_ms: Finite
    cpu_ms: Finite = Field(description="the thread ran, also where it spun waiting for other threads or the device")
    waiting_ms: Finite | None = Field(description="ready to run, without a CPU; None where the system does not tell")
    blocked_ms: Finite = Field(description="asleep: the GIL, locks, the device, other threads; with waiting_ms if None")


class Share(Data):
    """A part of the difference between the robot and the bench."""

    cause: Cause
    ms: Finite = Field(description="below 0 where the robot takes less")


class Bench(Data):
    """Calls on the robot compared with calls on the bench after it, in one process, on the last observation."""

    times: list[CallTimes]
    period_ms: Finite | None = Field(default=None, description="from call to call at the robot's pace")
    verdict: Verdict | None = Field(default=None, description="robot against bench, back to back; None without a bench")
    shares: list[Share] = Field(default_factory=list, description="of the difference, largest first; they add up to it")

    def of(self, place: Place) -> CallTimes | None:
        """Return the times at ``place``; None without calls there."""
        return next((times for times in self.times if times.place == place), None)
