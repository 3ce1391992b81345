"""Tuning → document: the flags and what they bring first, then the settings of each latency and their frontier."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from strobe.core.report import charts, measured
from strobe.core.report.charts import Plot
from strobe.core.report.document import Columns, Document, Section, Table, figure, listing, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.evaluate import page_rates as rates
from strobe.evaluate.pairs import time_in_words, verdict_in_words
from strobe.tune.results import Closing, SettingRow, TuneResult, Tuning

RANDOM = "random weights"  # source of a subject without a checkpoint
LEFT = {
    "success": "shown to succeed less than the leader",
    "time": "shown to finish later than the leader",
    "rank": "ranked behind; not shown to be worse",
}
ABOUT = (
    "All settings play the same starts. In each round those that are played on play further starts, and the "
    "better half goes on. Success ranks first. Where success is equal, as far as it was seen, the mean time to task "
    "ranks. A setting that is chosen among many looks better than it is. So these rates claim nothing: the pairs on "
    "fresh starts do."
)


def outline(result: TuneResult, _depth: int | None = None) -> Document:
    """Return the document of a tuning."""
    sections = []
    for number, tuning in enumerate(result.tunings):
        at = f" at {tuning.latency}" if len(result.tunings) > 1 else ""
        sections.append(Section(_key(number), f"Settings{at}", _settings(tuning), [ABOUT]))
        left_out = list(tuning.left_out.items())
        sections += listing(f"left-out-{number}", f"What cannot work{at}", left_out, _LEFT_OUT, detail=True, whole=True)
    if result.not_tried:
        sections.append(Section("not-tried", "What was not tried", text=list(result.not_tried), detail=True))
    played = units.count(sum(each.played for each in result.tunings), "episode")
    return measured.document(result, answers(result), sections, failure=None, done=f"{played} of the rounds played")


def answers(result: TuneResult) -> list[str]:
    """Return for each latency the setting, what it brings over the default, and its flags."""
    sentences = [sentence for tuning in result.tunings for sentence in _answers(result, tuning)]
    if not sentences:
        return ["No episode was played."]
    if result.subject.source == RANDOM:
        sentences.append("The weights are random: nothing here says anything about a trained policy.")
    return sentences


def _answers(result: TuneResult, tuning: Tuning) -> list[str]:
    at = f"At {tuning.latency} ({units.count(tuning.ticks, 'tick')} a call)"
    if tuning.hopeless:
        return [
            f"{at} nothing can be tuned: no setting succeeded in {units.count(tuning.played, 'episode')} of "
            f"{result.environment}."
        ]
    row = tuning.row(tuning.winner)
    if row is None:
        return [f"{at} no setting was found: the rounds did not end."]
    if row.name == tuning.default:
        return [f"{at} no other setting was better than the default in the rounds: {tuning.default}."]
    flags = shlex.join(row.flags) + (f", with the recipe {row.recipe}" if row.recipe else "")
    if tuning.closing is None:
        return [
            f"{at} {row.name} was the best in the rounds. It was not judged against the default.",
            f"Flags of {row.program}: {flags}",
        ]
    return [f"{at} {_brings(result, row, tuning.closing)}", f"Flags of {row.program} at {tuning.latency}: {flags}"]


def _brings(result: TuneResult, row: SettingRow, closing: Closing) -> str:
    success = verdict_in_words(closing.rates.decision.kind, result.margin)
    span = rates.difference(closing.rates.difference, closing.rates.decision.interval)
    seen = (
        f"{units.percent(closing.winner.rate)} against {units.percent(closing.default.rate)}, difference {span} points"
    )
    time = f"it {time_in_words(closing.times)}" if closing.times is not None else (
        f"its time to task is not judged: {closing.times_not_judged}"
    )  # fmt: skip
    pairs = units.count(closing.rates.pairs, "fresh pair")
    return f"{row.name} against the default: success {success} ({seen}, {pairs}); {time}."


def _settings(tuning: Tuning) -> Table:
    columns: Columns[SettingRow] = [
        words("Setting", lambda row: row.name),
        figure("Episodes", lambda row: row.success, lambda success: str(success.episodes)),
        figure("Success (95 % interval)", lambda row: row.success, rates.rate),
        figure("Mean time to task (s)", lambda row: row.mean_s, units.figures(2)),
        words("In the rounds", lambda row: _outcome(row, tuning)),
    ]
    return table(
        tuning.settings, columns, kind=lambda row: "whole" if row.name == tuning.winner else "part"
    ).drop_empty_columns()


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
    return [row for row in tuning.settings if row.success is not None and row.mean_s is not None]


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
    caption = f"{rates.BARS} Settings that left early have few episodes. Better is to the left and up."
    return Plot("Success against time to task", caption, traces, charts.layout(420, axis, rates.AXIS))


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that none of the others beats in both time and success, by their time."""
    edge, highest = [], -1.0
    for seconds, rate in sorted(points, key=lambda point: (point[0], -point[1])):
        if rate > highest:
            edge.append((seconds, rate))
            highest = rate
    return edge
