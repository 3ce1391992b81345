"""Rules on how far to trust the numbers, the machine and its software."""

from __future__ import annotations

from strobe.core.findings.texts import Found, finding
from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import examined_measurements, whole_ms
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.measurement import Measurement
from strobe.core.results.queued import find_filled_calls

MAX_OTHER_SHARE = 0.05  # share of the whole: more, and the named parts explain too little


@finding("other-large", "warning")
def other(result: Result, _: Thresholds) -> Found:
    """{share:percent} of the {measurement.phase} is in no named part.

    Found: {took:ms} of {whole_ms:ms} in {measurement.name:name} is 'other'; up to {MAX_OTHER_SHARE:percent} is
        expected.
    Why: Advice on the named parts misses what happens between them.
    Do: {do}
    """
    for measurement in examined_measurements(result):
        # Deeper than two levels, much of the rest is a block's own code.
        share = sum(component.share for component in measurement.components if component.other and component.depth <= 2)
        if share > MAX_OTHER_SHARE:
            whole = whole_ms(measurement)
            took = whole * share
            do = _to_name_it(measurement, divided_along_modules=result.subject.anatomy == "modules")
            yield {"share": share, "whole_ms": whole}, locals()


def _to_name_it(measurement: Measurement, *, divided_along_modules: bool) -> str:
    if measurement.traits.call is not None:
        return "Name the code between the modules with `with strobe.section('preprocessing'):`."
    if divided_along_modules:
        return (
            "Strobe divided the policy along its modules. Give its family a record that names the parts (entry-point "
            "group 'strobe.families')."
        )
    return "Repeat with --operators to see the operators between the parts."


@finding("unseen-parts", "info")
def unseen(result: Result, _: Thresholds) -> Found:
    """{parts} part{parts:plural} of {name:name} could not be timed.

    Found: {shown}: {reasons}.
    Why: Their time counts in the whole, but in no part.
    Do: Read the parts from the variant that is not compiled. --operators shows the kernels of this variant.
    """
    for measurement in result.measurements:
        if measurement.unseen:
            names, name = list(measurement.unseen), measurement.name
            reasons = "; ".join(dict.fromkeys(measurement.unseen.values()))
            shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
            yield {"parts": len(names)}, locals()


@finding("inconclusive", "warning")
def inconclusive(result: Result, _: Thresholds) -> Found:
    """{comparison.candidate:name} against {comparison.baseline:name} is inconclusive.

    Found: {verdict.text}
    Why: {why}
    Do: {do}
    """
    for comparison in result.judged_comparisons():
        verdict, interval = comparison.verdict, comparison.verdict.interval
        if verdict.kind != "inconclusive":
            continue
        why = "The interval is wide enough to hide a difference that matters."
        do = f"Close other programs, plug in the power, and repeat with {verdict.longer}."
        if verdict.cause == "a queue":
            why = "The typical call only takes an action from a queue. Making a chunk costs time in the few others."
            do = "Compare the method that makes a chunk, such as infer or predict_action_chunk of the policy inside."
        elif verdict.cause == "too few":
            why = f"Fewer than {verdict.needed} pairs cannot show a difference."
            do = f"Repeat with {verdict.longer}."
        elif verdict.cause == "too short" or not interval.low <= 1 <= interval.high:
            why = "So short a run may lie in one state of the machine, such as a core that other work shares."
            do = f"Repeat with {verdict.longer}."
        evidence = {"ratio": verdict.ratio, "low": interval.low, "high": interval.high, "pairs": verdict.pairs}
        yield evidence, locals()


@finding("unsteady", "warning")
def unsteady(result: Result, thresholds: Thresholds) -> Found:
    """The samples of {name:name} are not steady.

    Found: {noted}
    Why: The machine changes its speed, so the median says more about the machine than about the policy.
    Do: Let the machine cool down, close other programs, and measure again.
    """
    for measurement in result.measurements:
        notes, samples = dict.fromkeys(measurement.samples.notes), len(measurement.samples.values)
        # With few samples the notes are about that, which `few_samples` says.
        if notes and samples >= thresholds.few_samples:
            yield {"samples": samples, "notes": len(notes)}, {"name": measurement.name, "noted": "; ".join(notes)}


@finding("few-samples", "{level}")
def few_samples(result: Result, thresholds: Thresholds) -> Found:
    """Few samples: {few}.

    Found: Strobe wants {thresholds.few_samples} or more of each.
    Why: With so few, one slow run moves the median, and its interval is wide or missing.
    Do: Measure longer: --seconds=120, or --iterations=50.
    """
    counts = [(len(m.samples.values), m.name) for m in result.measurements]
    if counts := [pair for pair in counts if pair[0] < thresholds.few_samples]:
        taken = min(count for count, _ in counts)
        few = ", ".join(f"{count} of {units.quote(name)}" for count, name in counts)
        yield (
            {"samples": taken},
            {"few": few, "level": "info" if result.judged_comparisons() and taken >= 6 else "warning"},
        )


@finding("stand-ins", "info")
def stand_ins(result: Result, _: Thresholds) -> Found:
    """A part of the measured work is a placeholder.

    Found: {named}
    Why: The placeholder has the same shape, but the robot will run the original.
    Do: Measure the checkpoint itself, with --policy.path, on a machine that can reach the Hub.
    """
    if result.subject.stand_ins:
        yield {"stand_ins": len(result.subject.stand_ins)}, {"named": "; ".join(result.subject.stand_ins)}


@finding("few-calls-work", "warning")
def few_calls_work(result: Result, _: Thresholds) -> Found:
    """{calls:percent} of the calls of {name:name} take {time:percent} of its time.

    Found: These calls take {each_ms:ms} each; the median is {median:ms}, the mean of all {mean_ms:ms}.
    Why: The other calls only take an action from a queue. The median and its parts describe such a call.
    Do: Measure the method that makes a chunk, such as infer or predict_action_chunk of the policy inside.
    """
    for measurement in result.measurements:
        if (few := find_filled_calls(measurement.samples.values)) is not None:
            evidence = {"calls": few.calls, "time": few.time, "each_ms": few.each_ms, "mean_ms": few.mean_ms}
            yield evidence, {"name": measurement.name, "median": whole_ms(measurement)}


RULES = (few_calls_work, other, unseen, unsteady, few_samples, stand_ins)
OF_COMPARISONS = (few_calls_work, other, unseen, inconclusive, unsteady, few_samples, stand_ins)
