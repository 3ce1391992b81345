"""Evaluation → document: the verdicts first, then success against latency, per task, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts, frame, measured
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
from strobe.core.results.data import Line
from strobe.core.results.numerals import points
from strobe.evaluate import page_checkpoints as checkpoints
from strobe.evaluate import page_rates as rates
from strobe.evaluate import page_times as times
from strobe.evaluate.pairs import Decided, verdict_in_words
from strobe.evaluate.results import EvaluatedVariant, EvaluateResult, LoopTimes, VariantOnTask

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
        sections.append(checkpoints.section(result, result.elimination))
    elif result.variants:
        sections.append(Section("variants", "Success against latency", _variants(result), _describe_variants(result)))
    if result.variants:
        sections.append(times.time_section(result))
        if any(variant.tasks for variant in result.variants):
            together = "The verdict on the checkpoints is on all tasks together, and not on one of them."
            about = [rates.TASKS if result.elimination is None else together]
            sections.append(Section("tasks", "Task by task", _tasks(result), about, detail=True))
        if times.is_timed(result):
            sections.append(times.timed_section(result))
        if result.videos:
            sections.append(_videos(result))
        if any(variant.chunk for variant in result.variants):
            sections.append(times.chunk_section(result))
        if any(variant.motion for variant in result.variants):
            sections.append(times.smoothness(result))
        sections += listing("times", "Where the time of an episode goes", result.variants, _TIMES, TIMES)
    sections += frame.added_sections(result)
    played = ", ".join(f"{variant.name}: {variant.together.success.episodes}" for variant in result.variants)
    done = f"episodes judged: {played or 'none'}"
    return measured.document(result, answers(result), sections, failure=None, done=done)


def answers(result: EvaluateResult) -> list[str]:
    """Return the decision, its figures and the next command, then each variant's time and what else was found."""
    if not result.variants:
        return ["No episode was played."]
    if result.score == "success" and not any(variant.together.success.successes for variant in result.variants):
        sentences = _explain_zero_success(result)
    elif result.elimination is not None:
        return checkpoints.answers(result, result.elimination)
    else:
        sentences = times.timed_answers(result) if times.is_timed(result) else _answers(result)
    if result.elimination is not None:
        return sentences
    if result.score == "success":
        sentences += rates.reward_disagrees([(variant.name, variant.together) for variant in result.variants])
    sentences += times.time_answers(result) + times.line_over_steps(result)
    if result.subject.source == RANDOM:
        sentences.append("Random weights: only the times say something about a trained policy.")
    return sentences


def _explain_zero_success(result: EvaluateResult) -> list[str]:
    episodes = sum(variant.together.success.episodes for variant in result.variants)
    several = "checkpoint" if result.elimination is not None else "variant"
    lost = (
        "Nothing separates the checkpoints, and none is shown to do the task."
        if result.elimination is not None
        else "No success could be lost, so no verdict says that the policy still does the task."
    )
    return [
        "No episode succeeded.",
        f"0 of {units.count(episodes, 'episode')} of {result.environment}, "
        f"{units.count(len(result.variants), several)}. {lost}",
        "Next: play a checkpoint that was trained for this simulator (--policy.path).",
    ]


def _answers(result: EvaluateResult) -> list[str]:
    """Return the decision on variants that the simulator waits for: the one to use, or that none is."""
    first, *others = result.variants
    success = first.together.success
    if not others:
        return [
            f"{result.subject.name} succeeds in {success.successes} of {units.count(success.episodes, 'episode')}.",
            f"Success rate {rates.rate(success)} in {result.environment}; {times.latency_clause(first)}.",
            _latency_command(result),
        ]
    verb, _, less, _ = rates.MORE[result.score]
    kinds: dict[str, Decided] = {
        variant.name: rates.verdict_kind(variant.together) or "undecided" for variant in others
    }
    usable = [variant for variant in others if kinds[variant.name] not in ("worse", "undecided")]
    chosen = max(usable, key=lambda v: (kinds[v.name] == "better", _speed(v) or 0.0), default=None)
    undecided = sum(kind == "undecided" for kind in kinds.values())
    pairs = max(judged.pairs for variant in others if (judged := variant.together.comparison) is not None)
    if chosen is not None:
        head = _headline(result, chosen, kinds[chosen.name])
    elif undecided:
        of = "the variant" if len(others) == 1 else f"{undecided} of {units.count(len(others), 'variant')}"
        head = f"Inconclusive: {units.count(pairs, 'pair')} of episodes do not decide {of}."
    elif len(others) == 1:
        head = f"{_subject(others[0])} {_verb(others[0], verb)} {less} than the baseline."
    else:
        head = f"All {len(others)} variants {verb} {less} than the baseline."
    best = chosen or others[0]
    sentences = [head, _describe_variant(result, first, best)]
    if undecided:
        sentences.append(rates.next_command(result.command, resume="RUN", episodes=2 * result.planned))
    elif chosen is not None:
        sentences.append(_latency_command(result))
    else:
        sentences.append("Next: use the baseline.")
    for kind in dict.fromkeys(kinds.values()):
        same = [variant for variant in others if variant is not best and kinds[variant.name] == kind]
        alike = [f"{_subject(of)} {rates.paired_points(of.together.comparison)}{_fast(of)}" for of in same]
        if alike:
            sentences.append(f"{units.capital(verdict_in_words(kind, result.margin))}: {'; '.join(alike)}.")
    return sentences


def _latency_command(result: EvaluateResult) -> str:
    return rates.next_command(result.command, why="see what latency costs: ", realtime="true", latency="0,100")


def _headline(result: EvaluateResult, chosen: EvaluatedVariant, kind: Decided) -> str:
    verb, more, _, as_much = rates.MORE[result.score]
    if kind == "better":
        return f"{_subject(chosen)} {_verb(chosen, verb)} {more} than the baseline."
    assert chosen.together.comparison is not None  # of all but the first
    if chosen.together.comparison.difference >= 0:
        return f"{_subject(chosen)} {_verb(chosen, verb)} {as_much} as the baseline, within {points(result.margin)}."
    return f"{_subject(chosen)} {_verb(chosen, 'lose')} at most {points(result.margin)} of {result.score}."


def _speed(variant: EvaluatedVariant) -> float | None:
    """Return how many times as fast as the first variant it is; None if that was not measured."""
    return variant.chunk.times if variant.chunk is not None else variant.times


def _is_count(variant: EvaluatedVariant) -> bool:
    return variant.steps is not None and not variant.recipe


def _subject(variant: EvaluatedVariant) -> str:
    return variant.name.replace(" step", " denoising step") if _is_count(variant) else f"`{variant.name}`"


def _verb(variant: EvaluatedVariant, verb: str) -> str:
    return verb if _is_count(variant) and variant.steps != 1 else f"{verb}s"


def _describe_variant(result: EvaluateResult, first: EvaluatedVariant, variant: EvaluatedVariant) -> str:
    score = f"{rates.mean_score(variant.together)} vs {rates.mean_score(first.together)} {result.score}"
    pairs = rates.describe_pairs(variant.together.comparison, result.planned)
    return f"{_subject(variant)}: {score}, {pairs}{_fast(variant, '; ')}."


def _fast(variant: EvaluatedVariant, after: str = ", ") -> str:
    speed = _speed(variant)
    return f"{after}{units.number(speed, 2)} × as fast" if speed is not None else ""


def _describe_variants(result: EvaluateResult) -> list[str]:
    about = [
        "All variants play the same starts with the same noise. Success has Clopper and Pearson's exact 95 % interval, "
        "for a number of episodes that was fixed beforehand. The difference has a 95 % interval that holds at every "
        "number of pairs at once; it decides after every start whether a variant is worse or better. A decided "
        f"variant plays no further.{rates.joint_confidence_sentence(len(result.variants) - 1)} "
        + times.describe_latency(result)
    ]
    if result.full_reward is not None:
        about.append(
            "Progress decides, and the difference is that of its mean. It is 1 for a success, else an episode's best "
            f"reward of a control tick ÷ {result.full_reward:g}, within 0 and 1."
        )
    return [*about, *([f"Before the start: {result.foresight}"] if result.foresight else [])]


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
    at: Columns[VariantOnTask] = [figure("At pairs", lambda on: on.comparison and on.comparison.decision.pairs, str)]
    return [*rates.columns(result.margin), *at]


def _share_of_tick(loop: LoopTimes, ms: float | None) -> float | None:
    """Return the share of a part in the tick of an episode whose simulator waits for the policy."""
    whole = loop.policy_ms + loop.step_ms + (loop.render_ms or 0.0)
    return ms / whole if ms is not None and whole > 0 else None


_TIMES: Columns[EvaluatedVariant] = [
    words("Variant", lambda variant: variant.name),
    figure("Calls", lambda variant: variant.calls.calls),
    figure("Call, median (ms)", lambda variant: variant.calls.median_ms, units.rate),
    figure(f"{units.P_TAIL} (ms)", lambda variant: variant.calls.quantile_ms(units.TAIL), units.rate),
    figure("Policy per tick (ms)", lambda variant: variant.loop.policy_ms, units.rate),
    figure("% of tick", lambda variant: _share_of_tick(variant.loop, variant.loop.policy_ms), units.percent),
    figure("Simulator per tick (ms)", lambda variant: variant.loop.step_ms, units.rate),
    figure("% of tick", lambda variant: _share_of_tick(variant.loop, variant.loop.step_ms), units.percent),
    figure("Rendering per tick (ms)", lambda variant: variant.loop.render_ms, units.rate),
    figure("% of tick", lambda variant: _share_of_tick(variant.loop, variant.loop.render_ms), units.percent),
    figure("Ticks drawn", lambda variant: variant.loop.drawn, units.percent),
    figure("Reset per episode (ms)", lambda variant: variant.loop.reset_ms, units.rate),
]


def _videos(result: EvaluateResult) -> Section:
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
        return curves | {checkpoints.CHECKPOINTS: [checkpoints.plot(result, result.elimination)]}
    drawn = [_latency_plot(result)]
    if sum(_steps(variant) is not None for variant in result.variants) > 1:
        steps = [_steps(variant) for variant in result.variants]
        drawn.append(_success_plot("Success against steps", result, steps, "denoising steps", " steps"))
    over_steps = {"latency": [_step_times_plot(result, result.line)]} if result.line is not None else {}
    return curves | {"variants": drawn} | over_steps


def _steps(variant: EvaluatedVariant) -> int | None:
    return None if variant.recipe else variant.steps


def _latency_plot(result: EvaluateResult) -> Plot:
    chunks = [variant.chunk.ms.median for variant in result.variants if variant.chunk is not None]
    if len(chunks) == len(result.variants):
        at, title = chunks, "ms per chunk, outside the episodes (median)"
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
