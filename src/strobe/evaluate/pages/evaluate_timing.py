"""Latency in an evaluation's page: of a chunk apart from the episodes, and as imposed on a loop in virtual time."""

from __future__ import annotations

from strobe.core.report import charts
from strobe.core.report.charts import Plot
from strobe.core.report.document import Column, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.evaluate.pages import rates
from strobe.evaluate.results.evaluate import ChunkTimes, EvaluatedVariant, EvaluateResult, Timing, verdict_in_words

KEY = "realtime"
Group = tuple[str, str]  # variant, engine


def latency_columns(result: EvaluateResult) -> list[Column]:
    """Return the columns of a variant's latency in the table of variants."""
    if _is_measured_apart(result):
        own = [Column("ms per chunk"), Column("Chunks (Hz)"), Column("Times as fast")]
    else:
        own = [Column("ms per call"), Column("Calls (Hz)"), Column("Times as fast")]
    return [*own, Column("Calls per episode"), Column("ms per action")]


def latency_cells(result: EvaluateResult, variant: EvaluatedVariant) -> list[str | None]:
    """Return the cells of `latency_columns`."""
    if not _is_measured_apart(result):
        own = [units.rate(variant.calls.median_ms), units.rate(variant.calls.hz), units.number(variant.times, 3)]
    elif variant.chunk is None:
        own = [None, None, None]
    else:
        chunk = variant.chunk
        own = [units.rate(chunk.ms.median), units.rate(chunk.hz), units.number(chunk.times, 3)]
    episodes = variant.together.success.episodes
    per_episode = units.number(variant.calls.calls / episodes, 3) if episodes else None
    return [*own, per_episode, units.number(_ms_per_action(variant), 3)]


def _ms_per_action(variant: EvaluatedVariant) -> float | None:
    """Return the policy's time in an episode over the actions that were executed; None: no tick took a new one."""
    timing = variant.timing
    if timing is None:
        return variant.loop.policy_ms
    taken = timing.ticks - timing.held
    return variant.loop.policy_ms * (timing.ticks / taken) if taken > 0 else None


def about_latency(result: EvaluateResult) -> str:
    """Return a sentence on the latency in the table of variants."""
    if _is_measured_apart(result):
        own = "The latency is that of a chunk, measured outside the episodes. A table below shows its parts."
    else:
        own = "Calls of the policy are timed one observation at a time; the first ones count."
    return f"{own} ms per action: the policy's time in the episodes over the actions that they executed."


def latency_clause(variant: EvaluatedVariant) -> str:
    """Return the latency of a variant as a clause."""
    if variant.chunk is not None:
        return f"a chunk takes {chunk_speed(variant.chunk)}"
    return f"a call takes {units.rate(variant.calls.median_ms)} ms (median), {units.rate(variant.calls.hz)} Hz"


def chunk_speed(chunk: ChunkTimes) -> str:
    """Return the latency of a chunk: '27.1 ms (median), 36.9 Hz'."""
    return f"{units.rate(chunk.ms.median)} ms (median), {units.rate(chunk.hz)} Hz"


def line_over_steps(result: EvaluateResult) -> list[str]:
    """Return the line over denoising steps; none where it was not measured."""
    line = result.line
    if line is None:
        return []
    fixed, per_step = units.rate(line.fixed_ms), units.rate(line.per_step_ms)
    ends = [_ends(line.fixed_interval), _ends(line.per_step_interval)]
    known = f" (95 %: {ends[0]} and {ends[1]})" if all(ends) else ""
    counts = ", ".join(map(str, sorted(line.predicted)))
    return [
        f"A chunk takes about {fixed} ms and {per_step} ms per step{known}, by a straight line through {counts} steps."
    ]


def chunk_section(result: EvaluateResult) -> Section:
    """Return the latency of a chunk apart from the episodes, with its parts."""
    measured = [(variant, variant.chunk) for variant in result.variants if variant.chunk is not None]
    names = list(dict.fromkeys(name for _, chunk in measured for name in chunk.parts))
    level = next((100 * ends.level for _, chunk in measured if (ends := chunk.times_interval)), 99)
    titles = ["ms per chunk (95 %)", "Chunks (Hz)", f"Times as fast ({level:.3g} %)", *names]
    rows = []
    for number, (variant, chunk) in enumerate(measured):
        median = units.rate(chunk.ms.median)
        row = [variant.name, _with_interval(median, chunk.ms.interval), units.rate(chunk.hz)]
        row += [_with_interval(units.number(chunk.times, 3), chunk.times_interval)]
        row += [units.rate(chunk.parts[name]) if name in chunk.parts else None for name in names]
        rows.append(Row(row, "part" if number else "whole"))
    table = Table([Column("Variant", numeric=False), *map(Column, titles)], rows)
    rounds = min(chunk.ms.n for _, chunk in measured)
    about = (
        f"Measured after the episodes, in {units.count(rounds, 'round')} in which all variants take turns, at batch "
        f"1, back to back, with processors; inputs: {result.subject.inputs}. Parts are medians in ms. The rest of "
        "the whole belongs to no part."
    )
    return Section("latency", "Latency of a chunk, outside the episodes", table, [about])


def _is_measured_apart(result: EvaluateResult) -> bool:
    return any(variant.chunk is not None for variant in result.variants)


def _with_interval(figure: str | None, interval: Interval | None) -> str | None:
    return figure if figure is None or interval is None else f"{figure} {_ends(interval)}"


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f"[{units.rate(interval.low)}, {units.rate(interval.high)}]"


def is_timed(result: EvaluateResult) -> bool:
    """Return whether its episodes were true to time."""
    return any(variant.timing is not None for variant in result.variants)


def timed_answers(result: EvaluateResult) -> list[str]:
    """Return the success of each row with its verdict, and the longest latency not shown to cost success."""
    first, *others = result.variants
    episodes = f"{units.count(first.together.success.episodes, 'episode')} of {result.environment}"
    sentences = [f"{result.subject.name}, {_success(first)} in {episodes}."]
    for variant in others:
        paired = variant.together.paired
        assert paired is not None  # of all but the first
        decided = f" (decided at {units.count(paired.decision.pairs or 0, 'pair')})" if paired.decision.pairs else ""
        if paired.decision.kind == "undecided":
            span = rates.difference(paired.difference, paired.decision.interval)
            decided = f" after {units.count(paired.pairs, 'pair')} (difference {span} points)"
        sentences.append(f"{_success(variant)}: {verdict_in_words(paired.decision.kind, result.margin)}{decided}.")
    if any(variant.together.success.successes for variant in result.variants):
        sentences += _longest(result)
    return sentences


def _success(variant: EvaluatedVariant) -> str:
    return f"{variant.name}: {rates.rate(variant.together.success)}"


def _longest(result: EvaluateResult) -> list[str]:
    """Return for each variant and engine with several latencies the longest before one that was shown to be worse."""
    sentences = []
    for (variant, engine), rows in groups(result).items():
        if len(rows) < 2:
            continue
        held = None
        for evaluated, _ in rows:
            paired = evaluated.together.paired
            if paired is not None and paired.decision.kind == "worse":
                break
            held = evaluated
        name = f"{variant}, {engine}"
        if held is None:
            sentences.append(f"{name}: every latency that was tried is worse.")
        elif held.timing is not None:
            longest = f"{held.timing.latency} is the longest latency not shown to be worse"
            sentences.append(
                f"{name}: {longest}{' (none was)' if held is rows[-1][0] else ''}{rates.possible_loss(held.together)}."
            )
    return sentences


def groups(result: EvaluateResult) -> dict[Group, list[tuple[EvaluatedVariant, Timing]]]:
    """Return the rows of each variant with each engine, in the order of their latency."""
    by_group: dict[Group, list[tuple[EvaluatedVariant, Timing]]] = {}
    for variant in result.variants:
        if variant.timing is not None:
            setting = variant.timing.setting or variant.timing.engine  # results of older versions have the engine alone
            by_group.setdefault((variant.timing.variant, setting), []).append((variant, variant.timing))
    return {group: sorted(rows, key=lambda row: row[1].imposed.median) for group, rows in by_group.items()}


def timed_section(result: EvaluateResult) -> Section:
    """Return the loop's figures of each row."""
    titles = ["Latency, median (ms)", "p95 (ms)", "Ticks without an action", "Lost actions", "Age, median (ms)"]
    titles += ["p95 (ms)", "Jumps ÷ steps"]
    rows = []
    for number, variant in enumerate(result.variants):
        timing = variant.timing
        if timing is None:
            continue
        age = timing.age
        cells = [_ms(timing.imposed.median), _ms(timing.imposed.p95)]
        cells += [units.percent(timing.starved), f"{timing.lost:,}"]
        cells += [None, None] if age is None else [_ms(age.median), _ms(age.p95)]
        cells.append(units.number(timing.jump_ratio, 2))
        rows.append(Row([variant.name, *cells], "part" if number else "whole"))
    table = Table([Column("Variant", numeric=False), *map(Column, titles)], rows).without_empty_columns()
    return Section(KEY, "True to time", table, [_about(result)])


def _ms(value: float) -> str | None:
    return f"{value:,.0f}" if value >= 100 else units.number(value, 3)


def _about(result: EvaluateResult) -> str:
    timing = next(variant.timing for variant in result.variants if variant.timing is not None)
    return (
        f"The simulator went on while the policy was computing, at {units.number(timing.fps, 4)} control ticks per "
        "second of a virtual clock, around LeRobot's own inference engines. Latency: as imposed on the "
        "clock. A tick without an action takes no new action from the policy. An action is lost if the next action "
        "follows before the simulator takes it: after a call that lasts a tick or longer, the loop of "
        "lerobot-rollout does not wait. Age: from an observation until an action of its chunk was sent. Jumps ÷ "
        "steps: the median distance of actions from one chunk to the next, divided by the 95th percentile of the "
        "distances in a chunk."
    )


def timed_plots(result: EvaluateResult) -> Plots:
    """Return success against latency, a line for each variant with each engine."""
    traces = []
    for index, ((variant, engine), rows) in enumerate(groups(result).items()):
        colour, successes = charts.colour(index), [variant.together.success for variant, _ in rows]
        traces.append(
            rates.success_points(
                f"{variant}, {engine}",
                [timing.imposed.median for _, timing in rows],
                successes,
                colour,
                f"%{{customdata[2]}}: {rates.OF}",
                mode="lines+markers",
                line={"color": colour},
                customdata=[
                    [success.successes, success.episodes, timing.latency]
                    for success, (_, timing) in zip(successes, rows, strict=True)
                ],
            )
        )
    x = charts.from_zero("latency of a call on the simulator's clock (median, ms)")
    layout = charts.layout(380, x, rates.AXIS, showlegend=True)
    return {KEY: [Plot("Success against latency, true to time", rates.BARS, traces, layout)]}
