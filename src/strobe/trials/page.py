"""Trials → document: the verdict on success first, then time, then each trial."""

from __future__ import annotations

import shlex

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.evaluate.pages import rates, time_to_task
from strobe.evaluate.results.evaluate import verdict_in_words
from strobe.evaluate.results.time_to_task import time_in_words
from strobe.trials.results import TrialsResult, TriedSetting

ABOUT = (
    "A pair is two trials from the same start, one of each setting, in an order that was drawn. The verdicts on "
    "success and on time hold at every number of pairs, so one may look after each. A trial that fails never does the "
    "task: it is later than any success."
)


def outline(result: TrialsResult, _depth: int | None = None) -> Document:
    """Return the document of a judgement of trials."""
    sections = []
    if result.settings:
        sections.append(Section("settings", "Settings", _settings(result), [ABOUT]))
        sections.append(Section("orders", "By the setting that was run first", _orders(result), detail=True))
    if result.trials:
        sections.append(Section("trials", "Trials", _trials(result), detail=True))
    return frame.document(result, answers(result), sections, facts=[("Trials", result.source)])


def answers(result: TrialsResult) -> list[str]:
    """Return what is shown: the verdicts, or of a blind look whether there is one."""
    done = f"{result.counted} of {units.count(result.planned, 'pair')} are complete"
    if half := len(result.half_run):
        done += f"; {units.count(half, 'pair')} with one trial {'is' if half == 1 else 'are'} not counted"
    if result.blind:
        return [f"{done}.", *_blind(result), f"The settings are not named: {result.blind}."]
    if len(result.settings) != 2:
        return [f"Success is not judged: {result.rates_not_judged}.", f"{done}."]
    return [f"{_success(result)}.", _time(result), *_flags(result), f"{done}."]


def _blind(result: TrialsResult) -> list[str]:
    if result.decided:
        what = " and ".join({"success": "success", "time": "time to task"}[each] for each in result.decided)
        return [f"It is decided in {what}: one of the two settings is shown to be better. You may stop."]
    if result.counted < result.planned:
        return ["It is not decided: no difference is shown yet. Go on."]
    return ["It is not decided: no difference is shown."]


def _success(result: TrialsResult) -> str:
    first, second = result.settings
    paired = result.rates
    if paired is None:
        return f"Success of {second.name} against {first.name} is not judged: {result.rates_not_judged}"
    seen = f"{_rate(second)} against {_rate(first)}"
    span = rates.difference(paired.difference, paired.decision.interval)
    return (
        f"{second.name} against {first.name}: success {verdict_in_words(paired.decision.kind, result.margin)}: {seen}, "
        f"difference {span} points"
    )


def _rate(setting: TriedSetting) -> str:
    success = setting.success
    return "no trial" if success is None else f"{success.successes} of {success.episodes}"


def _time(result: TrialsResult) -> str:
    if result.times is None:
        return f"Time to task is not judged: {result.times_not_judged}."
    return f"By time alone {result.settings[1].name} {time_in_words(result.times)}."


def _flags(result: TrialsResult) -> list[str]:
    first, second = result.settings
    kind = result.rates.decision.kind if result.rates is not None else "undecided"
    if kind == "undecided":
        return []
    better = first if kind == "worse" else second
    recipe = f", with the recipe {better.recipe}" if better.recipe else ""
    if kind in ("better", "worse"):
        return [f"Flags of {better.name}: {shlex.join(better.flags) or 'none'}{recipe}"]
    return []


def _settings(result: TrialsResult) -> Table:
    columns = [Column("Setting", numeric=False), Column("Code", numeric=False), Column("Trials")]
    columns += [Column("Success (95 % interval)"), Column("Mean of successes (s)"), Column("Mean of all trials (s)")]
    columns += [Column("Flags", numeric=False)]
    rows = []
    for number, setting in enumerate(result.settings):
        success, time = setting.success, setting.time
        cells = [
            setting.name,
            setting.code,
            None if success is None else str(success.episodes),
            None if success is None else rates.rate(success),
            None if time is None else units.number(time.mean_done_s, 3),
            None if time is None else units.number(time.mean_s, 3),
            shlex.join(setting.flags),
        ]
        rows.append(Row(cells, "part" if number else "whole"))
    return Table(columns, rows).without_empty_columns()


def _orders(result: TrialsResult) -> Table:
    columns = [Column("First in the pair", numeric=False), Column("Pairs"), Column("Lost"), Column("Won")]
    return Table(
        columns, [Row([order.first, str(order.pairs), str(order.lost), str(order.won)]) for order in result.orders]
    )


def _trials(result: TrialsResult) -> Table:
    titles = ["Pair", "Trial"]
    columns = [*map(Column, titles), Column("Code", numeric=False), Column("Success", numeric=False)]
    columns += [Column("Seconds"), Column("Condition", numeric=False), Column("Note", numeric=False)]
    rows = [
        Row([
            str(trial.pair),
            str(trial.trial),
            trial.code,
            "yes" if trial.success else "no",
            units.number(trial.seconds),
            trial.condition or None,
            trial.note or None,
        ])
        for trial in result.trials
    ]  # fmt: skip
    return Table(columns, rows).without_empty_columns()


def plots(result: TrialsResult, _depth: int | None = None) -> Plots:
    """Return the success of both settings, and the share of their trials that are not done, against time."""
    seen = [setting for setting in result.settings if setting.success is not None]
    if not seen:
        return {}
    traces = [
        rates.success_points(
            setting.name, [setting.name], [setting.success], charts.colour(index), f"%{{x:.1f}} %, {rates.OF}",
            lying=True, showlegend=False,
        )
        for index, setting in enumerate(seen)
        if setting.success is not None
    ]  # fmt: skip
    layout = charts.layout(140 + 40 * len(traces), rates.AXIS, {**charts.DOWN, "type": "category"})
    drawn = [Plot("Success", rates.BARS, traces, layout)]
    times = [(setting.name, setting.time) for setting in result.settings]
    if (curves := time_to_task.survival_plot(times, "trials", "A failure is not done up to the limit.")) is not None:
        drawn.append(curves)
    return {"settings": drawn}
