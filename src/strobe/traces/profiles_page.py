"""Tables of one more iteration under profilers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strobe.core.report.document import Column, Columns, Row, Section, Table, figure, heads, scaled_column, table, words
from strobe.core.results import units
from strobe.core.results.answer import BreakdownResult, CompareResult
from strobe.traces.results import (
    Gaps,
    GraphPart,
    GraphTime,
    KernelClass,
    LongGap,
    OperatorProfile,
    OperatorTime,
    PythonProfile,
    TracePart,
    short_kernel,
)

TOOLS = {"cprofile": "cProfile", "pyinstrument": "pyinstrument", "line": "line_profiler"}
LONGEST = 48  # characters of a cell, so that the table fits a terminal
IN_A_GAP = 30  # characters of a name next to a gap, of which there are three


def sections(result: BreakdownResult | CompareResult) -> list[Section]:
    """Return the sections of the requested profilers."""
    shown = _operators(result.operators) if isinstance(result.operators, OperatorProfile) else []
    return [*shown, *python_sections(result.python)]


def python_sections(python: object) -> list[Section]:
    """Return the section of a profiler of Python; [] without one."""
    return [_python(python)] if isinstance(python, PythonProfile) else []


def _operators(seen: OperatorProfile) -> list[Section]:
    name, took = seen.measurement, units.ms(seen.iteration_ms, units.digits(seen.iteration_ms))
    first, *shown = tables(seen, f"One iteration of {name} under torch.profiler, which slows it: {took} ms.")
    shown = [replace(first, asked=True), *shown]
    if any(part.work for part in seen.parts):
        about = "Work on the device belongs to the part that launched it."
        shown.append(Section("device-parts", "Parts on the device", parts(seen.parts), [about]))
    shown += graphs(seen.graphs)
    if seen.device is not None:
        shown.append(Section("device-gaps", "Gaps on the device", gaps(seen.device, "iteration")))
    if seen.host is not None:
        shown.append(Section("host-gaps", "Gaps between operators", gaps(seen.host, "iteration")))
    return shown


def tables(seen: OperatorProfile, about: str, of: str = "iteration", key: str = "") -> list[Section]:
    """Return the tables of operators and of kernels; ``about`` says what was watched, shares are ``of`` a whole."""
    decimals = units.digits(seen.iteration_ms)
    lines = [f"{about} {_count(seen.operator_calls, 'operator', seen.operator_median_us)}."]
    lines += [f"Not judged: {seen.device_not_judged}."] if seen.device_not_judged else []
    shown = [Section(f"operators{key}", "Operators", _times("Operator", seen.operators, decimals, of), lines)]
    if seen.kernels:
        lines = [f"{_count(seen.kernel_calls, 'kernel or copy', seen.kernel_median_us, 'kernels and copies')}."]
        shown.append(Section(f"kernels{key}", "Kernels", _times("Kernel", seen.kernels, decimals, of), lines))
        if seen.kernel_classes:
            shown.append(Section(f"classes{key}", "Kinds of kernels", table(seen.kernel_classes, _CLASSES, decimals)))
    return shown


def _count(calls: int, noun: str, median_us: float | None, plural: str | None = None) -> str:
    counted = f"{calls:,} {plural}" if plural and calls != 1 else units.count(calls, noun)
    return counted if median_us is None else f"{counted}, the median takes {units.number(median_us, 3)} µs"


def _times(title: str, times: Sequence[OperatorTime], decimals: int, of: str) -> Table:
    columns: Columns[OperatorTime] = [
        words(title, lambda operator: _cut(short_kernel(operator.name))),
        figure("Calls", lambda operator: operator.calls),
        scaled_column("Own ms", lambda operator: operator.own_ms),
        scaled_column("Total ms", lambda operator: operator.total_ms),
        figure(f"% of {of}", lambda operator: operator.share, units.percent),
        words("Shapes", lambda operator: _cut(operator.shapes) or None),
    ]
    return table(times, columns, decimals).drop_empty_columns()


_CLASSES: Columns[KernelClass] = [
    words("Kind", lambda each: each.name),
    figure("Calls", lambda each: each.calls),
    scaled_column("ms", lambda each: each.ms),
    figure("Median µs", lambda each: each.median_us, units.places(1)),
]
_PARTS: Columns[TracePart] = [
    words("Part", lambda part: part.path[-1] if part.path else ""),
    figure("Calls", lambda part: part.calls),
    scaled_column("Host ms", lambda part: part.host_ms),
    scaled_column("Device ms", lambda part: part.device_ms if part.work and not part.lost else None),
    scaled_column("Busy ms", lambda part: part.busy_ms if part.work and not part.lost else None),
    figure("Kernels, copies", lambda part: part.work or None),
    figure("Per call", lambda part: part.work / part.calls if part.work and part.calls else None, units.calls),
    figure("Median µs", lambda part: part.median_us, units.places(1)),
    figure("Launches that lack kernels", lambda part: part.lost or None),
]


def graphs(seen: Sequence[GraphTime], key: str = "", of: str = "", *, detail: bool = False) -> list[Section]:
    """Return the section of replayed graphs, each with its parts; [] without a graph."""
    rows: list[tuple[int, GraphTime | GraphPart]] = []
    for graph in seen:
        rows += [(0, graph), *((len(part.path), part) for part in graph.parts)]
    if not rows:
        return []
    about = "A part's kernels are those that it launches without the graph, found in the replay by name and order."
    lines = [
        about,
        *(f"Parts of {graph.name} are not judged: {graph.not_judged}." for graph in seen if graph.not_judged),
    ]
    decimals = units.digits(max(graph.device_ms for graph in seen))
    shown = table(rows, _GRAPHS, decimals, depth=lambda row: row[0]).drop_empty_columns()
    return [Section(f"graphs{key}", f"Inside replayed graphs{of}", shown, lines, detail)]


_GRAPHS: Columns[tuple[int, GraphTime | GraphPart]] = [
    words("Graph, part", lambda row: row[1].name if isinstance(row[1], GraphTime) else row[1].path[-1]),
    figure("Replays", lambda row: row[1].replays if isinstance(row[1], GraphTime) else None),
    figure("Kernels, copies", lambda row: row[1].work),
    scaled_column("Device ms", lambda row: row[1].device_ms),
    scaled_column("Busy ms", lambda row: row[1].busy_ms),
    figure("Median µs", lambda row: row[1].median_us, units.places(1)),
    scaled_column("ms without the graph", lambda row: row[1].alone_ms if isinstance(row[1], GraphPart) else None),
]


def parts(seen: Sequence[TracePart], depth: int | None = None) -> Table:
    """Return the parts with their host time and the work on the device that was launched in them."""
    decimals = units.digits(max((part.host_ms for part in seen), default=0.0))
    shown = [part for part in seen if depth is None or len(part.path) <= depth]
    return table(shown, _PARTS, decimals, depth=lambda part: max(len(part.path) - 1, 0)).drop_empty_columns()


def gaps(seen: Gaps, of: str) -> Table:
    """Return busy and idle time with the causes of the gaps; ``of`` names the whole."""
    decimals = units.digits(seen.span_ms)

    def row(name: str, ms: float, many: int | None, kind: str = "part", depth: int = 0) -> Row:
        cells = [name, units.ms(ms, decimals), units.percent(seen.share(ms)), None if many is None else f"{many:,}"]
        return Row(cells, kind, depth)  # type: ignore[arg-type]

    over = f"in gaps over {seen.threshold_us:g} µs"
    rows = [row(of, seen.span_ms, None, "whole"), row("busy", seen.busy_ms, None)]
    rows += [row("idle", seen.idle_ms, None), row(over, seen.gaps_ms, seen.gaps, depth=1)]
    rows += [row(cause.cause, cause.ms, cause.gaps, depth=2) for cause in seen.causes]
    if seen.unjudged_ms:
        rows.append(Row(["not judged: it lacks kernels", units.ms(seen.unjudged_ms, decimals), None, None]))
    for gap in seen.longest:
        rows.append(row(f"over 1 ms: {_describe_gap(gap)}", gap.ms, 1, depth=2))
    return Table([*heads("<Time | ms"), Column(f"% of {of}"), *heads("Gaps")], rows)


def _describe_gap(gap: LongGap) -> str:
    after, before, host = (_cut(short_kernel(name), IN_A_GAP) for name in (gap.after, gap.before, gap.host))
    words = (f"after {after}" if after else "", f"before {before}" if before else "", f"in {host}" if host else "")
    return ", ".join(word for word in words if word)


def _python(seen: PythonProfile) -> Section:
    decimals = units.digits(seen.iteration_ms)
    took = units.ms(seen.iteration_ms, decimals)
    times = "once" if seen.iterations == 1 else f"{seen.iterations:,} times"
    about = f"{seen.measurement}, run {times} under {TOOLS[seen.tool]}, which slows it: {took} ms each."
    if not seen.functions:
        return Section("python", "Python functions", text=[about, "None of the functions watched ran."])
    rows = table(
        seen.functions,
        [
            words("Function", lambda function: _cut(function.name)),
            figure("Calls", lambda function: function.calls, units.calls),
            scaled_column("Own ms", lambda function: function.own_ms),
            scaled_column("Cumulative ms", lambda function: function.cumulative_ms),
            words("Where", lambda function: _cut(function.where, start=True)),
            words("Line", lambda function: _cut(function.source) or None),
        ],
        decimals,
    )
    return Section("python", "Python functions", rows.drop_empty_columns(), [about], asked=True)


def _cut(text: str, most: int = LONGEST, *, start: bool = False) -> str:
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if start else f"{text[: most - 1]}…"
