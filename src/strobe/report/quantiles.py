"""Tables of quantiles: median, 95th and 99th percentile, maximum."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.report import units
from strobe.report.document import Column, Row, Table
from strobe.results.quantiles import Quantiles

FIGURES = ("Median", "95 %", "99 %", "Longest")


def quantile_cells(figures: Quantiles | None, decimals: int = 2) -> list[str | None]:
    """A row's four figures; empty ones where there are none."""
    if figures is None:
        return [None] * 4
    return [units.ms(value, decimals) for value in (figures.median, figures.p95, figures.p99, figures.max)]


def quantile_table(
    first: str, rows: Sequence[tuple[str, Quantiles | None]], decimals: int = 2, unit: str = "ms"
) -> Table:
    """A table of those ``rows`` that have figures; ``first`` heads the column of their names."""
    columns = [Column(first, numeric=False), *(Column(f"{name} ({unit})" if unit else name) for name in FIGURES)]
    return Table(columns, [Row([name, *quantile_cells(figures, decimals)]) for name, figures in rows if figures])
