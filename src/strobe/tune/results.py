"""The answer of `strobe tune`: settings of one policy in a simulator, and the winner against the default."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.answer import Result
from strobe.core.results.data import Data, Finite, many, optional
from strobe.evaluate.pairs import PairedRates, PairedTimes, SuccessRate

EliminatedBy = Literal["success", "time", "rank", ""]


class SettingRow(Data):
    """One setting in the selection phase."""

    name: str
    flags: list[str] = Field(description="flags of its program that make the setting")
    program: str = Field(default="lerobot-rollout", description="LeRobot program that takes the flags")
    recipe: str = Field(default="", description="file name of the recipe; '' if it has none")
    success: SuccessRate | None = Field(description="success rate of its episodes; None: not played")
    mean_s: Finite | None = Field(description="mean time to the task over all starts, a failure counted as the limit")
    left: EliminatedBy = Field(
        default="",
        description="why it was eliminated: shown to be worse than the leader in success or in time, or ranked behind "
        "it, which shows nothing; '' for the winner",
    )


class Closing(Data):
    """The winner against the default, in held-out pairs: on starts that the selection phase did not play."""

    default: SuccessRate
    winner: SuccessRate
    rates: PairedRates
    times: PairedTimes | None = Field(description="comparison of time; None: not judged")
    times_not_judged: str | None = optional("why `times` is missing")


class Tuning(Data):
    """The search at one latency."""

    latency: str = Field(description="latency of each call: '100 ms', or the run that it is drawn from")
    ticks: int = Field(description="control ticks per call; from a run: of the median call")
    settings: list[SettingRow] = Field(description="settings that were played, the default first")
    left_out: dict[str, str] = Field(description="infeasible setting → the arithmetic, in words")
    starts: int = Field(description="most starts of a setting in the selection phase, over all tasks")
    exhaustive: int = Field(description="number of episodes of an exhaustive search: all settings on all starts")
    played: int = Field(description="number of episodes in the selection phase")
    hopeless: bool = Field(description="it ended because no setting ever succeeded")
    winner: str = Field(description="best setting of the selection phase; empty before its end")
    closing: Closing | None = Field(description="final comparison; None: the winner is the default, or time ran out")

    @property
    def default(self) -> str:
        """The policy as LeRobot runs it."""
        return self.settings[0].name if self.settings else ""

    def row(self, name: str) -> SettingRow | None:
        """Return the setting called ``name``, if it was played."""
        return next((row for row in self.settings if row.name == name), None)


class TuneResult(Result):
    """The settings that make the task succeed, and soonest, at each latency."""

    study: Literal["tune"] = "tune"
    environment: str = Field(description="type and task of the environment")
    tasks: list[str]
    fps: Finite = Field(description="control ticks per second")
    margin: Finite = Field(description="non-inferiority margin (loss of success rate), stated beforehand")
    tunings: list[Tuning] = Field(default_factory=list)
    not_tried: list[str] = many("further settings that could be tuned, in words")
