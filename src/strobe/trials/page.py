"""Trials → document: the verdict on success first, then time, then each trial."""

from __future__ import annotations

import shlex

from strobe.core.report import frame
from strobe.core.report.document import Columns, Document, Section, figure, listing, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.evaluate import page_rates as rates
from strobe.evaluate import page_times as time_to_task
from strobe.evaluate.pairs import time_in_words, verdict_in_words
from strobe.trials.results import OfOrder, Trial, TrialsResult, TriedSetting

ABOUT = (
    "A pair is two trials from the same start, one of each setting, in an order that was drawn. The verdicts on "
    "success and on time hold at every number of pairs, so one may look after each. A trial that fails never does the "
    "task: it is later than any success."
)


def outline(result: TrialsResult, _depth: int | None = None) -> Document:
    """Return the document of a judgement of trials."""
    sections = []
    if result.settings:
        settings = table(
            result.settings, _SETTINGS, kind=lambda setting: "whole" if setting is result.settings[0] else "part"
        )
        sections.append(Section("settings", "Settings", settings.drop_empty_columns(), [ABOUT]))
        sections.append(
            Section("orders", "By the setting that was run first", table(result.orders, _ORDERS), detail=True)
        )
    sections += listing("trials", "Trials", result.trials, _TRIALS, detail=True)
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


_SETTINGS: Columns[TriedSetting] = [
    words("Setting", lambda setting: setting.name),
    words("Code", lambda setting: setting.code),
    figure("Trials", lambda setting: setting.success, lambda success: str(success.episodes)),
    figure("Success (95 % interval)", lambda setting: setting.success, rates.rate),
    figure("Mean of successes (s)", lambda setting: setting.time, lambda time: units.number(time.mean_done_s, 3)),
    figure("Mean of all trials (s)", lambda setting: setting.time, lambda time: units.number(time.mean_s, 3)),
    words("Flags", lambda setting: shlex.join(setting.flags)),
]
_ORDERS: Columns[OfOrder] = [
    words("First in the pair", lambda order: order.first),
    figure("Pairs", lambda order: order.pairs, str),
    figure("Lost", lambda order: order.lost, str),
    figure("Won", lambda order: order.won, str),
]
_TRIALS: Columns[Trial] = [
    figure("Pair", lambda trial: trial.pair, str),
    figure("Trial", lambda trial: trial.trial, str),
    words("Code", lambda trial: trial.code),
    words("Success", lambda trial: "yes" if trial.success else "no"),
    figure("Seconds", lambda trial: trial.seconds, units.number),
    words("Condition", lambda trial: trial.condition or None),
    words("Note", lambda trial: trial.note or None),
]


def plots(result: TrialsResult, _depth: int | None = None) -> Plots:
    """Return the success of both settings, and the share of their trials that are not done, against time."""
    seen = [(setting.name, setting.success) for setting in result.settings if setting.success is not None]
    if not seen:
        return {}
    drawn = [rates.success_plot(seen)]
    times = [(setting.name, setting.time) for setting in result.settings]
    if (curves := time_to_task.survival_plot(times, "trials", "A failure is not done up to the limit.")) is not None:
        drawn.append(curves)
    return {"settings": drawn}
