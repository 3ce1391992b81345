"""Pairs of episodes in a simulator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval
from strobe.evaluate.results.time_to_task import PairedTimes

EpisodesKind = Literal[
    "the same", "worse", "better", "not worse by more than the margin", "no difference shown", "too few"
]


class Episode(Data):
    """One episode of a policy in a simulator."""

    success: bool
    reward: Finite = Field(description="sum over its control ticks")
    best_reward: Finite = Field(description="of one control tick")
    ticks: int = Field(description="control ticks until it ended")
    seconds: Finite | None = Field(
        default=None, description="from its start to its end: of its ticks at their rate, or of a virtual clock"
    )
    limit_s: Finite | None = Field(default=None, description="that it may last at most; None as `seconds`: not saved")


class EpisodePair(Data):
    """Two episodes from the same start with the same noise."""

    task: str
    seed: int
    baseline: Episode
    candidate: Episode
    same_ticks: int = Field(description="control ticks from the start with the same action, to the bit")
    largest_error: Finite = Field(
        description="largest absolute difference of two actions of one tick, in the action's own units"
    )

    @property
    def same(self) -> bool:
        """Whether every action of the two is the same."""
        return self.same_ticks == self.baseline.ticks == self.candidate.ticks


class PairedEpisodes(Data):
    """A candidate judged against a baseline by what they do in a simulator; both are names of measurements.

    Differences are candidate − baseline: below 0 the candidate is worse.
    """

    baseline: str
    candidate: str
    environment: str = Field(description="its type and task")
    planned: int = Field(description="pairs that were asked for")
    pairs: list[EpisodePair]
    kind: EpisodesKind
    by: Literal["success", "reward"] = Field(description="what it is judged by: reward where neither ever succeeded")
    baseline_success: Finite = Field(description="share of its episodes, 0 to 1")
    candidate_success: Finite
    success: Finite = Field(description="difference of the success rates, −1 to 1")
    success_interval: Interval = Field(
        description="of it, valid at every number of pairs at once; without a margin, for one look after the last pair"
    )
    possible_drop: Finite = Field(description="loss of success rate that these pairs do not exclude, 0 to 1")
    margin: Finite | None = Field(
        default=None, description="loss of success rate that counts as not worse; None from before there was one"
    )
    decided: int | None = Field(default=None, description="pairs after which success was decided; None: undecided")
    reward: Finite = Field(description="centre of the pairs' differences in reward")
    reward_interval: Interval | None = Field(description="of it; None with fewer than six pairs")
    reward_least: Finite | None = Field(default=None, description="least difference of reward that counts as one")
    time: PairedTimes | None = Field(default=None, description="until the task is done; None: not judged")
    time_not_judged: str = Field(default="", description="why there is no `time`, in words; '' in older answers")
    broken: str = Field(default="", description="what speaks against the candidate, in words; '' where nothing does")
    sentence: str = Field(description="the verdict in words, with its numbers")
