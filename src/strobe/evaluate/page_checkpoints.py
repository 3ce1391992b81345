"""Several checkpoints → parts of the document: which is the best, each one's success and time, and a plot."""

from __future__ import annotations

from strobe.core.report import charts
from strobe.core.report.charts import Plot
from strobe.core.report.document import Columns, Section, figure, table, words
from strobe.core.results import units
from strobe.evaluate import page_rates as rates
from strobe.evaluate.pairs import PairedRates, SuccessRate, time_in_words
from strobe.evaluate.results import Elimination, EvaluateResult, PlayedCheckpoint

CHECKPOINTS = "checkpoints"


def answers(result: EvaluateResult, elimination: Elimination) -> list[str]:
    """Return the best checkpoint, or those that remain, with each one's success and time."""
    remaining = [checkpoint.name for checkpoint in elimination.remaining]
    success = _success(result)
    described = [
        _describe_checkpoint(each, success[each.name], elimination)
        for each in sorted(elimination.checkpoints, key=lambda each: each.name != elimination.best)
        if each.name in success
    ]
    if len(remaining) == 1:
        head = [f"`{remaining[0]}` is the best checkpoint.", *described[:1]]
    else:
        starts = units.count(elimination.starts, "start")
        which = (
            units.join_names([f"`{name}`" for name in remaining])
            if len(remaining) < 4
            else f"{len(remaining)} checkpoints"
        )
        next_ = rates.next_command(result.command, resume="RUN", episodes=2 * result.planned)
        head = [f"Inconclusive: {starts} cannot distinguish {which}.", *described[:1], next_]
    gone = [
        f"{each.name} was eliminated after {units.count(each.starts, 'start')}: it succeeds less often than {each.by}."
        for each in elimination.checkpoints
        if each.by
    ]
    by_time = [
        _describe_time_verdict(each, elimination) for each in elimination.remaining if each.name != elimination.best
    ]
    sure = f"All verdicts on success hold together at {_level(elimination.level)}, also if the run stops early."
    return [*head, *described[1:], *gone, *by_time, sure]


def _describe_checkpoint(each: PlayedCheckpoint, success: SuccessRate, elimination: Elimination) -> str:
    found = f"{each.name} succeeds in {success.successes} of {units.count(success.episodes, 'start')}"
    if each.rates is None:
        return f"{found}: {rates.rate(success)}."
    return f"{found}: {_difference(each.rates)} points vs {elimination.best}."


def _describe_time_verdict(each: PlayedCheckpoint, elimination: Elimination) -> str:
    if each.times is None:
        why = each.times_not_judged or "no start was played by both"
        return f"Time to task of {each.name} vs {elimination.best} is not judged: {why}."
    return f"Time to task: {each.name} {time_in_words(each.times)}, vs {elimination.best}."


def section(result: EvaluateResult, elimination: Elimination) -> Section:
    """Return the table of the checkpoints."""
    success = _success(result)
    calls = {variant.name: variant.calls.median_ms for variant in result.variants}
    columns: Columns[PlayedCheckpoint] = [
        words("Checkpoint", lambda each: each.name),
        words("Policy", lambda each: each.policy),
        figure("Episodes", lambda each: success.get(each.name), lambda own: str(own.episodes)),
        figure("Success (95 % CI)", lambda each: success.get(each.name), rates.rate),
        figure("Difference to the best, points (CI)", lambda each: each.rates, _difference),
        words("Time vs the best", lambda each: None if each.times is None else time_in_words(each.times)),
        figure("ms per call", lambda each: calls.get(each.name), units.rate),
        words("Outcome", lambda each: _outcome(each, elimination)),
    ]
    rows = table(
        elimination.checkpoints, columns, kind=lambda each: "whole" if each.name == elimination.best else "part"
    )
    return Section(CHECKPOINTS, "Checkpoints", rows.drop_empty_columns(), _describe_checkpoints(elimination))


def _outcome(each: PlayedCheckpoint, elimination: Elimination) -> str:
    if each.by:
        return f"eliminated after {units.count(each.starts, 'start')}, worse than {each.by}"
    if len(elimination.remaining) == 1:
        return "the best"
    return "inconclusive; reference of the others" if each.name == elimination.best else "inconclusive"


def _describe_checkpoints(elimination: Elimination) -> list[str]:
    count = len(elimination.checkpoints)
    pairs = count * (count - 1) // 2
    each, level = _level(elimination.each_level), _level(elimination.level)
    text = [
        "All checkpoints play the same starts with the same noise. After each start one is eliminated if it is shown "
        "to succeed less than another one that remains. The intervals of the differences hold at every number of "
        f"starts at once. They are of {units.count(pairs, 'pair')}, at {each} each, so all together have "
        f"{level}: a best checkpoint is eliminated with a chance of at most {_level(1 - elimination.level)}, "
        "and of equal ones none is called the best. The interval of a success rate is exact (Clopper and Pearson), for "
        "a number of episodes that was fixed beforehand.",
        "Time to task eliminates none. It is shown against the best one, in the same pairs and at the same level, all "
        f"pairs together at {level}.",
    ]
    named = [f"{each.name} is {each.path}." for each in elimination.checkpoints if each.name != each.path]
    reasons = {each.name: each.times_not_judged for each in elimination.checkpoints if each.times_not_judged}
    return [*text, *(f"{name}: time is not judged: {why}." for name, why in reasons.items()), *named]


def plot(result: EvaluateResult, elimination: Elimination) -> Plot:
    """Return the success of each checkpoint."""
    success = _success(result)
    seen = [each for each in elimination.checkpoints if each.name in success]
    traces = [
        rates.success_points(each.name, [place], [success[each.name]], charts.colour(place), rates.OF)
        for place, each in enumerate(seen)
    ]
    caption = f"{rates.BARS} A checkpoint that was eliminated has fewer episodes. The table compares them in pairs."
    layout = charts.layout(380, charts.names_axis([each.name for each in seen]), rates.AXIS, showlegend=False)
    return Plot("Success of each checkpoint", caption, traces, layout)


def _success(result: EvaluateResult) -> dict[str, SuccessRate]:
    return {variant.name: variant.together.success for variant in result.variants}


def _difference(paired: PairedRates) -> str:
    return rates.difference(paired.difference, paired.decision.interval)


def _level(share: float) -> str:
    return f"{100 * share:.4g} %"
