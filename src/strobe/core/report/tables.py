"""Result → tables: pure functions that every renderer shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strobe.core.report.document import Column, Columns, Row, Table, figure, heads, scaled_column, table, words
from strobe.core.results import units
from strobe.core.results.agreement import Agreement
from strobe.core.results.answer import Result
from strobe.core.results.comparison import Comparison, GradientAgreement
from strobe.core.results.data import Quantiles, Samples
from strobe.core.results.measurement import Blocks, Component, Measurement

RATES = {"inference": "chunks/s", "training forward": "passes/s", "training step": "steps/s", "loading": "batches/s"}
SLOWEST = 5  # blocks that are named if they differ
SHARES = "times are medians, shares are of the time of all calls"
QUANTILES = ("Median", "95 %", "99 %", "Longest")
METRICS: dict[str, Callable[[Samples], float | None]] = {
    "Mean (ms)": lambda of: of.summary.mean,
    "Median (ms)": lambda of: of.summary.median,
    "Std (ms)": lambda of: of.summary.std,
    "Min (ms)": lambda of: of.summary.min,
    "Max (ms)": lambda of: of.summary.max,
    f"{units.P_TAIL} (ms)": lambda of: of.quantile(units.TAIL),
}


def breakdown(measurement: Measurement, depth: int | None = None) -> Table:
    """Return where one measurement's time goes: the whole, then its parts as a tree, with 'other' always among them."""
    whole = measurement.samples.summary
    decimals = units.digits(whole.median)
    between = units.interval_title([whole.interval, *(c.summary.interval for c in measurement.components)])
    columns = [*heads("<Component | Calls | ms (median)"), Column(between)]
    columns += heads("Host ms | % of whole | GFLOP | % of peak")
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
    return Table(columns, rows).drop_empty_columns()


Path = tuple[str, ...]


def to_depth(components: Sequence[Component], depth: int | None) -> list[Component]:
    """Return the components of at most ``depth`` levels; all of them for None."""
    return [part for part in components if depth is None or part.depth <= depth]


def metrics(result: Result) -> Table:
    """Return the figures of every measurement side by side, and what each candidate differs by."""
    measured = result.measurements
    decimals = units.digits(max((m.samples.summary.median for m in measured), default=0.0))
    judged = [c for c in result.judged_comparisons() if {c.baseline, c.candidate} <= {m.name for m in measured}]
    columns = [Column("Metric", numeric=False), *(Column(m.name) for m in measured)]
    columns += [Column("Difference" if len(judged) == 1 else f"{c.candidate} − {c.baseline}") for c in judged]

    def row(title: str, figure: Callable[[Measurement], float | None], places: int) -> Row:
        cells: list[str | None] = [title, *(units.ms(figure(m), places) for m in measured)]
        for pair in judged:
            before = figure(result.measurement(pair.baseline))
            after = figure(result.measurement(pair.candidate))
            cells.append(None if before is None or after is None else units.format_signed(after - before, places))
        return Row(cells)

    rows = [row(title, lambda m, of=of: of(m.samples), decimals) for title, of in METRICS.items()]
    for unit in dict.fromkeys(unit for m in measured for unit in throughput_units(m)):

        def rate(m: Measurement, unit: str = unit) -> float | None:
            mean, per_iteration = m.samples.summary.mean, throughput_units(m).get(unit)
            return 1000 * per_iteration / mean if per_iteration is not None and mean > 0 else None

        fastest = max((r for m in measured if (r := rate(m)) is not None), default=1.0)
        rows.append(row(f"Throughput ({unit})", rate, 2 if fastest >= 1 else 4))
    blank: list[str | None] = [None] * len(judged)
    rows.append(Row(["Samples", *(f"{len(m.samples.values):,}" for m in measured), *blank]))
    if any(m.samples.warmup for m in measured):
        rows.append(Row(["Warm-up cut", *(f"{len(m.samples.warmup):,}" for m in measured), *blank]))
    return Table(columns, rows)


def throughput_units(m: Measurement) -> dict[str, float]:
    """Return unit of throughput → how many of it one call makes. Backbones take clips with their frames, or images."""
    clips, backbone = m.traits.batch_size, m.traits.backbone
    if clips is not None and backbone is not None and max(clips, frames := backbone.frames_per_clip) < 1e6:
        return {"images/s": clips} if frames == 1 else {"clips/s": clips, "frames/s": clips * frames}
    if m.traits.call is not None:
        return {"calls/s": 1}
    if m.phase != "inference" and clips is not None and clips < 1e6:
        return {RATES[m.phase]: 1, "samples/s": clips}
    return {RATES[m.phase]: 1}


def verdicts(result: Result) -> Table:
    """Return every judgement with its interval."""
    judged = result.judged_comparisons()
    decimals = units.digits(max((m.samples.summary.median for m in result.measurements), default=0.0))
    ci = units.interval_title([pair.verdict.interval for pair in judged])
    columns: Columns[Comparison] = [
        words("Compared", _pair_names),
        words("Verdict", _verdict),
        figure("Change", lambda pair: pair.verdict, lambda verdict: units.change(verdict.ratio, verdict.interval)),
        figure(ci, lambda pair: pair.verdict.interval, units.change_span),
        scaled_column("Difference (ms)", lambda pair: pair.difference_ms, units.format_signed),
        scaled_column(f"{ci} (ms)", lambda pair: pair.difference, units.signed_span),
        figure("Pairs", lambda pair: pair.verdict.pairs or None),
    ]
    return table(judged, columns, decimals).drop_empty_columns()


def _verdict(pair: Comparison) -> str:
    verdict, interval = pair.verdict, pair.verdict.interval
    if verdict.kind in ("faster", "slower", "inconclusive"):
        return verdict.kind
    return f"within {100 * (verdict.within or max(interval.high - 1, 1 - interval.low)):.2g} %"


def _pair_names(pair: Comparison) -> str:
    return f"{pair.candidate} vs {pair.baseline}"


def agreement(result: Result) -> Table | None:
    """Return how far the actions of each candidate differ from its baseline's, or None where that was not measured."""
    pairs = [(pair, pair.agreement) for pair in result.judged_comparisons() if pair.agreement is not None]
    columns: Columns[tuple[Comparison, Agreement]] = [
        words(
            "Outputs of" if any(same.of == "outputs" for _, same in pairs) else "Actions of",
            lambda of: _pair_names(of[0]),
        ),
        figure("Cosine", lambda of: of[1].cosine, units.cosine),
        figure("Max error", lambda of: of[1].largest_error, units.number),
        figure("Mean error", lambda of: of[1].mean_error, units.number),
        figure("Observations", lambda of: of[1].observations),
        words("Limits", lambda of: _guard_outcome(of[0])),
    ]
    return table(pairs, columns).drop_empty_columns() if pairs else None


def _guard_outcome(pair: Comparison) -> str | None:
    if pair.broken or pair.unjudged:
        return f"exceeded: {pair.broken}" if pair.broken else f"not checked: {pair.unjudged}"
    return "within" if pair.outcome == "held" else None


def gradients(result: Result) -> Table | None:
    """Return how far each candidate's loss and gradient are from its baseline's; None if that is not known."""
    pairs = [(_pair_names(pair), pair.gradient) for pair in result.judged_comparisons() if pair.gradient is not None]
    return table(pairs, _GRADIENTS).drop_empty_columns() if pairs else None


_GRADIENTS: Columns[tuple[str, GradientAgreement]] = [
    words("Gradient of", lambda of: of[0]),
    figure("Cosine", lambda of: of[1].cosine, units.cosine),
    figure("Relative error of the gradient", lambda of: of[1].error, units.figures(3)),
    figure("Loss", lambda of: of[1].loss, units.figures(6)),
    figure("Baseline's loss", lambda of: of[1].baseline_loss, units.figures(6)),
    figure("Relative error of the loss", lambda of: of[1].loss_error, units.figures(3)),
    figure("Cosine of two seeds", lambda of: of[1].seed_cosine, units.cosine),
]


def parts(measurements: Sequence[Measurement], depth: int | None = None) -> Table:
    """Return the parts of several variants side by side, aligned by path; differences are from the first variant."""
    decimals = units.digits(max((m.samples.summary.median for m in measurements), default=0.0))
    first, *others = measurements
    titles = [title for m in measurements for title in (f"{m.name} (ms)", "% of whole")]
    titles += ["Difference (ms)" if len(others) == 1 else f"Δ {m.name}" for m in others]
    cells: list[str | None] = ["whole"]
    for m in measurements:
        cells += [units.ms(m.samples.summary.median, decimals), units.percent(1.0)]
    base = first.samples.summary.median
    cells += [units.format_signed(m.samples.summary.median - base, decimals) for m in others]
    rows = [Row(cells, "whole")]

    by_variant = side_by_side(measurements, depth)
    for path in align_paths([list(by_path) for by_path in by_variant]):
        row = [by_path.get(path) for by_path in by_variant]
        part = next(p for p in row if p is not None)
        cells = [path[-1]]
        for p in row:
            cells += [p and units.ms(p.summary.median, decimals), p and units.percent(p.share)]
        zero = row[0].summary.median if row[0] else 0.0
        cells += [units.format_signed((p.summary.median if p else 0.0) - zero, decimals) for p in row[1:]]
        share = max(p.share for p in row if p is not None)
        rows.append(Row(cells, "other" if part.other else "part", len(path), share))
    return Table([*heads("<Component"), *map(Column, titles)], rows)


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


def align_paths(orders: Sequence[Sequence[Path]]) -> list[Path]:
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
    titles = [title for m, _ in guided for title in (f"{m.name} (ms)", "% of base")]
    return Table([*heads("<Real-Time Chunking"), *map(Column, titles)], rows)


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
    """Return the like blocks of each part, taken together: sum, average, spread; None where no part is made of them."""
    several, rows = len(measurements) > 1, []
    for m, group in _block_groups(measurements):
        decimals = units.digits(m.samples.summary.median)
        cells = [_inside(m, group, several), f"{len(group.names):,}", units.ms(group.total.median, decimals)]
        cells += [units.span(group.total.interval, decimals), units.percent(group.share)]
        rows.append(Row([*cells, units.ms(group.average, decimals + 1), units.ms(group.spread, decimals + 1)]))
    between = units.interval_title([group.total.interval for _, group in _block_groups(measurements)])
    columns = [*heads("<Blocks in | Blocks | Sum (ms)"), Column(between)]
    columns += heads("% of whole | Average (ms) | Spread (ms)")
    return Table(columns, rows).drop_empty_columns() if rows else None


def _inside(m: Measurement, group: Blocks, several: bool) -> str:
    inside = group.path[-1] if group.path else m.name
    return f"{inside}, {m.name}" if several else inside


def describe_blocks(measurements: Sequence[Measurement]) -> list[str]:
    """Return for each part that is made of blocks whether the samples show that they differ."""
    sentences = []
    for m, group in _block_groups(measurements):
        who = _inside(m, group, len(measurements) > 1)
        tested = "too few samples for a test" if group.p is None else f"Friedman's test: p = {group.p:.2g}"
        answer = "the blocks differ" if group.differ else "these samples show no difference between the blocks"
        spread = units.percent(group.spread / group.average if group.average > 0 else None)
        sentences.append(f"{who}: {answer} ({tested}; spread {spread} of the average)")
    return sentences


def slowest_blocks(measurements: Sequence[Measurement]) -> Table | None:
    """Return the slowest blocks of each part whose blocks were shown to differ; None if none were."""
    rows = []
    for m, group in _block_groups(measurements):
        if not group.differ:
            continue
        decimals = units.digits(m.samples.summary.median)
        ranked = sorted(zip(group.medians, group.names, strict=False), reverse=True)[:SLOWEST]
        for took, name in ranked:
            place = " › ".join(step for step in [*group.path[-1:], name])
            label = place if len(measurements) == 1 else f"{place}, {m.name}"
            over = units.change(took / group.average) if group.average > 0 else None
            rows.append(Row([label, units.ms(took, decimals + 1), over]))
    return Table(heads("<Slowest blocks | ms (median) | vs average"), rows) if rows else None


def _block_groups(measurements: Sequence[Measurement]) -> list[tuple[Measurement, Blocks]]:
    return [(m, group) for m in measurements for group in m.blocks]


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
