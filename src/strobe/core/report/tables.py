"""Result → tables: pure functions that every renderer shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strobe.core.report.document import Column, Row, Table
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.comparison import Comparison
from strobe.core.results.data import Quantiles, Summary
from strobe.core.results.measurement import Blocks, Component, Measurement

RATES = {"inference": "chunks/s", "training forward": "passes/s", "training step": "steps/s", "loading": "batches/s"}
SLOWEST = 5  # blocks that are named where they differ
QUANTILES = ("Median", "95 %", "99 %", "Longest")


def breakdown(measurement: Measurement, depth: int | None = None) -> Table:
    """Return where one measurement's time goes: the whole, then its parts as a tree, with 'other' always among them."""
    whole = measurement.samples.summary
    decimals = units.digits(whole.median)
    columns = [Column("Component", numeric=False), Column("Calls"), Column("ms (median)")]
    columns += [Column(_interval_title([whole, *(c.summary for c in measurement.components)]))]
    columns += [Column("Host ms"), Column("% of whole"), Column("GFLOP"), Column("% of ceiling")]
    counted = [c.gflop for c in measurement.components if c.depth == 1 and c.gflop is not None]
    cells = [measurement.name, "1", units.ms(whole.median, decimals)]
    cells += [units.span(whole.interval, decimals), None, units.percent(1.0)]
    cells += [units.gflop(sum(counted)) if counted else None, None]
    rows = [Row(cells, "whole", share=1.0)]
    for part in to_depth(measurement.components, depth):
        cells = [part.name, units.calls(part.calls), units.ms(part.summary.median, decimals)]
        cells += [units.span(part.summary.interval, decimals), units.ms(part.host_ms, decimals)]
        cells += [units.percent(part.share), units.gflop(part.gflop), units.percent(part.ceiling_share)]
        rows.append(Row(cells, "other" if part.other else "part", part.depth, part.share))
    return Table(columns, rows).without_empty_columns()


Path = tuple[str, ...]


def to_depth(components: Sequence[Component], depth: int | None) -> list[Component]:
    """Return the components of at most ``depth`` levels; all of them for None."""
    return [part for part in components if depth is None or part.depth <= depth]


def _interval_title(summaries: Sequence[Summary]) -> str:
    level = next((s.interval.level for s in summaries if s.interval is not None), 0.95)
    return f"{100 * level:.4g} % interval"


def metrics(result: Result) -> Table:
    """Return the figures of every measurement side by side, and what each candidate differs by."""
    measured = result.measurements
    decimals = units.digits(max((m.samples.summary.median for m in measured), default=0.0))
    judged = [c for c in result.judged() if {c.baseline, c.candidate} <= {m.name for m in measured}]
    columns = [Column("Metric", numeric=False), *(Column(m.name) for m in measured)]
    columns += [Column(_difference_title(c, len(judged))) for c in judged]

    def row(title: str, figure: Callable[[Measurement], float | None], places: int) -> Row:
        cells: list[str | None] = [title, *(units.ms(figure(m), places) for m in measured)]
        for pair in judged:
            before = figure(result.measurement(pair.baseline))
            after = figure(result.measurement(pair.candidate))
            cells.append(None if before is None or after is None else units.signed(after - before, places))
        return Row(cells)

    rows = [
        row("Mean (ms)", lambda m: m.samples.summary.mean, decimals),
        row("Median (ms)", lambda m: m.samples.summary.median, decimals),
        row("Std (ms)", lambda m: m.samples.summary.std, decimals),
        row("Min (ms)", lambda m: m.samples.summary.min, decimals),
        row("Max (ms)", lambda m: m.samples.summary.max, decimals),
        row("p95 (ms)", lambda m: m.samples.summary.p95, decimals),
    ]
    for unit in dict.fromkeys(unit for m in measured for unit in per_call(m)):

        def rate(m: Measurement, unit: str = unit) -> float | None:
            mean, per_iteration = m.samples.summary.mean, per_call(m).get(unit)
            return 1000 * per_iteration / mean if per_iteration is not None and mean > 0 else None

        fastest = max((r for m in measured if (r := rate(m)) is not None), default=1.0)
        rows.append(row(f"Throughput ({unit})", rate, 2 if fastest >= 1 else 4))
    blank: list[str | None] = [None] * len(judged)
    rows.append(Row(["Samples", *(f"{len(m.samples.values):,}" for m in measured), *blank]))
    if any(m.samples.warmup for m in measured):
        left_out = [f"{len(m.samples.warmup):,}" for m in measured]
        rows.append(Row(["Warm-up cut", *left_out, *blank]))
    return Table(columns, rows)


def per_call(m: Measurement) -> dict[str, float]:
    """Return unit of throughput → how many of it one call makes. Backbones take clips with their frames, or images."""
    clips, backbone = m.traits.batch_size, m.traits.backbone
    if clips is not None and backbone is not None and max(clips, frames := backbone.frames_per_clip) < 1e6:
        return {"images/s": clips} if frames == 1 else {"clips/s": clips, "frames/s": clips * frames}
    if m.traits.call is not None:
        return {"calls/s": 1}
    if m.phase != "inference" and clips is not None and clips < 1e6:
        return {RATES[m.phase]: 1, "samples/s": clips}
    return {RATES[m.phase]: 1}


def _difference_title(pair: Comparison, many: int) -> str:
    return "Difference" if many == 1 else f"{pair.candidate} − {pair.baseline}"


def verdicts(result: Result) -> Table:
    """Return every judgement with its interval."""
    decimals = units.digits(max((m.samples.summary.median for m in result.measurements), default=0.0))
    columns = [Column("Compared", numeric=False), Column("Verdict", numeric=False)]
    titles = ("Change", "Interval of it", "Difference (ms)", "Interval of it (ms)", "Pairs")
    columns += [Column(title) for title in titles]
    rows = []
    for pair in result.judged():
        verdict = pair.verdict
        cells = [_names_of(pair), verdict.kind, units.change(verdict.ratio), units.change_span(verdict.interval)]
        cells += [units.signed(pair.difference_ms, decimals), units.signed_span(pair.difference, decimals)]
        cells += [f"{verdict.pairs:,}" if verdict.pairs else None]
        rows.append(Row(cells))
    return Table(columns, rows).without_empty_columns()


def agreement(result: Result) -> Table | None:
    """Return how far the actions of each candidate differ from its baseline's, or None if that was not measured."""
    outputs = any(pair.agreement is not None and pair.agreement.of == "outputs" for pair in result.judged())
    columns = [
        Column("Outputs of" if outputs else "Actions of", numeric=False),
        Column("Cosine"),
        Column("Largest error"),
    ]
    columns += [Column("Mean error"), Column("Observations"), Column("Guard", numeric=False)]
    rows = []
    for pair in result.judged():
        if (same := pair.agreement) is not None:
            held = pair.outcome
            if words := (pair.broken or pair.unjudged):
                held = f"{held}: {words}"
            cells = [_names_of(pair), f"{same.cosine:.6f}", units.number(same.largest_error)]
            rows.append(Row([*cells, units.number(same.mean_error), f"{same.observations:,}", held]))
    return Table(columns, rows).without_empty_columns() if rows else None


def gradients(result: Result) -> Table | None:
    """Return how far each candidate's loss and gradient are from its baseline's; None if that is not known."""
    columns = [Column("Gradient of", numeric=False), Column("Cosine"), Column("Relative error"), Column("Loss")]
    columns += [Column("Baseline's loss"), Column("Relative error of it"), Column("Cosine of two seeds")]
    rows = []
    for pair in result.judged():
        if (same := pair.gradient) is not None:
            cells = [_names_of(pair), f"{same.cosine:.6f}", units.number(same.error, 3), units.number(same.loss, 6)]
            cells += [units.number(same.baseline_loss, 6), units.number(same.loss_error, 3)]
            rows.append(Row([*cells, None if same.seed_cosine is None else f"{same.seed_cosine:.6f}"]))
    return Table(columns, rows).without_empty_columns() if rows else None


def _names_of(pair: Comparison) -> str:
    return f"{pair.candidate} vs {pair.baseline}"


def parts(measurements: Sequence[Measurement], depth: int | None = None) -> Table:
    """Return the parts of several variants side by side, aligned by path; differences are from the first variant."""
    decimals = units.digits(max((m.samples.summary.median for m in measurements), default=0.0))
    first, *others = measurements
    columns = [Column("Component", numeric=False)]
    for m in measurements:
        columns += [Column(f"{m.name} (ms)"), Column("% of whole")]
    columns += [Column("Difference (ms)" if len(others) == 1 else f"Δ {m.name}") for m in others]

    cells: list[str | None] = ["whole"]
    for m in measurements:
        cells += [units.ms(m.samples.summary.median, decimals), units.percent(1.0)]
    base = first.samples.summary.median
    cells += [units.signed(m.samples.summary.median - base, decimals) for m in others]
    rows = [Row(cells, "whole")]

    by_variant = side_by_side(measurements, depth)
    for path in aligned([list(by_path) for by_path in by_variant]):
        row = [by_path.get(path) for by_path in by_variant]
        part = next(p for p in row if p is not None)
        cells = [path[-1]]
        for p in row:
            cells += [p and units.ms(p.summary.median, decimals), p and units.percent(p.share)]
        zero = row[0].summary.median if row[0] else 0.0
        cells += [units.signed((p.summary.median if p else 0.0) - zero, decimals) for p in row[1:]]
        rows.append(Row(cells, "other" if part.other else "part", len(path)))
    return Table(columns, rows)


def side_by_side(measurements: Sequence[Measurement], depth: int | None) -> list[dict[Path, Component]]:
    """Return each measurement's parts under paths that they share.

    What one variant wraps in a part of its own (RTC's step around a denoising step) is the same part as what another
    runs bare: the bare one is listed where the wrapped one is.
    """
    by_variant = [{tuple(part.path): part for part in to_depth(m.components, depth)} for m in measurements]
    paths = dict.fromkeys(path for by_path in by_variant for path in by_path)
    for by_path in by_variant:
        names = {name for path in by_path for name in path}
        for path in sorted((path for path in paths if path not in by_path), key=len):
            bare = (*(name for name in path[:-1] if name in names), path[-1])
            # An 'other' belongs to its parent: that of the wrapper is not that of what is around it.
            if bare != path and bare in by_path and (path[-1] != "other" or path[-2] in names):
                by_path[path] = by_path.pop(bare)
    return by_variant


def aligned(orders: Sequence[Sequence[Path]]) -> list[Path]:
    """Return all paths in tree order: siblings as they first appear, 'other' after the named ones."""
    children: dict[tuple[str, ...], dict[tuple[str, ...], None]] = {}
    for order in orders:
        for path in order:
            for length in range(1, len(path) + 1):
                children.setdefault(path[: length - 1], {})[path[:length]] = None
    present = {path for order in orders for path in order}

    def walk(parent: tuple[str, ...]) -> list[tuple[str, ...]]:
        ordered = sorted(children.get(parent, {}), key=lambda path: path[-1] == "other")
        return [p for path in ordered for p in ([path] if path in present else []) + walk(path)]

    return walk(())


def guidance(measurements: Sequence[Measurement]) -> Table | None:
    """Return Real-Time Chunking's time in each chunk, as shares of the base denoising inside it; None without RTC."""
    guided = [(m, split) for m in measurements if (split := _time_of_guidance(m)) is not None]
    if not guided:
        return None
    rows = []
    for name in ("Base denoising", "Guidance", "Autograd correction", "RTC overhead"):
        cells: list[str | None] = [name]
        for m, split in guided:
            decimals = units.digits(m.samples.summary.median)
            share = split[name] / split["Base denoising"] if split["Base denoising"] > 0 else None
            cells += [units.ms(split[name], decimals), None if share is None else units.percent(share)]
        rows.append(Row(cells, "whole" if name == "RTC overhead" else "part"))
    columns = [Column("Real-Time Chunking", numeric=False)]
    for m, _ in guided:
        columns += [Column(f"{m.name} (ms)"), Column("% of base")]
    return Table(columns, rows)


def _time_of_guidance(m: Measurement) -> dict[str, float] | None:
    def total(name: str) -> float:
        inside = [part for part in m.components if part.path[-1] == name and "RTC step" in part.path]
        return sum(part.summary.median for part in inside)

    step, base, autograd = total("RTC step"), total("denoise step"), total("autograd correction")
    if step == 0 or base == 0:
        return None
    overhead = step - base
    return {
        "Base denoising": base,
        "Guidance": overhead - autograd,
        "Autograd correction": autograd,
        "RTC overhead": overhead,
    }


def blocks(measurements: Sequence[Measurement]) -> Table | None:
    """Return the like blocks of each part, taken together: sum, average, spread; None if no part is made of them."""
    rows = []
    for m, group in _with_blocks(measurements):
        decimals = units.digits(m.samples.summary.median)
        inside = group.path[-1] if group.path else m.name
        label = inside if len(measurements) == 1 else f"{inside}, {m.name}"
        cells = [label, f"{len(group.names):,}", units.ms(group.total.median, decimals)]
        cells += [units.span(group.total.interval, decimals), units.percent(group.share)]
        rows.append(Row([*cells, units.ms(group.average, decimals + 1), units.ms(group.spread, decimals + 1)]))
    columns = [Column("Blocks in", numeric=False), Column("Blocks"), Column("Sum (ms)")]
    columns += [Column(_interval_title([group.total for _, group in _with_blocks(measurements)])), Column("% of whole")]
    columns += [Column("Average (ms)"), Column("Spread (ms)")]
    return Table(columns, rows).without_empty_columns() if rows else None


def describe_blocks(measurements: Sequence[Measurement]) -> list[str]:
    """Return for each part that is made of blocks whether the samples show that they differ."""
    sentences = []
    for m, group in _with_blocks(measurements):
        inside = group.path[-1] if group.path else m.name
        who = inside if len(measurements) == 1 else f"{inside}, {m.name}"
        tested = "too few samples for a test" if group.p is None else f"Friedman's test: p = {group.p:.2g}"
        answer = "the blocks differ" if group.differ else "no difference between blocks that these samples can show"
        sentences.append(f"{who}: {answer} ({tested}; spread {units.percent(_relative_spread(group))} of the average)")
    return sentences


def slowest_blocks(measurements: Sequence[Measurement]) -> Table | None:
    """Return the slowest blocks of each part whose blocks were shown to differ; None if none were."""
    rows = []
    for m, group in _with_blocks(measurements):
        if not group.differ:
            continue
        decimals = units.digits(m.samples.summary.median)
        ranked = sorted(zip(group.medians, group.names, strict=False), reverse=True)[:SLOWEST]
        for took, name in ranked:
            place = " › ".join(step for step in [*group.path[-1:], name])
            label = place if len(measurements) == 1 else f"{place}, {m.name}"
            over = units.change(took / group.average) if group.average > 0 else None
            rows.append(Row([label, units.ms(took, decimals + 1), over]))
    columns = [Column("Slowest blocks", numeric=False), Column("ms (median)"), Column("Against the average")]
    return Table(columns, rows) if rows else None


def _with_blocks(measurements: Sequence[Measurement]) -> list[tuple[Measurement, Blocks]]:
    return [(m, group) for m in measurements for group in m.blocks]


def _relative_spread(group: Blocks) -> float | None:
    return group.spread / group.average if group.average > 0 else None


def quantile_cells(figures: Quantiles | None, decimals: int = 2) -> list[str | None]:
    """Return a row's four figures; empty ones where there are none."""
    if figures is None:
        return [None] * 4
    return [units.ms(value, decimals) for value in (figures.median, figures.p95, figures.p99, figures.max)]


def quantile_table(
    first: str, rows: Sequence[tuple[str, Quantiles | None]], decimals: int = 2, unit: str = "ms"
) -> Table:
    """Return a table of those ``rows`` that have figures; ``first`` heads the column of their names."""
    columns = [Column(first, numeric=False), *(Column(f"{name} ({unit})" if unit else name) for name in QUANTILES)]
    return Table(columns, [Row([name, *quantile_cells(figures, decimals)]) for name, figures in rows if figures])
