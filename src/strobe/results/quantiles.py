"""Quantiles of a list of values."""

from __future__ import annotations

from strobe.results.data import Data, Finite


class Quantiles(Data):
    """Figures of a list of values, in the unit of the values."""

    n: int
    median: Finite
    p95: Finite
    p99: Finite
    max: Finite
