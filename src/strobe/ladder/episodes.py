"""Paired episodes: two variants of one policy in the same simulator, from the same starts with the same noise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from strobe.core.errors import UserError, error_line
from strobe.core.measure.guard import Guards, format_distinct
from strobe.core.measure.sampling import Progress
from strobe.core.measure.statistics import bonferroni
from strobe.core.results.numerals import significant
from strobe.core.treatments.treatment import Variant
from strobe.evaluate.episodes.play import EpisodeReporter
from strobe.evaluate.measure.episodes import MARGIN, judge, pair_differences
from strobe.evaluate.measure.planning import fewest_pairs
from strobe.evaluate.measure.success_rates import decide
from strobe.evaluate.pairs import EpisodePair, PairedEpisodes
from strobe.lerobot.envs import environments
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.simulators.simulator import Played, Simulator


class CandidateError(Exception):
    """An episode failed with the candidate, and not with the baseline."""


@dataclass
class Episodes:
    """Plays a baseline's episodes, with which each candidate's are compared.

    Args:
        env: LeRobot's ``EnvConfig``.
        count: pairs per task at most, from the seeds ``seed``, ``seed`` + 1 …
        margin: loss of success rate that counts as not worse, above 0 and below 1.

    Raises:
        UserError: the simulator is not installed or cannot be started.
    """

    env: Any
    subject: PolicySubject
    baseline: Variant
    count: int
    seed: int = 0
    margin: float = MARGIN
    played: dict[tuple[str, int], Played] = field(default_factory=dict)
    candidates: int = 0  # that were played

    def __post_init__(self) -> None:
        self.simulator = Simulator(self.env, self.subject)
        self.tasks = self.simulator.tasks

    @property
    def planned_pairs(self) -> int:
        """The number of pairs in all, at most."""
        return self.count * len(self.tasks)

    @property
    def environment(self) -> str:
        """Name of the simulator, as `environments.display_name`."""
        return environments.display_name(self.env, self.tasks)

    def play_against_baseline(self, candidate: Variant, live: EpisodeReporter) -> tuple[PairedEpisodes | None, bool]:
        """Play ``candidate`` and, where that was not done yet, the baseline, in alternation, until success is decided.

        It is decided as an evaluation is (`measure.success_rates.decide`): after each pair, or with several tasks,
        which are played in turn, after each round of them. A candidate that is refused makes room for another, and each
        is another chance to be wrong with "not worse by more than the margin". So each has half of the error of the one
        before it: that verdict on any candidate that does lose more has a chance of at most 5 %.

        Returns the judged pairs, without a guard, or None if there is none; and whether Ctrl-C ended it. The pairs
        that were played by then count.

        Raises:
            CandidateError: an episode fails with the candidate.
            UserError: one fails with the baseline, or the same seed gives different starts.
        """
        # A second simulator: one may go through a list of starts, and the candidate must get the same ones.
        other = Simulator(self.env, self.subject)
        pairs: list[EpisodePair] = []
        interrupted, begun = False, time.perf_counter()
        level = bonferroni(2**self.candidates)
        self.candidates += 1
        try:
            for task, seed in self._starts():
                pair = self._pair(other, candidate, task, seed)
                pairs.append(pair)
                took = time.perf_counter() - begun
                remaining = took / len(pairs) * (self.planned_pairs - len(pairs))
                live.progress(Progress(len(pairs), self.planned_pairs, took, remaining, "pairs of episodes"))
                live.say(f"pair {len(pairs)} of {self.planned_pairs}: {_describe_pair(pair)}")
                if decide(pair_differences(pairs), self.margin, level, len(self.tasks)).kind != "undecided":
                    break
        except KeyboardInterrupt:
            interrupted = True
        finally:
            other.close()
        if not pairs:
            return None, interrupted
        judged = judge(
            pairs,
            baseline=self.baseline.name,
            candidate=candidate.name,
            environment=self.environment,
            planned=self.planned_pairs,
            margin=self.margin,
            every=len(self.tasks),
            level=level,
        )
        return judged, interrupted

    def close(self) -> None:
        """Close the simulator."""
        self.simulator.close()

    def _starts(self) -> list[tuple[str, int]]:
        return [(task, self.seed + number) for number in range(self.count) for task in self.tasks]

    def _pair(self, other: Simulator, candidate: Variant, task: str, seed: int) -> EpisodePair:
        if (task, seed) not in self.played:
            self.played[task, seed] = self._play_treated(self.baseline, lambda: self.simulator.play(task, seed))
        before = self.played[task, seed]
        try:
            after = self._play_treated(candidate, lambda: other.play(task, seed))
        except Exception as error:  # whatever a treatment raises must not cost the ladder
            words = error_line(error, 300)
            raise CandidateError(
                words if isinstance(error, UserError) else f"{type(error).__name__}: {words}"
            ) from error
        if before.start != after.start:
            raise UserError(f"{self.environment}: seed {seed} gives different starts, so episodes cannot be paired")
        return EpisodePair(
            task=task,
            seed=seed,
            baseline=before.episode,
            candidate=after.episode,
            same_ticks=before.same_ticks(after),
            largest_error=before.largest_error(after),
        )

    def _play_treated(self, variant: Variant, play: Callable[[], Played]) -> Played:
        undo = variant.apply(self.subject)
        try:
            return play()
        finally:
            self.subject.policy.reset()  # nothing of the episode may be left in its queues
            undo()


def _describe_pair(pair: EpisodePair) -> str:
    sides = [
        f"{'success' if side.success else 'failure'}, reward {significant(side.reward, 4)}"
        for side in (pair.baseline, pair.candidate)
    ]
    same = "all actions equal" if pair.same else f"actions up to {significant(pair.largest_error)} apart"
    return f"{pair.task}, seed {pair.seed}: {sides[0]} → {sides[1]}; {same}"


def rejection_reason(guards: Guards, episodes: PairedEpisodes) -> str | None:
    """Return why paired episodes reject the candidate; None if they do not.

    They do if they show that it does worse; and with a limit on ``success_drop``, if they do not exclude a larger
    loss: if the far end of the interval is beyond the limit.
    """
    if episodes.kind == "worse":
        return f"it does worse in {episodes.environment}"
    limit, drop = guards.success_drop, episodes.possible_drop
    if limit is None or drop <= limit:
        return None
    shown = (
        f"{len(episodes.pairs)} pairs do not exclude a success drop of {format_distinct(drop, limit)}, limit {limit:g}"
    )
    enough = fewest_pairs(limit, episodes.success_interval.level)
    return shown if len(episodes.pairs) >= enough else f"{shown}; that takes {enough} pairs or more"
