"""The answer of `strobe tune`: settings of one policy in a simulator, and the winner against the default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from strobe.core.results.answer import Result
from strobe.core.results.data import Data, Finite
from strobe.core.results.measurement import Measurement
from strobe.evaluate.results.evaluate import PairedRates, SuccessRate
from strobe.evaluate.results.time_to_task import PairedTimes

Left = Literal["success", "time", "rank", ""]


class SettingRow(Data):
    """One setting in the rounds."""

    name: str
    flags: list[str] = Field(description="of its program, that make it")
    program: str = Field(default="lerobot-rollout", description="the program of LeRobot that takes the flags")
    recipe: str = Field(default="", description="the recipe's file; '' where it has none")
    success: SuccessRate | None = Field(description="of its episodes; None: it was not played")
    mean_s: Finite | None = Field(description="to the task, over all its starts, a failure counted as the limit")
    left: Left = Field(
        default="",
        description="why it was played no further: shown to be worse than the leader in success or in time, or ranked "
        "behind, which shows nothing; '' for the winner",
    )


class Closing(Data):
    """The winner against the default, in pairs on starts that the rounds did not play."""

    default: SuccessRate
    winner: SuccessRate
    rates: PairedRates
    times: PairedTimes | None = Field(description="None: not judged")
    times_not_judged: str = Field(default="", description="why, in words")


class Tuning(Data):
    """The search at one latency."""

    latency: str = Field(description="of each call: '100 ms', or the run that it is drawn from")
    ticks: int = Field(description="control ticks that a call lasts; of a run, the middle call")
    settings: list[SettingRow] = Field(description="those that were played, the default first")
    left_out: dict[str, str] = Field(description="setting → the sum by which it cannot work, in words")
    starts: int = Field(description="of each setting in the rounds, at most, over all tasks")
    exhaustive: int = Field(description="episodes of an exhaustive search: all settings on all starts")
    played: int = Field(description="episodes of the rounds")
    hopeless: bool = Field(description="whether it ended since no setting ever succeeded")
    winner: str = Field(description="the best in the rounds; '' where none was found")
    closing: Closing | None = Field(description="None: the winner is the default, or there was no time for pairs")

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
    environment: str = Field(description="its type and task")
    tasks: list[str]
    fps: Finite = Field(description="control ticks per second")
    margin: Finite = Field(description="loss of success rate that is called not worse, stated beforehand")
    tunings: list[Tuning] = Field(default_factory=list)
    not_tried: list[str] = Field(default_factory=list, description="what could be set too, in words")

    def advised(self) -> Sequence[Measurement]:
        """Return nothing: no part of a call is measured."""
        return ()
