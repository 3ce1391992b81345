"""How far the actions of two policies differ, dimension by dimension, in units of each dimension's spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from strobe.core.results.data import Data, Finite

Effect = Literal["exact", "rounding", "lossy"]
JudgedBy = Literal["statistics", "chunks", "motion", "size"]
Outcome = Literal["held", "broken", "not judged"]
YardstickName = Literal["reordered sums", "another noise draw", "neighbouring frame", "another observation"]


class ActionScale(Data):
    """The spread of a policy's actions, the unit of their errors, and its dimensions that decide.

    A dimension decides if it stands for one of two states, such as an open or shut gripper. Its decision is the side of
    ``middle`` that the action is on.
    """

    source: str = Field(description="where the spread is from, in words")
    names: list[str] = Field(description="of the dimensions, as the data set has them, else 'action 0', 'action 1' …")
    spread: list[Finite] = Field(description="σ: the standard deviation of each, in the action's own units")
    decides: list[bool]
    middle: list[Finite] = Field(description="the action's own units; it means something where a dimension decides")
    width: list[Finite] = Field(description="from the one decision to the other, in the action's own units")
    judged_by: list[JudgedBy] = Field(
        default_factory=list,
        description="what σ of each is: of the statistics; of the untouched chunks, where these say nothing; a "
        "multiple of the chunks' motion, where they say far more; a share of its size, where it does not move",
    )
    inert: bool = Field(
        default=False,
        description="whether the actions should be unnormalised and are not, as the postprocessor has no statistics of "
        "them; σ is then in normalised units",
    )
    note: str = Field(default="", description="what is wrong with the statistics, in words; '' for nothing")


class DimensionAgreement(Data):
    """How far the actions of one dimension differ. Errors are in units of its spread."""

    name: str
    spread: Finite = Field(description="σ, in the action's own units")
    judged_by: JudgedBy = Field(default="statistics", description="what σ is, as in `ActionScale`")
    rms: Finite = Field(description="root mean square of the errors")
    p99: Finite = Field(description="99th percentile of the absolute errors")
    worst: Finite = Field(description="largest absolute error")
    offset: Finite = Field(description="mean error, with its sign: a joint that is always off shows here")
    flips: Finite | None = Field(default=None, description="share of decisions that flipped; None where none is made")
    along: list[Finite] = Field(default_factory=list, description="RMS at each action of the chunk, the first first")


class Agreement(Data):
    """How far the actions of two variants differ on the same observations with the same noise.

    Of a backbone they are its features, of a function or an object in Python its outputs.

    The first figures are over all numbers at once, in the action's own units. Those in units of the spread (σ) are of
    the dimension that is worst in them; they are None where no spread is known. The dimensions of features are their
    channels, and the spread of a channel is its own standard deviation over the untouched tokens.
    """

    of: Literal["actions", "features", "outputs"] = Field(
        default="actions", description="'outputs' of a function or an object in Python, whose meaning is not known"
    )
    cosine: Finite = Field(description="of all chunks as one vector; 0 where a number is not finite")
    largest_error: Finite = Field(description="largest absolute difference, in the action's own units")
    mean_error: Finite
    observations: int = Field(description="chunks compared, one for each call")
    distinct: int | None = Field(default=None, description="different observations among them; None where not known")
    note: str = ""
    unjudged: str = Field(default="", description="what could not be looked at, in words; '' where all was")
    short: bool = Field(default=False, description="whether fewer calls were made than a judgement needs")
    on_purpose: bool = Field(default=False, description="whether the actions should differ, as guided ones do")
    not_finite: int = Field(default=0, description="numbers that are infinite or not a number, in either's chunks")
    changes_execution: bool = Field(
        default=False, description="another number of a chunk's actions is executed, which chunks cannot judge"
    )
    uncompared: str = Field(default="", description="what of the outputs is not compared, in words; '' for nothing")
    rms: Finite | None = Field(default=None, description="σ: root mean square of the errors, of the worst dimension")
    p99: Finite | None = Field(default=None, description="σ: 99th percentile of the errors, of the worst dimension")
    worst: Finite | None = Field(default=None, description="σ: largest error of all")
    worst_dimension: str = Field(default="", description="where the largest error is")
    worst_at: str = Field(default="", description="the call and the action of the chunk where the largest error is")
    flips: Finite | None = Field(
        default=None, description="share of flipped decisions of the worst dimension; None where none decides"
    )
    token: Finite | None = Field(default=None, description="σ: of features, root mean square of the worst token")
    executed: int | None = Field(default=None, description="actions of a chunk that are executed, from its first on")
    predicted: int | None = Field(default=None, description="actions of a chunk; None where not known")
    executed_rms: Finite | None = Field(default=None, description="σ: like `rms`, of the executed actions alone")
    executed_p99: Finite | None = Field(default=None, description="σ: like `p99`, of the executed actions alone")
    executed_worst: Finite | None = Field(default=None, description="σ: like `worst`, of the executed actions alone")
    executed_flips: Finite | None = Field(default=None, description="like `flips`, of the executed actions alone")
    spread: str = Field(default="", description="where σ is from, in words")
    how: str = Field(default="", description="which calls were compared, in words")
    dimensions: list[DimensionAgreement] = Field(default_factory=list)


class Yardstick(Data):
    """How far a change without effect, or a harmless one, moves the untouched policy's own actions (σ)."""

    name: YardstickName
    about: str = Field(default="", description="how it was made, in words")
    rms: Finite = Field(description="σ: root mean square, of the worst dimension")
    worst: Finite = Field(description="σ: largest of all")
    token: Finite | None = Field(default=None, description="σ: of features, root mean square of the worst token")
    observations: int
    dimensions: list[DimensionAgreement] = Field(default_factory=list)


def yardstick(yardsticks: Sequence[Yardstick], name: YardstickName) -> Yardstick | None:
    """Return the yardstick called ``name``; None if it was not measured."""
    return next((yardstick for yardstick in yardsticks if yardstick.name == name), None)


class Check(Data):
    """Treatments checked against their guard, together."""

    name: str = Field(description="which treatments of the recipe they are, in words")
    treatments: list[str] = Field(description="as they are written on a command line")
    effect: Effect = Field(description="the most that they do to the actions")
    guard: str
    agreement: Agreement | None = Field(default=None, description="None where a call failed")
    broken: str = Field(default="", description="why the check failed, in words; '' where it did not")
    unjudged: str = Field(default="", description="what could not be judged and what to give, in words; '' for nothing")

    @property
    def outcome(self) -> Outcome:
        """Whether the treatments stay within their guard."""
        return outcome(self.broken, self.unjudged)


def outcome(broken: str, unjudged: str) -> Outcome:
    """Return the outcome of a check against a guard. ``broken`` and ``unjudged`` say why, or are empty."""
    return "broken" if broken else "not judged" if unjudged else "held"
