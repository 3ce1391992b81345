"""The answer of `strobe evaluate --results`: runs of lerobot-eval judged by their episodes, without playing any."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from strobe.results.answer import Answer
from strobe.results.data import Data, Finite, Interval
from strobe.results.evaluation import Decided, PairedRates, SuccessRate


class UnpairedRates(Data):
    """A run against the first one, whose episodes began elsewhere. Differences: it − the first."""

    difference: Finite = Field(description="of the success rates, −1 to 1: the mean over tasks, weighted")
    interval: Interval = Field(description="of it, for one look at runs whose lengths were fixed beforehand")
    kind: Decided
    by_task: bool = Field(
        default=False, description="whether the runs played the tasks in unlike shares, so that their rates mislead"
    )


class JudgedOnTask(Data):
    """A run's episodes on one task, or on all tasks together."""

    success: SuccessRate
    reward: Finite | None = Field(description="mean over its episodes of the sum over control ticks; None: not known")
    paired: PairedRates | None = None
    unpaired: UnpairedRates | None = None


class JudgedRun(Data):
    """One run of lerobot-eval; the first has nothing that it is judged against."""

    name: str = Field(description="its folder, as far as it tells the runs apart")
    file: str
    together: JudgedOnTask
    tasks: dict[str, JudgedOnTask] = Field(description="by the task's name; empty with one task")


class Judged(Answer):
    """Runs of lerobot-eval, each against the first."""

    called: ClassVar[str] = "judgement of lerobot-eval's runs"

    study: Literal["evaluate results"] = "evaluate results"
    tasks: list[str]
    margin: Finite = Field(description="loss of success rate that is called not worse")
    pairing: str = Field(description="why episodes are taken in pairs, or why not, in words")
    paired: bool
    runs: list[JudgedRun]

    @property
    def about(self) -> str:
        return "lerobot-eval"
