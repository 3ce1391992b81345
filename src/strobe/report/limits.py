"""Distance to the machine's limit: lower bounds of the roofline as a line, as tables, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.report import roofline, units
from strobe.report.document import Column, Row, Section, Table
from strobe.report.plots import Plot
from strobe.results.limit import Limit, PartLimit
from strobe.results.machine import Ceiling
from strobe.results.measurement import Measurement

WHOLE, PARTS = "limit", "roofline"  # keys of the sections
TITLE = "How far from this machine's limit"
MEANING = (
    "At least: of each part the larger of two times, its matrix products, convolutions and attention at the measured "
    "ceiling of their dtype, and the bytes that must be read and written at the measured ceiling of memory. All else "
    "is free in it. % of ceiling: the products alone. × left: what is possible at most without fewer FLOP, also in a "
    "narrower dtype where the machine multiplies faster in it."
)
ABOUT_PARTS = (
    "Moves: the least that must be read and written, weights and inputs once a call. A part cannot take less than 'at "
    "least' says, unless its weights stay in a cache, or a convolution needs less arithmetic than is counted."
)

Named = tuple[str, Measurement]  # a rung's or a variant's label, and what was measured of it


def line(name: str, measurement: Measurement) -> str:
    """Say in a sentence what is left to gain at most; '' where its limit is not known."""
    limit, ms = measurement.limit, measurement.samples.summary.median
    if limit is None or limit.least_ms <= 0:
        return ""
    narrower = "".join(f"; all in {one.dtype} at most {_left(ms, one.least_ms)}" for one in limit.lower)
    return (
        f"{units.plain(name)}: {_short(ms)} ms; its arithmetic and memory, mostly {limit.dtype}, take at least "
        f"{_short(limit.least_ms)} ms on this machine: at most {_left(ms, limit.least_ms)} is left{narrower}."
    )


def sections(named: Sequence[Named], shown: str, what: str = "Variant") -> list[Section]:
    """The limits of all measurements, where there are several, and those of the parts of the one called ``shown``.

    Args:
        what: a measurement is, for the heading of their names.
    """
    known = [(label, m) for label, m in named if m.limit is not None]
    found = []
    if len(known) > 1:
        found.append(Section(WHOLE, TITLE, _wholes(known, what), [MEANING]))
    for label, m in known:
        if m.name == shown and m.limit is not None:
            about = [ABOUT_PARTS] if len(known) > 1 else [MEANING, ABOUT_PARTS]
            title = f"Parts and their limits, {units.plain(label)}"
            found.append(Section(PARTS, title, _parts(m.limit), about))
    return found


def plots(named: Sequence[Named], ceiling: Ceiling) -> dict[str, list[Plot]]:
    """The roofline with the parts of all measurements as points, by the key of its section."""
    drawn = roofline.plot([(label, m.limit) for label, m in named if m.limit is not None], ceiling)
    return {PARTS: [drawn]} if drawn is not None else {}


def cells(measurement: Measurement, decimals: int) -> list[str | None]:
    """Least ms and share of the ceiling, for a table that has a row for each measurement."""
    limit = measurement.limit
    if limit is None:
        return [None, None]
    return [units.ms(limit.least_ms, decimals), units.percent(limit.ceiling_share)]


def _wholes(named: Sequence[Named], what: str) -> Table:
    limits = [m.limit for _, m in named if m.limit is not None]
    narrow = list(dict.fromkeys(one.dtype for limit in limits for one in limit.lower))
    decimals = units.digits(max(m.samples.summary.median for _, m in named))
    columns = [
        Column(what, numeric=False),
        Column("ms (median)"),
        Column("Computes in", numeric=False),
        Column("GFLOP"),
    ]
    columns += [Column("Moves"), Column("% of ceiling"), Column("At least (ms)"), Column("× left")]
    columns += [Column(f"× left in {dtype}") for dtype in narrow]
    rows = []
    for (label, m), limit in zip(named, limits, strict=True):
        ms = m.samples.summary.median
        row = [units.plain(label), units.ms(ms, decimals), limit.dtype]
        row += [units.gflop(sum(sum(part.gflop.values()) for part in limit.parts))]
        row += [units.size(sum(part.moved_bytes or 0 for part in limit.parts)), units.percent(limit.ceiling_share)]
        row += [units.ms(limit.least_ms, decimals), _left(ms, limit.least_ms, "")]
        lower = {one.dtype: one.least_ms for one in limit.lower}
        row += [_left(ms, lower[dtype], "") if dtype in lower else None for dtype in narrow]
        rows.append(Row(list(row)))
    return Table(columns, rows)


def _parts(limit: Limit) -> Table:
    columns = [Column("Part", numeric=False), Column("ms (median)"), Column("At least (ms)"), Column("Above it (ms)")]
    columns += [Column("Bound by", numeric=False), Column("% of ceiling"), Column("GFLOP"), Column("Moves")]
    columns += [Column("FLOP/byte"), Column("GFLOP/s"), Column("Computes in", numeric=False)]
    decimals = units.digits(sum(part.ms for part in limit.parts))
    rows = []
    for part in limit.parts:
        gflop = sum(part.gflop.values())
        row = [units.plain(part.part), units.ms(part.ms, decimals), units.ms(part.least_ms, decimals)]
        row += [units.ms(part.ms - part.least_ms, decimals), part.bound or None]
        row += [units.percent(part.compute_ms / part.ms) if gflop and part.ms > 0 else None]
        row += [units.gflop(gflop) if gflop else None, units.size(part.moved_bytes)]
        row += [_three(roofline.intensity(part)), _three(roofline.rate(part))]
        share = part.ms / total if (total := sum(one.ms for one in limit.parts)) > 0 else None
        rows.append(Row([*row, _dtypes(part)], "other" if part is limit.parts[-1] else "part", share=share))
    return Table(columns, rows).without_empty_columns()


def _dtypes(part: PartLimit) -> str | None:
    total = sum(part.gflop.values())
    said = [name for name, count in sorted(part.gflop.items(), key=lambda one: -one[1]) if count >= 0.01 * total]
    return ", ".join(said) or None


def _three(value: float | None) -> str | None:
    return None if value is None else units.rate(value)


def _left(ms: float, least_ms: float, unit: str = " ×") -> str:
    if least_ms <= 0:
        return units.NONE
    left = ms / least_ms
    return f"{left:.2f}{unit}" if left < 10 else f"{left:,.0f}{unit}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
