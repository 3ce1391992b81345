"""Time to task in an evaluation's page: verdicts after those on success, survival curves, and how smooth it was."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts
from strobe.core.report.charts import Plot
from strobe.core.report.document import Columns, Row, Section, Table, figure, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.numerals import significant
from strobe.evaluate.results.evaluate import EvaluatedVariant, EvaluateResult, verdict_in_words
from strobe.evaluate.results.time_to_task import OLDER, PairedTimes, TimeToTask, mean_in_words, time_in_words

KEY = "time"


def answers(result: EvaluateResult) -> list[str]:
    """Return the time of the first variant, and the verdict on each other one, with its success first."""
    reasons = {variant.time_not_judged for variant in result.variants}
    if len(reasons) == 1 and (reason := next(iter(reasons))):
        return [f"Time to task is not judged: {reason}."]
    return [sentence for variant in result.variants if (sentence := _sentence(result, variant))]


def _sentence(result: EvaluateResult, variant: EvaluatedVariant) -> str:
    if variant.time is None:
        reason = variant.time_not_judged
        return f"{variant.name}: its time to task is not judged: {reason}." if reason else ""
    if variant.time.paired is None:
        return f"{variant.name}: the task is done after {_seconds_of(variant.time)}."
    said = f"it {time_in_words(variant.time.paired)}{_despite(variant)}"
    paired = variant.together.paired
    if paired is None or paired.decision.kind == "undecided":
        return f"{variant.name}: its success is undecided. In time, {said}."
    if paired.decision.kind == "worse":
        return f"{variant.name}: it succeeds less. In time, {said}."
    return f"{variant.name}: it is {verdict_in_words(paired.decision.kind, result.margin)}, and {said}."


def _seconds_of(time: TimeToTask) -> str:
    successes = f"{significant(time.mean_done_s)} s (mean of {time.done:,} success{'es' * (time.done != 1)})"
    if time.done == time.episodes:
        return successes
    limit = f"a failure counted as its limit of {significant(time.limit_s)} s"
    return f"{successes}, or {significant(time.mean_s)} s over all starts, with {limit}"


def _despite(variant: EvaluatedVariant) -> str:
    """Return that a faster chunk did not help, as a clause; '' if that was not shown."""
    chunk, time = variant.chunk, variant.time
    ends = chunk.times_interval if chunk is not None else None
    if chunk is None or chunk.times is None or ends is None or ends.low <= 1 or time is None or time.paired is None:
        return ""
    faster = f"though a chunk is {units.number(chunk.times, 2)} × as fast"
    return f", {faster}" if time.paired.kind in ("later", "not sooner") else ""


def section(result: EvaluateResult) -> Section:
    """Return the times of each variant, with the verdict; what is not judged is named with the reason."""
    known = [(variant, variant.time) for variant in result.variants if variant.time is not None]
    reasons = [(of.name, of.time_not_judged or OLDER) for of in result.variants if of.time is None]
    text = [f"{name}: not judged, since {reason}." for name, reason in reasons]
    if not known:
        return Section(KEY, "Time to task", None, text)
    rows = table(known, _TIMES, kind=lambda pair: "whole" if pair[0] is result.variants[0] else "part")
    return Section(KEY, "Time to task", rows.without_empty_columns(), [_about(result), *text])


def _times_as_soon(paired: PairedTimes) -> str:
    ends = ("∞" if end is None else significant(end) for end in (paired.low, paired.high))
    return f"{'–' if paired.ratio is None else significant(paired.ratio)} [{', '.join(ends)}]"


_TIMES: Columns[tuple[EvaluatedVariant, TimeToTask]] = [
    words("Variant", lambda pair: pair[0].name),
    figure("Done", lambda pair: f"{pair[1].done} of {pair[1].episodes}", str),
    figure("Mean of successes (s)", lambda pair: pair[1].mean_done_s, units.number),
    figure("Half are done (s)", lambda pair: pair[1].middle_s, units.number),
    figure("Mean of all starts (s)", lambda pair: pair[1].mean_s, units.number),
    figure("Sooner, later (pairs)", lambda pair: pair[1].paired, lambda paired: f"{paired.sooner}, {paired.later}"),
    figure("Times as soon (interval)", lambda pair: pair[1].paired, _times_as_soon),
    figure("Means, × (interval)", lambda pair: pair[1].paired, lambda paired: mean_in_words(paired).replace(" ×", "")),
    words("Verdict", lambda pair: pair[1].paired and pair[1].paired.kind),
]


def _about(result: EvaluateResult) -> str:
    times = [variant.time for variant in result.variants if variant.time is not None]
    timed = any(variant.timing is not None for variant in result.variants)
    clock = "on the clock of the episode, which goes on while the policy computes" if timed else "at the control rate"
    paired = next((time.paired for time in times if time.paired is not None), None)
    text = (
        f"Seconds from the start of an episode until it succeeds, {clock}. An episode that fails never does the task: "
        f"it counts as not done up to its limit of {significant(max(time.limit_s for time in times))} s, however "
        "early it ended."
    )
    if paired is None:
        return text
    return (
        f"{text} Times as soon: the first variant's time divided by this variant's in the same pair, the middle pair "
        "of those in which one of the two did the task; failing is later than any success. The verdict rests on its "
        f"{100 * paired.level:.3g} % interval, which holds at every number of pairs at once. Means: the ratio of the "
        "means over all starts, a failure counted as the limit, with such an interval too; it needs more pairs, since "
        "a rare failure could outweigh a gain."
    )


def plots(result: EvaluateResult) -> Plots:
    """Return the survival curves: the share of episodes that are not done yet, against time."""
    caption = "Kaplan and Meier's estimate. A curve ends above 0 by the share of episodes that never do the task."
    drawn = survival_plot([(variant.name, variant.time) for variant in result.variants], "episodes", caption)
    return {KEY: [drawn]} if drawn is not None else {}


def survival_plot(times: Sequence[tuple[str, TimeToTask | None]], what: str, caption: str) -> Plot | None:
    """Return the share that is not done yet, against time; None if no time is known.

    Args:
        times: name → its times, in an order that sets the colours.
        what: is played, in words: 'episodes'.
    """
    hover = "%{y:.3~g} % not done after %{x:.4~g} s<extra>%{fullData.name}</extra>"
    traces = []
    for index, (name, time) in enumerate(times):
        if time is not None:
            shares = [100 * share for share in time.not_done]
            traces.append(charts.line(name, time.at_s, shares, charts.colour(index), hover, style={"shape": "hv"}))
    if not traces:
        return None
    y = charts.axis(f"{what} not done yet (%)", range=[-4, 104])
    layout = charts.layout(380, charts.from_zero("seconds from the start"), y, showlegend=len(traces) > 1)
    return Plot("Not done yet, against time", caption, traces, layout)


def smoothness(result: EvaluateResult) -> Section:
    """Return how smooth the actions of each variant are; what is not judged is named."""
    rate = result.fps**3 if result.fps is not None else None
    rows, text = [], [_about_motion(rate is not None)]
    for variant in result.variants:
        if (moved := variant.motion) is None:
            text.append(f"{variant.name}: not judged, since its actions were not saved or are not finite.")
            continue
        jump = moved.seam / moved.within if moved.seam is not None and moved.within else None
        jerk = None if moved.jerk is None else moved.jerk * (1 if rate is None else rate)
        figures = (variant.path_ratio, moved.path, moved.within, moved.seam, jump, jerk)
        rows.append(Row([variant.name, *(units.number(value, 3) for value in figures)]))
    titles = "<Variant | Path ÷ first's | Path per tick | Step within a chunk | Step to a new chunk | Seam ÷ step"
    columns = heads(titles, "Jerk (per s³)" if rate is not None else "Jerk per tick³")
    return Section("motion", "How smooth the actions are", Table(columns, rows).without_empty_columns(), text)


def _about_motion(in_seconds: bool) -> str:
    unit = "times the control rate cubed, so in the actions' units per s³" if in_seconds else "per control tick"
    return (
        "Means over the episodes, in the actions' own units, Euclidean over their dimensions: the distance of an "
        "action to the action before it, and the jerk: the third difference of the executed actions (root mean "
        f"square), {unit}. Seam ÷ step: the mean step to a new chunk over the mean step within one. Path ÷ first's: "
        "the length of the path of the actions over that of the first variant, on the starts where both succeeded. "
        "A policy that has done its task rests, so compare these figures together with the success. A dash is not "
        "judged: no chunk was seen to begin, or no start was done by both."
    )
