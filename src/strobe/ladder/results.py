"""Treatments accepted one after the other on the way to a target rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from strobe.core.results.agreement import Agreement, Effect
from strobe.core.results.answer import Guarded, Held, as_held
from strobe.core.results.comparison import Comparison, Verdict
from strobe.core.results.data import Data, Finite, Samples
from strobe.core.results.in_time import InTime
from strobe.core.results.measurement import Measurement
from strobe.evaluate.results.episodes import PairedEpisodes


class Need(Data):
    """Time that one part would have to fall to for a target rate, all others as they are."""

    part: str
    ms: Finite
    share: Finite = Field(description="of the total, 0 to 1")
    needed_ms: Finite | None = Field(description="None where even nothing would not do")
    named_ms: Finite | None = Field(description="the same, leaving out of account what is in no named part")
    treatments: list[str] = Field(default_factory=list, description="what could be tried on it, or was: in words")


TryOutcome = Literal[
    "kept", "slower", "no difference shown", "too noisy", "guard", "not judged", "does not apply", "failed", "not tried"
]


class Try(Data):
    """One treatment tried on top of those accepted before it."""

    treatment: str = Field(description="as it is written on a command line")
    rung: int = Field(description="that it would have been, from 1")
    effect: Effect | None = Field(default=None, description="the most that it and all that was kept do together")
    part: str = Field(default="", description="the costliest part that it speeds up; '' for the whole")
    parts: list[str] = Field(default_factory=list, description="all that it speeds up; none for the whole")
    part_share: Finite = Field(default=1.0, description="of `part` in the whole before, 0 to 1")
    before_ms: Finite = Field(description="the whole before, median")
    outcome: TryOutcome
    reason: str = Field(default="", description="why it was not kept")
    verdict: Verdict | None = Field(default=None, description="against what was kept before; None if never timed")
    most_gain: Finite | None = Field(
        default=None, description="share of the time that it saves at most, 95 %; None where nothing bounds it"
    )
    on: list[str] = Field(default_factory=list, description="treatments that were kept before it, as they are written")
    agreement: Agreement | None = Field(default=None, description="of all together with the untouched policy")
    build_s: Finite | None = Field(default=None, description="its first call, beyond what a call takes")


class Rung(Data):
    """An accepted treatment with all below it. The first rung is the policy as it is."""

    name: str = Field(description="of its measurement")
    treatment: str = Field(default="", description="what was added to the rung below; '' for the policy as it is")
    treatments: list[dict[str, str | int | float | bool | None]] = Field(
        default_factory=list, description="all that are on, in the order in which they are put on"
    )
    effect: Effect = Field(default="exact", description="of the treatment added")
    part: str = Field(default="", description="that it was tried for; '' for the whole")
    build_s: Finite | None = None
    parts: dict[str, Finite] = Field(
        default_factory=dict, description="milliseconds of its parts; what they leave of the whole is in none of them"
    )
    guarded: bool = Field(
        default=True, description="whether the guard held in the run that the figures come from, and in episodes"
    )
    refused: str = Field(default="", description="why not, in words")


class Ladder(Data):
    """Treatments accepted one after the other on the way to a target rate, each judged on top of those before it.

    The figures of a rung are those of its measurement, and of its comparisons with the rung before and the first.
    """

    target_hz: Finite
    target_ms: Finite = Field(description="within which a chunk must be ready")
    guard: str
    met: bool = Field(
        description="whether the chosen rung is shown to reach the target; without `in_time`, whether its median does"
    )
    in_time: InTime | None = Field(default=None, description="of the chosen rung; earlier versions have none")
    alone: Samples | None = Field(
        default=None, description="the chosen rung by itself, chunk after chunk; None where that was not run"
    )
    ended: str = Field(description="why the climbing stopped, in words")
    interleaved: bool = Field(default=True, description="whether all rungs were measured in alternation, in one run")
    chosen: str = Field(description="the measurement of the best rung for which the guard held")
    rungs: list[Rung] = Field(description="the policy as it is first")
    tries: list[Try] = Field(default_factory=list, description="in the order in which they were made")
    needs: list[Need] = Field(default_factory=list, description="what is missing to the target")


class OptimizeResult(Guarded):
    """A ladder of treatments to a target rate; its measurements are the rungs."""

    stacked: ClassVar[bool] = True

    study: Literal["optimize"] = "optimize"
    comparisons: list[Comparison] = Field(default_factory=list)
    episodes: list[PairedEpisodes] = Field(default_factory=list, description="in a simulator, in the order judged")
    ladder: Ladder | None = Field(default=None, description="None only while the study runs")

    def advised(self) -> Sequence[Measurement]:
        return [m for m in self.measurements if self.ladder is None or m.name == self.ladder.chosen]

    def judged(self) -> Sequence[Comparison]:
        return self.comparisons

    @property
    def chosen(self) -> str | None:
        return self.ladder.chosen if self.ladder is not None else None

    def held(self) -> list[Held]:
        rungs = self.ladder.rungs if self.ladder is not None else []
        treatments = {rung.name: rung.treatment for rung in rungs}
        first = rungs[0].name if rungs else None
        return [
            as_held(each, each.candidate, treatments.get(each.candidate, ""))
            for each in self.comparisons
            if first is None or each.baseline == first
        ]

    def refused(self) -> list[Held]:
        last = {attempt.treatment: attempt for attempt in (self.ladder.tries if self.ladder is not None else [])}
        return [
            Held(each.treatment, each.treatment, each.agreement, "exact", "exact", each.reason)
            for each in last.values()
            if each.outcome == "guard" and each.effect == "exact"
        ]

    def guards(self) -> list[str]:
        return [self.ladder.guard] if self.ladder is not None else []
