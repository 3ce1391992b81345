"""From the episodes of an evaluation to the rows of its table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from strobe.core.measure.statistics import bonferroni
from strobe.core.results.call_times import find_growth
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.play import Candidate, Episodes, Pairs, Plan
from strobe.evaluate.measure.success_rates import LEVEL, paired_rates, paired_scores, success_rate
from strobe.evaluate.measure.time_to_task import episode_ends, judge_times, time_to_task, time_unjudged_reason
from strobe.evaluate.pairs import TimeToTask
from strobe.evaluate.results import CallTimes, EvaluatedVariant, LoopTimes, Timing, VariantOnTask
from strobe.loops.measure.robot import mean_motion
from strobe.loops.measure.rollout import quantiles


def rows(plan: Plan, episodes: Episodes) -> list[EvaluatedVariant]:
    """A row for each variant that has an episode; the first variant first.

    Of the others, the episodes in complete pairs count. Of the first, all do, unless others are judged against it: then
    those that are in a pair with one of them.
    """
    first, *others = plan.candidates
    paired = {candidate.name: plan.pairs(episodes, candidate.name) for candidate in others}
    longest = max(paired.values(), key=len, default=[])
    own = [before for before, _ in longest] if longest else _variant_episodes(plan, first.name, episodes)
    table = [_row(plan, first, own, None)] if own else []
    return table + [_row(plan, candidate, [after for _, after in paired[candidate.name]], paired[candidate.name])
                    for candidate in others if paired[candidate.name]]  # fmt: skip


def unpaired_variants(plan: Plan, episodes: Episodes) -> list[EvaluatedVariant]:
    """A row for each variant that has an episode, with all its episodes and no judgement against the first."""
    played = [(candidate, _variant_episodes(plan, candidate.name, episodes)) for candidate in plan.candidates]
    return [_row(plan, candidate, own, None) for candidate, own in played if own]


def _variant_episodes(plan: Plan, name: str, episodes: Episodes) -> list[EpisodeLine]:
    played = (episodes.get((name, task, seed)) for task, seed in plan.starts())
    return [line for line in played if line is not None]


def _row(plan: Plan, candidate: Candidate, played: Sequence[EpisodeLine], pairs: Pairs | None) -> EvaluatedVariant:
    tasks = {task: [line for line in played if line.task == task] for task in plan.tasks}
    several = len(plan.tasks) > 1
    timing = _timing(candidate, played)
    why = time_unjudged_reason(episode_ends(played), episode_ends([before for before, _ in pairs or []]))
    return EvaluatedVariant(
        name=candidate.name,
        steps=candidate.steps,
        recipe=candidate.recipe,
        together=_rate_on_task(plan, played, pairs, LEVEL, len(plan.tasks)),
        tasks={
            task: _rate_on_task(
                plan, lines, pairs and [pair for pair in pairs if pair[0].task == task], bonferroni(len(plan.tasks))
            )
            for task, lines in tasks.items()
            if several and lines
        },
        calls=_calls(played),
        loop=_loop(played),
        times=_times(pairs) if timing is None else None,
        timing=timing,
        motion=mean_motion([line.motion for line in played if line.motion is not None]),
        time=None if why else _time(played, pairs, len(plan.tasks)),
        time_not_judged=why,
        path_ratio=None if pairs is None else _path_ratio(pairs),
    )


def _time(played: Sequence[EpisodeLine], pairs: Pairs | None, every: int) -> TimeToTask:
    if pairs is None:
        return time_to_task(episode_ends(played))
    first, second = (episode_ends([pair[side] for pair in pairs]) for side in (0, 1))
    return time_to_task(episode_ends(played), judge_times(first, second, LEVEL, every))


def _path_ratio(pairs: Pairs) -> float | None:
    """Return the length of the second's path of actions ÷ the first's, where both succeeded; None: nowhere."""
    lengths = [
        (a.motion.path * (a.ticks - 1), b.motion.path * (b.ticks - 1))
        for a, b in pairs
        if a.success and b.success and a.motion is not None and b.motion is not None
    ]
    first, second = (sum(pair[side] / len(lengths) for pair in lengths) for side in (0, 1))
    return second / first if first > 0 else None


def _rate_on_task(
    plan: Plan, played: Sequence[EpisodeLine], pairs: Pairs | None, level: float, every: int = 1
) -> VariantOnTask:
    # Divided before they are added: no sum of rewards may leave the range of a float.
    reward = sum(line.reward / len(played) for line in played)
    on = VariantOnTask(success=success_rate([line.success for line in played]), reward=reward)
    judges = (plan.margin, level, every)
    if pairs is not None:
        on.paired = paired_rates([a.success for a, _ in pairs], [b.success for _, b in pairs], *judges)
    if plan.full_reward is not None:
        on.progress = sum(map(plan.score, played)) / len(played)
        if pairs is not None:
            on.scored = paired_scores([plan.score(a) for a, _ in pairs], [plan.score(b) for _, b in pairs], *judges)
    return on


def _median_ms(played: Sequence[EpisodeLine]) -> float:
    return float(np.median([ms for line in played for ms in line.call_ms]))


def _times(pairs: Pairs | None) -> float | None:
    return None if pairs is None else _median_ms([a for a, _ in pairs]) / _median_ms([b for _, b in pairs])


def _calls(played: Sequence[EpisodeLine]) -> CallTimes:
    ms = [ms for line in played for ms in line.call_ms]
    median = float(np.median(ms))
    p95, others = float(np.percentile(ms, 95)), max(line.concurrent for line in played)
    begins = list(accumulate(len(line.call_ms) for line in played))[:-1]
    growth = find_growth(ms, begins)
    return CallTimes(calls=len(ms), median_ms=median, p95_ms=p95, hz=1e3 / median, concurrent=others, growth=growth)


def _loop(played: Sequence[EpisodeLine]) -> LoopTimes:
    rendered = [line for line in played if line.render_ms is not None]
    # Where rendering was not seen, it is in the simulator's time.
    timed = rendered or played
    ticks, timed_ticks = sum(line.ticks for line in played), sum(line.ticks for line in timed)
    seen = [line for line in played if line.drawn is not None]
    return LoopTimes(
        reset_ms=sum(line.reset_ms for line in played) / len(played),
        step_ms=sum(line.step_ms for line in timed) / timed_ticks,
        render_ms=sum(line.render_ms or 0.0 for line in rendered) / timed_ticks if rendered else None,
        policy_ms=sum(line.policy_ms for line in played) / ticks,
        drawn=sum(line.drawn or 0 for line in seen) / sum(line.ticks for line in seen) if seen else None,
    )


def _timing(candidate: Candidate, played: Sequence[EpisodeLine]) -> Timing | None:
    """Return the figures of a row's episodes; None if they were not true to time."""
    requested = candidate.timing
    episodes = [line.timing for line in played if line.timing is not None]
    if requested is None or not episodes:
        return None
    ages, steps, jumps = (
        [value for episode in episodes for value in values(episode)]
        for values in (lambda each: each.age_ms, lambda each: each.steps, lambda each: each.jumps)
    )
    usual = float(np.percentile(steps, 95)) if steps else 0.0
    return Timing(
        variant=candidate.variant.name,
        engine=requested.engine,
        setting=requested.setting,
        latency=requested.latency.name,
        hold=requested.hold.kind,
        fps=requested.fps,
        imposed=quantiles([ms for episode in episodes for ms in episode.imposed_ms]),
        ticks=sum(line.ticks for line in played),
        held=sum(episode.held for episode in episodes),
        lost=sum(episode.lost for episode in episodes),
        age=quantiles(ages) if ages else None,
        jumps=len(jumps),
        jump_ratio=float(np.median(jumps)) / usual if jumps and usual else None,
    )
