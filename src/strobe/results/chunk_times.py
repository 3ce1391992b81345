"""Latency of one action chunk of an evaluation's variant, measured apart from the episodes."""

from __future__ import annotations

from pydantic import Field

from strobe.results.data import Data, Finite, Interval, Summary


class ChunkTimes(Data):
    """One chunk at batch 1, processors included, in rounds in which all variants take turns; in milliseconds."""

    ms: Summary
    hz: Finite = Field(description="chunks per second at the median")
    parts: dict[str, Finite] = Field(
        description="median ms of the policy's parts and of the processors; what they leave of the whole is in none"
    )
    times: Finite | None = Field(
        default=None, description="how often as fast as the first variant; None for the first itself"
    )
    times_interval: Interval | None = Field(default=None, description="of it, from the pairs of the rounds")
