"""Tuning → document: the flags and what they bring first, then the settings of each latency and their frontier.

The rules on tunings stand at the end.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from strobe.core.findings.thresholds import Thresholds
from strobe.core.report import charts, measured
from strobe.core.report.charts import Plot
from strobe.core.report.document import Columns, Document, Section, Table, figure, listing, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.finding import Finding, warning
from strobe.evaluate import page_rates as rates
from strobe.evaluate.pairs import SuccessRate, time_in_words, verdict_in_words
from strobe.tune.results import Closing, SettingRow, TuneResult, Tuning

RANDOM = "random weights"  # source of a subject without a checkpoint
LEFT = {
    "success": "dropped: shown to succeed less often than the leader",
    "time": "dropped: shown to finish later than the leader",
    "rank": "dropped: ranked behind, not tested for significance",
}
ABOUT = (
    "All settings play the same starts. In each round the remaining settings play further starts, and the better half "
    "goes on. Success ranks first. If success is equal as far as it was measured, the mean time to task ranks. The "
    "best of many settings looks better than it is, so the rates of the selection phase claim nothing. The held-out "
    "pairs, on starts that the selection phase did not play, give the verdict."
)


def outline(result: TuneResult, _depth: int | None = None) -> Document:
    """Return the document of a tuning."""
    sections = []
    for number, tuning in enumerate(result.tunings):
        at = f" at {tuning.latency}" if len(result.tunings) > 1 else ""
        sections.append(Section(_key(number), f"Settings{at}", _settings(tuning), [ABOUT]))
        if tuning.closing is not None:
            sections.append(_held_out_section(number, at, tuning, tuning.closing))
        left_out = list(tuning.left_out.items())
        title = f"Settings that cannot work{at}"
        sections += listing(f"left-out-{number}", title, left_out, _LEFT_OUT, detail=True, whole=True)
    if result.not_tried:
        sections.append(Section("not-tried", "Not tried", text=list(result.not_tried), detail=True))
    played = units.count(sum(each.played for each in result.tunings), "episode")
    done = f"{played} of the selection phase played"
    return measured.document(result, answers(result), sections, failure=None, done=done)


def answers(result: TuneResult) -> list[str]:
    """Return for each latency the setting to use, how sure that is, and its flags."""
    sentences = [sentence for tuning in result.tunings for sentence in _answers(result, tuning)]
    if not sentences:
        return ["No episode was played."]
    if result.subject.source == RANDOM:
        sentences.append("Random weights: nothing here says anything about a trained policy.")
    return sentences


def _answers(result: TuneResult, tuning: Tuning) -> list[str]:
    at = f"At {tuning.latency} latency"
    if tuning.hopeless:
        played = f"{units.count(tuning.played, 'episode')} of {units.count(len(tuning.settings), 'setting')}"
        return [
            f"{at}, no setting succeeds.",
            f"0 of {played} succeed in {result.environment}.",
            "Next: strobe preflight --policy.path=… --dataset.root=…",
        ]
    row, default = tuning.row(tuning.winner), tuning.row(tuning.default)
    if row is None or default is None:
        return [f"Inconclusive: at {tuning.latency} the selection phase did not end."]
    keep = f"{at}, keep the default: {_setting_in_words(default, None)}."
    if row is default:
        played = f"{units.count(tuning.played, 'episode')} of {units.count(len(tuning.settings), 'setting')}"
        return [keep, f"Selection phase: no other setting was better, {played}."]
    closing, next_line = tuning.closing, f"Next: {_command(row)}"
    if closing is None:
        return [
            f"Inconclusive: at {tuning.latency} no held-out pair was played.",
            f"In the selection phase `{row.name}` was the best; it was not compared with the default.",
            next_line,
        ]
    kind, sooner = closing.rates.decision.kind, closing.times is not None and closing.times.kind == "sooner"
    if kind == "worse" or (kind in _EQUAL and not sooner):
        sentences = [keep, _held_out(result, closing, f"`{row.name}` vs the default: ")]
    elif kind == "undecided" and not sooner:
        sentences = [
            f"Inconclusive: {units.count(closing.rates.pairs, 'held-out pair')} at {tuning.latency} do not decide.",
            _held_out(result, closing, f"`{row.name}` vs the default: "),
            rates.next_command(result.command, resume="RUN", pairs=4 * closing.rates.pairs),
        ]
    else:
        sentences = [f"{at}, {_setting_in_words(row, default)}.", _held_out(result, closing, ""), next_line]
    return sentences


_EQUAL = ("not worse by more than the margin",)


def _held_out(result: TuneResult, closing: Closing, prefix: str) -> str:
    paired, success = closing.rates, f"{rates.share(closing.winner)} vs {rates.share(closing.default)} success"
    difference = rates.whole_points(paired.difference, paired.decision.interval)
    if closing.times is None:
        time = f"time to task is not judged: {closing.times_not_judged}"
    else:
        time = "also finishes sooner" if closing.times.kind == "sooner" else f"it {time_in_words(closing.times)}"
    verdict = "" if paired.decision.kind == "better" else f"{verdict_in_words(paired.decision.kind, result.margin)}, "
    pairs = units.count(paired.pairs, "paired episode")
    return f"{prefix or 'Held-out: '}{verdict}{success}, {difference}, {pairs}; {time}."


def _command(row: SettingRow) -> str:
    recipe = f" with the recipe {row.recipe}" if row.recipe else ""
    return f"{row.program} … {shlex.join(row.flags)}{recipe}"


def _setting_in_words(row: SettingRow, default: SettingRow | None) -> str:
    own, before = _flags(row), _flags(default) if default is not None else {}
    executed, usual = (flags.get("--policy.n_action_steps") for flags in (own, before))
    if default is None:
        return (
            f"{own.get('--inference.type', 'async')} with {executed} actions per chunk" if executed else f"`{row.name}`"
        )
    differing = {name for name in {**own, **before} if own.get(name) != before.get(name)}
    if differing == {"--policy.n_action_steps"} and executed and usual and not row.recipe:
        return f"execute {executed} actions per chunk instead of {usual}"
    return f"use `{row.name}` instead of the default"


def _flags(row: SettingRow) -> dict[str, str]:
    return {name: value for name, _, value in (flag.partition("=") for flag in row.flags)}


def _settings(tuning: Tuning) -> Table:
    columns: Columns[SettingRow] = [
        words("Setting", lambda row: row.name),
        figure("Episodes", lambda row: row.success, lambda success: str(success.episodes)),
        figure("Success in selection (95 % CI)", lambda row: row.success, rates.rate),
        figure("Mean time, failures at the limit (s)", _mean_s, units.figures(2)),
        words("Selection phase", lambda row: _outcome(row, tuning)),
    ]
    return table(
        tuning.settings, columns, kind=lambda row: "whole" if row.name == tuning.winner else "part"
    ).drop_empty_columns()


def _mean_s(row: SettingRow) -> float | None:
    """Return the mean time to the task; None for a setting that never succeeds, whose mean is the limit alone."""
    return row.mean_s if row.success is not None and row.success.successes else None


def _held_out_section(number: int, at: str, tuning: Tuning, closing: Closing) -> Section:
    columns: Columns[tuple[str, SuccessRate]] = [
        words("Setting", lambda side: side[0]),
        figure("Pairs", lambda side: side[1].episodes, str),
        figure("Success in held-out pairs (95 % CI)", lambda side: side[1], rates.rate),
    ]
    rows = table([(tuning.default, closing.default), (tuning.winner, closing.winner)], columns)
    return Section(f"held-out-{number}", f"Held-out pairs{at}", rows)


def _outcome(row: SettingRow, tuning: Tuning) -> str | None:
    outcome = LEFT[row.left] if row.left else ("the best" if row.name == tuning.winner else None)
    if row.name == tuning.default:
        return f"the default; {outcome}" if outcome else "the default"
    return outcome


_LEFT_OUT: Columns[tuple[str, str]] = [words("Setting", lambda pair: pair[0]), words("Why", lambda pair: pair[1])]


def plots(result: TuneResult, _depth: int | None = None) -> Plots:
    """Return success against time to task for each latency, with the frontier."""
    drawn = {
        _key(number): [_frontier(tuning)] for number, tuning in enumerate(result.tunings) if _measured_settings(tuning)
    }
    return dict(drawn)


def _key(number: int) -> str:
    return f"settings-{number}"


def _measured_settings(tuning: Tuning) -> list[SettingRow]:
    return [row for row in tuning.settings if row.success is not None and _mean_s(row) is not None]


def _frontier(tuning: Tuning) -> Plot:
    rows = _measured_settings(tuning)
    traces = []
    edge = frontier([(row.mean_s or 0.0, row.success.rate if row.success else 0.0) for row in rows])
    traces.append(
        charts.line(
            "frontier", [at for at, _ in edge], [100 * rate for _, rate in edge], charts.MUTED, style={"dash": "dot"}
        )
    )
    for place, row in enumerate(rows):
        assert row.success is not None
        traces.append(
            rates.success_points(
                row.name, [row.mean_s], [row.success], charts.colour(place), f"%{{x:.4~g}} s, {rates.OF}"
            )
        )
    axis = charts.axis("mean time to task over all starts (s), a failure counted as the limit")
    caption = f"{rates.BARS} Settings that were dropped early have few episodes. Better: left and up."
    return Plot("Success against time to task", caption, traces, charts.layout(420, axis, rates.AXIS))


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that none of the others beats in both time and success, by their time."""
    edge, highest = [], -1.0
    for seconds, rate in sorted(points, key=lambda point: (point[0], -point[1])):
        if rate > highest:
            edge.append((seconds, rate))
            highest = rate
    return edge


def hopeless(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    """A latency at which no setting ever succeeds."""
    for tuning in result.tunings:
        if not tuning.hopeless:
            continue
        why = "Settings change how a policy's actions are executed. They do not teach it the task."
        do = "`strobe preflight --policy.path=… --dataset.root=…` says whether policy and data match. "
        do += "Play a checkpoint that was trained for this simulator, and map its names with --rename_map."
        if succeeds := [other.latency for other in result.tunings if other.winner]:
            why = f"The policy succeeds at {' and at '.join(succeeds)}, so the latency of its calls makes it fail here."
            do = "Find a faster policy: `strobe optimize --policy.path=…`. Or give a shorter --latency."
        elif all(other.ticks for other in result.tunings if other.hopeless):
            why = "The latency alone may be too long. Whether the policy does the task without it was not judged."
            do = f"Play it without latency: --latency=0. If it succeeds there, the policy is too slow. If not: {do}"
        yield warning(
            rule="tune-no-success",
            title=f"No setting ever succeeds in {result.environment} at {tuning.latency}",
            found=f"0 of {tuning.played} episodes of {len(tuning.settings)} settings succeed, at {tuning.latency}.",
            why=why,
            do=do,
        )


def unconfirmed_winner(result: TuneResult, _: Thresholds) -> Iterator[Finding]:
    """A winner that the held-out episodes do not confirm."""
    for tuning in result.tunings:
        closing = tuning.closing
        if closing is None or closing.rates.decision.kind == "better":
            continue
        rates = closing.rates
        if rates.decision.kind == "worse":
            level, how, do = "warning", "worse than", "Keep the default."
        elif closing.times is None or closing.times.kind != "sooner":
            level, how = "info", "not shown to be better than"
            do = "Keep the default, or play more pairs: --pairs=1000."
        else:
            continue
        yield Finding(
            rule="tune-not-shown",
            level=level,
            title=f"{tuning.winner} is {how} the default",
            found=f"{rates.pairs} held-out pairs at {tuning.latency}: it lost {rates.lost} and won {rates.won}.",
            why="It was the best of many in the selection phase, and the best of many looks better than it is.",
            do=do,
        )


RULES = (hopeless, unconfirmed_winner)
