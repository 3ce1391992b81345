"""Treatments accepted one after the other on the way to a target rate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strobe.core.results.agreement import Agreement, Effect
from strobe.core.results.comparison import Verdict
from strobe.core.results.data import Data, Finite, Samples


class InTime(Data):
    """Chunks that took at most ``within_ms``, and what they show of all chunks to come."""

    within_ms: Finite
    asked: Finite = Field(description="share of chunks that must be in time, 0 to 1")
    chunks: int = Field(ge=1, description="that were timed")
    on_time: int = Field(ge=0, description="of them")
    low: Finite = Field(description="bound of the share in time: it is no less, with confidence `level`")
    high: Finite = Field(description="it is no more, with confidence `level`")
    level: Finite = 0.95
    outcome: Literal["reached", "missed", "not judged"] = Field(
        description="reached: no less than asked; missed: less than asked; not judged: these chunks show neither"
    )
    needed: int | None = Field(
        default=None, description="chunks that would show it if as many are in time; None where as many would not do"
    )
    burst: int | None = Field(
        default=None,
        description="where reached: late chunks in a row, their mean, that this run is long enough to show; it may "
        "fall between longer bursts, which are rarer",
    )

    @property
    def share(self) -> float:
        """Share of the chunks that were in time, 0 to 1."""
        return self.on_time / self.chunks


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
