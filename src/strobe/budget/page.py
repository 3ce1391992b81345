"""Budget → document: what is missing first, then the line over steps, the parts, and what asynchrony makes of it."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.budget.results import Asynchrony, Budget, Latency, Line
from strobe.core.report import charts, frame
from strobe.core.report import in_time as in_words
from strobe.core.report.charts import OTHER, Plot
from strobe.core.report.document import Columns, Document, Row, Section, Table, figure, figures, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Interval

REST = "in no part"


def outline(budget: Budget, _depth: int | None = None) -> Document:
    """Return the document of a budget."""
    sections = [Section("latencies", "Component latencies", _latencies(budget.latencies))]
    for line in (budget.total, budget.denoise):
        if line is not None:
            title = f"{line.part.capitalize()} over denoising steps"
            sections.append(Section(f"line-{line.part}", title, _line(line, budget), [_describe_line(line)]))
    if budget.needs:
        tries = [f"{need.part}: {'; '.join(need.treatments)}" for need in budget.needs if need.treatments]
        about = f"With {_steps(budget.judged.steps)}. For each part the other parts stay as they are."
        sections.append(Section("needs", f"To {budget.target_hz:g} Hz", _needs(budget), [about, *tries]))
    sections.append(
        Section("asynchrony", f"Executed asynchronously at {budget.control_hz:g} Hz", table(budget.asynchrony, _TICKS))
    )
    return frame.document(budget, _answers(budget), sections, facts=[("Strobe", budget.strobe_version)])


def _answers(budget: Budget) -> list[str]:
    judged = budget.judged
    sentences = [_target(budget)]
    possible = [need for need in budget.needs if need.named_ms is not None]
    if possible:
        need = max(possible, key=lambda need: need.ms)
        text = f"{need.part} stands in the way: {need.ms:.1f} → {need.named_ms:.1f} ms "
        text += f"({_factor(need.ms, need.named_ms)})"
        unnamed = judged.total_ms - sum(judged.parts.values())
        if need.needed_ms is None:
            text += f"; because of the {unnamed:.1f} ms in no part, no single part is enough"
        elif abs(need.needed_ms - (need.named_ms or 0.0)) > 0.05:
            text += f", or {need.needed_ms:.1f} ms with the {unnamed:.1f} ms that are in no part"
        sentences.append(f"{text}.")
    elif budget.needs:
        sentences.append("No single part can make up for that: several must become shorter.")
    if budget.total is not None:
        sentences.append(f"{_describe_line(budget.total)}")
    return [*sentences, *map(_describe_asynchrony, budget.asynchrony[:1], [budget.control_hz])]


def _target(budget: Budget) -> str:
    """Return whether the target is reached and with how many steps: by chunks if they are known, else by medians."""
    target = f"{budget.target_hz:g} Hz ({1e3 / budget.target_hz:.4g} ms)"
    judged, known = budget.judged, [latency for latency in budget.latencies if latency.in_time is not None]
    if judged.in_time is None:
        return _describe_medians(budget, target)
    reached = [latency for latency in known if latency.in_time is not None and latency.in_time.outcome == "reached"]
    if reached:
        fastest = max(reached, key=lambda latency: latency.steps)
        more = budget.most_steps is not None and budget.most_steps > fastest.steps
        median = f" The median is in time with up to {_steps(budget.most_steps or 0)}." if more else ""
        share = in_words.describe_share(fastest.in_time) if fastest.in_time is not None else ""
        return f"{target} is reached with {_steps(fastest.steps)}: {share}.{median}"
    if judged.in_time.outcome == "not judged":
        lacking = in_words.describe_lack(judged.in_time)
        return f"Too few chunks to say whether {target} is reached with {_steps(judged.steps)}: {lacking}."
    text = f"{target} is not reached with {_steps(judged.steps)}: {in_words.describe_share(judged.in_time)}"
    return f"{text}, where {100 * budget.asked:.3g} % must be.{_median(judged, 1e3 / budget.target_hz)}"


def _describe_medians(budget: Budget, target: str) -> str:
    judged, most = budget.judged, budget.most_steps
    unknown = "how many chunks are late these figures do not say"
    if most is None:
        return f"{target} is not reached with {_steps(judged.steps)}.{_median(judged, 1e3 / budget.target_hz)}"
    measured = max(latency.steps for latency in budget.latencies)
    if most < measured or len(budget.latencies) == 1:
        return f"{target}: the median is in time with up to {_steps(most)}; {unknown}."
    if most > measured:
        return f"{target}: the median is in time with up to {_steps(most)}, by the line beyond {measured}; {unknown}."
    why = budget.total.unknown_beyond if budget.total is not None else ""
    more = f", up to {measured}; with more it is not known: {why}" if why else ""
    return f"{target}: the median is in time with every number of steps that was measured{more}; {unknown}."


def _median(judged: Latency, target_ms: float) -> str:
    """Return the median of a missed target, and by how much it is over, if it is."""
    over = judged.total_ms - target_ms
    by = f", {over:.1f} ms too many" if over > 0 else ", in time"
    return f" The median is {judged.total_ms:.2f} ms ({1e3 / judged.total_ms:.1f} Hz){by}."


def _describe_asynchrony(first: Asynchrony, control_hz: float) -> str:
    delay = units.count(first.delay_ticks, "tick")
    if first.in_time is None:
        late = f"the median chunk comes within {delay}, and half of the chunks may come later"
    elif first.in_time.outcome == "reached":
        late = f"{in_words.describe_share(first.in_time)} with a delay of {delay}"
    else:
        late = f"too few chunks to show a delay of {delay}: {in_words.describe_lack(first.in_time)}"
    return (
        f"Asynchronously (RTC) at {control_hz:g} Hz, with {_steps(first.steps)}: {late}. So the least execution "
        f"horizon is {first.horizon}, and actions rest on observations {first.youngest_ms:.0f} to "
        f"{first.oldest_ms:.0f} ms old."
    )


def _describe_line(line: Line) -> str:
    fixed = _format_with_interval(line.fixed_ms, line.fixed_interval)
    per_step = _format_with_interval(line.per_step_ms, line.per_step_interval)
    return f"{line.part.capitalize()} ≈ {fixed} + {per_step} × steps (ms)."


def _format_with_interval(value: float, interval: Interval | None) -> str:
    return f"{value:.2f}" if interval is None else f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _latencies(latencies: Sequence[Latency]) -> Table:
    names = dict.fromkeys(name for latency in latencies for name in latency.parts)
    columns: Columns[Latency] = [
        words("Denoising steps", lambda latency: str(latency.steps)),
        figure("Total (ms)", lambda latency: latency.total_ms, units.ms),
        figure("Hz", lambda latency: 1e3 / latency.total_ms, "{:.1f}".format),
        figure("In time", lambda latency: latency.in_time, lambda judged: f"{judged.on_time:,} of {judged.chunks:,}"),
        *(figure(f"{name} (ms)", lambda latency, name=name: _part(latency, name), str) for name in names),
        figure("In no part (ms)", lambda latency: latency.total_ms - sum(latency.parts.values()), units.ms),
    ]
    return table(latencies, columns).drop_empty_columns()


def _part(latency: Latency, name: str) -> str | None:
    ms = latency.parts.get(name)
    return None if ms is None else f"{ms:,.2f} ({100 * ms / latency.total_ms:.1f} %)"


def _line(line: Line, budget: Budget) -> Table:
    whole = line is budget.total
    columns = heads("<Steps | Measured (ms) | Line (ms) | Off by")
    columns += [] if whole else heads(f"{line.one_step_ms:.1f} ms × steps | Off by")
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
    titles = "<Part | Now (ms) | % of the total | Must fall to (ms) | Faster by | Named parts alone (ms) | Faster by"
    return Table(heads(titles), rows)


_TICKS: Columns[Asynchrony] = [
    words("Steps", lambda row: str(row.steps)),
    figure("Chunks/s", lambda row: row.hz, "{:.1f}".format),
    *figures(str, ("Delay (ticks)", lambda row: row.delay_ticks), ("Least execution horizon", lambda row: row.horizon)),
    figure("Age of actions, first (ms)", lambda row: row.youngest_ms, "{:,.0f}".format),
    figure("last (ms)", lambda row: row.oldest_ms, "{:,.0f}".format),
]


def plots(budget: Budget, _depth: int | None = None) -> Plots:
    """Return parts on top of one another over the denoising steps, with the target."""
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
