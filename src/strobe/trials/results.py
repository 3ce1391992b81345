"""The answer of `strobe trials`: two settings on a robot, in blinded pairs of trials. Plain data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite
from strobe.evaluate.results.evaluate import PairedRates, SuccessRate
from strobe.evaluate.results.time_to_task import PairedTimes, TimeToTask

Code = Literal["A", "B"]


class Trial(Data):
    """One trial that was run, as the operator wrote it down."""

    line: int = Field(description="of its file; 0 where it comes from a study of fieldtrial")
    pair: int
    trial: int = Field(description="its place in the plan, over all pairs")
    code: Code
    success: bool
    seconds: Finite | None = Field(description="from the start of the trial until it ended; None: not written")
    condition: str = Field(default="", description="the start, in the operator's words")
    note: str = ""


class TriedSetting(Data):
    """One of the two settings, in the pairs of which both trials were run."""

    name: str
    code: Code
    flags: list[str] = Field(description="of lerobot-rollout, that make it")
    recipe: str = Field(default="", description="the recipe's file; '' where it has none")
    success: SuccessRate | None = Field(description="None: no pair is complete")
    time: TimeToTask | None = Field(description="None: not judged")


class OfOrder(Data):
    """The pairs in which one setting was run first. Lost and won are those of the second setting."""

    first: str = Field(description="the setting that was run first")
    pairs: int
    lost: int = Field(description="pairs in which only the first setting of the plan succeeded")
    won: int = Field(description="pairs in which only its second setting succeeded")


class TrialsResult(Answer):
    """Two settings on a robot: the second judged against the first, in blinded pairs of trials from the same start."""

    called: ClassVar[str] = "judgement of trials"

    study: Literal["trials"] = "trials"
    source: str = Field(description="the file that was read")
    planned: int = Field(description="pairs")
    margin: Finite = Field(description="loss of success rate that is called not worse, stated in the plan")
    limit_s: Finite | None = Field(description="seconds of a trial, stated in the plan; None: the plan has none")
    blind: str = Field(default="", description="why the settings have no names here, in words; '': the key was opened")
    settings: list[TriedSetting] = Field(default_factory=list, description="the default first; none in a blind look")
    trials: list[Trial] = Field(default_factory=list, description="those that were run, by their pairs")
    counted: int = Field(default=0, description="pairs of which both trials were run")
    half_run: list[int] = Field(default_factory=list, description="pairs of which one trial was run; not counted")
    passed_over: list[int] = Field(default_factory=list, description="pairs before a later one, of which none was run")
    other_order: list[int] = Field(default_factory=list, description="pairs whose codes are not in the planned order")
    other_start: list[int] = Field(default_factory=list, description="pairs whose trials have different conditions")
    rates: PairedRates | None = Field(default=None, description="the second setting − the first; None: not judged")
    rates_not_judged: str = Field(default="", description="why, in words")
    times: PairedTimes | None = Field(default=None, description="None: not judged")
    times_not_judged: str = Field(default="", description="why, in words")
    decided: list[Literal["success", "time"]] = Field(
        default_factory=list, description="in what one of the two is shown to be better, in a blind look too"
    )
    places: PairedRates | None = Field(
        default=None, description="second trials of the pairs against first ones, whatever their settings; one look"
    )
    orders: list[OfOrder] = Field(default_factory=list, description="by the setting that was run first")

    @property
    def about(self) -> str:
        """Name of its subject, for the run's folder."""
        return "trials"
