"""The answer of `strobe trials`: two settings on a robot, in blinded pairs of trials. Plain data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.answer import Answer
from strobe.core.results.data import Data, Finite, many, optional
from strobe.evaluate.pairs import PairedRates, PairedScores, PairedTimes, Score, SuccessRate, TimeToTask

Code = Literal["A", "B"]


class Trial(Data):
    """One trial that was run, as the operator wrote it down."""

    line: int = Field(description="line of the file")
    pair: int
    trial: int = Field(description="place in the plan, over all pairs")
    code: Code
    success: bool
    progress: Finite | None = optional("share of the task that was done, 0 to 1; None: not recorded")
    seconds: Finite | None = Field(description="duration of the trial; None: not recorded")
    condition: str = Field(default="", description="the starting condition, in the operator's words")
    note: str = ""


class TriedSetting(Data):
    """One of the two settings, in the pairs of which both trials were run."""

    name: str
    code: Code
    flags: list[str] = Field(description="flags of lerobot-rollout that make the setting")
    recipe: str = Field(default="", description="file name of the recipe; '' if it has none")
    success: SuccessRate | None = Field(description="success rate; None: no pair is complete")
    progress: Finite | None = optional("mean progress, 0 to 1; None: not recorded of each trial")
    time: TimeToTask | None = Field(description="time until the task is done; None: not judged")


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
    source: str = Field(description="the file with the trials")
    planned: int = Field(description="number of pairs planned")
    score: Score = Field(default="success", description="what decides, stated in the plan")
    margin: Finite = Field(description="non-inferiority margin (loss of the score), stated in the plan")
    limit_s: Finite | None = Field(description="longest duration of a trial, stated in the plan; None: not stated")
    blind: str | None = optional("why the settings are anonymous; None: the key was opened")
    settings: list[TriedSetting] = many("settings, default first; empty if blind")
    trials: list[Trial] = many("trials that were run, by pair")
    counted: int = Field(default=0, description="number of complete pairs")
    half_run: list[int] = many("pairs with only one trial run; not counted")
    passed_over: list[int] = many("pairs skipped before a later one")
    other_order: list[int] = many("pairs whose codes deviate from the planned order")
    other_start: list[int] = many("pairs whose trials have different conditions")
    rates: PairedRates | None = optional("success, second − first setting; None: not judged")
    rates_not_judged: str | None = optional("why `rates` is missing")
    progress: PairedScores | None = optional("progress, second − first setting; None: not judged")
    progress_not_judged: str | None = optional("why `progress` is missing; None also if none was recorded")
    times: PairedTimes | None = optional("comparison of time; None: not judged")
    times_not_judged: str | None = optional("why `times` is missing")
    decided: list[Score | Literal["time"]] = many("what decided that one setting is better, in a blind look too")
    places: PairedRates | None = optional("second trials of pairs against first ones, whatever the setting; one look")
    orders: list[OfOrder] = many("results by the setting that was run first")

    @property
    def comparison(self) -> PairedRates | PairedScores | None:
        """The comparison by the score that decides."""
        return self.rates if self.score == "success" else self.progress

    @property
    def subject_name(self) -> str:
        """Name of its subject, for the run's folder."""
        return "trials"
