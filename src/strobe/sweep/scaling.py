"""How time and memory grow along an axis: an exponent, or a price per unit, with its interval.

For a figure y and a numeric axis x, cells that differ in nothing but x form a group. Over all groups at once,
``log y = a_group + exponent · log x`` is fitted by least squares (statsmodels). Where there is one group, so is the
line ``y = fixed + slope · x``, with weights 1 / y², for times are off by a share of themselves. Intervals are the fits'
own 95 % t-intervals: they hold what repeats and the shape leave unexplained. Cells of unlike machines are never in one
group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from strobe.core.results import numerals
from strobe.core.results.data import Interval
from strobe.sweep.results import Axis, AxisEffect, Cell, Row, Scaling

UNKNOWN = 1.0  # width of an exponent's interval from which it says nothing: proportional, or not at all
NEAR_ZERO = 0.1  # exponent that counts as none if the work is the same and there is no interval
CURVED = 0.10  # relative residual above which a shape does not describe the points
Figure = Literal["time", "memory", "activations"]


def scalings(axes: Sequence[Axis], cells: Sequence[Cell]) -> list[Scaling]:
    """A fit for every numeric axis, measurement and figure that has two values of the axis to compare."""
    fits = []
    for axis in axes:
        if axis.numbers is None or min(axis.numbers) <= 0:
            continue
        for measurement in dict.fromkeys(row.measurement for cell in cells for row in cell.rows):
            for figure in ("time", "memory", "activations"):
                fitted = _fit(axis, measurement, figure, cells)
                if fitted is not None:
                    fits.append(fitted)
    return fits


def _values(row: Row, figure: Figure) -> list[float]:
    if figure == "time":
        return row.repeats
    held = row.memory_bytes if figure == "memory" else row.activation_bytes
    return [] if not held else [float(held)]


def _points(axis: Axis, measurement: str, figure: Figure, cells: Sequence[Cell]) -> list[tuple[str, float, float]]:
    """(group, x, y) of every cell that has such a figure, in groups that have at least two values of x."""
    place = dict(zip(axis.values, axis.numbers or [], strict=True))
    points = []
    for cell in cells:
        if axis.name not in cell.settings:
            continue
        others = {name: value for name, value in cell.settings.items() if name != axis.name}
        group = repr((cell.machine, sorted(others.items())))
        for row in cell.rows:
            if row.measurement == measurement:
                points += [(group, place[cell.settings[axis.name]], y) for y in _values(row, figure)]
    spread: dict[str, set[float]] = {}
    for group, x, _ in points:
        spread.setdefault(group, set()).add(x)
    return [point for point in points if len(spread[point[0]]) > 1]


def _fit(axis: Axis, measurement: str, figure: Figure, cells: Sequence[Cell]) -> Scaling | None:
    import statsmodels.api as sm  # slow to import

    points = _points(axis, measurement, figure, cells)
    if not points:
        return None
    groups = list(dict.fromkeys(group for group, _, _ in points))
    x = np.array([x for _, x, _ in points])
    y = np.array([y for _, _, y in points])
    member = np.array([[group == other for other in groups] for group, _, _ in points], dtype=float)
    power = sm.OLS(np.log(y), np.column_stack([np.log(x), member])).fit()
    off_power = float(np.abs(np.expm1(power.resid)).max())
    slope = slope_interval = fixed = None
    off_line = np.inf
    if len(groups) == 1:
        ones = np.column_stack([x, np.ones_like(x)])
        line = sm.OLS(np.ones_like(y), ones / y[:, None]).fit()
        # Weighed by what was measured, low points draw the line down; weighed by that line they do not.
        drawn = ones @ np.asarray(line.params)
        by = np.where(drawn > 0, drawn, y)
        line = sm.OLS(y / by, ones / by[:, None]).fit()
        slope, fixed = float(line.params[0]), float(line.params[1])
        slope_interval = _interval(line)
        off_line = float(np.abs(1 - ones @ np.asarray(line.params) / y).max())
    exponent, interval = float(power.params[0]), _interval(power)
    distinct = len(set(x.tolist()))
    straight = slope is not None and fixed is not None and off_line < off_power and distinct > 2
    named: dict[Figure, str] = {"time": "time", "memory": "peak memory", "activations": "live tensor memory"}
    what = f"{measurement} {named[figure]}"
    curved = distinct > 2 and min(off_power, off_line) > CURVED
    effect = _effect(axis, measurement, cells, exponent, interval)
    if effect == "ignored":
        sentence = f"{axis.name} has no effect on {what}"
    elif effect == "none":
        ends = f" [{numerals.format_fixed(interval.low)}, {numerals.format_fixed(interval.high)}]" if interval else ""
        power = numerals.format_fixed(exponent)
        sentence = f"{axis.name} has no measured effect on {what}. Scaling exponent {power}{ends}"
    elif effect == "inconclusive":
        sentence = f"scaling exponent of {what} over {axis.name}: inconclusive"
    else:
        if straight:
            sentence = _line(what, figure, axis, slope or 0.0, slope_interval, fixed or 0.0)
        else:
            sentence = _power(what, axis, exponent, interval)
        if distinct == 2:
            sentence += ". It rests on two values, so its shape is not tested"
    if curved and effect in ("shown", "inconclusive"):
        sentence += f". Neither a power law nor a straight line fits within {CURVED * 100:.0f} %: look at the plot"
    return Scaling(
        measurement=measurement,
        figure=figure,
        axis=axis.name,
        unit=axis.unit,
        exponent=exponent,
        interval=interval,
        slope=slope,
        slope_interval=slope_interval,
        fixed=fixed,
        points=len(points),
        groups=len(groups),
        curved=curved,
        effect=effect,
        sentence=f"{sentence}.",
    )


def _effect(
    axis: Axis, measurement: str, cells: Sequence[Cell], exponent: float, interval: Interval | None
) -> AxisEffect:
    """Return whether the axis is shown to change the figure.

    A phase ignores the batch size if its calls have one number of samples at every value. Without an interval, an
    exponent near 0 shows nothing if the FLOP are the same at every value.
    """
    rows = [row for cell in cells if axis.name in cell.settings for row in cell.rows if row.measurement == measurement]
    if axis.name == "batch_size" and len({row.batch for row in rows}) == 1:
        return "ignored"
    if interval is not None:
        if interval.high - interval.low > UNKNOWN:
            return "inconclusive"
        return "none" if interval.low <= 0 <= interval.high or abs(exponent) < 1e-6 else "shown"
    gflop = {None if row.gflop is None else round(row.gflop, 6) for row in rows}
    return "none" if abs(exponent) < NEAR_ZERO and len(gflop) == 1 and None not in gflop else "shown"


def _interval(fit: Any) -> Interval | None:
    """The first coefficient's 95 % interval; None if as many coefficients as points leave nothing to judge by."""
    if fit.df_resid < 1:
        return None
    low, high = (float(end) for end in np.asarray(fit.conf_int(alpha=0.05))[0])
    return Interval(low=low, high=high, level=0.95) if np.isfinite([low, high]).all() else None


def _power(what: str, axis: Axis, exponent: float, interval: Interval | None) -> str:
    shown = f" [{numerals.format_fixed(interval.low)}, {numerals.format_fixed(interval.high)}]" if interval else ""
    verb, power = "grows" if exponent >= 0 else "falls", numerals.format_fixed(exponent)
    doubled = f"{numerals.significant(2**exponent, 2)} × for twice the {axis.unit}"
    return f"{what} {verb} with {axis.name}: {doubled}. Scaling exponent {power}{shown}"


def _line(what: str, figure: Figure, axis: Axis, slope: float, interval: Interval | None, fixed: float) -> str:
    show: Callable[[float], str] = _ms if figure == "time" else _gib
    shown = f" [{show(interval.low)}, {show(interval.high)}]" if interval else ""
    unit = axis.unit.removesuffix("s") if axis.unit.endswith("s") else axis.unit
    ends = f". Slope {show(slope)}{shown}" if shown else ""
    return f"{what} is {show(fixed)} plus {show(slope)} per {unit}{ends}"


def _ms(value: float) -> str:
    return f"{numerals.significant(value, 4)} ms"


def _gib(value: float) -> str:
    return (
        f"{numerals.significant(value / 2**30)} GiB"
        if abs(value) >= 2**30 / 10
        else f"{numerals.significant(value / 2**20)} MiB"
    )
