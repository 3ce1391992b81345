"""Hypotheses on how a policy is wired, judged by its errors against recorded actions. Plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite
from strobe.preflight.results.open_loop import PairedError

HypothesisKind = Literal[
    "cameras", "channels", "image-range", "state-order", "action-order", "order", "units", "statistics", "sign",
    "relative", "shift", "rate", "prompt",
]  # fmt: skip
# 'surpassed': judged like a claimed one, and another one explains the data better. 'not shown': its error is smaller by
# the margin, and its interval over these episodes is too wide to say so.
HypothesisOutcome = Literal["claimed", "surpassed", "not shown", "not better", "not looked at", "not judged"]


class Hypothesis(Data):
    """The data is as it would be if the policy were wired otherwise: on the way in, on the way out, or both."""

    kind: HypothesisKind
    name: str = Field(description="the other wiring, in words")
    outcome: HypothesisOutcome = "not judged"
    why: str | None = Field(default=None, description="reason for the outcome, in words")
    fix: str | None = Field(default=None, description="how to change the wiring accordingly")
    inputs: list[str] = Field(default_factory=list, description="inputs that it changes; empty if only actions change")
    explained: Finite | None = Field(default=None, description="1 − MSE / MSE of the mean action, under the hypothesis")
    wired: Finite | None = Field(default=None, description="1 − MSE / MSE of the mean action, under the present wiring")
    paired: PairedError | None = Field(default=None, description="error under the hypothesis ÷ under this wiring")
    over_mean: PairedError | None = Field(
        default=None, description="error under the hypothesis ÷ error of the mean action"
    )
    moved: Finite | None = Field(
        default=None, description="σ: RMS change of the actions if these inputs come from another frame"
    )
