"""How far a measurement is from the limit of its machine: the roofline's lower bound of each part, and of the whole."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.results.data import Data, Finite


class PartLimit(Data):
    """A part's arithmetic and memory traffic against the ceilings of the machine."""

    part: str = Field(description="a name as in a ladder's parts; 'other' for what is in none of them")
    ms: Finite = Field(description="per iteration, median")
    gflop: dict[str, Finite] = Field(default_factory=dict, description="dtype of the products → GFLOP per iteration")
    moved_bytes: int | None = Field(
        default=None, description="the least that must be read and written per iteration; None where not counted"
    )
    compute_ms: Finite = Field(description="of its products at the ceilings of their dtypes")
    memory_ms: Finite = Field(description="of its bytes at the ceiling of memory; 0 where one of them is not known")
    least_ms: Finite = Field(description="the larger of both, and no more than it took")
    bound: Literal["compute", "memory", ""] = Field(description="the larger of both; '' where both are 0")


class Lower(Data):
    """The bound if all wider products were made in a dtype of fewer bits."""

    dtype: str
    least_ms: Finite


class Limit(Data):
    """The roofline's lower bound of one measurement, and its share of it."""

    dtype: str = Field(description="that most of its FLOP are in")
    parts: list[PartLimit] = Field(description="they add up to the whole")
    ceiling_share: Finite = Field(description="time of the products at their ceilings over the time taken, 0 to 1")
    least_ms: Finite = Field(description="sum over the parts")
    lower: list[Lower] = Field(default_factory=list, description="dtypes in which less is possible, widest first")
