"""Evaluation → document: the verdicts first, then success against latency, per task, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.budget.results import Line
from strobe.core.report import charts, measured
from strobe.core.report.charts import Plot
from strobe.core.report.document import (
    Clip,
    ClipRow,
    Columns,
    Document,
    Section,
    Table,
    figure,
    lift_columns,
    listing,
    table,
    words,
)
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.evaluate import page_rates as rates
from strobe.evaluate import page_times as times
from strobe.evaluate.pairs import PairedRates, SuccessRate, time_in_words, verdict_in_words
from strobe.evaluate.results import Elimination, EvaluatedVariant, EvaluateResult, PlayedCheckpoint, VariantOnTask

RANDOM = "random weights"  # weights of a subject without a checkpoint
TIMES = (
    "Means, unless another figure is named. In most control ticks the policy only takes an action from its queue. The "
    "simulator's time does not include the rendering of its observations, if that could be measured. The reset "
    "includes the first rendering. 'Ticks drawn' are the ticks whose observation was drawn: those that the policy "
    "looks at, if they are known, or all with --render=always."
)


def outline(result: EvaluateResult, _depth: int | None = None) -> Document:
    """Return the document of an evaluation."""
    sections = []
    if result.variants and result.elimination is not None:
        sections.append(_checkpoints(result, result.elimination))
    elif result.variants:
        sections.append(Section("variants", "Success against latency", _variants(result), _describe_variants(result)))
    if result.variants:
        sections.append(times.time_section(result))
        if any(variant.tasks for variant in result.variants):
            sections.append(Section("tasks", "Task by task", _tasks(result), _describe_tasks(result), detail=True))
        if times.is_timed(result):
            sections.append(times.timed_section(result))
        if result.videos:
            sections.append(_videos(result))
        if any(variant.chunk for variant in result.variants):
            sections.append(times.chunk_section(result))
        if any(variant.motion for variant in result.variants):
            sections.append(times.smoothness(result))
        sections += listing("times", "Where the time of an episode goes", result.variants, _TIMES, TIMES)
    played = ", ".join(f"{variant.name}: {variant.together.success.episodes}" for variant in result.variants)
    done = f"episodes judged: {played or 'none'}"
    return measured.document(result, answers(result), sections, failure=None, done=done)


def answers(result: EvaluateResult) -> list[str]:
    """Return each variant's verdict with its speed, the fewest steps that may do, and what the weights are worth."""
    if not result.variants:
        return ["No episode was played."]
    if result.elimination is not None:
        return [*_checkpoint_answers(result, result.elimination), *_explain_zero_success(result)]
    first, *others = result.variants
    timed = times.is_timed(result)
    if timed:
        sentences = times.timed_answers(result)
    else:
        sentences = [_describe_first(result, first), *(_describe_variant(result, variant) for variant in others)]
    sentences += times.time_answers(result)
    sentences += _explain_zero_success(result) or ([] if timed else _fewest(result))
    sentences += times.line_over_steps(result)
    if result.subject.source == RANDOM:
        sentences.append("The weights are random. Only the times say something about a trained policy.")
    return sentences


def _explain_zero_success(result: EvaluateResult) -> list[str]:
    """Return what episodes without any success do not show; nothing where one succeeded."""
    if any(variant.together.success.successes for variant in result.variants):
        return []
    if result.elimination is not None:
        return ["No episode succeeded, so nothing tells the checkpoints apart. None is shown to do the task."]
    return ["No episode succeeded, so no success could be lost. No verdict says that the policy still does the task."]


def _describe_tasks(result: EvaluateResult) -> list[str]:
    if result.elimination is not None:
        return ["The checkpoints are judged on all tasks together, and not on one of them."]
    return [rates.TASKS]


def _describe_first(result: EvaluateResult, first: EvaluatedVariant) -> str:
    success, latency = first.together.success, times.latency_clause(first)
    steps = f" ({units.count(first.steps, 'denoising step')})" if first.steps is not None else ""
    where = f"{units.count(success.episodes, 'episode')} of {result.environment}"
    return (
        f"{result.subject.name} as it is{steps} succeeds in {success.successes} of {where}: "
        f"{rates.rate(success)}; {latency}."
    )


def _describe_variant(result: EvaluateResult, variant: EvaluatedVariant) -> str:
    paired = variant.together.paired
    assert paired is not None  # of all but the first
    decision, name = paired.decision, variant.name
    plural = variant.steps is not None and not variant.recipe and variant.steps != 1
    verb = "are" if plural else "is"
    times = variant.chunk.times if variant.chunk is not None else variant.times
    faster = f"{units.number(times, 2)} × as fast" if times is not None else "of unknown speed"
    if decision.kind == "undecided":
        return (
            f"{name} {verb} undecided after {units.count(paired.pairs, 'pair')} (difference "
            f"{_span(decision.interval)} points), and {faster}."
        )
    decided = f"decided at {units.count(decision.pairs or 0, 'pair')}"
    return f"{name} {verb} {verdict_in_words(decision.kind, result.margin)} ({decided}) and {faster}."


def _fewest(result: EvaluateResult) -> list[str]:
    """Return the smallest number of steps that was not shown to be worse, and what it may still lose."""
    tried = [variant for variant in result.variants[1:] if variant.steps is not None and not variant.recipe]
    if not tried:
        return []
    own = [variant for variant in result.variants[:1] if variant.steps is not None]
    held = [
        variant
        for variant in (*own, *tried)
        if variant.together.paired is None or variant.together.paired.decision.kind != "worse"
    ]
    fewest = min(held, key=lambda variant: variant.steps or 0, default=None)
    if fewest is None:
        return ["Every number of steps that was tried is worse."]
    text = f"{fewest.steps} {'step is' if fewest.steps == 1 else 'steps are'} the fewest not shown to be worse"
    if fewest.chunk is not None:
        text += f" ({times.chunk_speed(fewest.chunk)})"
    if fewest.together.paired is None:
        return [f"{text}, the baseline."]
    return [f"{text}{rates.possible_loss(fewest.together)}."]


def _describe_variants(result: EvaluateResult) -> list[str]:
    about = [
        "All variants are played from the same starts with the same noise. Success with Clopper and Pearson's exact "
        "interval (95 %), for a number of episodes that was fixed beforehand; the difference with an interval that "
        "holds at every number of pairs at once (95 %), by which each variant is judged after every start. A decided "
        f"variant is played no further.{rates.joint_confidence_sentence(len(result.variants) - 1)} "
        + times.describe_latency(result)
    ]
    return [*about, *([f"Said before it started: {result.foresight}"] if result.foresight else [])]


def _variants(result: EvaluateResult) -> Table:
    columns: Columns[EvaluatedVariant] = [
        words("Variant", lambda variant: variant.name),
        *lift_columns(lambda variant: variant.together, _success_columns(result)),
        *times.latency_columns(result),
    ]
    rows = table(result.variants, columns, kind=lambda variant: "whole" if variant is result.variants[0] else "part")
    return rows.drop_empty_columns()


def _tasks(result: EvaluateResult) -> Table:
    columns: Columns[tuple[str, str, VariantOnTask]] = [
        words("Task", lambda played: played[0]),
        words("Variant", lambda played: played[1]),
        *lift_columns(lambda played: played[2], _success_columns(result)),
    ]
    played = [
        (task, variant.name, variant.tasks[task])
        for task in result.tasks
        for variant in result.variants
        if task in variant.tasks
    ]
    return table(played, columns).drop_empty_columns()


def _success_columns(result: EvaluateResult) -> Columns[VariantOnTask]:
    at: Columns[VariantOnTask] = [figure("At pairs", lambda on: on.paired and on.paired.decision.pairs, str)]
    return [*rates.columns(result.margin), *at]


def _span(interval: Interval) -> str:
    return f"{units.format_signed(100 * interval.low, 1)} to {units.format_signed(100 * interval.high, 1)}"


_TIMES: Columns[EvaluatedVariant] = [
    words("Variant", lambda variant: variant.name),
    figure("Calls", lambda variant: variant.calls.calls),
    figure("Call, median (ms)", lambda variant: variant.calls.median_ms, units.rate),
    figure(f"{units.P_TAIL} (ms)", lambda variant: variant.calls.quantile_ms(units.TAIL), units.rate),
    figure("Policy per tick (ms)", lambda variant: variant.loop.policy_ms, units.rate),
    figure("Simulator per tick (ms)", lambda variant: variant.loop.step_ms, units.rate),
    figure("Rendering per tick (ms)", lambda variant: variant.loop.render_ms, units.rate),
    figure("Ticks drawn", lambda variant: variant.loop.drawn, units.percent),
    figure("Reset per episode (ms)", lambda variant: variant.loop.reset_ms, units.rate),
]


def _videos(result: EvaluateResult) -> Section:
    """Return the videos of the episodes, a row for each start with the variants side by side."""
    starts: dict[tuple[str, int], list[Clip]] = {}
    for video in result.videos:
        ending = f"{'success' if video.success else 'failure'}, {video.seconds:.1f} s"
        clip = Clip(video.variant, ending, video.success, video.file, video.poster)
        starts.setdefault((video.task, video.seed), []).append(clip)
    rows = [ClipRow(f"{task}, seed {seed}", clips) for (task, seed), clips in starts.items()]
    text = (
        f"{units.count(len(result.videos), 'video')} in the run's folder, of the first "
        f"{units.count(len(rows), 'start')}. The variants of one start are side by side, in simulated time."
    )
    return Section("videos", "Videos of episodes", text=[text], clips=rows)


def plots(result: EvaluateResult, _depth: int | None = None) -> Plots:
    """Return success against latency and against denoising steps, by the key of their section."""
    curves = times.time_plots(result)
    if times.is_timed(result):
        return curves | times.timed_plots(result)  # calls here say nothing of the clock's latency
    if not result.variants:
        return {}
    if result.elimination is not None:
        return curves | {CHECKPOINTS: [_checkpoint_plot(result, result.elimination)]}
    drawn = [_latency_plot(result)]
    if sum(_steps(variant) is not None for variant in result.variants) > 1:
        steps = [_steps(variant) for variant in result.variants]
        drawn.append(_success_plot("Success against steps", result, steps, "denoising steps", " steps"))
    return (
        curves
        | {"variants": drawn}
        | ({"latency": [_step_times_plot(result, result.line)]} if result.line is not None else {})
    )


def _steps(variant: EvaluatedVariant) -> int | None:
    """Return the denoising steps of a variant that has no recipe."""
    return None if variant.recipe else variant.steps


def _latency_plot(result: EvaluateResult) -> Plot:
    chunks = [variant.chunk.ms.median for variant in result.variants if variant.chunk is not None]
    if len(chunks) == len(result.variants):
        at, title = chunks, "ms per chunk, apart from the episodes (median)"
    else:
        at, title = [variant.calls.median_ms for variant in result.variants], "ms per call of the policy (median)"
    return _success_plot("Success against latency", result, at, title, " ms")


def _success_plot(title: str, result: EvaluateResult, at: Sequence[float | None], axis: str, unit: str) -> Plot:
    """Draw a point for each variant at its place ``at``, left out where that is None."""
    traces, hover = [], f"%{{x:.4~g}}{unit}, {rates.OF}"
    for index, (variant, place) in enumerate(zip(result.variants, at, strict=True)):
        if place is not None:
            named = {"mode": "markers+text", "text": [variant.name], "textposition": "middle right"}
            success, colour = [variant.together.success], charts.colour(index)
            traces.append(rates.success_points(variant.name, [place], success, colour, hover, **named))
    layout = charts.layout(380, charts.from_zero(axis), rates.AXIS, showlegend=len(result.variants) > 1)
    return Plot(title, rates.BARS, traces, layout)


def _step_times_plot(result: EvaluateResult, line: Line) -> Plot:
    points = [(v.steps, v.chunk.ms) for v in result.variants if _steps(v) is not None and v.chunk is not None]
    steps = [0, *sorted(line.predicted)]
    straight = [line.fixed_ms + line.per_step_ms * count for count in steps]
    hover, medians = "%{y:.4~g} ms<extra>%{x} steps</extra>", [ms.median for _, ms in points]
    bars = charts.error_bars(medians, [ms.interval for _, ms in points], charts.colour(0))
    at = [count for count, _ in points]
    traces = [
        charts.line("a + b × steps", steps, straight, charts.colour(1), hover, style={"dash": "dot"}),
        charts.points("measured", at, medians, charts.colour(0), hover, error_y=bars),
    ]
    layout = charts.layout(320, charts.from_zero("denoising steps"), charts.from_zero("ms per chunk (median)"))
    return Plot("Latency over denoising steps", "The line is by least squares on the medians.", traces, layout)


CHECKPOINTS = "checkpoints"


def _checkpoint_answers(result: EvaluateResult, elimination: Elimination) -> list[str]:
    """Return which checkpoint is the best, or which are not told apart, with each one's success and time."""
    remaining = [checkpoint.name for checkpoint in elimination.remaining]
    gone = [checkpoint for checkpoint in elimination.checkpoints if checkpoint.by]
    when = "; ".join(
        f"{each.name} was eliminated after {units.count(each.starts, 'start')}, worse than {each.by}" for each in gone
    )
    if len(remaining) == 1:
        sentences = [f"{remaining[0]} is the best: {when}."]
    else:
        apart = f"{_join_names(remaining)} are not told apart after {units.count(elimination.starts, 'start')}"
        sentences = [f"{apart}: none of them is shown to succeed less than another one."]
        sentences += [f"{when}."] if when else []
    success = _success(result)
    for each in elimination.checkpoints:
        if each.name in success:
            sentences.append(_describe_checkpoint(each, success[each.name], elimination))
    sentences += [
        _describe_time_verdict(each, elimination) for each in elimination.remaining if each.name != elimination.best
    ]
    return [
        *sentences,
        f"All statements on success together are right at {_level(elimination.level)}, after every start.",
    ]


def _describe_checkpoint(each: PlayedCheckpoint, success: SuccessRate, elimination: Elimination) -> str:
    seen = f"{each.name} succeeds in {success.successes} of {units.count(success.episodes, 'start')}"
    if each.rates is None:
        return f"{seen}."
    return f"{seen}: {_difference(each.rates)} points against {elimination.best}."


def _describe_time_verdict(each: PlayedCheckpoint, elimination: Elimination) -> str:
    """Return what time to task says of a checkpoint that success does not tell from the best one."""
    if each.times is None:
        why = each.times_not_judged or "no start was played by both"
        return f"By time to task {each.name} and {elimination.best} are not judged: {why}."
    return f"By time to task {each.name} {time_in_words(each.times)}, against {elimination.best}."


def _checkpoints(result: EvaluateResult, elimination: Elimination) -> Section:
    """Return the table of the checkpoints, with what it rests on."""
    success = _success(result)
    calls = {variant.name: variant.calls.median_ms for variant in result.variants}
    columns: Columns[PlayedCheckpoint] = [
        words("Checkpoint", lambda each: each.name),
        words("Policy", lambda each: each.policy),
        figure("Episodes", lambda each: success.get(each.name), lambda own: str(own.episodes)),
        figure("Success (95 % interval)", lambda each: success.get(each.name), rates.rate),
        figure("Against the best, points (interval)", lambda each: each.rates, _difference),
        words("Time against the best", lambda each: None if each.times is None else time_in_words(each.times)),
        figure("ms per call", lambda each: calls.get(each.name), units.rate),
        words("Outcome", lambda each: _outcome(each, elimination)),
    ]
    rows = table(
        elimination.checkpoints, columns, kind=lambda each: "whole" if each.name == elimination.best else "part"
    )
    return Section(CHECKPOINTS, "Checkpoints", rows.drop_empty_columns(), _describe_checkpoints(elimination))


def _outcome(each: PlayedCheckpoint, elimination: Elimination) -> str:
    if each.by:
        return f"eliminated after {units.count(each.starts, 'start')}, worse than {each.by}"
    if len(elimination.remaining) == 1:
        return "the best"
    return "not told apart; the others are compared with it" if each.name == elimination.best else "not told apart"


def _describe_checkpoints(elimination: Elimination) -> list[str]:
    count = len(elimination.checkpoints)
    pairs = count * (count - 1) // 2
    each, level = _level(elimination.each_level), _level(elimination.level)
    text = [
        "All checkpoints play the same starts with the same noise. After each start one is eliminated if it is shown "
        "to succeed less than another one that remains. The intervals of the differences hold at every number of "
        f"starts at once. They are of {units.count(pairs, 'pair')}, at {each} each, so all together have "
        f"{level}: a best checkpoint is eliminated with a chance of at most {_level(1 - elimination.level)}, "
        "and of equal ones none is called the best. The interval of a success rate is exact (Clopper and Pearson), for "
        "a number of episodes that was fixed beforehand.",
        "Time to task eliminates none. It is shown against the best one, in the same pairs and at the same level, all "
        f"pairs together at {level}.",
    ]
    named = [f"{each.name} is {each.path}." for each in elimination.checkpoints if each.name != each.path]
    reasons = {each.name: each.times_not_judged for each in elimination.checkpoints if each.times_not_judged}
    return [*text, *(f"{name}: time is not judged: {why}." for name, why in reasons.items()), *named]


def _checkpoint_plot(result: EvaluateResult, elimination: Elimination) -> Plot:
    """Return the success of each checkpoint with its interval, in the order in which they were given."""
    success = _success(result)
    seen = [each for each in elimination.checkpoints if each.name in success]
    traces = [
        rates.success_points(each.name, [place], [success[each.name]], charts.colour(place), rates.OF)
        for place, each in enumerate(seen)
    ]
    caption = f"{rates.BARS} A checkpoint that was eliminated has fewer episodes. The table compares them in pairs."
    layout = charts.layout(380, charts.names_axis([each.name for each in seen]), rates.AXIS, showlegend=False)
    return Plot("Success of each checkpoint", caption, traces, layout)


def _success(result: EvaluateResult) -> dict[str, SuccessRate]:
    return {variant.name: variant.together.success for variant in result.variants}


def _difference(paired: PairedRates) -> str:
    return rates.difference(paired.difference, paired.decision.interval)


def _level(share: float) -> str:
    return f"{100 * share:.4g} %"


def _join_names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
