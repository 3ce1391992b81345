"""Tune: play the settings of each latency in rounds, then the winner against the default on fresh starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strobe.core.measure.sampling import SamplingBudget
from strobe.core.measure.statistics import bonferroni
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options
from strobe.evaluate.episode_log import EpisodeLog
from strobe.evaluate.episodes.play import EpisodeReporter, EpisodeRunner, ParallelEpisodeRunner, play
from strobe.evaluate.measure.best_arm import mean_s
from strobe.evaluate.measure.success_rates import LEVEL, paired_rates, success_rate
from strobe.evaluate.measure.time_to_task import ends_of, judge_times, why_not_judged
from strobe.tune.results import Closing, SettingRow, TuneResult, Tuning
from strobe.tune.rows import TunedCandidate
from strobe.tune.search import Search, SearchPlan

if TYPE_CHECKING:
    from strobe.lerobot.policies.policy_subject import PolicySubject

NOT_TRIED = (
    "interpolation between actions (--interpolation_multiplier) and another control rate (--fps): a simulator steps at "
    "a rate of its own"
)


@dataclass(frozen=True)
class AtLatency:
    """The tuning at one latency: its search, the ticks that a call lasts, and setting → why it cannot work."""

    latency: str
    ticks: int
    plan: SearchPlan
    left_out: Mapping[str, str]


def tune(
    subject: PolicySubject,
    environment: str,
    tunings: Sequence[AtLatency],
    player: EpisodeRunner | ParallelEpisodeRunner,
    log: EpisodeLog,
    watching: EpisodeReporter,
    fps: float,
) -> TuneResult:
    """Play each latency's search, one after the other, and judge its winner. Ctrl-C keeps what was played.

    Args:
        environment: the simulator's name.
        log: empty, or with the episodes of the run that --resume continues.
        fps: control ticks per second.

    Raises:
        UserError: an episode fails; those before it are in the log.
        KeyboardInterrupt: before the first episode has ended.
    """
    plan = tunings[0].plan
    title = f"{subject.info.name}: settings for {environment}"
    options = Options(SamplingBudget(iterations=1), counted=False)
    fields = {"environment": environment, "tasks": list(plan.tasks), "fps": fps, "margin": plan.margin}
    result = begin_result(TuneResult, subject, title, options, watching, **fields)
    result.not_tried = [f"Not tried: {NOT_TRIED}."]
    for tuning in tunings:
        search = Search(tuning.plan)
        count = len(tuning.plan.candidates)
        watching.stage(f"{count} settings at {tuning.latency}, up to {tuning.plan.starts} starts of each")
        interrupted = play(search, player, log, watching)
        for _ in search.advance(log.episodes):  # what the last episode decided
            pass
        result.tunings.append(_tuning(tuning, search))
        if interrupted:
            result.status = "interrupted"
            break
    if not any(each.played for each in result.tunings):
        raise KeyboardInterrupt
    return result


def _tuning(tuning: AtLatency, search: Search) -> Tuning:
    plan, rounds = search.plan, search.played_in_rounds()
    rows = []
    for candidate in plan.candidates:
        assert isinstance(candidate, TunedCandidate)
        assert candidate.setting is not None
        played = rounds[candidate.name]
        rows.append(
            SettingRow(
                name=candidate.setting.name,
                flags=list(candidate.flags),
                program=candidate.setting.program,
                recipe=candidate.recipe,
                success=success_rate([each.success for each in played]) if played else None,
                mean_s=mean_s(played) if played else None,
                left=search.left.get(candidate.name, ""),
            )
        )
    names = {candidate.name: row.name for candidate, row in zip(plan.candidates, rows, strict=True)}
    return Tuning(
        latency=tuning.latency,
        ticks=tuning.ticks,
        settings=rows,
        left_out=dict(tuning.left_out),
        starts=plan.starts * len(plan.tasks),
        exhaustive=len(rows) * plan.starts * len(plan.tasks),
        played=sum(map(len, rounds.values())),
        hopeless=search.hopeless,
        winner=names.get(search.winner, ""),
        closing=_closing(search),
    )


def _closing(search: Search) -> Closing | None:
    default, winner = search.pairs()
    if not default:
        return None
    plan, each = search.plan, bonferroni(2, LEVEL)
    first, second = ends_of(default), ends_of(winner)
    won = [line.success for line in default], [line.success for line in winner]
    why = why_not_judged(second, first)
    return Closing(
        default=success_rate(won[0]),
        winner=success_rate(won[1]),
        rates=paired_rates(*won, plan.margin, each, len(plan.tasks)),
        times=None if why else judge_times(first, second, each, len(plan.tasks)),
        times_not_judged=why,
    )
