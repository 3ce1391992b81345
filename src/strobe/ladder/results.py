"""Treatments accepted one after the other on the way to a target rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field
from typing_extensions import Self

from strobe.core.results.agreement import Agreement, Effect
from strobe.core.results.answer import Guarded, Held, make_guarded_actions
from strobe.core.results.comparison import Comparison, Verdict
from strobe.core.results.data import Data, Finite, Samples
from strobe.core.results.measurement import Measurement
from strobe.evaluate.pairs import PairedEpisodes


class InTime(Data):
    """Chunks that took at most ``within_ms``, and what they show of all chunks to come."""

    within_ms: Finite
    asked: Finite = Field(description="share of chunks that must be in time, 0 to 1")
    chunks: int = Field(ge=1, description="number of chunks that were timed")
    on_time: int = Field(ge=0, description="number of chunks that were ready within `within_ms`")
    low: Finite = Field(description="lower confidence bound of the share in time, at `level`")
    high: Finite = Field(description="upper confidence bound of the share in time, at `level`")
    level: Finite = 0.95
    outcome: Literal["reached", "missed", "not judged"] = Field(
        description="reached: no less than asked; missed: less than asked; not judged: these chunks show neither"
    )
    needed: int | None = Field(
        default=None, description="chunks that decide it if the same share is in time; None if no number decides it"
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
    share: Finite = Field(description="share of the total, 0 to 1")
    needed_ms: Finite | None = Field(description="time that the part may take; None if even 0 would not suffice")
    named_ms: Finite | None = Field(
        description="time that the part may take if the time outside named parts were free; None if not even 0 suffices"
    )
    treatments: list[str] = Field(default_factory=list, description="treatments to try on it, or tried, in words")

    @classmethod
    def list_needs(cls, parts: Mapping[str, float], total_ms: float, target_ms: float) -> list[Self]:
        """Return how short (ms) each part alone would have to get, the largest first; none if the target is met."""
        if total_ms <= target_ms:
            return []
        named = sum(parts.values())
        needs = []
        for part, ms in sorted(parts.items(), key=lambda item: -item[1]):
            allowed, of_named = target_ms - (total_ms - ms), target_ms - (named - ms)
            needs.append(
                cls(
                    part=part,
                    ms=ms,
                    share=ms / total_ms,
                    needed_ms=allowed if allowed > 0 else None,
                    named_ms=of_named if of_named > 0 else None,
                )
            )
        return needs


TryOutcome = Literal[
    "kept",
    "slower",
    "no difference shown",
    "inconclusive",
    "guard",
    "not judged",
    "does not apply",
    "failed",
    "not tried",
]


class Try(Data):
    """One treatment tried on top of those accepted before it."""

    treatment: str = Field(description="treatment, as written on a command line")
    rung: int = Field(description="number of the rung that it would have been, from 1")
    effect: Effect | None = Field(default=None, description="the most that it and all accepted treatments do together")
    part: str | None = Field(default=None, description="costliest part that it speeds up; None for the whole")
    parts: list[str] = Field(default_factory=list, description="all parts that it speeds up; empty for the whole")
    part_share: Finite = Field(default=1.0, description="share of `part` in the whole before, 0 to 1")
    before_ms: Finite = Field(description="median of the whole before")
    outcome: TryOutcome
    reason: str = Field(default="", description="why it was not accepted")
    verdict: Verdict | None = Field(default=None, description="verdict against the ladder so far; None if never timed")
    most_gain: Finite | None = Field(
        default=None, description="upper bound (95 %) of the share of the time that it saves; None if unbounded"
    )
    on: list[str] = Field(default_factory=list, description="treatments accepted before it, as on a command line")
    agreement: Agreement | None = Field(default=None, description="all treatments against the baseline")
    build_s: Finite | None = Field(default=None, description="extra time of its first call")

    @property
    def explanation(self) -> str:
        """Its outcome, in words that stand alone."""
        unrun = self.outcome in ("does not apply", "failed", "not tried")
        return f"{self.outcome}: {self.reason}" if unrun and self.reason else self.reason or self.outcome


class Rung(Data):
    """An accepted treatment with all below it. The first rung is the baseline."""

    name: str = Field(description="name of its measurement")
    treatment: str = Field(default="", description="treatment added to the rung below; '' for the baseline")
    treatments: list[dict[str, str | int | float | bool | None]] = Field(
        default_factory=list, description="all treatments, in the order in which they are applied"
    )
    effect: Effect = Field(default="exact", description="effect of the treatment added")
    part: str | None = Field(default=None, description="part that it was tried for; None for the whole")
    build_s: Finite | None = None
    parts: dict[str, Finite] = Field(
        default_factory=dict, description="milliseconds for its parts; the remainder belongs to no part"
    )
    guarded: bool = Field(
        default=True, description="the guard held in the run that the figures come from, and in episodes"
    )
    refused: str | None = Field(default=None, description="why the guard did not hold")


class Ladder(Data):
    """Treatments accepted one after the other on the way to a target rate, each judged on top of those before it.

    The figures of a rung are those of its measurement, and of its comparisons with the rung before and the first.
    """

    target_hz: Finite
    target_ms: Finite = Field(description="milliseconds in which a chunk must be ready")
    guard: str
    met: bool = Field(description="the chosen rung is shown to reach the target; without `in_time`: its median does")
    in_time: InTime | None = Field(default=None, description="share in time of the chosen rung; older versions lack it")
    alone: Samples | None = Field(
        default=None, description="the chosen rung measured by itself, chunk after chunk; None if that was not run"
    )
    ended: str = Field(description="why the search ended, in words")
    interleaved: bool = Field(default=True, description="all rungs were measured in alternation, in one run")
    chosen: str = Field(description="the measurement of the best rung for which the guard held")
    rungs: list[Rung] = Field(description="the baseline first")
    tries: list[Try] = Field(default_factory=list, description="in the order in which they were made")
    needs: list[Need] = Field(default_factory=list, description="what is missing to the target")


class OptimizeResult(Guarded):
    """A ladder of treatments to a target rate; its measurements are the rungs."""

    stacked: ClassVar[bool] = True

    study: Literal["optimize"] = "optimize"
    comparisons: list[Comparison] = Field(default_factory=list)
    episodes: list[PairedEpisodes] = Field(default_factory=list, description="in a simulator, in the order judged")
    ladder: Ladder | None = Field(default=None, description="None only while the study runs")

    def advised_measurements(self) -> Sequence[Measurement]:
        return [m for m in self.measurements if self.ladder is None or m.name == self.ladder.chosen]

    def judged_comparisons(self) -> Sequence[Comparison]:
        return self.comparisons

    @property
    def chosen_candidate(self) -> str | None:
        return self.ladder.chosen if self.ladder is not None else None

    def guarded_actions(self) -> list[Held]:
        rungs = self.ladder.rungs if self.ladder is not None else []
        treatments = {rung.name: rung.treatment for rung in rungs}
        first = rungs[0].name if rungs else None
        return [
            make_guarded_actions(each, each.candidate, treatments.get(each.candidate, ""))
            for each in self.comparisons
            if first is None or each.baseline == first
        ]

    def rejected_treatments(self) -> list[Held]:
        last = {attempt.treatment: attempt for attempt in (self.ladder.tries if self.ladder is not None else [])}
        return [
            Held(each.treatment, each.treatment, each.agreement, "exact", "exact", each.reason)
            for each in last.values()
            if each.outcome == "guard" and each.effect == "exact"
        ]

    def guards(self) -> list[str]:
        return [self.ladder.guard] if self.ladder is not None else []
