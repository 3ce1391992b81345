"""Eliminate: which of several checkpoints does the task best?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from strobe.core.measure.sampling import SamplingBudget
from strobe.core.results.subject import SubjectInfo
from strobe.core.studies.shared.machine_state import begin_result
from strobe.core.studies.shared.measuring import Options
from strobe.evaluate.answer import unpaired
from strobe.evaluate.checkpoints import NamedCheckpoint, SuccessiveElimination
from strobe.evaluate.episode_log import EpisodeLine, EpisodeLog
from strobe.evaluate.episodes.play import EpisodeReporter, EpisodeRunner, ParallelEpisodeRunner, Plan, play
from strobe.evaluate.measure.best_arm import mean_s
from strobe.evaluate.measure.success_rates import LEVEL, paired_rates
from strobe.evaluate.measure.time_to_task import ends_of, judge_times, why_not_judged
from strobe.evaluate.results.evaluate import Elimination, EvaluateResult, PlayedCheckpoint
from strobe.evaluate.run import note_how_it_was_played
from strobe.lerobot.policies.policy_subject import PolicySubject


def eliminate(
    checkpoints: Sequence[NamedCheckpoint],
    subjects: Mapping[str, PolicySubject],
    environment: str,
    plan: Plan,
    player: EpisodeRunner | ParallelEpisodeRunner,
    log: EpisodeLog,
    watching: EpisodeReporter,
    fps: float,
) -> EvaluateResult:
    """Play all checkpoints until one remains or the episodes are used up. Ctrl-C keeps the episodes that were played.

    Args:
        subjects: by the checkpoints' names, which are those of the plan's candidates.
        environment: the simulator's name.
        log: empty, or with the episodes of the run that --resume continues.
        fps: control ticks of the simulator per second.

    Raises:
        UserError: an episode fails; those before it are in the log.
        KeyboardInterrupt: before the first episode has ended.
    """
    options = Options(SamplingBudget(iterations=1), counted=False)
    title = f"{len(checkpoints)} checkpoints in {environment}"
    fields: dict[str, Any] = {"environment": environment, "tasks": list(plan.tasks), "planned": plan.planned}
    fields |= {"margin": plan.margin, "fps": fps}
    first = next(iter(subjects.values()))
    result = begin_result(EvaluateResult, first, title, options, watching, **fields)
    names = ", ".join(checkpoint.name for checkpoint in checkpoints)
    result.subject = together([subjects[checkpoint.name].info for checkpoint in checkpoints], names)
    result.notes = list(dict.fromkeys(note for subject in subjects.values() for note in subject.notes))
    watching.stage(f"episodes in {environment}, up to {plan.planned} of each: {names}")
    order = SuccessiveElimination(plan)
    if play(order, player, log, watching):
        result.status = "interrupted"
    for _ in order.advance(log.episodes):  # what the last episode decided
        pass
    result.variants = unpaired(plan, order.counted)
    if not result.variants:
        raise KeyboardInterrupt
    result.elimination = judged(order, plan, checkpoints, {name: each.info.kind for name, each in subjects.items()})
    note_how_it_was_played(result, order.counted)
    return result


def together(infos: Sequence[SubjectInfo], names: str) -> SubjectInfo:
    """Return the facts of all checkpoints together: their types, and the sums of their parameters and bytes."""
    dtypes: Counter[str] = Counter()
    for info in infos:
        dtypes.update(info.dtypes)
    return infos[0].model_copy(
        update={
            "name": f"{len(infos)} checkpoints",
            "kind": ", ".join(dict.fromkeys(info.kind for info in infos)),
            "source": names,
            "parameters": sum(info.parameters for info in infos),
            "weight_bytes": sum(info.weight_bytes for info in infos),
            "dtypes": dict(dtypes),
            "stand_ins": list(dict.fromkeys(name for info in infos for name in info.stand_ins)),
        }
    )


def judged(
    order: SuccessiveElimination, plan: Plan, checkpoints: Sequence[NamedCheckpoint], policies: Mapping[str, str]
) -> Elimination:
    """Return what the episodes show; ``policies``: the type of each checkpoint, by its name."""
    starts = list(plan.starts())
    played = {
        each.name: [order.counted[(each.name, *start)] for start in starts[: order.played(each.name)]]
        for each in checkpoints
    }
    best = _best({each.name: played[each.name] for each in order.playing})
    return Elimination(
        level=LEVEL,
        each_level=order.each_level,
        best=best,
        checkpoints=[
            PlayedCheckpoint(
                name=each.name,
                path=each.path,
                policy=policies[each.name],
                starts=len(played[each.name]),
                by=order.by.get(each.name, ""),
                **({} if each.name == best else _against(played[best], played[each.name], order, len(plan.tasks))),
            )
            for each in checkpoints
        ],
    )


def _best(played: Mapping[str, Sequence[EpisodeLine]]) -> str:
    """Return the one with the most successes; of equal ones the one with the shortest time over all starts."""

    def key(name: str) -> tuple[int, float]:
        ends = ends_of(played[name])
        return -sum(line.success for line in played[name]), mean_s(ends) if ends else 0.0

    return min(played, key=key)


def _against(
    best: Sequence[EpisodeLine], own: Sequence[EpisodeLine], order: SuccessiveElimination, every: int
) -> dict[str, Any]:
    """Return the fields of a checkpoint that say how it did against the best one, on the starts of both."""
    first = best[: len(own)]
    if not first:
        return {"times_not_judged": "no start was played by all checkpoints"}
    rates = paired_rates(
        [line.success for line in first], [line.success for line in own], None, order.each_level, every
    )
    before, after = ends_of(first), ends_of(own)
    if why := why_not_judged(after, before):
        return {"rates": rates, "times_not_judged": why}
    return {"rates": rates, "times": judge_times(before, after, order.each_level, every)}
