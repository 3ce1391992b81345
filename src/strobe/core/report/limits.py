"""Distance to the machine's limit: lower bounds of the roofline as a line, as tables, and as a plot.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.core.report import charts
from strobe.core.report.charts import OTHER, Plot, Trace
from strobe.core.report.document import (
    Column,
    Columns,
    Row,
    Section,
    Table,
    figure,
    figures,
    heads,
    scaled_column,
    table,
    words,
)
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.measurement import Limit, Measurement, PartLimit
from strobe.core.results.subject import Ceiling

WHOLE, PARTS = "limit", "roofline"  # keys of the sections
TITLE = "Distance to this machine's limit"
MEANING = (
    "'At least' adds up the parts. Each takes at least the larger of two times: its matrix products, convolutions and "
    "attention at the measured peak of their dtype, and its bytes at the measured peak of memory. All else counts as "
    "free. '% of peak': the products alone. '× possible': how much faster the same FLOP could run, also in a narrower "
    "dtype if the machine multiplies faster in it."
)
ABOUT_PARTS = (
    "'Moves': the bytes that a call must read and write, with weights and inputs once. A part cannot be faster than "
    "'at least', unless its weights stay in a cache, or a convolution needs less arithmetic than Strobe counts."
)
CAPTION = (
    "Grey lines are this machine's measured peaks: flat if arithmetic is the limit, sloped if memory is. The distance "
    "of a point to its line is the possible speed-up."
)
NEAR = 1.05  # × the least time: nearer than that, no gain is worth a word
SMALL = 0.01  # parts below this share of the whole in every measurement are not drawn
MOST = 9  # parts that are drawn
DASHES = ("solid", "dash", "dashdot", "longdash")

Named = tuple[str, Measurement]  # a rung's or a variant's label, and what was measured of it
Point = tuple[float, float, str]  # FLOP per byte, GFLOP/s, and a part with its times in words


def line(name: str, measurement: Measurement) -> str | None:
    """Return what ``name`` takes and how much faster is possible, in a sentence; None if its limit is not known."""
    possible, median = headroom(measurement), measurement.samples.summary.median
    took = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
    return f"{name} takes {took} ms. {possible}" if possible else None


def headroom(measurement: Measurement) -> str | None:
    """Return in a sentence how much faster is possible on this machine; None if the limit is not known."""
    limit, ms = measurement.limit, measurement.samples.summary.median
    if limit is None or limit.least_ms <= 0:
        return None
    narrower = [f"{_headroom(ms, bound.least_ms)} in {bound.dtype}" for bound in limit.lower]
    if ms < NEAR * limit.least_ms:
        more = f", and up to {', '.join(narrower)} is possible" if narrower else ""
        return f"Roofline: {limit.dtype} is at this machine's limit{more}."
    more = "".join(f", {each}" for each in narrower)
    return f"Roofline: up to {_headroom(ms, limit.least_ms)} faster is possible in {limit.dtype}{more}."


def sections(named: Sequence[Named], shown: str, what: str = "Variant") -> list[Section]:
    """Return the limits of all measurements, where there are several, and of the parts of the one called ``shown``.

    Args:
        what: heading of the measurements' names.
    """
    known = [(label, m) for label, m in named if m.limit is not None]
    shown_sections = []
    if len(known) > 1:
        shown_sections.append(Section(WHOLE, TITLE, _wholes(known, what), [MEANING]))
    for label, m in known:
        if m.name == shown and m.limit is not None:
            about = [ABOUT_PARTS] if len(known) > 1 else [MEANING, ABOUT_PARTS]
            title = f"Parts and their limits, {label}"
            shown_sections.append(Section(PARTS, title, _parts(m.limit), about))
    return shown_sections


def plots(named: Sequence[Named], ceiling: Ceiling) -> Plots:
    """Return the roofline with the parts of all measurements as points, by the key of its section."""
    drawn = _roofline([(label, m.limit) for label, m in named if m.limit is not None], ceiling)
    return {PARTS: [drawn]} if drawn is not None else {}


def cells(measurement: Measurement, decimals: int) -> list[str | None]:
    """Return the least ms and the share of the ceiling, for a table that has a row for each measurement."""
    limit = measurement.limit
    return [units.ms(limit and limit.least_ms, decimals), units.percent(limit and limit.ceiling_share)]


def _wholes(named: Sequence[Named], what: str) -> Table:
    known = [(label, m.samples.summary.median, m.limit) for label, m in named if m.limit is not None]
    narrow = list(dict.fromkeys(bound.dtype for _, _, limit in known for bound in limit.lower))
    decimals = units.digits(max(ms for _, ms, _ in known))
    rows = []
    for label, ms, limit in known:
        row = [label, units.ms(ms, decimals), limit.dtype, units.gflop(sum(map(_gflop, limit.parts)))]
        row += [units.size(sum(part.moved_bytes or 0 for part in limit.parts)), units.percent(limit.ceiling_share)]
        row += [units.ms(limit.least_ms, decimals), _headroom(ms, limit.least_ms, "")]
        lower = {bound.dtype: bound.least_ms for bound in limit.lower}
        rows.append(Row([*row, *(_headroom(ms, lower[dtype], "") if dtype in lower else None for dtype in narrow)]))
    columns = heads(f"<{what} | ms (median) | <Computes in | GFLOP | Moves | % of peak | At least (ms) | × possible")
    return Table([*columns, *(Column(f"× possible in {dtype}") for dtype in narrow)], rows)


_PARTS: Columns[PartLimit] = [
    words("Part", lambda part: part.part),
    scaled_column("ms (median)", lambda part: part.ms),
    scaled_column("At least (ms)", lambda part: part.least_ms),
    scaled_column("Above it (ms)", lambda part: part.ms - part.least_ms),
    words("Bound by", lambda part: part.bound or None),
    figure(
        "% of peak", lambda part: part.compute_ms / part.ms if _gflop(part) and part.ms > 0 else None, units.percent
    ),
    figure("GFLOP", lambda part: _gflop(part) or None, units.gflop),
    figure("Moves", lambda part: part.moved_bytes, units.size),
    *figures(units.rate, ("FLOP/byte", lambda part: _intensity(part)), ("GFLOP/s", lambda part: _rate(part))),
    words("Computes in", lambda part: _dtypes(part)),
]


def _parts(limit: Limit) -> Table:
    total = sum(part.ms for part in limit.parts)
    return table(
        limit.parts,
        _PARTS,
        units.digits(total),
        kind=lambda part: "other" if part is limit.parts[-1] else "part",
        share=lambda part: part.ms / total if total > 0 else None,
    ).drop_empty_columns()


def _gflop(part: PartLimit) -> float:
    return sum(part.gflop.values())


def _dtypes(part: PartLimit) -> str | None:
    total = _gflop(part)
    ordered = sorted(part.gflop.items(), key=lambda pair: -pair[1])
    return ", ".join(name for name, count in ordered if count >= 0.01 * total) or None


def _headroom(ms: float, least_ms: float, unit: str = " ×") -> str:
    if least_ms <= 0:
        return units.NONE
    factor = ms / least_ms
    return f"{factor:.2f}{unit}" if factor < 10 else f"{factor:,.0f}{unit}"


def _intensity(part: PartLimit) -> float | None:
    """Return the FLOP for each byte that must be moved; None without one or the other."""
    gflop = _gflop(part)
    return gflop * 1e9 / part.moved_bytes if gflop > 0 and part.moved_bytes else None


def _rate(part: PartLimit) -> float | None:
    """Return the GFLOP/s that the part reaches; None without FLOP."""
    gflop = _gflop(part)
    return gflop / part.ms * 1e3 if gflop > 0 and part.ms > 0 else None


def _roofline(named: Sequence[tuple[str, Limit]], ceiling: Ceiling) -> Plot | None:
    """Draw parts as points, from one measurement to the next as arrows; None if there is nothing to draw.

    Args:
        named: measurements by their labels, in the order of the arrows.
    """
    drawn = _points(named)
    if not drawn:
        return None
    traces = [trace for i, (name, steps) in enumerate(drawn.items()) for trace in _path(name, charts.colour(i), steps)]
    x = [at for steps in drawn.values() for at, _, _ in steps]
    y = [reached for steps in drawn.values() for _, reached, _ in steps]
    lowest, highest = min(x) / 3, max(x) * 3
    roofs = _roofs(ceiling, lowest, highest)
    top = max([max(y), *(max(roof["y"]) for roof in roofs)])
    layout = charts.layout(
        460,
        charts.axis("FLOP per byte that must be moved", type="log", range=charts.log_range(lowest, highest)),
        charts.axis("GFLOP/s", type="log", range=charts.log_range(min(y) / 2, top * 1.6)),
        showlegend=True,
        hovermode="closest",
    )
    arrows = f" Arrows go from {named[0][0]} to {named[-1][0]}, measurement by measurement." if len(named) > 1 else ""
    return Plot("Roofline", CAPTION + arrows, [*roofs, *traces], layout)


def _points(named: Sequence[tuple[str, Limit]]) -> dict[str, list[Point]]:
    points: dict[str, list[Point]] = {}
    shares: dict[str, float] = {}
    for label, limit in named:
        whole = sum(part.ms for part in limit.parts)
        for part in limit.parts:
            per_byte, reached = _intensity(part), _rate(part)
            if per_byte is None or reached is None or not (_is_drawable(per_byte) and _is_drawable(reached)):
                continue
            shares[part.part] = max(shares.get(part.part, 0.0), part.ms / whole if whole > 0 else 0.0)
            words = f"{part.part}, {label}: {units.ms(part.ms)} ms, at least {units.ms(part.least_ms)}"
            words += f", bound by {part.bound}" if part.bound else ""
            points.setdefault(part.part, []).append((per_byte, reached, words))
    shown = sorted((name for name, share in shares.items() if share >= SMALL), key=lambda name: -shares[name])[:MOST]
    return {name: points[name] for name in shown}


def _is_drawable(value: float) -> bool:
    return 1e-12 < value < 1e15  # what was measured is, and has a logarithm


def _path(name: str, colour: str, steps: Sequence[Point]) -> list[Trace]:
    def draw(shown: Sequence[Point], **more: Any) -> Trace:
        x, y, words = ([step[i] for step in shown] for i in range(3))
        hover = "%{customdata}<br>%{x:.3~g} FLOP/byte, %{y:,.3~g} GFLOP/s<extra></extra>"
        return charts.points(name, x, y, colour, hover, size=10, customdata=words, legendgroup=name, **more)

    begin = draw(steps[:1])
    if len(steps) == 1:
        return [begin]
    # The head of each arrow is where it ends. A first point has no direction, and Plotly draws none.
    arrows = {"color": colour, "symbol": "arrow", "size": 13, "angleref": "previous", "opacity": 1}
    line = {"color": colour, "width": 1.5}
    return [begin, draw(steps, mode="lines+markers", marker=arrows, line=line, showlegend=False)]


def _roofs(ceiling: Ceiling, lowest: float, highest: float) -> list[Trace]:
    roofs = []
    for index, (dtype, gflops) in enumerate(ceiling.gflops.items()):
        if _is_drawable(gflops):
            label = f"{dtype}: {units.rate(gflops)} GFLOP/s"
            roofs.append(_roof(label, gflops, ceiling.memory_gbps, lowest, highest, DASHES[index % len(DASHES)]))
    if roofs and ceiling.vector_gflops and _is_drawable(ceiling.vector_gflops):
        label = f"elementwise float32: {units.rate(ceiling.vector_gflops)} GFLOP/s"
        roofs.append(_roof(label, ceiling.vector_gflops, ceiling.memory_gbps, lowest, highest, "dot"))
    return roofs


def _roof(label: str, gflops: float, gbps: float | None, lowest: float, highest: float, dash: str) -> Trace:
    gbps = gbps if gbps and _is_drawable(gbps) else None
    ridge = gflops / gbps if gbps else lowest
    x = sorted({lowest, min(max(ridge, lowest), highest), highest})
    y = [min(gflops, at * gbps) if gbps else gflops for at in x]
    return charts.line(label, x, y, OTHER, "%{fullData.name}<extra></extra>", style={"width": 1.5, "dash": dash})
