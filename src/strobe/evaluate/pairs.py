"""Pairs of episodes from the same starts, and what they show: success first, then the time to the task. Plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, Interval, optional
from strobe.core.results.numerals import points, significant
from strobe.simulators.results import Episode

Decided = Literal["worse", "better", "not worse by more than the margin", "undecided"]
Score = Literal["success", "progress"]


def verdict_in_words(kind: Decided, margin: float) -> str:
    """Return a verdict in a few words: 'not worse by more than 10 points'."""
    return kind.replace("the margin", points(margin))


class SuccessRate(Data):
    """Episodes of one variant, and how many succeeded."""

    episodes: int
    successes: int
    rate: Finite = Field(description="share of episodes that succeeded, 0 to 1")
    interval: Interval = Field(description="exact interval (Clopper and Pearson)")


class Decision(Data):
    """A verdict: on episodes that are played, at any number of pairs; on finished results, at one look."""

    kind: Decided
    interval: Interval = Field(
        description="interval of the difference; anytime-valid, or for one look if all results were complete beforehand"
    )
    margin: Finite | None = Field(description="non-inferiority margin (loss of the score), stated beforehand")
    within_margin: bool = Field(description="a loss above the margin is excluded, whatever the verdict")
    pairs: int | None = Field(description="number of pairs since which this verdict has held; None if undecided")


class PairedRates(Data):
    """A variant against the first one, on pairs with the same start and the same noise. Differences: it − the first.

    Where tasks are played in turn, pairs of a round that is not complete are not counted, unless it is the first.
    """

    both: int = Field(description="pairs in which both succeeded")
    lost: int = Field(description="pairs in which only the first variant succeeded")
    won: int = Field(description="pairs in which only this variant succeeded")
    neither: int = Field(description="pairs in which both failed")
    difference: Finite = Field(description="difference of the success rates, −1 to 1")
    interval: Interval = Field(description="interval of the difference (Tango), for the final look only")
    p: Finite = Field(description="McNemar's exact test of no difference, for the final look only")
    decision: Decision

    @property
    def pairs(self) -> int:
        """Pairs in all."""
        return self.both + self.lost + self.won + self.neither


class PairedScores(Data):
    """A variant's progress against the first one's, 0 to 1, on the pairs of `PairedRates`."""

    pairs: int
    difference: Finite = Field(description="difference of the mean progress, −1 to 1: it − the first")
    decision: Decision


class UnpairedRates(Data):
    """A run against the first one, whose episodes began elsewhere. Differences: it − the first."""

    difference: Finite = Field(description="difference of the success rates, −1 to 1: the weighted mean over tasks")
    interval: Interval = Field(description="interval of the difference, for one look at runs of fixed length")
    kind: Decided
    by_task: bool = Field(
        default=False, description="the runs played the tasks in different proportions, so that their rates mislead"
    )


TimeKind = Literal["sooner", "later", "not sooner", "not shown"]
OLDER = "this answer is of a version of Strobe that did not judge it"
MATTERS = 0.05  # "not sooner" excludes that a variant is sooner by this share or more


class PairedTimes(Data):
    """A variant against the first one, in pairs of episodes from the same start.

    A ratio is the first variant's time ÷ this one's: above 1 this one is sooner. An episode that fails never does the
    task, so the variant that does it is sooner in that pair.
    """

    pairs: int
    sooner: int = Field(description="pairs in which this variant did the task first")
    later: int = Field(description="pairs in which the first variant did the task first")
    together: int = Field(description="pairs in which both did it at the same moment")
    neither: int = Field(description="pairs in which both failed")
    kind: TimeKind
    ratio: Finite | None = Field(description="ratio of the median pair; None if only one of the two did the task in it")
    low: Finite | None = Field(description="lower end of its interval, anytime-valid; None: above every ratio")
    high: Finite | None = Field(description="upper end of its interval; None: unbounded")
    mean_ratio: Finite = Field(description="ratio of the mean times over all starts, a failure counted as the limit")
    mean_low: Finite = Field(description="lower end of its interval, anytime-valid")
    mean_high: Finite | None = Field(description="upper end of its interval; None: unbounded")
    level: Finite

    @property
    def same(self) -> bool:
        """Whether each start was done at the same moment by both, or by neither."""
        return not self.sooner and not self.later


class TimeToTask(Data):
    """Seconds from the start of an episode until it succeeds: control ticks ÷ their rate, or of a virtual clock."""

    episodes: int
    done: int = Field(description="number of episodes that succeeded")
    limit_s: Finite = Field(description="longest duration of an episode; the longest limit, if tasks differ")
    mean_done_s: Finite = Field(description="mean over the episodes that succeeded")
    mean_s: Finite = Field(description="mean over all episodes, a failure counted as the limit")
    middle_s: Finite | None = Field(description="time after which half of the episodes are done; None: fewer are, ever")
    at_s: list[Finite] = Field(description="times at which the curve falls, from 0 to the last end of an episode")
    not_done: list[Finite] = Field(description="share not yet done from each of these times on (Kaplan and Meier)")
    paired: PairedTimes | None = optional("comparison with the first variant; None for itself")


def time_in_words(paired: PairedTimes) -> str:
    """Return the verdict with its figures: 'finishes 1.4 × sooner [1.2, 1.6]'."""
    shown = f" {_interval(paired.low, paired.high)}"
    if paired.kind == "not sooner":
        return f"does not finish sooner: a gain of {100 * MATTERS:.0f} % is excluded ({_times(paired.ratio)}{shown})"
    apart = paired.low is None or paired.low > 1 or (paired.high is not None and paired.high < 1)
    if paired.kind == "not shown" and apart:
        middle, mean = f"{_times(paired.ratio)}{shown}", mean_in_words(paired)
        return f"is inconclusive in time: most pairs ({middle}) and the mean over all starts ({mean}) say the opposite"
    if paired.kind == "not shown":
        return f"finishes neither sooner nor later as far as these pairs show ({_times(paired.ratio)}{shown})"
    if paired.ratio is None or paired.ratio == 0:  # the median start succeeded under one setting only
        return f"finishes {paired.kind}"
    if paired.kind == "sooner":
        return f"finishes {significant(paired.ratio)} × sooner{shown}"
    ends = (None if paired.high == 0 else _inverse(paired.high), _inverse(paired.low))
    return f"takes {significant(1 / paired.ratio)} × as long {_interval(*ends)}"


def mean_in_words(paired: PairedTimes) -> str:
    """Return the ratio of the means over all starts: '1.21 × [0.9, 1.6]'."""
    return f"{significant(paired.mean_ratio)} × {_interval(paired.mean_low, paired.mean_high)}"


def _times(ratio: float | None) -> str:
    return "no median ratio" if ratio is None else f"{significant(ratio)} ×"


def _inverse(ratio: float | None) -> float | None:
    return None if not ratio else 1 / ratio


def _interval(low: float | None, high: float | None) -> str:
    return f"[{'∞' if low is None else significant(low)}, {'∞' if high is None else significant(high)}]"


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
    margin: Finite | None = optional("non-inferiority margin; None in results older than the margin")
    decided: int | None = optional("number of pairs that decided success; None: undecided")
    reward: Finite = Field(description="centre of the pairs' differences in reward")
    reward_interval: Interval | None = Field(description="interval of `reward`; None with fewer than six pairs")
    reward_least: Finite | None = optional("smallest difference of reward that counts as one")
    time: PairedTimes | None = optional("time until the task is done; None: not judged")
    time_not_judged: str | None = optional("why there is no `time`")
    broken: str = Field(default="", description="evidence against the candidate; else empty")
    sentence: str = Field(description="the verdict in words, with its numbers")

    @property
    def is_undecided(self) -> bool:
        """Whether success is what they are judged by, and is left open."""
        return self.by == "success" and self.kind in ("no difference shown", "too few")
