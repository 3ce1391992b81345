"""The best cell under a constraint: ``throughput where memory_gib<8 and batch_size>=16``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strobe.core.errors import UserError, nearest
from strobe.core.measure.verdicts import Runs, fewest, slower
from strobe.core.results.data import Interval
from strobe.core.results.numerals import significant
from strobe.sweep.grid import axis_number
from strobe.sweep.results import Best, Cell, Row, label


@dataclass(frozen=True)
class Metric:
    """A figure of a row that cells are ranked by.

    Args:
        what: its name in a sentence.
        more: whether more of it is better.
        quantile: of the times that it rests on; None for figures of another kind.
    """

    what: str
    unit: str
    of: Callable[[Row], float | None]
    more: bool = False
    quantile: float | None = None


METRICS: dict[str, Metric] = {
    "time_ms": Metric("time", "ms", lambda row: row.ms.median, quantile=0.5),
    "p95_ms": Metric("p95", "ms", lambda row: row.ms.p95, quantile=0.95),
    "throughput": Metric("throughput", "samples/s", lambda row: row.throughput, more=True, quantile=0.5),
    "ms_per_sample": Metric("time per sample", "ms", lambda row: row.ms.median / row.batch, quantile=0.5),
    "memory_gib": Metric("peak memory", "GiB", lambda row: _gib(row.memory_bytes)),
    "activations_gib": Metric("live tensor memory", "GiB", lambda row: _gib(row.activation_bytes)),
    "cosine": Metric("agreement", "", lambda row: row.agreement.cosine if row.agreement else None, more=True),
}
NAMED = 3  # cells that a sentence names
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
        if (name in METRICS or test not in ("=", "==")) and axis_number(value) is None:
            raise UserError(f"--best '{text}': {name} {test} '{value}': a number is needed there")
        conditions.append((name, test, value))
    return Wish(text, metric, tuple(conditions))


def best(
    wish: Wish,
    cells: Sequence[Cell],
    samples: Mapping[tuple[str, str], Runs],
    on: str = "",
) -> Best:
    """The best of ``cells`` (all of one machine), with those that are not shown to be worse.

    Times are judged by the figure that was wished for, all pairs of cells together at 95 % (`verdicts.slower`). One run
    of each cell does not show what runs differ by, and is not judged. Figures of memory and of agreement are taken as
    they are: any difference counts.

    Args:
        samples: (cell key, measurement) → milliseconds of each repeat, raw.
        on: the machine, where there are several.
    """
    metric = METRICS[wish.metric]
    fits = [
        (value, cell, row)
        for cell in cells
        for row in cell.rows
        if cell.status == "done"
        and (value := metric.of(row)) is not None
        and all(_holds(condition, cell, row) for condition in wish.conditions)
    ]
    prefix = f"On {on}: " if on else ""
    if not fits:
        return Best(asked=wish.asked, key=None, sentence=f"{prefix}no configuration meets '{wish.asked}'.")
    value, cell, row = (max if metric.more else min)(fits, key=lambda fit: fit[0])
    winner = Best(asked=wish.asked, key=cell.key, settings=cell.settings, measurement=row.measurement, sentence="")
    # Settings that the conditions fix are not repeated.
    fixed = {name for name, test, _ in wish.conditions if test in ("=", "==")}
    several = len({row.measurement for _, _, row in fits}) > 1
    which = _open(cell.settings, fixed) + (f" ({row.measurement})" if several else "")
    figure = f"{significant(value, 4)} {metric.unit}".strip()
    winner.sentence = f"{prefix}best {metric.what}: `{which}`."
    winner.sentence = winner.sentence[:1].upper() + winner.sentence[1:]
    conditions = ", ".join(f"{name} {test} {value}" for name, test, value in wish.conditions)
    winner.details = [f"It reaches {figure}{f', with {conditions}' if conditions else ''}."]
    others = [(figure, other, other_row) for figure, other, other_row in fits if other is not cell]
    if metric.quantile is None:
        winner.ties = [other.settings for figure, other, _ in others if figure == value]
        if winner.ties:
            winner.details.append(f"As good: {_list([_open(fit, fixed) for fit in winner.ties])}.")
    elif others:
        runs = [
            _runs(samples, wish.metric, other, other_row)
            for other, other_row in [(cell, row), *((other, other_row) for _, other, other_row in others)]
        ]
        judged = slower(runs[0], runs[1:], metric.quantile) if all(runs) else [None] * len(others)
        _judge(winner, [other for _, other, _ in others], judged, runs, metric.quantile, fixed)
    return winner


def _runs(samples: Mapping[tuple[str, str], Runs], metric: str, cell: Cell, row: Row) -> Runs:
    parts = row.batch if metric in ("throughput", "ms_per_sample") else 1
    return [[ms / parts for ms in run] for run in samples.get((cell.key, row.measurement), ()) if run]


def _judge(
    winner: Best,
    others: Sequence[Cell],
    judged: Sequence[Interval | None],
    runs: Sequence[Runs],
    share: float,
    fixed: set[str],
) -> None:
    """Add to ``winner`` the cells that are not shown to be slower, with their most, and those that are not judged."""
    held = [
        (candidate, interval)
        for candidate, interval in zip(others, judged, strict=True)
        if interval and interval.low <= 1
    ]
    winner.ties = [candidate.settings for candidate, _ in held]
    winner.unjudged = [
        candidate.settings for candidate, interval in zip(others, judged, strict=True) if interval is None
    ]
    if held:
        named = [
            f"{_open(candidate.settings, fixed)} (up to {100 * (ends.high - 1):.2g} % slower)"
            for candidate, ends in held
        ]
        winner.details.append(f"Statistically tied: {_list(named)}.")
    if len(winner.unjudged) < len(others):
        rest = "" if held else "All others are slower. " if not winner.unjudged else "The rest is slower. "
        winner.details.append(f"{rest}Level: 95 % for all pairs of configurations together, from the repeats.")
    if winner.unjudged:
        named = _list([_open(candidate, fixed) for candidate in winner.unjudged])
        if max(map(len, runs)) < 2:
            needs = "one run of a configuration does not show how much runs differ; give --repeats=3"
        else:
            what = "median" if share == 0.5 else f"p{100 * share:g}"
            have = min((len(run) for each in runs for run in each), default=0)
            needs = f"a {what} needs {fewest(share)} samples of each run, has {have}; give more --iterations"
        winner.details.append(f"Inconclusive vs {named}: {needs}.")


def _list(named: Sequence[str]) -> str:
    return "; ".join(named[:NAMED]) + (" and others" if len(named) > NAMED else "")


def _holds(condition: tuple[str, str, str], cell: Cell, row: Row) -> bool:
    name, test, wanted = condition
    if name in METRICS:
        have = METRICS[name].of(row)
    else:
        text = row.measurement if name == "measurement" else cell.settings.get(name)
        if text is None:
            return False
        if test in ("=", "==") and text == wanted:
            return True
        have = axis_number(text)
    limit = axis_number(wanted)
    return have is not None and limit is not None and TESTS[test](have, limit)


def _open(settings: Mapping[str, str], fixed: set[str]) -> str:
    return label({name: value for name, value in settings.items() if name not in fixed} or settings)


def _gib(value: int | None) -> float | None:
    return None if value is None else value / 2**30
