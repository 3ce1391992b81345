"""Times in an evaluation's page: the time to the task, how smooth it was, and the latency of calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from strobe.core.report import charts
from strobe.core.report.charts import Plot
from strobe.core.report.document import Column, Columns, Row, Section, Table, figure, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.core.results.numerals import points, significant
from strobe.evaluate import page_rates as rates
from strobe.evaluate.pairs import OLDER, PairedTimes, TimeToTask, mean_in_words, time_in_words, verdict_in_words
from strobe.evaluate.results import EvaluatedVariant, EvaluateResult, Timing

TIME = "time"


def time_answers(result: EvaluateResult) -> list[str]:
    """Return the time of the first variant, and the verdict on each other one, with its success first."""
    reasons = {variant.time_not_judged for variant in result.variants}
    if len(reasons) == 1 and (reason := next(iter(reasons))):
        return [f"Time to task is not judged: {reason}."]
    return [sentence for variant in result.variants if (sentence := _sentence(result, variant))]


def _sentence(result: EvaluateResult, variant: EvaluatedVariant) -> str | None:
    if variant.time is None:
        why = variant.time_not_judged
        return f"{variant.name}: time to task is not judged: {why}." if why else None
    if variant.time.paired is None:
        return f"{variant.name}: the task takes {_mean_seconds_text(variant.time)}."
    time = f"{time_in_words(variant.time.paired)}{_despite(variant)}"
    kind = rates.verdict_kind(variant.together)
    if kind is None or kind == "undecided":
        return f"{variant.name}: {result.score} is undecided, and it {time}."
    if kind == "worse":
        verb, _, less, _ = rates.MORE[result.score]
        return f"{variant.name}: it {verb}s {less}, and it {time}."
    return f"{variant.name}: it is {verdict_in_words(kind, result.margin)}, and it {time}."


def _mean_seconds_text(time: TimeToTask) -> str:
    successes = f"{significant(time.mean_done_s)} s (mean of {time.done:,} success{'es' * (time.done != 1)})"
    if time.done == time.episodes:
        return successes
    limit = f"a failure counted as its limit of {significant(time.limit_s)} s"
    return f"{successes}, or {significant(time.mean_s)} s over all starts, with {limit}"


def _despite(variant: EvaluatedVariant) -> str:
    """Return that a faster chunk did not help, as a clause."""
    chunk, time = variant.chunk, variant.time
    ends = chunk.times_interval if chunk is not None else None
    if chunk is None or chunk.times is None or ends is None or ends.low <= 1 or time is None or time.paired is None:
        return ""
    faster = f"though a chunk is {units.number(chunk.times, 2)} × as fast"
    return f", {faster}" if time.paired.kind in ("later", "not sooner") else ""


def time_section(result: EvaluateResult) -> Section:
    """Return the times of each variant, with the verdict; what is not judged is named with the reason."""
    known = [(variant, variant.time) for variant in result.variants if variant.time is not None]
    reasons = [(of.name, of.time_not_judged or OLDER) for of in result.variants if of.time is None]
    text = [f"{name}: not judged, because {reason}." for name, reason in reasons]
    if not known:
        return Section(TIME, "Time to task", None, text)
    rows = table(known, _TIMES, kind=lambda pair: "whole" if pair[0] is result.variants[0] else "part")
    return Section(TIME, "Time to task", rows.drop_empty_columns(), [_describe_times(result), *text])


def _speed_ratio(paired: PairedTimes) -> str:
    ends = ("∞" if end is None else significant(end) for end in (paired.low, paired.high))
    return f"{'–' if paired.ratio is None else significant(paired.ratio)} [{', '.join(ends)}]"


_TIMES: Columns[tuple[EvaluatedVariant, TimeToTask]] = [
    words("Variant", lambda pair: pair[0].name),
    figure("Done", lambda pair: f"{pair[1].done} of {pair[1].episodes}", str),
    figure("Mean of successes (s)", lambda pair: pair[1].mean_done_s, units.number),
    figure("Half done (s)", lambda pair: pair[1].middle_s, units.number),
    figure("Mean of all starts (s)", lambda pair: pair[1].mean_s, units.number),
    figure("Pairs sooner, later", lambda pair: pair[1].paired, lambda paired: f"{paired.sooner}, {paired.later}"),
    figure("Speed ratio (CI)", lambda pair: pair[1].paired, _speed_ratio),
    figure("Ratio of means (CI)", lambda pair: pair[1].paired, lambda paired: mean_in_words(paired).replace(" ×", "")),
    words("Verdict", lambda pair: pair[1].paired and pair[1].paired.kind),
]


def _describe_times(result: EvaluateResult) -> str:
    times = [variant.time for variant in result.variants if variant.time is not None]
    timed = any(variant.timing is not None for variant in result.variants)
    clock = "on the clock of the episode, which goes on while the policy computes" if timed else "at the control rate"
    paired = next((time.paired for time in times if time.paired is not None), None)
    text = (
        f"Seconds from the start of an episode until it succeeds, {clock}. An episode that fails never does the task: "
        f"it counts as not done up to its limit of {significant(max(time.limit_s for time in times))} s, however "
        "early it ended."
    )
    if paired is None:
        return text
    return (
        f"{text} Speed ratio: the first variant's time ÷ this variant's, in the median pair of those in which one of "
        "the two did the task; failing is later than any success. A dash: in the median pair only one of the two did "
        f"it. The verdict rests on its {100 * paired.level:.3g} % interval, which holds at every number of pairs at "
        "once. Ratio of means: over all starts, a failure counted as the limit, with such an interval too; it needs "
        "more pairs, because a rare failure could outweigh a gain."
    )


def time_plots(result: EvaluateResult) -> Plots:
    """Return the survival curves: the share of unfinished episodes, against time."""
    caption = "Kaplan-Meier estimate. A curve ends above 0 by the share of episodes that never do the task."
    drawn = survival_plot([(variant.name, variant.time) for variant in result.variants], "episodes", caption)
    return {TIME: [drawn]} if drawn is not None else {}


def survival_plot(times: Sequence[tuple[str, TimeToTask | None]], what: str, caption: str) -> Plot | None:
    """Return the share that is unfinished, against time; None if no time is known.

    Args:
        times: name → its times, in an order that sets the colours.
        what: is played, in words: 'episodes'.
    """
    hover = "%{y:.3~g} % unfinished after %{x:.4~g} s<extra>%{fullData.name}</extra>"
    traces = []
    for index, (name, time) in enumerate(times):
        if time is not None:
            shares = [100 * share for share in time.not_done]
            traces.append(charts.line(name, time.at_s, shares, charts.colour(index), hover, style={"shape": "hv"}))
    if not traces:
        return None
    y = charts.axis(f"unfinished {what} (%)", range=[-4, 104])
    layout = charts.layout(380, charts.from_zero("seconds from the start"), y, showlegend=len(traces) > 1)
    return Plot("Kaplan-Meier: still unfinished", caption, traces, layout)


def smoothness(result: EvaluateResult) -> Section:
    """Return how smooth the actions of each variant are; what is not judged is named."""
    rate = result.fps**3 if result.fps is not None else None
    rows, text = [], [_describe_motion(rate is not None)]
    for variant in result.variants:
        if (moved := variant.motion) is None:
            text.append(f"{variant.name}: not judged, because its actions were not saved or are not finite.")
            continue
        jump = moved.seam / moved.within if moved.seam is not None and moved.within else None
        jerk = None if moved.jerk is None else moved.jerk * (1 if rate is None else rate)
        figures = (variant.path_ratio, moved.path, moved.within, moved.seam, jump, jerk)
        rows.append(Row([variant.name, *(units.number(value, 3) for value in figures)]))
    titles = "<Variant | Path ratio | Path per tick | Step in a chunk | Step to a new one | Chunk discontinuity"
    columns = heads(titles, "Jerk (per s³)" if rate is not None else "Jerk per tick³")
    return Section("motion", "Smoothness of the actions", Table(columns, rows).drop_empty_columns(), text)


def _describe_motion(in_seconds: bool) -> str:
    unit = "times the control rate cubed, so in the actions' units per s³" if in_seconds else "per control tick"
    return (
        "Means over the episodes, in the actions' own units, Euclidean over their dimensions: the distance of an "
        "action to the action before it, and the jerk: the third difference of the executed actions (root mean "
        f"square), {unit}. Chunk discontinuity: the mean step to a new chunk ÷ the mean step within one. Path ratio: "
        "the length of the path of the actions ÷ that of the first variant, on the starts where both succeeded. A "
        "policy that has done its task rests, so compare these figures together with the success. A dash is not "
        "judged: no chunk was found to begin, or no start was done by both."
    )


REALTIME = "realtime"
Group = tuple[str, str]  # variant, engine


def latency_columns(result: EvaluateResult) -> Columns[EvaluatedVariant]:
    """Return the columns of latency in the table of variants."""
    if _is_measured_apart(result):
        own: Columns[EvaluatedVariant] = [
            figure("ms per chunk", lambda variant: variant.chunk and variant.chunk.ms.median, units.rate),
            figure("Chunks (Hz)", lambda variant: variant.chunk and variant.chunk.hz, units.rate),
            figure("Speed (×)", lambda variant: variant.chunk and variant.chunk.times, units.figures(3)),
        ]
    else:
        own = [
            figure("ms per call", lambda variant: variant.calls.median_ms, units.rate),
            figure("Calls (Hz)", lambda variant: variant.calls.hz, units.rate),
            figure("Speed (×)", lambda variant: variant.times, units.figures(3)),
        ]
    return [
        *own,
        figure("Calls per episode", lambda of: of.calls.calls / of.together.success.episodes, units.figures(3)),
        figure("ms per action", _ms_per_action, units.figures(3)),
    ]


def _ms_per_action(variant: EvaluatedVariant) -> float | None:
    """Return the policy's time in an episode over the actions that were executed; None: no tick took a new one."""
    timing = variant.timing
    if timing is None:
        return variant.loop.policy_ms
    taken = timing.ticks - timing.held
    return variant.loop.policy_ms * (timing.ticks / taken) if taken > 0 else None


def describe_latency(result: EvaluateResult) -> str:
    """Return a sentence on the latency in the table of variants."""
    if _is_measured_apart(result):
        own = "The latency is that of a chunk, measured outside the episodes; a table below shows its parts."
    else:
        own = "Calls of the policy are timed one observation at a time; the first ones count."
    return f"{own} ms per action: the policy's time in the episodes ÷ the executed actions."


def latency_clause(variant: EvaluatedVariant) -> str:
    """Return the latency of a variant as a clause."""
    if (chunk := variant.chunk) is not None:
        return f"a chunk takes {units.rate(chunk.ms.median)} ms (median), {units.rate(chunk.hz)} Hz"
    return f"a call takes {units.rate(variant.calls.median_ms)} ms (median), {units.rate(variant.calls.hz)} Hz"


def line_over_steps(result: EvaluateResult) -> list[str]:
    """Return the line over denoising steps; none where it was not measured."""
    line = result.line
    if line is None:
        return []
    fixed, per_step = units.rate(line.fixed_ms), units.rate(line.per_step_ms)
    ends = [_ends(line.fixed_interval), _ends(line.per_step_interval)]
    known = f" (95 %: {ends[0]} and {ends[1]})" if all(ends) else ""
    counts = ", ".join(map(str, sorted(line.predicted)))
    return [f"Latency of a chunk ≈ {fixed} + {per_step} × steps ms{known}, by a straight line through {counts} steps."]


def chunk_section(result: EvaluateResult) -> Section:
    """Return the latency of a chunk apart from the episodes, with its parts."""
    measured = [(variant, variant.chunk) for variant in result.variants if variant.chunk is not None]
    names = list(dict.fromkeys(name for _, chunk in measured for name in chunk.parts))
    level = next((100 * ends.level for _, chunk in measured if (ends := chunk.times_interval)), 99)
    titles = ["ms per chunk (95 % CI)", "Chunks (Hz)", f"Speed, × ({level:.3g} % CI)", *names]
    rows = []
    for number, (variant, chunk) in enumerate(measured):
        median = units.rate(chunk.ms.median)
        row = [variant.name, _append_interval(median, chunk.ms.interval), units.rate(chunk.hz)]
        row += [_append_interval(units.number(chunk.times, 3), chunk.times_interval)]
        for part in map(chunk.parts.get, names):
            row.append(None if part is None else f"{units.rate(part)} ({units.percent(part / (chunk.ms.median or 1))})")
        rows.append(Row(row, "part" if number else "whole"))
    table = Table([Column("Variant", numeric=False), *map(Column, titles)], rows)
    rounds = min(chunk.ms.n for _, chunk in measured)
    about = (
        f"Measured after the episodes, in {units.count(rounds, 'round')} in which all variants take turns, at batch "
        f"1, back to back, with processors; inputs: {result.subject.inputs}. Parts are medians in ms, with their share "
        "of the chunk's. The rest of the whole belongs to no part."
    )
    return Section("latency", "Latency of a chunk, outside the episodes", table, [about])


def _is_measured_apart(result: EvaluateResult) -> bool:
    return any(variant.chunk is not None for variant in result.variants)


def _append_interval(figure: str | None, interval: Interval | None) -> str | None:
    return figure if figure is None or interval is None else f"{figure} {_ends(interval)}"


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f"[{units.rate(interval.low)}, {units.rate(interval.high)}]"


def is_timed(result: EvaluateResult) -> bool:
    """Return whether its episodes were played with a clock that goes on during calls."""
    return any(variant.timing is not None for variant in result.variants)


def timed_answers(result: EvaluateResult) -> list[str]:
    """Return what latency costs: the decision, its figures, the next command, then each engine's longest latency."""
    by_setting = groups(result)
    if len(by_setting) > 1:
        return _compare_settings(result, by_setting)
    first, rows = result.variants[0], next(iter(by_setting.values()))
    others = [row for row in rows if row[0] is not first]
    if not others:
        success = first.together.success
        return [
            f"{result.subject.name} succeeds in {success.successes} of {units.count(success.episodes, 'episode')}.",
            f"Success rate {rates.rate(success)} in {result.environment}, {first.name}.",
        ]
    worse, undecided = (
        next((row for row in others if rates.verdict_kind(row[0].together) == kind), None)
        for kind in ("worse", "undecided")
    )
    variant, timing = worse or undecided or others[-1]
    latency, before = _latency(timing), rates.mean_score(first.together)
    if worse is not None:
        head = f"{latency} of latency cuts {result.score} from {before} to {rates.mean_score(variant.together)}."
    elif undecided is not None:
        head = f"Inconclusive: what {latency} of latency costs is not decided."
    else:
        head = f"{latency} of latency costs at most {points(result.margin)} of {result.score}."
    tested = units.join_names([_latency(each).removesuffix(" ms") for _, each in rows])
    pairs = rates.describe_pairs(variant.together.comparison, result.planned)
    sentences = [head, f"{units.capital(pairs)}. {tested} ms were tested."]
    if worse is not None:
        keep, at = ("policy.", "env.", "rename_map"), f"{timing.imposed.median:g}"
        sentences.append(rates.next_command(result.command, command="tune", keep=keep, latency=at))
    elif undecided is not None:
        sentences.append(rates.next_command(result.command, resume="RUN", episodes=2 * result.planned))
    else:
        sentences.append(rates.next_command(result.command, command="preflight", keep=("policy.",)))
    more = [each for each, _ in rows if each is not first and each is not variant]
    return sentences + [f"{each.name}: {_verdict(result, each)}." for each in more]


def _latency(timing: Timing) -> str:
    return f"{timing.imposed.median:.3g} ms"


def _verdict(result: EvaluateResult, variant: EvaluatedVariant) -> str:
    on = variant.together
    verdict = verdict_in_words(rates.verdict_kind(on) or "undecided", result.margin)
    return f"{rates.mean_score(on)} {result.score}, {verdict}, {rates.paired_points(on.comparison)}"


def _compare_settings(
    result: EvaluateResult, by_setting: dict[Group, list[tuple[EvaluatedVariant, Timing]]]
) -> list[str]:
    """Return which engine or variant tolerates the longest latency: each one before the first that is worse."""
    tolerated: dict[str, Timing | None] = {}
    for group, rows in by_setting.items():
        held = None
        for variant, timing in rows:
            if rates.verdict_kind(variant.together) in ("worse", "undecided"):
                break
            held = timing
        tolerated[_group_name(group, by_setting)] = held
    known = {name: timing for name, timing in tolerated.items() if timing is not None}
    first, *others = result.variants
    pairs = units.count(max(v.together.comparison.pairs for v in others if v.together.comparison), "paired episode")
    undecided = any(rates.verdict_kind(variant.together) == "undecided" for variant in others)
    ranked = sorted(known, key=lambda name: -known[name].imposed.median)
    if not any(known[name].imposed.median for name in ranked):
        head = "Inconclusive: no setting is shown to tolerate latency."
        head = head if undecided else f"Every latency costs {result.score}."
    elif len(ranked) > 1 and known[ranked[0]].imposed.median == known[ranked[-1]].imposed.median:
        head = f"{units.join_names(ranked)} tolerate {_latency(known[ranked[0]])} of latency."
    else:
        then = f", {ranked[1]} {_latency(known[ranked[1]])}" if len(tolerated) == 2 and len(ranked) == 2 else ""
        head = f"{ranked[0]} tolerates {_latency(known[ranked[0]])} of latency{then}."
    reference = f"{rates.mean_score(first.together)} {result.score} of {first.name}"
    sentences = [head, f"Up to {pairs} vs the {reference}; a loss up to {points(result.margin)} is tolerated."]
    if undecided:
        sentences.append(rates.next_command(result.command, resume="RUN", episodes=2 * result.planned))
    return sentences + [f"{each.name}: {_verdict(result, each)}." for each in others]


def _group_name(group: Group, groups: Collection[Group]) -> str:
    variants, engines = ({each[place] for each in groups} for place in (0, 1))
    name = group[1] if len(variants) == 1 else group[0] if len(engines) == 1 else ", ".join(group)
    return f"`{name}`" if "," in name else name


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
    timed = [(variant, variant.timing) for variant in result.variants if variant.timing is not None]
    rows = table(timed, _TIMED, kind=lambda pair: "whole" if pair[0] is result.variants[0] else "part")
    return Section(REALTIME, "Timing fidelity", rows.drop_empty_columns(), [_describe_timing(result)])


def _ms(value: float) -> str | None:
    return f"{value:,.0f}" if value >= 100 else units.number(value, 3)


_TIMED: Columns[tuple[EvaluatedVariant, Timing]] = [
    words("Variant", lambda pair: pair[0].name),
    figure("Latency, median (ms)", lambda pair: pair[1].imposed.median, _ms),
    figure(f"{units.P_TAIL} (ms)", lambda pair: pair[1].imposed.quantile(units.TAIL), _ms),
    figure("Ticks without an action", lambda pair: pair[1].starved_share, units.percent),
    figure("Lost actions", lambda pair: pair[1].lost),
    figure("Age, median (ms)", lambda pair: pair[1].age and pair[1].age.median, _ms),
    figure(f"{units.P_TAIL} (ms)", lambda pair: pair[1].age and pair[1].age.quantile(units.TAIL), _ms),
    figure("Chunk discontinuity", lambda pair: pair[1].jump_ratio, units.figures(2)),
]


def _describe_timing(result: EvaluateResult) -> str:
    timing = next(variant.timing for variant in result.variants if variant.timing is not None)
    return (
        f"The simulator went on while the policy was computing, at {units.number(timing.fps, 4)} control ticks per "
        "second of a virtual clock, around LeRobot's own inference engines. Latency: as imposed on the clock. A tick "
        "without an action takes no new action from the policy. An action is lost if the next action follows before "
        "the simulator takes it: after a call that lasts a tick or longer, the loop of lerobot-rollout does not wait. "
        "Age: from an observation until an action of its chunk was sent. Chunk discontinuity: the median distance of "
        "actions from one chunk to the next ÷ the 95th percentile of the distances in a chunk."
    )


def timed_plots(result: EvaluateResult) -> Plots:
    """Return success against latency, a line for each variant with each engine."""
    traces = []
    for index, ((variant, engine), rows) in enumerate(groups(result).items()):
        colour, successes = charts.colour(index), [variant.together.success for variant, _ in rows]
        latencies = [timing.latency for _, timing in rows]
        seen = [[of.successes, of.episodes, at] for of, at in zip(successes, latencies, strict=True)]
        drawn = {"mode": "lines+markers", "line": {"color": colour}, "customdata": seen}
        at, hover = [timing.imposed.median for _, timing in rows], f"%{{customdata[2]}}: {rates.OF}"
        traces.append(rates.success_points(f"{variant}, {engine}", at, successes, colour, hover, **drawn))
    x = charts.from_zero("latency of a call on the simulator's clock (median, ms)")
    layout = charts.layout(380, x, rates.AXIS, showlegend=True)
    return {REALTIME: [Plot("Success against latency", rates.BARS, traces, layout)]}
