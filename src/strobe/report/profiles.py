"""Tables of one more iteration under profilers."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.report import units
from strobe.report.document import Column, Row, Section, Table
from strobe.results.profiles import Gaps, LongGap, OperatorProfile, OperatorTime, PythonProfile

TOOLS = {"cprofile": "cProfile", "pyinstrument": "pyinstrument", "line": "line_profiler"}
LONGEST = 48  # characters of a cell, so that the table fits a terminal


def sections(operators: OperatorProfile | None, python: PythonProfile | None) -> list[Section]:
    """Return the sections of the requested profilers."""
    shown = [] if operators is None else _operators(operators)
    return shown if python is None else [*shown, _python(python)]


def _operators(seen: OperatorProfile) -> list[Section]:
    name, took = seen.measurement, units.ms(seen.iteration_ms, units.digits(seen.iteration_ms))
    under = f"One iteration of {name} under torch.profiler, which slows it: {took} ms."
    about = [f"{under} {_count(seen.operator_calls, 'operator', seen.operator_median_us)}."]
    decimals = units.digits(seen.iteration_ms)
    shown = [Section("operators", "Operators", _times("Operator", seen.operators, decimals), about)]
    if seen.kernels:
        about = [f"{_count(seen.kernel_calls, 'kernel or copy', seen.kernel_median_us, 'kernels and copies')}."]
        shown.append(Section("kernels", "Kernels", _times("Kernel", seen.kernels, decimals), about))
    if seen.device is not None:
        shown.append(Section("device-gaps", "Gaps on the device", _gaps(seen.device)))
    if seen.host is not None:
        shown.append(Section("host-gaps", "Gaps between operators", _gaps(seen.host)))
    return shown


def _count(calls: int, noun: str, median_us: float | None, plural: str | None = None) -> str:
    counted = f"{calls:,} {plural}" if plural and calls != 1 else units.count(calls, noun)
    return counted if median_us is None else f"{counted}, the median takes {units.number(median_us, 3)} µs"


def _times(title: str, times: Sequence[OperatorTime], decimals: int) -> Table:
    columns = [Column(title, numeric=False), Column("Calls"), Column("Own ms"), Column("Total ms")]
    columns += [Column("% of iteration"), Column("Shapes", numeric=False)]
    rows = []
    for operator in times:
        cells = [
            _cut(operator.name),
            f"{operator.calls:,}",
            units.ms(operator.own_ms, decimals),
            units.ms(operator.total_ms, decimals),
        ]
        rows.append(Row([*cells, units.percent(operator.share), _cut(operator.shapes) or None]))
    return Table(columns, rows).without_empty_columns()


def _gaps(gaps: Gaps) -> Table:
    decimals = units.digits(gaps.span_ms)

    def row(name: str, ms: float, many: int | None, kind: str = "part", depth: int = 0) -> Row:
        share = units.percent(ms / gaps.span_ms) if gaps.span_ms > 0 else None
        cells = [name, units.ms(ms, decimals), share, None if many is None else f"{many:,}"]
        return Row(cells, kind, depth)  # type: ignore[arg-type]

    over = f"in gaps over {gaps.threshold_us:g} µs"
    rows = [row("iteration", gaps.span_ms, None, "whole"), row("busy", gaps.busy_ms, None)]
    rows += [row("idle", gaps.idle_ms, None), row(over, gaps.gaps_ms, gaps.gaps, depth=1)]
    rows += [row(cause.cause, cause.ms, cause.gaps, depth=2) for cause in gaps.causes]
    for gap in gaps.longest:
        rows.append(row(f"over 1 ms: {_between(gap)}", gap.ms, 1, depth=2))
    return Table([Column("Time", numeric=False), Column("ms"), Column("% of iteration"), Column("Gaps")], rows)


def _between(gap: LongGap) -> str:
    after, before = (_cut(name) for name in (gap.after, gap.before))
    return ", ".join(word for word in (f"after {after}" if after else "", f"before {before}" if before else "") if word)


def _python(seen: PythonProfile) -> Section:
    decimals = units.digits(seen.iteration_ms)
    took = units.ms(seen.iteration_ms, decimals)
    times = "once" if seen.iterations == 1 else f"{seen.iterations:,} times"
    about = f"{seen.measurement}, run {times} under {TOOLS[seen.tool]}, which slows it: {took} ms each."
    if not seen.functions:
        return Section("python", "Python functions", text=[about, "None of the functions watched ran."])
    columns = [Column("Function", numeric=False), Column("Calls"), Column("Own ms"), Column("Cumulative ms")]
    columns += [Column("Where", numeric=False), Column("Line", numeric=False)]
    rows = []
    for function in seen.functions:
        cells = [_cut(function.name), units.calls(function.calls), units.ms(function.own_ms, decimals)]
        cells += [
            units.ms(function.cumulative_ms, decimals),
            _cut(function.where, start=True),
            _cut(function.source) or None,
        ]
        rows.append(Row(cells))
    return Section("python", "Python functions", Table(columns, rows).without_empty_columns(), [about])


def _cut(text: str, *, start: bool = False) -> str:
    """Return ``text`` without its end, or its start, if it is long."""
    text = text
    if len(text) <= LONGEST:
        return text
    return f"…{text[1 - LONGEST :]}" if start else f"{text[: LONGEST - 1]}…"
