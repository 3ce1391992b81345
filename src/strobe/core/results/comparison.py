"""Two measurements judged against each other: their times and their actions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.agreement import Agreement, Effect, Outcome, outcome
from strobe.core.results.data import Data, Finite, Interval, optional

MOST_ITERATIONS = 500  # beyond this, a quieter machine helps sooner than more pairs


class Verdict(Data):
    """Outcome of a comparison. ``ratio`` is candidate over baseline: below 1 the candidate is faster."""

    kind: Literal["faster", "slower", "no difference shown", "inconclusive"]
    cause: Literal["noise", "too few", "too short", "a queue", "no numbers", "no loss"] = Field(
        default="noise",
        description="why 'inconclusive': wide samples, too few, too short a run, slow calls, no output, no finite loss",
    )
    ratio: Finite
    interval: Interval
    pairs: int = Field(description="number of paired samples; 0 if the runs were not interleaved")
    sentence: str = Field(description="the decision, in one sentence")
    detail: str | None = optional("the numbers of the decision: change, interval, samples")
    needed: int | None = optional("pairs, or samples a run, that a conclusive verdict needs")
    within: Finite | None = optional(
        "equivalence margin: the interval lies within ± this share; None if a difference was shown or "
        "cannot be excluded"
    )

    @property
    def text(self) -> str:
        """The decision and its numbers."""
        return f"{self.sentence} {self.detail}" if self.detail else self.sentence

    @property
    def longer(self) -> str:
        """The flag with which a longer run is conclusive, or may be."""
        few = self.pairs and self.needed and self.needed <= MOST_ITERATIONS
        return f"--iterations={self.needed}" if few else "--seconds=120"


class GradientAgreement(Data):
    """How far the loss and the gradient of two variants differ on the same batch, with the same weights and seed."""

    loss: Finite | None = Field(description="the candidate's loss; None if it is infinite or not a number")
    baseline_loss: Finite | None
    loss_error: Finite | None = optional("absolute difference of the losses ÷ baseline's loss")
    cosine: Finite = Field(description="cosine of the gradients, all parameters as one vector; 0 if one is not finite")
    error: Finite | None = optional("length of the difference ÷ the baseline gradient's length")
    seed_cosine: Finite | None = optional(
        "cosine of the baseline's gradients under two seeds: the effect of noise only"
    )
    own_noise: bool = Field(default=False, description="the candidate draws different noise from the baseline's")
    underflow: Finite | None = optional("float16: share of the baseline's values lost to 0 without a loss scaler")
    overflow: int | None = optional("float16: values that are not finite without a loss scaler")
    note: str = ""


class Comparison(Data):
    """A candidate judged against a baseline; both are names of measurements in the same result."""

    baseline: str
    candidate: str
    verdict: Verdict
    difference: Interval | None = optional("difference of medians, candidate − baseline (ms)")
    difference_ms: Finite
    agreement: Agreement | None = None
    effect: Effect | None = optional("the most that the candidate's treatments do to actions")
    guard: str | None = optional("the limits on the change of the actions")
    broken: str | None = optional("the broken limit, in words")
    unjudged: str | None = optional("the missing figures and the flag that gives them")
    gradient: GradientAgreement | None = None

    @property
    def outcome(self) -> Outcome | None:
        """Whether the candidate stays within its guard; None without a guard."""
        return outcome(self.broken, self.unjudged) if self.guard or self.broken else None
