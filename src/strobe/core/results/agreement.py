"""How far the actions of two policies differ, dimension by dimension, in units of each dimension's spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite, many, optional

Effect = Literal["exact", "rounding", "lossy"]
JudgedBy = Literal["statistics", "chunks", "motion", "size"]
Outcome = Literal["held", "broken", "not judged"]
YardstickName = Literal["reordered sums", "another noise draw", "neighbouring frame", "another observation"]


class ActionScale(Data):
    """The spread of a policy's actions, the unit of their errors, and its dimensions that decide.

    A dimension decides if it stands for one of two states, such as an open or shut gripper. Its decision is the side of
    ``middle`` that the action is on.
    """

    source: str = Field(description="what the spread was computed from, in words")
    names: list[str] = Field(description="dimension names: the data set's if it has any, else 'action 0', 'action 1' …")
    spread: list[Finite] = Field(description="σ: the standard deviation of each dimension, in the action's own units")
    decides: list[bool]
    middle: list[Finite] = Field(description="threshold of an on/off dimension, in the action's own units")
    width: list[Finite] = Field(description="distance between the two decisions, in the action's own units")
    judged_by: list[JudgedBy] = many(
        "where each dimension's σ comes from: dataset statistics, else the baseline's chunks, "
        "else a multiple of their motion, else a share of their size"
    )
    inert: bool = Field(
        default=False,
        description="the actions should be unnormalised, but the postprocessor has no statistics for them: σ is in "
        "normalised units",
    )
    note: str | None = optional("the fault of the statistics, in words")


class DimensionAgreement(Data):
    """How far the actions of one dimension differ. Errors are in units of its spread."""

    name: str
    spread: Finite = Field(description="σ, in the action's own units")
    judged_by: JudgedBy = Field(default="statistics", description="where σ comes from, as in `ActionScale`")
    rms: Finite = Field(description="root mean square of the errors")
    p99: Finite = Field(description="99th percentile of the absolute errors")
    worst: Finite = Field(description="largest absolute error")
    offset: Finite = Field(description="mean error, with its sign: a joint that is always off shows here")
    flips: Finite | None = optional("share of on/off decisions flipped; None if not on/off")
    along: list[Finite] = many("RMS error at each action of the chunk, in order")


class Agreement(Data):
    """How far the actions of two variants differ on the same observations with the same noise.

    Of a backbone they are its features, of a function or an object in Python its outputs.

    The first figures are over all numbers at once, in the action's own units. Those in units of the spread (σ) are of
    the dimension that is worst in them; they are None if no spread is known. The dimensions of features are their
    channels, and the spread of a channel is its own standard deviation over the baseline tokens.
    """

    of: Literal["actions", "features", "outputs"] = Field(
        default="actions", description="what was compared; 'outputs': of a Python object, meaning unknown"
    )
    cosine: Finite = Field(description="cosine of all chunks as one vector; 0 if a number is not finite")
    largest_error: Finite = Field(description="largest absolute difference, in the action's own units")
    mean_error: Finite
    observations: int = Field(description="chunks compared, one for each call")
    distinct: int | None = optional("different observations among them; None if unknown")
    note: str = ""
    unjudged: str | None = optional("why something could not be compared")
    short: bool = Field(default=False, description="fewer calls were made than a judgement needs")
    on_purpose: bool = Field(default=False, description="the actions should differ, as guided ones do")
    not_finite: int = Field(default=0, description="count of infinite or NaN values in the chunks of either side")
    changes_execution: bool = Field(
        default=False, description="another number of actions per chunk is executed, which chunks cannot judge"
    )
    uncompared: str | None = optional("the outputs that were not compared, in words")
    rms: Finite | None = optional("σ: root mean square of the errors in the worst dimension")
    p99: Finite | None = optional("σ: 99th percentile of the errors in the worst dimension")
    worst: Finite | None = optional("σ: largest error in any dimension")
    worst_dimension: str = Field(default="", description="dimension with the largest error")
    worst_at: str = Field(default="", description="call and action of the chunk with the largest error")
    flips: Finite | None = optional(
        "largest share of flipped on/off decisions in any dimension; None if none is on/off"
    )
    token: Finite | None = optional("σ: for features, root mean square of the worst token")
    executed: int | None = optional("number of actions executed, from the chunk's start")
    predicted: int | None = optional("number of actions in a chunk; None if unknown")
    executed_rms: Finite | None = optional("σ: like `rms`, over the executed actions only")
    executed_p99: Finite | None = optional("σ: like `p99`, over the executed actions only")
    executed_worst: Finite | None = optional("σ: like `worst`, over the executed actions only")
    executed_flips: Finite | None = optional("like `flips`, over the executed actions only")
    spread: str = Field(default="", description="where σ comes from, in words")
    how: str = Field(default="", description="which calls were compared, in words")
    dimensions: list[DimensionAgreement] = Field(default_factory=list)


class Yardstick(Data):
    """How far a change without effect, or a harmless one, moves the baseline's own actions (σ)."""

    name: YardstickName
    about: str = Field(default="", description="how the yardstick was made, in words")
    rms: Finite = Field(description="σ: root mean square of the errors in the worst dimension")
    worst: Finite = Field(description="σ: largest error in any dimension")
    token: Finite | None = optional("σ: for features, root mean square of the worst token")
    observations: int
    dimensions: list[DimensionAgreement] = Field(default_factory=list)


def yardstick(yardsticks: Sequence[Yardstick], name: YardstickName) -> Yardstick | None:
    """Return the yardstick called ``name``; None if it was not measured."""
    return next((yardstick for yardstick in yardsticks if yardstick.name == name), None)


class Check(Data):
    """Treatments checked against their guard, together."""

    name: str = Field(description="which treatments of the recipe were checked, in words")
    treatments: list[str] = Field(description="treatments, as written on a command line")
    effect: Effect = Field(description="the most that the treatments do to the actions")
    guard: str
    agreement: Agreement | None = optional("the compared actions; None if a call failed")
    broken: str | None = optional("the broken limit, in words")
    unjudged: str | None = optional("the missing figures and the flag that gives them")

    @property
    def outcome(self) -> Outcome:
        """Whether the treatments stay within their guard."""
        return outcome(self.broken, self.unjudged)


def outcome(broken: str | None, unjudged: str | None) -> Outcome:
    """Return the outcome of a check against a guard, by the reasons why it is broken or not judged."""
    return "broken" if broken else "not judged" if unjudged else "held"
