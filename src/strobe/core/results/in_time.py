"""Chunks in time for a rate, as data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite


class InTime(Data):
    """Chunks that took at most ``within_ms``, and what they show of all chunks to come."""

    within_ms: Finite
    asked: Finite = Field(description="share of chunks that must be in time, 0 to 1")
    chunks: int = Field(ge=1, description="that were timed")
    on_time: int = Field(ge=0, description="of them")
    low: Finite = Field(description="bound of the share in time: it is no less, with confidence `level`")
    high: Finite = Field(description="it is no more, with confidence `level`")
    level: Finite = 0.95
    outcome: Literal["reached", "missed", "not judged"] = Field(
        description="reached: no less than asked; missed: less than asked; not judged: these chunks show neither"
    )
    needed: int | None = Field(
        default=None, description="chunks that would show it if as many are in time; None where as many would not do"
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
