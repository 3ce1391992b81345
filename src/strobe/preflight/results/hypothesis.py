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
    name: str = Field(description="how it would be wired, in words")
    outcome: HypothesisOutcome = "not judged"
    why: str = Field(default="", description="of the outcome, in words")
    mend: str = Field(default="", description="how to wire it so")
    inputs: list[str] = Field(default_factory=list, description="the inputs that it changes; none for actions alone")
    explained: Finite | None = Field(default=None, description="1 − MSE / MSE of the mean action, as it would be wired")
    wired: Finite | None = Field(default=None, description="the same as it is wired, on the same actions")
    paired: PairedError | None = Field(default=None, description="the error as it would be wired over that as it is")
    over_mean: PairedError | None = Field(
        default=None, description="the error as it would be wired over that of the mean action"
    )
    moved: Finite | None = Field(
        default=None, description="σ: by how much the actions change where these inputs are another frame's, RMS"
    )
