"""One try: a candidate on top of what was kept is run, judged, recorded, and reported in a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strobe.errors import UserError, in_a_line
from strobe.measure.guard import HELD, Judgement
from strobe.results.agreement import Agreement
from strobe.results.comparison import Verdict
from strobe.results.ladder import TryOutcome
from strobe.results.measurement import Measurement
from strobe.sameness.check import CallFailed
from strobe.studies.optimize.candidates import Candidate, largest, together
from strobe.studies.optimize.climb import Climb
from strobe.studies.optimize.ladder import Step
from strobe.treatments.treatment import Variant


@dataclass(frozen=True)
class Trial:
    """A candidate, and the variant that has it on top of all that was kept before."""

    candidate: Candidate
    variant: Variant


@dataclass(frozen=True)
class Judged:
    """The judgement on a trial.

    Args:
        reason: why it is not kept.
        detail: what the printed line adds to the reason.
        figures: time and agreement for the printed line.
        measurement: of the trial; a kept one has it.
        most_gain: share of the time that it saves at most; None where nothing bounds it.
    """

    outcome: TryOutcome
    reason: str = ""
    detail: str = ""
    figures: str = ""
    measurement: Measurement | None = None
    verdict: Verdict | None = None
    agreement: Agreement | None = None
    build_s: float | None = None
    most_gain: float | None = None


def attempt(climb: Climb, candidate: Candidate, judge: Callable[[Trial], Judged]) -> bool:
    """Try ``candidate`` on top of what was kept, and keep it if ``judge`` says so. Return whether it was kept.

    One that does not apply, or fails, is recorded like any other: it must not cost the ladder.
    """
    before, number = climb.top, len(climb.steps)
    climb.begin_try(candidate)
    part, share = largest(candidate, before.measurement)
    where = (
        f" on {part} ({100 * share:.0f} % of {milliseconds(before.ms)})"
        if part
        else f" on the whole ({milliseconds(before.ms)})"
    )
    head = f"rung {number}: {candidate.text}{where}"
    climb.reporter.doing(f"{head}{', building it first' if candidate.build_s else ''}")
    specs = together(before.specs, candidate.specs)
    try:
        trial = Trial(candidate, climb.runs.variant(number, specs))
        judged = judge(trial)
    except Exception as error:
        trial, judged = None, could_not(error)
    climb.record(
        candidate,
        judged.outcome,
        judged.reason,
        judged.verdict,
        judged.agreement,
        judged.build_s,
        judged.most_gain,
    )
    if trial is not None and judged.measurement is not None and judged.outcome == "kept":
        climb.steps.append(
            Step(
                trial.variant, specs, judged.measurement, candidate, part,
                judged.build_s, judged.verdict, judged.agreement,
            )
        )  # fmt: skip
        climb.reporter.said(f"{head}: {judged.figures} → kept")
        return True
    climb.runs.release(step.variant for step in climb.steps)
    why = f"{judged.reason}{judged.detail}"
    if judged.outcome in ("does not apply", "failed"):
        why = f"{judged.outcome}: {why}"
    climb.reporter.said(f"{head}: {f'{judged.figures} → ' if judged.figures else ''}not kept, {why}")
    return False


def could_not(error: Exception) -> Judged:
    """Return the judgement on what could not be put on, or not run: it must not cost the ladder."""
    if isinstance(error, UserError) and not isinstance(error, CallFailed):
        return Judged("does not apply", str(error))
    if isinstance(error, CallFailed):
        return Judged("failed", str(error))
    return Judged("failed", f"{type(error).__name__}: {in_a_line(error, 200)}")


def refusal(judged: Judgement) -> tuple[TryOutcome, str]:
    """Return the outcome of a try whose guard does not hold, with its reason."""
    return ("guard", f"guard: {judged.broken}") if judged.broken else ("not judged", f"not judged: {judged.unjudged}")


def outcome_of(verdict: Verdict, judged: Judgement = HELD) -> tuple[TryOutcome, str]:
    """Return the outcome of a try with its reason: kept if it is faster and its guard holds."""
    low, high = verdict.interval.low, verdict.interval.high
    if verdict.kind == "faster":
        return ("kept", "") if judged.outcome == "held" else refusal(judged)
    if verdict.kind == "slower":
        return "slower", f"slower: {verdict.ratio:.2f}× the time [{low:.2f}, {high:.2f}]"
    said = "no difference shown" if verdict.kind == "no difference shown" else "too noisy to say"
    return verdict.kind, f"{said} (seen {speedup(verdict)})"


def speedup(verdict: Verdict) -> str:
    """Return how many times as fast, with the interval, in words."""
    low, high = 1 / verdict.interval.high, 1 / verdict.interval.low
    word = "faster" if verdict.kind == "faster" else "as fast"
    return f"{1 / verdict.ratio:.2f}× {word} [{low:.2f}, {high:.2f}]"


def moved(agreement: Agreement) -> str:
    """Return how far the actions are from the untouched policy's, in words."""
    if agreement.rms is None or agreement.worst is None:
        return f"cosine {agreement.cosine:.6f}"
    if not agreement.worst:
        return f"the same {agreement.of} to the bit"
    return f"{agreement.of} move by {agreement.rms:.2g} σ, {agreement.worst:.2g} σ at most"


def milliseconds(value: float) -> str:
    """Return ``value`` with its unit, in as many figures as it takes."""
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"
