"""A line of milliseconds over denoising steps."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval

ROUNDING = 1e-9  # rounding of a time


class Line(Data):
    """``fixed + per_step × steps``, by least squares."""

    part: str
    fixed_ms: Finite
    fixed_interval: Interval | None = Field(default=None, description="None with fewer than three numbers of steps")
    per_step_ms: Finite
    per_step_interval: Interval | None = None
    one_step_ms: Finite = Field(description="the median with the fewest steps ÷ that number: basis of 'n × one step'")
    predicted: dict[int, Finite] = Field(description="number of steps → the fitted median")

    @property
    def unknown_beyond(self) -> str | None:
        """Why the cost of more steps than were measured is not known; None if the line says it."""
        ends = self.per_step_interval
        if ends is None:
            return "two numbers of steps give the cost of a step no interval"
        # A line through equal times rises by what rounding leaves.
        if ends.low * max(self.predicted) <= ROUNDING * max(self.predicted.values()):
            return f"one more step costs {ends.low:.2f} to {ends.high:.2f} ms (95 % CI), which may be nothing"
        return None
