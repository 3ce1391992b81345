"""Evaluation → document: the verdicts first, then success against latency, per task, and where the time went."""

from __future__ import annotations

from dataclasses import replace

from strobe.report import evaluate_latency, evaluate_realtime, evaluate_videos, measured, rates, units
from strobe.report.document import Column, Document, Row, Section, Table
from strobe.results.data import Interval
from strobe.results.evaluate import EvaluateResult
from strobe.results.evaluation import EvaluatedVariant, VariantOnTask

RANDOM = "random weights"  # of a subject without a checkpoint


def outline(result: EvaluateResult, _depth: int | None = None) -> Document:
    """The document of an evaluation."""
    sections = []
    if result.variants:
        sections.append(Section("variants", "Success against latency", _variants(result), _about(result)))
        if any(one.tasks for one in result.variants):
            sections.append(Section("tasks", "Task by task", _tasks(result), [rates.TASKS], detail=True))
        if evaluate_realtime.is_timed(result):
            sections.append(evaluate_realtime.section(result))
        if result.videos:
            sections.append(evaluate_videos.section(result))
        if any(one.chunk for one in result.variants):
            sections.append(evaluate_latency.section(result))
        if any(one.motion for one in result.variants):
            sections.append(Section("motion", "How smooth the actions are", _motion(result), [_about_motion()]))
        sections.append(Section("times", "Where the time of an episode goes", _times(result), [_about_times()]))
    page = measured.document(result, answers(result), [])
    return replace(page, sections=sections, banner=_banner(result))


def answers(result: EvaluateResult) -> list[str]:
    """The verdict on each variant with its speed, the fewest steps that may do, and what the weights are worth."""
    if not result.variants:
        return ["No episode was played."]
    first, *others = result.variants
    timed = evaluate_realtime.is_timed(result)
    if timed:
        said = evaluate_realtime.answers(result)
    else:
        said = [_first(result, first), *(_judged(result, one) for one in others)]
    if any(one.together.success.successes for one in result.variants):
        said += [*([] if timed else _fewest(result)), *evaluate_latency.answers(result)]
    else:
        said.append("No episode succeeded: nothing could be lost, and no verdict says that the task is still done.")
        said += evaluate_latency.answers(result)
    if result.subject.source == RANDOM:
        said.append("The weights are random: nothing here says how a trained policy would do, apart from its times.")
    return said


def _first(result: EvaluateResult, first: EvaluatedVariant) -> str:
    success, took = first.together.success, evaluate_latency.took(first)
    steps = f" ({units.count(first.steps, 'denoising step')})" if first.steps is not None else ""
    where = f"{units.count(success.episodes, 'episode')} of {units.plain(result.environment)}"
    return (
        f"{units.plain(result.subject.name)} as it is{steps} succeeds in {success.successes} of {where}: "
        f"{rates.rate(success)}; {took}."
    )


def _judged(result: EvaluateResult, one: EvaluatedVariant) -> str:
    paired = one.together.paired
    assert paired is not None  # of all but the first
    decision, name = paired.decision, units.plain(one.name)
    plural = one.steps is not None and not one.recipe and one.steps != 1
    verb = "are" if plural else "is"
    times = one.chunk.times if one.chunk is not None else one.times
    faster = f"{units.number(times, 2)} × as fast" if times is not None else "of unknown speed"
    if decision.kind == "undecided":
        return (
            f"{name} {verb} undecided after {units.count(paired.pairs, 'pair')} (difference "
            f"{_span(decision.interval)} points), and {faster}."
        )
    decided = f"decided at {units.count(decision.pairs or 0, 'pair')}"
    return f"{name} {verb} {rates.verdict(decision.kind, result.margin)} ({decided}) and {faster}."


def _fewest(result: EvaluateResult) -> list[str]:
    """The smallest number of steps that was not shown to be worse, and what it may still lose."""
    tried = [one for one in result.variants[1:] if one.steps is not None and not one.recipe]
    if not tried:
        return []
    own = [one for one in result.variants[:1] if one.steps is not None]
    held = [
        one for one in (*own, *tried) if one.together.paired is None or one.together.paired.decision.kind != "worse"
    ]
    fewest = min(held, key=lambda one: one.steps or 0, default=None)
    if fewest is None:
        return ["Every number of steps that was tried is worse."]
    said = f"{fewest.steps} {'step is' if fewest.steps == 1 else 'steps are'} the fewest not shown to be worse"
    if fewest.chunk is not None:
        said += f" ({evaluate_latency.speed(fewest.chunk)})"
    if fewest.together.paired is None:
        return [f"{said}, the policy as it is."]
    return [f"{said}{rates.still(fewest.together)}."]


def _about(result: EvaluateResult) -> list[str]:
    said = [
        "All variants are played from the same starts with the same noise. Success with Clopper and Pearson's exact "
        "interval (95 %), for a number of episodes that was fixed beforehand; the difference with an interval that "
        "holds at every number of pairs at once (95 %), by which each variant is judged after every start. A decided "
        f"variant is played no further.{rates.each(len(result.variants) - 1)} " + evaluate_latency.about(result)
    ]
    return [*said, *([f"Said before it started: {units.plain(result.foresight)}"] if result.foresight else [])]


def _variants(result: EvaluateResult) -> Table:
    columns = [Column("Variant", numeric=False), *_SUCCESS, *evaluate_latency.columns(result)]
    rows = []
    for number, one in enumerate(result.variants):
        cells = [units.plain(one.name), *_success(result, one.together), *evaluate_latency.cells(result, one)]
        rows.append(Row(cells, "part" if number else "whole"))
    return Table(columns, rows).without_empty_columns()


def _tasks(result: EvaluateResult) -> Table:
    columns = [Column("Task", numeric=False), Column("Variant", numeric=False), *_SUCCESS]
    found = [(task, one.name, one.tasks[task]) for task in result.tasks for one in result.variants if task in one.tasks]
    rows = [Row([units.plain(task), units.plain(name), *_success(result, on)]) for task, name, on in found]
    return Table(columns, rows).without_empty_columns()


_SUCCESS = [
    Column("Episodes"),
    Column("Success (95 % interval)"),
    Column("Reward (mean)"),
    Column("Difference, points (interval)"),
    Column("Verdict", numeric=False),
    Column("At pairs"),
]


def _success(result: EvaluateResult, on: VariantOnTask) -> list[str | None]:
    """The cells of the columns ``_SUCCESS``."""
    cells = [str(on.success.episodes), rates.rate(on.success), units.number(on.reward)]
    if on.paired is None:
        return [*cells, None, None, None]
    decision = on.paired.decision
    cells += [rates.difference(on.paired.difference, decision.interval), rates.verdict(decision.kind, result.margin)]
    return [*cells, None if decision.pairs is None else str(decision.pairs)]


def _span(interval: Interval) -> str:
    return f"{units.signed(100 * interval.low, 1)} to {units.signed(100 * interval.high, 1)}"


def _times(result: EvaluateResult) -> Table:
    columns = [Column("Variant", numeric=False), Column("Calls"), Column("Call, median (ms)"), Column("p95 (ms)")]
    columns += [Column("Policy per tick (ms)")]
    columns += [Column("Simulator per tick (ms)"), Column("Rendering per tick (ms)"), Column("Ticks drawn")]
    columns += [Column("Reset per episode (ms)")]
    rows = []
    for one in result.variants:
        loop = one.loop
        figures = (one.calls.median_ms, one.calls.p95_ms, loop.policy_ms, loop.step_ms, loop.render_ms)
        drawn = None if loop.drawn is None else units.percent(loop.drawn)
        cells = [units.plain(one.name), f"{one.calls.calls:,}"]
        cells += [None if ms is None else units.rate(ms) for ms in figures]
        rows.append(Row([*cells, drawn, units.rate(loop.reset_ms)]))
    return Table(columns, rows).without_empty_columns()


def _motion(result: EvaluateResult) -> Table:
    titles = ("Path per tick", "Step within a chunk", "Step to a new chunk", "Jerk per tick³")
    rows = []
    for one in result.variants:
        if (moved := one.motion) is not None:
            figures = (moved.path, moved.within, moved.seam, moved.jerk)
            rows.append(Row([units.plain(one.name), *(units.number(value, 3) for value in figures)]))
    return Table([Column("Variant", numeric=False), *map(Column, titles)], rows).without_empty_columns()


def _about_motion() -> str:
    return (
        "Means over the episodes, in the actions' own units, Euclidean over their dimensions: the distance of an "
        "action to the one before it, and the third difference (root mean square). Whoever has done the task rests, so "
        "read differences beside the success."
    )


def _about_times() -> str:
    return (
        "Means, where no other figure is named. In most control ticks the policy only takes an action from its queue. "
        "The simulator's time is without the rendering of its observations, where that could be seen; the reset holds "
        "the first rendering. Ticks drawn are those whose observation was drawn: unless --render=always was asked for, "
        "those that the policy looks at, where that is known."
    )


def _banner(result: EvaluateResult) -> str | None:
    if result.status == "complete":
        return None
    played = ", ".join(f"{units.plain(one.name)}: {one.together.success.episodes}" for one in result.variants)
    ended = "Interrupted: this run was stopped before it was done" if result.status == "interrupted" else "Failed"
    return f"{ended} (episodes judged: {played or 'none'})."
