"""Trials → document: the verdict on success first, then time, then each trial."""

from __future__ import annotations

import shlex

from strobe.core.report import frame
from strobe.core.report.document import Columns, Document, Section, figure, listing, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.numerals import points
from strobe.evaluate import page_rates as rates
from strobe.evaluate import page_times as time_to_task
from strobe.evaluate.pairs import time_in_words
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
        first = result.settings[0]
        settings = table(result.settings, _SETTINGS, kind=lambda setting: "whole" if setting is first else "part")
        sections.append(Section("settings", "Settings", settings.drop_empty_columns(), [ABOUT]))
        sections.append(
            Section("orders", "By the setting that was run first", table(result.orders, _ORDERS), detail=True)
        )
    sections += listing("trials", "Trials", result.trials, _TRIALS, detail=True)
    return frame.document(result, answers(result), sections, facts=[("Trials", result.source)])


def answers(result: TrialsResult) -> list[str]:
    """Return the decision, its figures and the flags; of a blind look whether it is decided."""
    done = f"{result.counted} of {units.count(result.planned, 'pair')} complete"
    if half := len(result.half_run):
        done += f", {units.count(half, 'pair')} with one trial not counted"
    if result.blind:
        return [*_blind(result, done), f"The settings stay anonymous: {result.blind}."]
    if len(result.settings) != 2 or result.rates is None:
        why = f"Success is not judged: {result.rates_not_judged}; {done}."
        return ["Inconclusive: more pairs are needed.", why, *([_time(result)] if len(result.settings) == 2 else [])]
    return [_decision(result), f"{_success(result)}, {done}.", *_flags(result), _time(result)]


def _blind(result: TrialsResult, done: str) -> list[str]:
    if result.decided:
        what = " and ".join({"success": "success", "time": "time to task"}[each] for each in result.decided)
        return ["Decided: you may stop.", f"One setting is shown to be better in {what}; {done}."]
    if result.counted < result.planned:
        return ["Not decided yet: run more pairs.", f"No difference is shown so far; {done}."]
    return ["Inconclusive: the planned pairs do not decide.", f"No difference is shown; {done}."]


def _decision(result: TrialsResult) -> str:
    first, second = (setting.name for setting in result.settings)
    assert result.rates is not None
    kind = result.rates.decision.kind
    if kind in ("better", "worse"):
        return f"{second} succeeds {'more' if kind == 'better' else 'less'} often than {first}."
    if kind == "undecided":
        return f"Inconclusive: {units.count(result.rates.pairs, 'pair')} cannot distinguish {second} from {first}."
    return f"{second} loses at most {points(result.margin)} of success vs {first}."


def _success(result: TrialsResult) -> str:
    first, second = result.settings
    assert result.rates is not None
    difference = rates.whole_points(result.rates.difference, result.rates.decision.interval)
    return f"{_rate(second)} vs {_rate(first)} trials, {difference}"


def _rate(setting: TriedSetting) -> str:
    success = setting.success
    return "no trial" if success is None else f"{success.successes} of {success.episodes}"


def _time(result: TrialsResult) -> str:
    if result.times is None:
        return f"Time to task is not judged: {result.times_not_judged}."
    return f"{result.settings[1].name} {time_in_words(result.times)}, by time to task."


def _flags(result: TrialsResult) -> list[str]:
    first, second = result.settings
    kind = result.rates.decision.kind if result.rates is not None else "undecided"
    if kind not in ("better", "worse"):
        return []
    better = first if kind == "worse" else second
    recipe = f" with the recipe {better.recipe}" if better.recipe else ""
    return [f"Next: lerobot-rollout … {shlex.join(better.flags) or 'without further flags'}{recipe}"]


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
