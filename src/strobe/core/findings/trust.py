"""Rules on how far the numbers themselves can be trusted, and the machine and its software with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import examined, ms, percent, whole_ms
from strobe.core.results.answer import Result
from strobe.core.results.finding import Finding
from strobe.core.results.measurement import Measurement
from strobe.core.results.queued import filled
from strobe.doctor.results import TITLES, DoctorResult, Outcome

MAX_OTHER_SHARE = 0.05  # share of the whole: with more, the named parts explain too little
# Outcome → the level of its finding, and its verb. What is missing has its place in the tables.
CHECK_LEVELS: dict[Outcome, tuple[Literal["warning", "info"], str]] = {
    "fails": ("warning", "fails"),
    "doubtful": ("info", "needs care"),
}


def other(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Time that no named part explains, at the first two levels; deeper down much of it is a block's own code."""
    for measurement in examined(result):
        share = sum(component.share for component in measurement.components if component.other and component.depth <= 2)
        if share <= MAX_OTHER_SHARE:
            continue
        whole, general = whole_ms(measurement), result.subject.anatomy == "modules"
        yield Finding(
            rule="other-large",
            level="warning",
            title=f"{percent(share)} of the {measurement.phase} belongs to no named part",
            seen=f"{ms(whole * share)} of {ms(whole)} in '{measurement.name}' is 'other'; "
            f"up to {percent(MAX_OTHER_SHARE)} is expected.",
            why="Advice on the named parts misses what happens between them.",
            do=_to_name_it(measurement, divided_along_modules=general),
            evidence={"share": share, "whole_ms": whole},
        )


def _to_name_it(measurement: Measurement, *, divided_along_modules: bool) -> str:
    if measurement.traits.call is not None:
        return "Name the stretches between its modules in its own code: `with strobe.section('preprocessing'):`."
    if divided_along_modules:
        return (
            "Strobe divided it along its modules. Give its family a record that names its parts (entry-point group "
            "'strobe.families')."
        )
    return "--operators shows what runs there."


def unseen(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Probes that could not be timed: their parts are missing from the table."""
    for measurement in result.measurements:
        if not measurement.unseen:
            continue
        names = list(measurement.unseen)
        reasons = "; ".join(dict.fromkeys(measurement.unseen.values()))
        shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        yield Finding(
            rule="unseen-parts",
            level="info",
            title=f"{len(names)} parts of '{measurement.name}' could not be timed",
            seen=f"{shown}: {reasons}.",
            why="Their time counts in the whole, and in no part.",
            do="Read the parts from the variant that is not compiled. --operators shows the kernels of this variant.",
            evidence={"parts": len(names)},
        )


def too_noisy(result: Result, _: Thresholds) -> Iterator[Finding]:
    """A comparison that these samples cannot decide."""
    for comparison in result.judged():
        verdict = comparison.verdict
        if verdict.kind != "too noisy":
            continue
        why = "The interval is wide enough to hide a difference that matters."
        do = "Close other programs, plug in the power, and measure longer: --seconds=120."
        head = "Too noisy to judge"
        if verdict.cause == "a queue":
            head = "Typical calls do not judge"
            why = "The typical call only takes an action: what making a chunk costs is in the few others."
            do = "Compare the method that makes a chunk, such as infer or predict_action_chunk of the policy inside."
        elif verdict.cause == "too short" or not verdict.interval.low <= 1 <= verdict.interval.high:
            why = "So short a run may lie in one state of the machine, such as a core that other work shares."
            do = "Measure longer: leave out --iterations, or give --seconds=120."
        yield Finding(
            rule="too-noisy",
            level="warning",
            title=f"{head} '{comparison.candidate}' against '{comparison.baseline}'",
            seen=verdict.sentence,
            why=why,
            do=do,
            evidence={
                "ratio": verdict.ratio,
                "low": verdict.interval.low,
                "high": verdict.interval.high,
                "pairs": verdict.pairs,
            },
        )


def unsteady(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """Drift, throttling and noise noted while sampling."""
    for measurement in result.measurements:
        notes = list(dict.fromkeys(measurement.samples.notes))
        # With few samples the notes are about that, which `few_samples` says.
        if not notes or len(measurement.samples.values) < thresholds.few_samples:
            continue
        yield Finding(
            rule="unsteady",
            level="warning",
            title=f"The samples of '{measurement.name}' are not steady",
            seen="; ".join(notes),
            why="The machine changes its pace, so the median says more about the machine than about the policy.",
            do="Let the machine cool down, close other programs, and measure again.",
            evidence={"samples": len(measurement.samples.values), "notes": len(notes)},
        )


def few_samples(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    """Medians of a handful of samples."""
    few = [m for m in result.measurements if len(m.samples.values) < thresholds.few_samples]
    if few:
        taken = min(len(m.samples.values) for m in few)
        yield Finding(
            rule="few-samples",
            level="info" if result.judged() and taken >= 6 else "warning",
            title="Few samples: " + ", ".join(f"{len(m.samples.values)} of '{m.name}'" for m in few),
            seen=f"{thresholds.few_samples} or more of each are wanted.",
            why="With so few, one slow run moves the median, and its interval is wide or missing.",
            do="Measure longer: --seconds=120, or --iterations=50.",
            evidence={"samples": taken},
        )


def stand_ins(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Things that stood in for the real ones."""
    if result.subject.stand_ins:
        yield Finding(
            rule="stand-ins",
            level="info",
            title="A part of the measured work is a stand-in",
            seen="; ".join(result.subject.stand_ins),
            why="The work has the same shape, but the robot will run other work.",
            do="Measure the checkpoint itself, with --policy.path, on a machine that can reach the Hub.",
            evidence={"stand_ins": len(result.subject.stand_ins)},
        )


def self_checks(result: DoctorResult, _: Thresholds) -> Iterator[Finding]:
    """A self-check that fails or needs care."""
    for check in result.checks:
        if check.outcome in CHECK_LEVELS:
            level, verb = CHECK_LEVELS[check.outcome]
            yield Finding(
                rule="self-check",
                level=level,
                title=f"{TITLES[check.area]}: {check.name} {verb}",
                seen=f"{check.seen}.",
                why=check.means,
                do=check.do,
            )


def queued(result: Result, _: Thresholds) -> Iterator[Finding]:
    """Calls of which a few do the work of many, as those do that fill a queue of actions."""
    for measurement in result.measurements:
        if (few := filled(measurement.samples.values)) is None:
            continue
        yield Finding(
            rule="few-calls-work",
            level="warning",
            title=f"{percent(few.calls)} of the calls of '{measurement.name}' hold {percent(few.time)} of its time",
            seen=f"Those take {ms(few.each_ms)} each; the median is {ms(whole_ms(measurement))}, the mean of all "
            f"{ms(few.mean_ms)}.",
            why="The others only take an action from a queue, and the median and its parts are those of such a call.",
            do="Measure the method that makes a chunk, such as infer or predict_action_chunk of the policy inside.",
            evidence={"calls": few.calls, "time": few.time, "each_ms": few.each_ms, "mean_ms": few.mean_ms},
        )


RULES = (queued, other, unseen, unsteady, few_samples, stand_ins)
OF_COMPARISONS = (queued, other, unseen, too_noisy, unsteady, few_samples, stand_ins)
OF_SELF_CHECKS = (self_checks,)
