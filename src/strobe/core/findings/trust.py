"""Rules on how far to trust the numbers, the machine and its software."""

from __future__ import annotations

from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.findings.view import examined_measurements, ms, percent, whole_ms
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.call_times import Growth, find_filled_calls, find_own_growth
from strobe.core.results.finding import Finding, info, warning
from strobe.core.results.measurement import Measurement
from strobe.core.timeline.sections import STOPPED

MAX_OTHER_SHARE = 0.05  # share of the whole: more, and the named parts explain too little
SLOWED = 1.02  # time of a fixed piece of work at the end over that at the start, from which the CPU's clock has fallen


def other(result: Result, _: Thresholds) -> Iterator[Finding]:
    for measurement in examined_measurements(result):
        # Deeper than two levels, much of the rest is a block's own code.
        share = sum(component.share for component in measurement.components if component.other and component.depth <= 2)
        if share > MAX_OTHER_SHARE:
            whole = whole_ms(measurement)
            yield warning(
                rule="other-large",
                title=f"{percent(share)} of the {measurement.phase} is in no named part",
                found=f"{ms(whole * share)} of {ms(whole)} in {units.quote(measurement.name)} is 'other'; up to "
                f"{percent(MAX_OTHER_SHARE)} is expected.",
                why="Advice on the named parts misses what happens between them.",
                do=_to_name_it(measurement, divided_along_modules=result.subject.anatomy == "modules"),
            )


def _to_name_it(measurement: Measurement, *, divided_along_modules: bool) -> str:
    if measurement.traits.call is not None:
        return "Name the code between the modules with `with strobe.section('preprocessing'):`."
    if divided_along_modules:
        return (
            "Strobe divided the policy along its modules. Give its family a record that names the parts (entry-point "
            "group 'strobe.families')."
        )
    return "Repeat with --operators to see the operators between the parts."


def unseen(result: Result, _: Thresholds) -> Iterator[Finding]:
    for measurement in result.measurements:
        if measurement.unseen:
            names = list(measurement.unseen)
            reasons = "; ".join(dict.fromkeys(measurement.unseen.values()))
            shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
            advice = ["Move these sections as said."] if STOPPED in measurement.unseen.values() else []
            if set(measurement.unseen.values()) != {STOPPED}:
                advice.append("Read the parts from the variant that is not compiled.")
                advice.append("--operators shows the kernels of this variant.")
            yield info(
                rule="unseen-parts",
                title=f"{len(names)} part{units.plural(len(names))} of {units.quote(measurement.name)} could not be "
                "timed",
                found=f"{shown}: {reasons}.",
                why="Their time counts in the whole, but in no part.",
                do=" ".join(advice),
            )


def inconclusive(result: Result, _: Thresholds) -> Iterator[Finding]:
    for comparison in result.judged_comparisons():
        verdict, interval = comparison.verdict, comparison.verdict.interval
        if verdict.kind != "inconclusive" or verdict.cause == "no loss":
            continue
        why = "The interval is wide enough to hide a difference that matters."
        do = f"Close other programs, plug in the power, and repeat with {verdict.longer}."
        if verdict.cause == "a queue":
            why = "The typical call only takes an action from a queue. Making a chunk costs time in the few others."
            do = "Compare the method that makes a chunk, such as infer or predict_action_chunk of the policy inside."
        elif verdict.cause == "no numbers":
            why = "A time is that of the work only where the call returns what the work makes."
            do = "Return the numbers, and call result(), get() or join() of work that goes on, in the function."
        elif verdict.cause == "too few":
            why = f"Fewer than {verdict.needed} pairs cannot show a difference."
            do = f"Repeat with {verdict.longer}."
        elif verdict.cause == "too short" or not interval.low <= 1 <= interval.high:
            why = "So short a run may lie in one state of the machine, such as a core that other work shares."
            do = f"Repeat with {verdict.longer}."
        yield warning(
            rule="inconclusive",
            title=f"{units.quote(comparison.candidate)} against {units.quote(comparison.baseline)} is inconclusive",
            found=verdict.text,
            why=why,
            do=do,
        )


def unsteady(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    for measurement in result.measurements:
        notes, samples = dict.fromkeys(measurement.samples.notes), len(measurement.samples.values)
        change, grown = measurement.samples.machine_change, find_own_growth(measurement.samples)
        if grown is not None:
            yield describe_growth(units.quote(measurement.name), grown, change)
        elif notes and samples >= thresholds.few_samples:  # with few samples `few_samples` says what they are about
            cool = "Let the machine cool down, close" if change is not None and change >= SLOWED else "Close"
            yield warning(
                rule="unsteady",
                title=f"The samples of {units.quote(measurement.name)} are not steady",
                found=f"{'; '.join(notes)}. {_describe_machine(change)}",
                why="The median says more about the moment of the run than about the policy.",
                do=f"{cool} other programs, and measure again.",
            )


def describe_growth(of: str, grown: Growth, change: float | None = None) -> Finding:
    """Return the finding on calls of ``of`` that grow; ``change``: of the machine meanwhile, as in `Samples`."""
    why = "Something grows with each call, such as a history or a list"
    if change is None and not grown.resets:
        why += "; or the machine slows down, which heat does until it reaches a level"
    return warning(
        rule="calls-grow",
        title=f"The calls of {of} take longer and longer",
        found=f"{grown.words}. {_describe_machine(change)}",
        why=f"{why}. No median stands for such calls.",
        do="Find what stays from call to call, and limit it or empty it, with reset() between episodes.",
        evidence={"resets": grown.resets},
    )


def _describe_machine(change: float | None) -> str:
    if change is None:
        return "Whether the CPU's clock fell was not looked at."
    longer = f"{percent(abs(change - 1))} {'longer' if change > 1 else 'less'}"
    return f"A fixed piece of work between the calls took {longer} at the end than at the start."


def few_samples(result: Result, thresholds: Thresholds) -> Iterator[Finding]:
    counts = [(len(m.samples.values), m.name) for m in result.measurements]
    if counts := [pair for pair in counts if pair[0] < thresholds.few_samples]:
        taken = min(count for count, _ in counts)
        few = ", ".join(f"{count} of {units.quote(name)}" for count, name in counts)
        yield Finding(
            rule="few-samples",
            level="info" if result.judged_comparisons() and taken >= 6 else "warning",
            title=f"Few samples: {few}",
            found=f"Strobe wants {thresholds.few_samples} or more of each.",
            why="With so few, one slow run moves the median, and its interval is wide or missing.",
            do="Measure longer: --seconds=120, or --iterations=50.",
        )


def stand_ins(result: Result, _: Thresholds) -> Iterator[Finding]:
    if result.subject.stand_ins:
        yield info(
            rule="stand-ins",
            title="A part of the measured work is a placeholder",
            found="; ".join(result.subject.stand_ins),
            why="The placeholder has the same shape, but the robot will run the original.",
            do="Measure the checkpoint itself, with --policy.path, on a machine that can reach the Hub.",
        )


def few_calls_work(result: Result, _: Thresholds) -> Iterator[Finding]:
    for measurement in result.measurements:
        if (few := find_filled_calls(measurement.samples.values)) is not None:
            yield warning(
                rule="few-calls-work",
                title=f"{percent(few.calls)} of the calls of {units.quote(measurement.name)} take {percent(few.time)} "
                "of its time",
                found=f"These calls take {ms(few.each_ms)} each; the median is {ms(whole_ms(measurement))}, the mean "
                f"of all {ms(few.mean_ms)}.",
                why="The other calls only take an action from a queue. The median and its parts describe such a call.",
                do="Measure the method that makes a chunk, such as infer or predict_action_chunk of the policy inside.",
            )


def loss_not_finite(result: Result, _: Thresholds) -> Iterator[Finding]:
    if bad := [measurement for measurement in result.measurements if measurement.losses_not_finite]:
        named = units.join_names([units.quote(each.name) for each in bad])
        count = sum(each.losses_not_finite for each in bad)
        yield warning(
            rule="loss-not-finite",
            title=f"The loss of {named} is infinite or not a number",
            found=f"{units.count(count, 'call')} gave such a loss, of those in the warm-up and after it.",
            why="A step with such a loss learns nothing, so its speed is of no use.",
            do="Look for such numbers in the data, lower the learning rate, or train in float32.",
            evidence={"gain_share": 1.0},  # before all else
        )


RULES = (loss_not_finite, few_calls_work, other, unseen, unsteady, few_samples, stand_ins)
OF_COMPARISONS = (loss_not_finite, few_calls_work, other, unseen, inconclusive, unsteady, few_samples, stand_ins)
