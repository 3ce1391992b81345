"""Eliminate: which of several checkpoints does the task best?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from strobe.core.cli.live import Live
from strobe.core.results.subject import SubjectInfo
from strobe.core.treatments.treatment import Variant
from strobe.evaluate import session as playing
from strobe.evaluate.answer import unpaired_variants
from strobe.evaluate.episode_log import EpisodeLine
from strobe.evaluate.episodes.crews import Crew
from strobe.evaluate.episodes.play import Candidate, Order, Plan, Session
from strobe.evaluate.episodes.videos import Filming
from strobe.evaluate.flags import EvaluateConfig, NamedCheckpoint, name_checkpoints, policy_options
from strobe.evaluate.measure.best_arm import bonferroni_pairs, eliminate_arms, mean_s
from strobe.evaluate.measure.success_rates import LEVEL
from strobe.evaluate.measure.time_to_task import Judgement, episode_ends, judge_pairs
from strobe.evaluate.results import Elimination, EvaluateResult, PlayedCheckpoint
from strobe.evaluate.run import begin, note_how_it_was_played


def evaluate_checkpoints(config: EvaluateConfig, crew: Crew, live: Live) -> tuple[EvaluateResult, Path]:
    """Load the checkpoints, play their episodes and judge them, as `session.play` does."""
    named = name_checkpoints(config.policies)
    options = policy_options(named, config)
    rows_of = partial(checkpoint_rows, names=tuple(options))

    def make_request(subjects: playing.Subjects) -> playing.Request[EvaluateResult]:
        def study(session: Session, films: Filming) -> EvaluateResult:
            result = eliminate(named.all, subjects, session)
            result.videos = films.videos(session.log.episodes)
            return result

        return playing.Request(rows_of, rows_of(), config.episodes, study, config.videos, named.notes)

    return playing.play("evaluate", options, config, crew, live, make_request)


def checkpoint_rows(_subject: object = None, _recipes: Sequence[Path] = (), *, names: Sequence[str]) -> list[Candidate]:
    """Return a row for each checkpoint, by its name."""
    return [Candidate(Variant(name), policy=name) for name in names]


class SuccessiveElimination(Order):
    """All checkpoints play each start. One goes when it is shown to succeed less than another one that remains.

    Attributes:
        by: checkpoint that went → the one that it is shown to succeed less than.
        starts: checkpoint that went → complete starts that it had played.
        each_level: of each pair, so that all together are as sure as `LEVEL`: `strobe.evaluate.measure.best_arm`.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.candidates, plan.tasks, plan.starts())
        self.by: dict[str, str] = {}
        self.starts: dict[str, int] = {}
        self._won: dict[str, list[bool]] = {candidate.name: [] for candidate in plan.candidates}
        self.each_level = bonferroni_pairs(len(plan.candidates), LEVEL)

    @property
    def playing(self) -> list[Candidate]:
        """The checkpoints that remain."""
        return [candidate for candidate in self.candidates if candidate.name not in self.by]

    @property
    def _is_settled(self) -> bool:
        return len(self.playing) == 1

    def count_complete_starts(self, name: str) -> int:
        """Return the complete starts that the checkpoint ``name`` has played."""
        return self.starts.get(name, self._place)

    def _decide(self) -> list[str]:
        outcomes = {each.name: self._won[each.name] for each in self.playing}
        for name, won in outcomes.items():
            won += [self.counted[(name, *start)].success for start in self._starts[len(won) : self._place]]
        gone = eliminate_arms(outcomes, self.each_level)
        self.by |= gone
        self.starts |= dict.fromkeys(gone, self._place)
        return [f"{name}: shown to succeed less than {by}, after {self._place} starts" for name, by in gone.items()]


def eliminate(checkpoints: Sequence[NamedCheckpoint], subjects: playing.Subjects, session: Session) -> EvaluateResult:
    """Play all checkpoints until one remains or the episodes are used up. Ctrl-C keeps the episodes that were played.

    Args:
        subjects: by the checkpoints' names, which are those of the plan's candidates.

    Raises:
        UserError: an episode fails; those before it are in the log.
        KeyboardInterrupt: before the first episode has ended.
    """
    plan, watching, names = session.plan, session.watching, ", ".join(checkpoint.name for checkpoint in checkpoints)
    first = next(iter(subjects.values()))
    title = f"{len(checkpoints)} checkpoints in {session.environment}"
    result = begin(EvaluateResult, first, title, session, planned=plan.planned_episodes)
    result.subject = together([subjects[checkpoint.name].info for checkpoint in checkpoints], names)
    result.notes = list(dict.fromkeys(note for subject in subjects.values() for note in subject.notes))
    watching.stage(f"episodes in {session.environment}, up to {plan.planned_episodes} of each: {names}")
    order = SuccessiveElimination(plan)
    if session.play(order):
        result.status = "interrupted"
    result.variants = unpaired_variants(plan, order.counted)
    if not result.variants:
        raise KeyboardInterrupt
    result.elimination = judge_checkpoints(
        order, plan, checkpoints, {name: each.info.kind for name, each in subjects.items()}
    )
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


def judge_checkpoints(
    order: SuccessiveElimination, plan: Plan, checkpoints: Sequence[NamedCheckpoint], policies: Mapping[str, str]
) -> Elimination:
    """Return what the episodes show; ``policies``: the type of each checkpoint, by its name."""
    starts = list(plan.starts())
    played = {
        each.name: [order.counted[(each.name, *start)] for start in starts[: order.count_complete_starts(each.name)]]
        for each in checkpoints
    }
    best = _best({each.name: played[each.name] for each in order.playing})

    def judge_against_best(own: Sequence[EpisodeLine]) -> Judgement:
        if not own:
            return Judgement(None, None, "no start was played by all checkpoints")
        return judge_pairs(list(zip(played[best], own, strict=False)), None, order.each_level, len(plan.tasks))

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
                by=order.by.get(each.name),
                **({} if each.name == best else judge_against_best(played[each.name])._asdict()),
            )
            for each in checkpoints
        ],
    )


def _best(played: Mapping[str, Sequence[EpisodeLine]]) -> str:
    def key(name: str) -> tuple[int, float]:
        ends = episode_ends(played[name])
        return -sum(line.success for line in played[name]), mean_s(ends) if ends else 0.0

    return min(played, key=key)
