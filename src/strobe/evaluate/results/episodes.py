"""Pairs of episodes in a simulator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval
from strobe.evaluate.results.time_to_task import PairedTimes
from strobe.simulators.results import Episode

EpisodesKind = Literal[
    "the same", "worse", "better", "not worse by more than the margin", "no difference shown", "too few"
]


class EpisodePair(Data):
    """Two episodes from the same start with the same noise."""

    task: str
    seed: int
    baseline: Episode
    candidate: Episode
    same_ticks: int = Field(description="count of control ticks from the start with bit-identical actions")
    largest_error: Finite = Field(
        description="largest absolute difference of two actions at one tick, in the action's own units"
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
    environment: str = Field(description="type and task of the environment")
    planned: int = Field(description="number of pairs requested")
    pairs: list[EpisodePair]
    kind: EpisodesKind
    by: Literal["success", "reward"] = Field(description="success, or reward if neither side ever succeeded")
    baseline_success: Finite = Field(description="share of the baseline's episodes, 0 to 1")
    candidate_success: Finite
    success: Finite = Field(description="difference of the success rates, −1 to 1")
    success_interval: Interval = Field(
        description="interval of the difference; anytime-valid if a margin was set, else for the final look only"
    )
    possible_drop: Finite = Field(description="loss of success rate that these pairs cannot exclude, 0 to 1")
    margin: Finite | None = Field(
        default=None, description="non-inferiority margin; None in results older than the margin"
    )
    decided: int | None = Field(default=None, description="number of pairs that decided success; None: undecided")
    reward: Finite = Field(description="centre of the pairs' differences in reward")
    reward_interval: Interval | None = Field(description="interval of `reward`; None with fewer than six pairs")
    reward_least: Finite | None = Field(default=None, description="smallest difference of reward that counts as one")
    time: PairedTimes | None = Field(default=None, description="time until the task is done; None: not judged")
    time_not_judged: str = Field(default="", description="why there is no `time`, in words; '' in older answers")
    broken: str = Field(default="", description="evidence against the candidate, in words; '' if there is none")
    sentence: str = Field(description="the verdict in words, with its numbers")
