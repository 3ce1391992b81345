"""Success rates of variants in a simulator: each with its interval, and in pairs against the first variant."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.results.chunk_times import ChunkTimes
from strobe.results.data import Data, Finite, Interval
from strobe.results.motion import Motion
from strobe.results.numerals import points
from strobe.results.timing import Timing

Decided = Literal["worse", "better", "not worse by more than the margin", "undecided"]


def verdict_in_words(kind: Decided, margin: float) -> str:
    """Return a verdict in a few words: 'not worse by more than 10 points'."""
    return kind.replace("the margin", points(margin))


class SuccessRate(Data):
    """Episodes of one variant, and how many succeeded."""

    episodes: int
    successes: int
    rate: Finite = Field(description="0 to 1")
    interval: Interval = Field(description="exact (Clopper and Pearson)")


class Decision(Data):
    """A verdict: on episodes that are played, at any number of pairs; on finished results, at one look."""

    kind: Decided
    interval: Interval = Field(
        description="of the difference: valid at every number of pairs at once; of finished results, for one look"
    )
    margin: Finite | None = Field(description="loss of success rate that is called not worse, stated beforehand")
    within_margin: bool = Field(description="whether a loss above the margin is excluded, whatever the verdict")
    pairs: int | None = Field(description="pairs since which this verdict has held; None where undecided")


class PairedRates(Data):
    """A variant against the first one, on pairs with the same start and the same noise. Differences: it − the first.

    Where tasks are played in turn, pairs of a round that is not complete are not counted, unless it is the first.
    """

    both: int = Field(description="pairs in which both succeeded")
    lost: int = Field(description="pairs in which only the first variant succeeded")
    won: int = Field(description="pairs in which only this variant succeeded")
    neither: int = Field(description="pairs in which both failed")
    difference: Finite = Field(description="of the success rates, −1 to 1")
    interval: Interval = Field(description="of it (Tango), for one look after the last pair")
    p: Finite = Field(description="McNemar's exact test of no difference, for one look after the last pair")
    decision: Decision

    @property
    def pairs(self) -> int:
        """Pairs in all."""
        return self.both + self.lost + self.won + self.neither


class VariantOnTask(Data):
    """A variant's episodes on one task, or on all tasks together."""

    success: SuccessRate
    reward: Finite = Field(description="mean over its episodes of the sum over control ticks")
    paired: PairedRates | None = Field(default=None, description="against the first variant; None for the first itself")


class CallTimes(Data):
    """Calls of the policy within episodes, one observation at a time; the first ones, slow or not, are among them."""

    calls: int
    median_ms: Finite
    p95_ms: Finite
    hz: Finite = Field(description="calls per second at the median")
    beside: int = Field(default=0, description="other processes that played episodes meanwhile, at most")


class LoopTimes(Data):
    """Time of the loop around the policy, in episodes that were played one at a time."""

    reset_ms: Finite = Field(description="of the simulator's reset, mean over episodes")
    step_ms: Finite = Field(description="of the simulator in a control tick, without rendering, mean")
    render_ms: Finite | None = Field(description="of rendering in a control tick, mean; None where it was not seen")
    policy_ms: Finite = Field(description="of the policy in a control tick, mean: most ticks only take a queued action")
    drawn: Finite | None = Field(
        default=None, description="share of control ticks whose observation was drawn; None where it was not seen"
    )


class EvaluatedVariant(Data):
    """One row of an evaluation's table."""

    name: str
    steps: int | None = Field(default=None, description="its denoising steps; None where the policy has none")
    recipe: str = Field(default="", description="the recipe's file; '' where it has none")
    together: VariantOnTask
    tasks: dict[str, VariantOnTask] = Field(description="by the task's name; empty with one task")
    calls: CallTimes
    loop: LoopTimes
    times: Finite | None = Field(
        default=None, description="how often as fast as the first, by the medians of the episodes that both played"
    )
    timing: Timing | None = Field(default=None, description="of episodes that were true to time")
    motion: Motion | None = Field(default=None, description="how smooth its actions are, mean over its episodes")
    chunk: ChunkTimes | None = Field(default=None, description="apart from the episodes; None: not measured")
