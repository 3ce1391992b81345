"""Several checkpoints in an evaluation's page: which is the best, when the others went, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts
from strobe.core.report.charts import Plot
from strobe.core.report.document import Column, Row, Section, Table
from strobe.core.results import units
from strobe.evaluate.pages import rates
from strobe.evaluate.results.evaluate import Elimination, EvaluateResult, PlayedCheckpoint, SuccessRate
from strobe.evaluate.results.time_to_task import PairedTimes, time_in_words

KEY = "checkpoints"


def answers(result: EvaluateResult, elimination: Elimination) -> list[str]:
    """Return which checkpoint is the best, or which are not told apart, with each one's success and time."""
    remaining = [checkpoint.name for checkpoint in elimination.remaining]
    gone = [checkpoint for checkpoint in elimination.checkpoints if checkpoint.by]
    when = "; ".join(
        f"{each.name} was eliminated after {units.count(each.starts, 'start')}, worse than {each.by}" for each in gone
    )
    if len(remaining) == 1:
        sentences = [f"{remaining[0]} is the best: {when}."]
    else:
        apart = f"{_listed(remaining)} are not told apart after {units.count(elimination.starts, 'start')}"
        sentences = [f"{apart}: none of them is shown to succeed less than another one."]
        sentences += [f"{when}."] if when else []
    success = _success(result)
    for each in elimination.checkpoints:
        if each.name in success:
            sentences.append(_describe(each, success[each.name], elimination))
    sentences += [_by_time(each, elimination) for each in elimination.remaining if each.name != elimination.best]
    return [
        *sentences,
        f"All statements on success together are right at {_level(elimination.level)}, after every start.",
    ]


def _describe(each: PlayedCheckpoint, success: SuccessRate, elimination: Elimination) -> str:
    seen = f"{each.name} succeeds in {success.successes} of {units.count(success.episodes, 'start')}"
    if each.rates is None:
        return f"{seen}."
    return f"{seen}: {_difference(each)} points against {elimination.best}."


def _by_time(each: PlayedCheckpoint, elimination: Elimination) -> str:
    """Return what time to task says of a checkpoint that success does not tell from the best one."""
    if each.times is None:
        why = each.times_not_judged or "no start was played by both"
        return f"By time to task {each.name} and {elimination.best} are not judged: {why}."
    return f"By time to task {each.name} {time_in_words(each.times)}, against {elimination.best}."


def section(result: EvaluateResult, elimination: Elimination) -> Section:
    """Return the table of the checkpoints, with what it rests on."""
    titles = ["Episodes", "Success (95 % interval)", "Against the best, points (interval)"]
    columns = [Column("Checkpoint", numeric=False), Column("Policy", numeric=False), *map(Column, titles)]
    columns += [Column("Time against the best", numeric=False), Column("ms per call"), Column("Outcome", numeric=False)]
    success = _success(result)
    calls = {variant.name: variant.calls.median_ms for variant in result.variants}
    rows = []
    for each in elimination.checkpoints:
        own = success.get(each.name)
        cells = [None, None] if own is None else [str(own.episodes), rates.rate(own)]
        cells += [None if each.rates is None else _difference(each), _time_cell(each.times)]
        cells += [units.rate(calls[each.name]) if each.name in calls else None, _outcome(each, elimination)]
        rows.append(Row([each.name, each.policy, *cells], "whole" if each.name == elimination.best else "part"))
    return Section(KEY, "Checkpoints", Table(columns, rows).without_empty_columns(), _about(elimination))


def _outcome(each: PlayedCheckpoint, elimination: Elimination) -> str:
    if each.by:
        return f"eliminated after {units.count(each.starts, 'start')}, worse than {each.by}"
    if len(elimination.remaining) == 1:
        return "the best"
    return "not told apart; the others are compared with it" if each.name == elimination.best else "not told apart"


def _about(elimination: Elimination) -> list[str]:
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
    """Return the success of each checkpoint with its interval, in the order in which they were given."""
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


def _difference(each: PlayedCheckpoint) -> str:
    assert each.rates is not None
    return rates.difference(each.rates.difference, each.rates.decision.interval)


def _time_cell(times: PairedTimes | None) -> str | None:
    return None if times is None else time_in_words(times)


def _level(share: float) -> str:
    return f"{100 * share:.4g} %"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
