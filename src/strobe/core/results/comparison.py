"""Two measurements judged against each other: their times and their actions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.agreement import Agreement, Effect, Outcome, outcome
from strobe.core.results.data import Data, Finite, Interval


class Verdict(Data):
    """Outcome of a comparison. ``ratio`` is candidate over baseline: below 1 the candidate is faster."""

    kind: Literal["faster", "slower", "no difference shown", "too noisy"]
    cause: Literal["noise", "too short", "a queue"] = Field(
        default="noise", description="of 'too noisy': wide samples, a run too short, or a few calls that do the work"
    )
    ratio: Finite
    interval: Interval
    pairs: int = Field(description="pairs of samples judged; 0 where the runs were not interleaved")
    sentence: str = Field(description="the verdict in words, with its numbers")
    within: Finite | None = Field(
        default=None,
        description="as fast as the baseline: the share of the same time that the whole interval lies within; None "
        "where a difference is shown, or may be larger",
    )


class GradientAgreement(Data):
    """How far the loss and the gradient of two variants differ on the same batch, with the same weights and seed."""

    loss: Finite | None = Field(description="the candidate's; None where it is infinite or not a number")
    baseline_loss: Finite | None
    loss_error: Finite | None = Field(default=None, description="absolute difference over the baseline's loss")
    cosine: Finite = Field(description="of the two gradients, all parameters as one vector; 0 where one is not finite")
    error: Finite | None = Field(default=None, description="length of the gradients' difference over the baseline's")
    seed_cosine: Finite | None = Field(
        default=None, description="of the baseline's gradients under two seeds: what other noise alone changes"
    )
    own_noise: bool = Field(default=False, description="the candidate draws other noise than the baseline does")
    underflow: Finite | None = Field(
        default=None, description="float16: share of the baseline's numbers that are lost to 0 without a loss scaler"
    )
    overflow: int | None = Field(default=None, description="float16: numbers that are not finite without a loss scaler")
    note: str = ""


class Comparison(Data):
    """A candidate judged against a baseline; both are names of measurements in the same result."""

    baseline: str
    candidate: str
    verdict: Verdict
    difference: Interval | None = Field(default=None, description="of the medians, candidate − baseline, milliseconds")
    difference_ms: Finite
    agreement: Agreement | None = None
    effect: Effect | None = Field(default=None, description="the most that the candidate's treatments do to actions")
    guard: str = Field(default="", description="what the agreement was held against; '' where nothing was")
    broken: str = Field(default="", description="the limit of the guard that is broken, in words")
    unjudged: str = Field(default="", description="what of the guard could not be judged and what to give, in words")
    gradient: GradientAgreement | None = None

    @property
    def outcome(self) -> Outcome | None:
        """Whether the candidate stays within its guard; None without a guard."""
        return outcome(self.broken, self.unjudged) if self.guard or self.broken else None
