"""A budget: latencies over denoising steps, compared with a target rate. All times are in milliseconds."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, Line, optional
from strobe.ladder.results import InTime, Need


class Latency(Data):
    """Milliseconds of one action chunk with a number of denoising steps."""

    steps: int
    total_ms: Finite
    parts: dict[str, Finite] = Field(description="the named parts; the remainder belongs to no part")
    source: str | None = optional("source of the figures")
    in_time: InTime | None = optional(
        "share of chunks in time for the target; None if only a median is known (a table)"
    )


class Asynchrony(Data):
    """One latency under asynchronous execution (Real-Time Chunking), at the robot's control rate."""

    steps: int
    hz: Finite = Field(description="chunks per second if calls follow each other")
    delay_ticks: int = Field(description="control ticks from an observation to the first action that is executed")
    in_time: InTime | None = optional(
        "share of chunks within that delay; None if it is a median's: half may come later"
    )
    horizon: int = Field(description="fewest actions to execute per chunk so that the next chunk is ready in time")
    youngest_ms: Finite = Field(description="age of the observation behind the first action executed of a chunk")
    oldest_ms: Finite = Field(description="age of the observation behind the last one, if calls follow without a gap")


class Budget(Answer):
    """The gap between a policy's latency and a target rate, and the effect of asynchrony."""

    called: ClassVar[str] = "budget"

    study: Literal["budget"] = "budget"
    target_hz: Finite
    control_hz: Finite
    latencies: list[Latency]
    asked: Finite = Field(default=0.95, description="required share of chunks in time, 0 to 1")
    total: Line | None = optional("the fitted line; None with one number of steps")
    denoise: Line | None = None
    most_steps: int | None = optional("largest number of steps whose (measured or fitted) median meets the target")
    judged: Latency = Field(description="the row with the fewest steps, which the needs are computed from")
    needs: list[Need] = Field(default_factory=list)
    asynchrony: list[Asynchrony] = Field(default_factory=list)
