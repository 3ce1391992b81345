"""Trials → document: the verdict on the score that decides first, then the others, then each trial."""

from __future__ import annotations

import shlex

from strobe.core.report import frame
from strobe.core.report.document import Columns, Document, Section, figure, listing, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.numerals import points
from strobe.evaluate import page_rates as rates
from strobe.evaluate import page_times as time_to_task
from strobe.evaluate.pairs import Score, time_in_words
from strobe.trials.results import OfOrder, Trial, TrialsResult, TriedSetting

ABOUT = (
    "A pair is two trials from the same start, one of each setting, in an order that was drawn. The verdicts on "
    "success, progress and time hold at every number of pairs, so one may look after each. A trial that fails never "
    "does the task: it is later than any success. Progress is the share of the task that was done, 0 to 1."
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
    if len(result.settings) != 2 or result.comparison is None:
        reason = result.rates_not_judged if result.score == "success" else result.progress_not_judged
        why = f"{units.capital(result.score)} is not judged: {reason}; {done}."
        others = [*_other_scores(result), _time(result)] if len(result.settings) == 2 else []
        return ["Inconclusive: more pairs are needed.", why, *others]
    figures = f"{_describe(result, result.score)}, {done}."
    return [_decision(result), figures, *_flags(result), *_other_scores(result), _time(result)]


def _blind(result: TrialsResult, done: str) -> list[str]:
    if result.decided:
        what = " and ".join("time to task" if each == "time" else each for each in result.decided)
        return ["Decided: you may stop.", f"One setting is shown to be better in {what}; {done}."]
    if result.counted < result.planned:
        return ["Not decided yet: run more pairs.", f"No difference is shown so far; {done}."]
    return ["Inconclusive: the planned pairs do not decide.", f"No difference is shown; {done}."]


def _decision(result: TrialsResult) -> str:
    first, second = (setting.name for setting in result.settings)
    assert result.comparison is not None
    kind = result.comparison.decision.kind
    if kind in ("better", "worse"):
        verb, more, less, _ = rates.MORE[result.score]
        return f"{second} {verb}s {more if kind == 'better' else less} than {first}."
    if kind == "undecided":
        return f"Inconclusive: {units.count(result.comparison.pairs, 'pair')} cannot distinguish {second} from {first}."
    return f"{second} loses at most {points(result.margin)} of {result.score} vs {first}."


def _describe(result: TrialsResult, score: Score) -> str:
    """Return both settings' figures by ``score``, with the difference where it was judged."""
    if score == "success":
        seen = [each.success for each in result.settings]
        shown = [None if success is None else f"{success.successes} of {success.episodes}" for success in seen]
    else:
        shown = [units.percent(each.progress) for each in result.settings]
    first, second = (each or "unknown" for each in shown)
    paired = result.rates if score == "success" else result.progress
    difference = f", {rates.paired_points(paired)}" if paired is not None else ""
    return f"{second} vs {first} {'trials' if score == 'success' else 'progress'}{difference}"


def _other_scores(result: TrialsResult) -> list[str]:
    """Return the score that does not decide, as a sentence; none if it was not recorded."""
    if result.score == "progress":
        return [f"Success, which does not decide: {_describe(result, 'success')}."]
    why = result.progress_not_judged
    return [f"Progress is shown and not judged, because {why}: {_describe(result, 'progress')}."] if why else []


def _time(result: TrialsResult) -> str:
    if result.times is None:
        return f"Time to task is not judged: {result.times_not_judged}."
    return f"{result.settings[1].name} {time_in_words(result.times)}, by time to task."


def _flags(result: TrialsResult) -> list[str]:
    first, second = result.settings
    kind = result.comparison.decision.kind if result.comparison is not None else "undecided"
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
    figure("Progress (mean)", lambda setting: setting.progress, units.percent),
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
    figure("Progress", lambda trial: trial.progress, units.percent),
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
