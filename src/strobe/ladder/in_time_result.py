"""Chunks in time for a rate, as data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite


class InTime(Data):
    """Chunks that took at most ``within_ms``, and what they show of all chunks to come."""

    within_ms: Finite
    asked: Finite = Field(description="share of chunks that must be in time, 0 to 1")
    chunks: int = Field(ge=1, description="number of chunks that were timed")
    on_time: int = Field(ge=0, description="number of chunks that were ready within `within_ms`")
    low: Finite = Field(description="lower confidence bound of the share in time, at `level`")
    high: Finite = Field(description="upper confidence bound of the share in time, at `level`")
    level: Finite = 0.95
    outcome: Literal["reached", "missed", "not judged"] = Field(
        description="reached: no less than asked; missed: less than asked; not judged: these chunks show neither"
    )
    needed: int | None = Field(
        default=None, description="chunks that decide it if the same share is in time; None if no number decides it"
    )
    burst: int | None = Field(
        default=None,
        description="where reached: late chunks in a row, their mean, that this run is long enough to show; it may "
        "fall between longer bursts, which are rarer",
    )

    @property
    def share(self) -> float:
        """Share of the chunks that were in time, 0 to 1."""
        return self.on_time / self.chunks
