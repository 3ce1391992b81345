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
    listing,
    of,
    table,
    words,
)
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Interval
from strobe.evaluate.pages import elimination, evaluate_timing, rates, time_to_task
from strobe.evaluate.results.evaluate import EvaluatedVariant, EvaluateResult, VariantOnTask, verdict_in_words

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
        sections.append(elimination.section(result, result.elimination))
    elif result.variants:
        sections.append(Section("variants", "Success against latency", _variants(result), _about(result)))
    if result.variants:
        sections.append(time_to_task.section(result))
        if any(variant.tasks for variant in result.variants):
            sections.append(Section("tasks", "Task by task", _tasks(result), _about_tasks(result), detail=True))
        if evaluate_timing.is_timed(result):
            sections.append(evaluate_timing.timed_section(result))
        if result.videos:
            sections.append(_videos(result))
        if any(variant.chunk for variant in result.variants):
            sections.append(evaluate_timing.chunk_section(result))
        if any(variant.motion for variant in result.variants):
            sections.append(time_to_task.smoothness(result))
        sections += listing("times", "Where the time of an episode goes", result.variants, _TIMES, TIMES)
    played = ", ".join(f"{variant.name}: {variant.together.success.episodes}" for variant in result.variants)
    done = f"episodes judged: {played or 'none'}"
    return measured.document(result, answers(result), sections, failure=None, done=done)


def answers(result: EvaluateResult) -> list[str]:
    """Return each variant's verdict with its speed, the fewest steps that may do, and what the weights are worth."""
    if not result.variants:
        return ["No episode was played."]
    if result.elimination is not None:
        return [*elimination.answers(result, result.elimination), *_without_success(result)]
    first, *others = result.variants
    timed = evaluate_timing.is_timed(result)
    if timed:
        sentences = evaluate_timing.timed_answers(result)
    else:
        sentences = [_describe_first(result, first), *(_describe_variant(result, variant) for variant in others)]
    sentences += time_to_task.answers(result)
    sentences += _without_success(result) or ([] if timed else _fewest(result))
    sentences += evaluate_timing.line_over_steps(result)
    if result.subject.source == RANDOM:
        sentences.append("The weights are random. Only the times say something about a trained policy.")
    return sentences


def _without_success(result: EvaluateResult) -> list[str]:
    """Return what episodes without any success do not show; nothing where one succeeded."""
    if any(variant.together.success.successes for variant in result.variants):
        return []
    if result.elimination is not None:
        return ["No episode succeeded, so nothing tells the checkpoints apart. None is shown to do the task."]
    return ["No episode succeeded, so no success could be lost. No verdict says that the policy still does the task."]


def _about_tasks(result: EvaluateResult) -> list[str]:
    if result.elimination is not None:
        return ["The checkpoints are judged on all tasks together, and not on one of them."]
    return [rates.TASKS]


def _describe_first(result: EvaluateResult, first: EvaluatedVariant) -> str:
    success, latency = first.together.success, evaluate_timing.latency_clause(first)
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
        text += f" ({evaluate_timing.chunk_speed(fewest.chunk)})"
    if fewest.together.paired is None:
        return [f"{text}, the policy as it is."]
    return [f"{text}{rates.possible_loss(fewest.together)}."]


def _about(result: EvaluateResult) -> list[str]:
    about = [
        "All variants are played from the same starts with the same noise. Success with Clopper and Pearson's exact "
        "interval (95 %), for a number of episodes that was fixed beforehand; the difference with an interval that "
        "holds at every number of pairs at once (95 %), by which each variant is judged after every start. A decided "
        f"variant is played no further.{rates.how_sure(len(result.variants) - 1)} "
        + evaluate_timing.about_latency(result)
    ]
    return [*about, *([f"Said before it started: {result.foresight}"] if result.foresight else [])]


def _variants(result: EvaluateResult) -> Table:
    columns: Columns[EvaluatedVariant] = [
        words("Variant", lambda variant: variant.name),
        *of(lambda variant: variant.together, _success_columns(result)),
        *evaluate_timing.latency_columns(result),
    ]
    rows = table(result.variants, columns, kind=lambda variant: "whole" if variant is result.variants[0] else "part")
    return rows.without_empty_columns()


def _tasks(result: EvaluateResult) -> Table:
    columns: Columns[tuple[str, str, VariantOnTask]] = [
        words("Task", lambda played: played[0]),
        words("Variant", lambda played: played[1]),
        *of(lambda played: played[2], _success_columns(result)),
    ]
    played = [
        (task, variant.name, variant.tasks[task])
        for task in result.tasks
        for variant in result.variants
        if task in variant.tasks
    ]
    return table(played, columns).without_empty_columns()


def _success_columns(result: EvaluateResult) -> Columns[VariantOnTask]:
    at: Columns[VariantOnTask] = [figure("At pairs", lambda on: on.paired and on.paired.decision.pairs, str)]
    return [*rates.columns(result.margin), *at]


def _span(interval: Interval) -> str:
    return f"{units.signed(100 * interval.low, 1)} to {units.signed(100 * interval.high, 1)}"


_TIMES: Columns[EvaluatedVariant] = [
    words("Variant", lambda variant: variant.name),
    figure("Calls", lambda variant: variant.calls.calls),
    figure("Call, median (ms)", lambda variant: variant.calls.median_ms, units.rate),
    figure(f"{units.P_TAIL} (ms)", lambda variant: variant.calls.at(units.TAIL), units.rate),
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
    curves = time_to_task.plots(result)
    if evaluate_timing.is_timed(result):
        return curves | evaluate_timing.timed_plots(result)  # calls here say nothing of the clock's latency
    if not result.variants:
        return {}
    if result.elimination is not None:
        return curves | {elimination.KEY: [elimination.plot(result, result.elimination)]}
    drawn = [_against_latency(result)]
    if sum(_steps(variant) is not None for variant in result.variants) > 1:
        steps = [_steps(variant) for variant in result.variants]
        drawn.append(_success_at("Success against steps", result, steps, "denoising steps", " steps"))
    return (
        curves
        | {"variants": drawn}
        | ({"latency": [_over_steps(result, result.line)]} if result.line is not None else {})
    )


def _steps(variant: EvaluatedVariant) -> int | None:
    """Return the denoising steps of a variant that has no recipe."""
    return None if variant.recipe else variant.steps


def _against_latency(result: EvaluateResult) -> Plot:
    chunks = [variant.chunk.ms.median for variant in result.variants if variant.chunk is not None]
    if len(chunks) == len(result.variants):
        at, title = chunks, "ms per chunk, apart from the episodes (median)"
    else:
        at, title = [variant.calls.median_ms for variant in result.variants], "ms per call of the policy (median)"
    return _success_at("Success against latency", result, at, title, " ms")


def _success_at(title: str, result: EvaluateResult, at: Sequence[float | None], axis: str, unit: str) -> Plot:
    """Draw a point for each variant at its place ``at``, left out where that is None."""
    traces, hover = [], f"%{{x:.4~g}}{unit}, {rates.OF}"
    for index, (variant, place) in enumerate(zip(result.variants, at, strict=True)):
        if place is not None:
            named = {"mode": "markers+text", "text": [variant.name], "textposition": "middle right"}
            success, colour = [variant.together.success], charts.colour(index)
            traces.append(rates.success_points(variant.name, [place], success, colour, hover, **named))
    layout = charts.layout(380, charts.from_zero(axis), rates.AXIS, showlegend=len(result.variants) > 1)
    return Plot(title, rates.BARS, traces, layout)


def _over_steps(result: EvaluateResult, line: Line) -> Plot:
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
