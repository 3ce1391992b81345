"""The result of a study: plain data with a version, which outlives the code that measured it.

Every time is in milliseconds, every size in bytes, every rate per second, unless the name says otherwise.
Nothing here imports another part of Strobe, and nothing here computes: numbers arrive finished.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

# JSON has no infinities: a figure that could not be computed is None, never nan or inf.
Finite = Annotated[float, Field(allow_inf_nan=False)]
Size = Annotated[Finite, Field(ge=0)]  # of a time, or of whatever else is never below 0
Sample = Annotated[Size, Field(le=1e100)]  # a measured time: sums and squares of many of them are finite too


def optional(description: str) -> Any:
    """Return a field that is None where nothing else is said."""
    return Field(default=None, description=description)


def many(description: str) -> Any:
    """Return a field with a list, which is empty where nothing else is said."""
    return Field(default_factory=list, description=description)


def mapping(description: str) -> Any:
    """Return a field with a dictionary, which is empty where nothing else is said."""
    return Field(default_factory=dict, description=description)


class Data(BaseModel):
    """Base of every record: unknown fields are refused, so that a misspelt one is never lost silently."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Interval(Data):
    """A confidence interval ``[low, high]`` at ``level``."""

    low: Finite
    high: Finite
    level: Finite = 0.95


class Summary(Data):
    """Figures of a list of samples, in the unit of the samples (milliseconds unless said otherwise)."""

    n: int
    median: Size
    interval: Interval | None = optional("interval of the median; None under six samples")
    mean: Size
    std: Size = Field(description="sample standard deviation (n − 1); 0 for one sample")
    min: Size
    max: Size
    p95: Size

    def quantile(self, share: float) -> float | None:
        """Return what a ``share`` of the samples does not exceed, such as 0.5; None for a share that is not saved."""
        return {0.0: self.min, 0.5: self.median, 0.95: self.p95, 1.0: self.max}.get(share)


class Samples(Data):
    """Raw measurements of one whole (a chunk, a step), in the order they were taken, in milliseconds."""

    warmup: list[Size] = many("warm-up samples, excluded from the summary")
    values: list[Sample]
    summary: Summary
    longest_state_s: Finite | None = optional(
        "longest machine state (s), such as that of the first calls, that this run could have detected"
    )
    machine_change: Finite | None = optional(
        "time of a fixed piece of work between the last calls ÷ that between the first; None if not known"
    )
    notes: list[str] = many("remarks on the samples: drift, throttling, noise")

    def quantile(self, share: float) -> float | None:
        """Return what a ``share`` of the values does not exceed, in between in proportion; None without values."""
        if (known := self.summary.quantile(share)) is not None or not self.values:
            return known
        ordered, place = sorted(self.values), share * (len(self.values) - 1)
        low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
        return low + (high - low) * (place - int(place))


class Quantiles(Data):
    """Figures of a list of values, in the unit of the values."""

    n: int
    median: Finite
    p95: Finite
    p99: Finite
    max: Finite

    def quantile(self, share: float) -> float:
        """Return what a ``share`` of the values does not exceed. Raises KeyError for one that is not saved."""
        return {0.5: self.median, 0.95: self.p95, 0.99: self.p99, 1.0: self.max}[share]


class Figure(NamedTuple):
    """One figure of a run, by which runs are compared: its name, its unit ('' for a count) and its value, if known."""

    name: str
    unit: str
    value: float | None


ROUNDING = 1e-9  # rounding of a time


class Line(Data):
    """``fixed + per_step × steps``, by least squares."""

    part: str
    fixed_ms: Finite
    fixed_interval: Interval | None = optional("None with fewer than three numbers of steps")
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
