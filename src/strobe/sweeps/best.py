"""The best cell under a constraint: ``throughput where memory_gib<8 and batch_size>=16``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strobe.errors import UserError, nearest
from strobe.measure.verdicts import unpaired_verdict
from strobe.results.numerals import significant
from strobe.results.sweep import Best, Cell, Row, label
from strobe.sweeps.grid import number_of

Value = Callable[[Row], float | None]

# name → (what it is, its unit, whether more is better, its value)
METRICS: dict[str, tuple[str, str, bool, Value]] = {
    "time_ms": ("time", "ms", False, lambda row: row.ms.median),
    "p95_ms": ("p95", "ms", False, lambda row: row.ms.p95),
    "throughput": ("throughput", "samples/s", True, lambda row: row.throughput),
    "ms_per_sample": ("time per sample", "ms", False, lambda row: row.ms.median / row.batch),
    "memory_gib": ("peak memory", "GiB", False, lambda row: _gib(row.memory_bytes)),
    "activations_gib": ("live tensor memory", "GiB", False, lambda row: _gib(row.activation_bytes)),
    "cosine": ("agreement", "", True, lambda row: row.agreement.cosine if row.agreement else None),
}
TESTS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Wish:
    """A parsed wish: the metric to look for, and the conditions on cells."""

    asked: str
    metric: str
    conditions: tuple[tuple[str, str, str], ...]  # name, test, value


def parse(text: str, axes: Sequence[str]) -> Wish:
    """Read ``METRIC [where NAME TEST VALUE [and …]]``; a name is a metric, an axis, or 'measurement'.

    Raises:
        UserError: it cannot be read, or names what is not there, with the nearest that is.
    """
    whole = re.fullmatch(r"\s*(\S+)(?:\s+where\s+(.*))?\s*", text)
    if whole is None:
        raise UserError(
            f"--best '{text}' cannot be read: write METRIC where NAME<VALUE, e.g. throughput where memory_gib<8"
        )
    metric, rest = whole.groups()
    if metric not in METRICS:
        raise UserError(f"--best '{text}': no metric '{metric}': {nearest(metric, METRICS)}")
    conditions = []
    for part in re.split(r"\s+and\s+", rest) if rest is not None else []:
        match = re.fullmatch(r"\s*([\w.]+)\s*(<=|>=|==|=|<|>)\s*(.+?)\s*", part)
        if match is None:
            raise UserError(f"--best '{text}': cannot read '{part}': write for example memory_gib<8")
        name, test, value = match.groups()
        known = [*METRICS, *axes, "measurement"]
        if name not in known:
            raise UserError(f"--best '{text}': nothing is called '{name}': {nearest(name, known)}")
        if (name in METRICS or test not in ("=", "==")) and number_of(value) is None:
            raise UserError(f"--best '{text}': {name} {test} '{value}': a number is needed there")
        conditions.append((name, test, value))
    return Wish(text, metric, tuple(conditions))


def best(
    wish: Wish,
    cells: Sequence[Cell],
    samples: Mapping[tuple[str, str], Sequence[float]],
    on: str = "",
) -> Best:
    """The best of ``cells`` (all of one machine), with those that are not shown to be worse.

    Args:
        samples: (cell key, measurement) → milliseconds, raw, from which ties in time and throughput are judged.
        on: the machine, where there are several.
    """
    what, unit, more, value_of = METRICS[wish.metric]
    fits = [
        (value, cell, row)
        for cell in cells
        for row in cell.rows
        if cell.status == "done"
        and (value := value_of(row)) is not None
        and all(_holds(condition, cell, row) for condition in wish.conditions)
    ]
    prefix = f"On {on}: " if on else ""
    if not fits:
        return Best(asked=wish.asked, key=None, sentence=f"{prefix}no cell fulfils '{wish.asked}'.")
    value, cell, row = (max if more else min)(fits, key=lambda one: one[0])
    ties = [
        other.settings
        for _, other, other_row in fits
        if other is not cell and _ties(wish.metric, (cell, row), (other, other_row), samples)
    ]
    shown = f"{significant(value, 4)} {unit}".strip()
    # Settings that the conditions fix are not repeated.
    fixed = {name for name, test, _ in wish.conditions if test in ("=", "==")}
    several = len({row.measurement for _, _, row in fits}) > 1
    which = _open(cell.settings, fixed) + (f" ({row.measurement})" if several else "")
    sentence = f"{prefix}best {what}{_where(wish)}: {which}, {shown}."
    if ties:
        some = "; ".join(_open(one, fixed) for one in ties[:3])
        sentence += f" Not shown to be worse: {some}{' and others' if len(ties) > 3 else ''}."
    return Best(
        asked=wish.asked,
        key=cell.key,
        settings=cell.settings,
        measurement=row.measurement,
        ties=ties,
        sentence=sentence,
    )


def _ties(
    metric: str,
    one: tuple[Cell, Row],
    other: tuple[Cell, Row],
    samples: Mapping[tuple[str, str], Sequence[float]],
) -> bool:
    """Whether ``other`` is not shown to be worse in time; figures of memory have no noise, so any difference counts."""
    if metric not in ("time_ms", "p95_ms", "throughput", "ms_per_sample"):
        return METRICS[metric][3](one[1]) == METRICS[metric][3](other[1])
    per_sample = metric in ("throughput", "ms_per_sample")
    scaled = []
    for cell, row in (one, other):
        values = samples.get((cell.key, row.measurement), ())
        scaled.append([value / (row.batch if per_sample else 1) for value in values])
    return bool(scaled[0] and scaled[1]) and unpaired_verdict(scaled[0], scaled[1]).kind != "slower"


def _holds(condition: tuple[str, str, str], cell: Cell, row: Row) -> bool:
    name, test, wanted = condition
    if name in METRICS:
        have = METRICS[name][3](row)
    else:
        text = row.measurement if name == "measurement" else cell.settings.get(name)
        if text is None:
            return False
        if test in ("=", "==") and text == wanted:
            return True
        have = number_of(text)
    limit = number_of(wanted)
    return have is not None and limit is not None and TESTS[test](have, limit)


def _where(wish: Wish) -> str:
    conditions = " and ".join(f"{name} {test} {value}" for name, test, value in wish.conditions)
    return f" where {conditions}" if conditions else ""


def _open(settings: Mapping[str, str], fixed: set[str]) -> str:
    """Return the settings that the conditions left open."""
    return label({name: value for name, value in settings.items() if name not in fixed} or settings)


def _gib(value: int | None) -> float | None:
    return None if value is None else value / 2**30
