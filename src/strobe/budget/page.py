"""Budget → document: the decision, the line over denoising steps, the parts, and asynchronous execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strobe.budget.figures import denoise_part
from strobe.budget.results import Asynchrony, Budget, Latency
from strobe.core.report import charts, frame
from strobe.core.report.charts import OTHER, Plot
from strobe.core.report.document import Columns, Document, Row, Section, Table, figure, figures, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Interval, Line
from strobe.core.results.numerals import significant
from strobe.ladder import in_time_words as in_words

REST = "other"


def outline(budget: Budget, _depth: int | None = None) -> Document:
    """Return the document of a budget."""
    sections = [Section("latencies", "Component latencies", _latencies(budget.latencies))]
    for line in (budget.total, budget.denoise):
        if line is not None:
            title = f"{line.part.capitalize()} over denoising steps"
            sections.append(Section(f"line-{line.part}", title, _line(line, budget), [_describe_line(line)]))
    if budget.needs:
        tries = [f"{need.part}: {'; '.join(need.treatments)}" for need in budget.needs if need.treatments]
        about = f"With {_steps(budget.judged.steps)}, if only that part changes."
        sections.append(Section("needs", f"To {budget.target_hz:g} Hz", _needs(budget), [about, *tries]))
    sections.append(
        Section(
            "asynchrony", f"Asynchronous execution (RTC) at {budget.control_hz:g} Hz", table(budget.asynchrony, _TICKS)
        )
    )
    return frame.document(budget, answers(budget), sections, facts=[("Strobe", budget.strobe_version)])


def answers(budget: Budget) -> list[str]:
    """Return the decision, its figures, the next step and what asynchronous execution would allow."""
    decision, figures, following = (
        _describe_medians(budget) if budget.judged.in_time is None else _describe_chunks(budget)
    )
    figures += [_describe_line(budget.total)] if budget.total is not None else []
    sentences = [decision, " ".join(figures), *([f"Next: {following}"] if following else [])]
    sentences += map(_describe_asynchrony, budget.asynchrony[:1], [budget.control_hz])
    return [*sentences, *_describe_first_action(budget.latencies[-1])]


def _describe_first_action(most: Latency) -> Iterator[str]:
    """Yield when the first action is ready, and when it would be if it took one step (FASTER, arXiv 2603.19199)."""
    part = denoise_part(most)
    if part is None or most.steps < 2:
        return
    first_ms = most.total_ms - most.parts[part] * (most.steps - 1) / most.steps
    yield (
        f"First action: after {significant(most.total_ms)} ms ({most.steps} steps); after {significant(first_ms)} ms "
        "if trained to give it after one (FASTER, arXiv 2603.19199)."
    )


def _describe_chunks(budget: Budget) -> tuple[str, list[str], str | None]:
    target, judged = f"{budget.target_hz:g} Hz", budget.judged
    known = [(latency, latency.in_time) for latency in budget.latencies if latency.in_time is not None]
    shown = [latency for latency, in_time in known if in_time.outcome == "reached"]
    likely = [latency for latency, in_time in known if in_time.outcome == "not judged" and in_time.needed]
    best = max(shown or likely or [judged], key=lambda latency: latency.steps)
    figures = [_describe_times(budget, [judged, best] if best is not judged else [judged])]
    up_to = f"up to {_steps(best.steps)}" if best is not judged else _steps(best.steps)
    further = [latency for latency in likely if latency.steps > best.steps]
    if shown:
        if further:
            figures.append(f"Up to {_steps(further[-1].steps)} look reachable, not yet proven.")
        return f"{target} is reached with {up_to}.", figures, _confirm(budget, further) if further else None
    if likely:
        return f"{target} looks reachable with {up_to}, not yet proven.", figures, _confirm(budget, likely)
    fewest = ", the fewest measured" if judged.steps > 1 else ""
    if judged.in_time is not None and judged.in_time.outcome == "not judged":
        more = "measure again on a quiet machine, with more --iterations."
        return f"{target} is inconclusive with {_steps(judged.steps)}{fewest}.", figures, more
    return f"{target} is not reached with {_steps(judged.steps)}{fewest}.", figures, _largest_cut(budget)


def _confirm(budget: Budget, likely: Sequence[Latency]) -> str:
    needed = max(latency.in_time.needed or 0 for latency in likely if latency.in_time is not None)
    share = in_words.percent_of_chunks(budget.asked)
    return f"to confirm that {share} of chunks are in time: --iterations={needed}."


def _describe_times(budget: Budget, named: Sequence[Latency]) -> str:
    """Return the medians of ``named``, and how many chunks were in time with their numbers of steps and those between.

    Args:
        named: of the fewest and of the most steps, or of one number of steps.
    """
    target_ms = f"{significant(1e3 / budget.target_hz, 4)} ms"
    steps = [units.count(latency.steps, "step") for latency in named]
    times = "; ".join(
        f"{count}: {significant(latency.total_ms)} ms" for count, latency in zip(steps, named, strict=True)
    )
    between = [each for each in budget.latencies if named[0].steps <= each.steps <= named[-1].steps]
    judged = [latency.in_time for latency in between if latency.in_time is not None]
    counts = {(each.on_time, each.chunks) for each in judged}
    if len(judged) > 1 and len(counts) == 1 and judged[0].on_time == judged[0].chunks:
        return f"{times}, of {target_ms}; all {judged[0].chunks} chunks of each in time."
    last = named[-1].in_time
    return f"{times}, of {target_ms}{f'; {in_words.describe_share(last)}' if last is not None else ''}."


def _describe_medians(budget: Budget) -> tuple[str, list[str], str | None]:
    target, judged, most = f"{budget.target_hz:g} Hz", budget.judged, budget.most_steps
    allowed = f"{significant(1e3 / budget.target_hz, 4)} ms"
    if most is None:
        over = judged.total_ms - 1e3 / budget.target_hz
        median = f"Median {significant(judged.total_ms)} ms ({1e3 / judged.total_ms:.1f} Hz)"
        missed = f"{median}, {significant(over)} ms more than {allowed}."
        return f"{target} is not reached with {_steps(judged.steps)}.", [missed], _largest_cut(budget)
    measured = max(latency.steps for latency in budget.latencies)
    fitting = [latency for latency in budget.latencies if latency.steps <= most]
    figures = [_describe_times(budget, [fitting[0], fitting[-1]] if len(fitting) > 1 else fitting)] if fitting else []
    figures.append("Only medians are known, not how many chunks are late.")
    if budget.total is not None and most not in [latency.steps for latency in fitting]:
        by_line = significant(budget.total.fixed_ms + budget.total.per_step_ms * most)
        figures.append(f"{most} steps: {by_line} ms by the line{', extrapolated' if most > measured else ''}.")
    elif budget.total is not None and most == measured and budget.total.unknown_beyond is not None:
        figures.append(f"More than {measured} steps are not judged: {budget.total.unknown_beyond}.")
    return f"The median reaches {target} with up to {_steps(most)}.", figures, None


def _largest_cut(budget: Budget) -> str | None:
    possible = [need for need in budget.needs if need.named_ms is not None]
    if not possible:
        return "shorten several parts, because no single part is enough." if budget.needs else None
    need = max(possible, key=lambda need: need.ms)
    to_ms = need.needed_ms if need.needed_ms is not None else need.named_ms
    cut = f"cut {need.part} from {significant(need.ms)} to {significant(to_ms or 0.0)} ms ({_factor(need.ms, to_ms)})"
    unnamed = budget.judged.total_ms - sum(budget.judged.parts.values())
    also = f", and the {significant(unnamed)} ms in no part to nothing" if need.needed_ms is None else ""
    example = next((each for each in need.treatments if ": " not in each), None)
    return f"{cut}{also}{f'; try {example}' if example else ''}."


def _describe_asynchrony(first: Asynchrony, control_hz: float) -> str:
    ages = dict.fromkeys(f"{age:.0f}" for age in (first.youngest_ms, first.oldest_ms))
    if first.in_time is None:
        late = "This counts the median chunk: half of the chunks may come later"
    elif first.in_time.outcome == "reached":
        late = in_words.describe_share(first.in_time)
    else:
        late = in_words.describe_lack(first.in_time)
    return (
        f"With RTC at {control_hz:g} Hz and {_steps(first.steps)}: execute at least "
        f"{units.count(first.horizon, 'action')} of each chunk; observation age {' to '.join(ages)} ms. {late}."
    )


def _describe_line(line: Line) -> str:
    fixed = _format_with_interval(line.fixed_ms, line.fixed_interval)
    per_step = _format_with_interval(line.per_step_ms, line.per_step_interval)
    return f"{line.part.capitalize()} ≈ {fixed} + {per_step} × steps ms."


def _format_with_interval(value: float, interval: Interval | None) -> str:
    shown = significant(value)
    return shown if interval is None else f"{shown} [{significant(interval.low)}, {significant(interval.high)}]"


def _latencies(latencies: Sequence[Latency]) -> Table:
    names = dict.fromkeys(name for latency in latencies for name in latency.parts)
    columns: Columns[Latency] = [
        words("Denoising steps", lambda latency: str(latency.steps)),
        figure("Total (ms)", lambda latency: latency.total_ms, units.ms),
        figure("Hz", lambda latency: 1e3 / latency.total_ms, "{:.1f}".format),
        figure("In time", lambda latency: latency.in_time, lambda judged: f"{judged.on_time:,} of {judged.chunks:,}"),
        *(figure(f"{name} (ms)", lambda latency, name=name: _part(latency, name), str) for name in names),
        figure("Other (ms)", lambda latency: latency.total_ms - sum(latency.parts.values()), units.ms),
    ]
    return table(latencies, columns).drop_empty_columns()


def _part(latency: Latency, name: str) -> str | None:
    ms = latency.parts.get(name)
    return None if ms is None else f"{ms:,.2f} ({100 * ms / latency.total_ms:.1f} %)"


def _line(line: Line, budget: Budget) -> Table:
    whole = line is budget.total
    columns = heads("<Steps | Measured (ms) | Line (ms) | Error of the line")
    columns += [] if whole else heads(f"{line.one_step_ms:.1f} ms × steps | Its error")
    rows = []
    for latency in budget.latencies:
        measured = latency.total_ms if whole else latency.parts.get(line.part)
        if measured is None or measured <= 0:
            continue
        says, times = line.predicted[latency.steps], latency.steps * line.one_step_ms
        off = units.change(measured / says) if says > 0 else None
        cells = [str(latency.steps), units.ms(measured), units.ms(says), off]
        rows.append(Row(cells if whole else [*cells, units.ms(times), units.change(measured / times)]))
    return Table(columns, rows)


def _needs(budget: Budget) -> Table:
    rows = []
    for need in budget.needs:
        cells = [need.part, units.ms(need.ms), units.percent(need.share)]
        for ms in (need.needed_ms, need.named_ms):
            cells += ["not enough", None] if ms is None else [units.ms(ms), _factor(need.ms, ms)]
        rows.append(Row(cells, share=need.share))
    titles = (
        "<Part | Now (ms) | % of the total | Must fall to (ms) | Faster by | If other time were free (ms) | Faster by"
    )
    return Table(heads(titles), rows)


_TICKS: Columns[Asynchrony] = [
    words("Steps", lambda row: str(row.steps)),
    figure("Chunks/s", lambda row: row.hz, "{:.1f}".format),
    *figures(str, ("Delay (ticks)", lambda row: row.delay_ticks), ("Least execution horizon", lambda row: row.horizon)),
    figure("Observation age, first action (ms)", lambda row: row.youngest_ms, "{:,.0f}".format),
    figure("last action (ms)", lambda row: row.oldest_ms, "{:,.0f}".format),
]


def plots(budget: Budget, _depth: int | None = None) -> Plots:
    """Return the parts stacked over the denoising steps, with the target."""
    names = list(dict.fromkeys(name for latency in budget.latencies for name in latency.parts))
    places = [str(latency.steps) for latency in budget.latencies]
    stacks = {name: [latency.parts.get(name, 0.0) for latency in budget.latencies] for name in names}
    stacks[REST] = [max(0.0, latency.total_ms - sum(latency.parts.values())) for latency in budget.latencies]
    hover = "%{y:.4~g} ms<extra>%{fullData.name}</extra>"
    traces = [
        charts.bars(name, places, values, OTHER if name == REST else charts.colour(index), hover, upright=True)
        for index, (name, values) in enumerate(stacks.items())
    ]
    target = 1e3 / budget.target_hz
    x, y = charts.axis("denoising steps", type="category"), charts.axis("ms per chunk")
    layout = charts.layout(380, x, y, barmode="stack", showlegend=True, shapes=[charts.dashed_line(target, "y")])
    caption = f"The dashed line is {budget.target_hz:g} Hz, {target:.4g} ms."
    return {"latencies": [Plot("Latency by part", caption, traces, layout)]}


def _factor(now: float, then: float | None) -> str:
    return f"{now / then:.1f} ×" if then else ""


def _steps(count: int) -> str:
    return units.count(count, "denoising step")
