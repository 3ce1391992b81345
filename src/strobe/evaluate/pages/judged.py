"""Judged runs of lerobot-eval → document: the verdicts first, then the rates."""

from __future__ import annotations

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.evaluate.pages import rates
from strobe.evaluate.results.evaluate import Judged, JudgedOnTask, JudgedRun


def outline(judged: Judged, _depth: int | None = None) -> Document:
    """Return the document of a judgement."""
    sections = [Section("runs", "Success", _runs(judged), _about(judged))]
    if any(run.tasks for run in judged.runs):
        sections.append(Section("tasks", "Task by task", _tasks(judged), [rates.TASKS], detail=True))
    return frame.document(
        judged,
        [*(_answer(judged, run) for run in judged.runs), judged.pairing],
        sections,
        kind="evaluate --results",
        facts=[(run.name, run.file) for run in judged.runs],
    )


def plots(judged: Judged, _depth: int | None = None) -> Plots:
    """Return the success of each run with its interval."""
    traces = [
        rates.success_points(
            run.name,
            [run.name],
            [run.together.success],
            charts.colour(index),
            "%{x:.1f} %, %{customdata[0]} of %{customdata[1]}<extra>%{fullData.name}</extra>",
            lying=True,
            showlegend=False,
        )
        for index, run in enumerate(judged.runs)
    ]
    layout = charts.layout(140 + 40 * len(traces), rates.AXIS, {**charts.DOWN, "type": "category"})
    return {"runs": [Plot("Success", rates.BARS, traces, layout)]}


def _answer(judged: Judged, run: JudgedRun) -> str:
    on, name = run.together, run.name
    rate = f"{on.success.successes} of {units.count(on.success.episodes, 'episode')} ({units.percent(on.success.rate)})"
    judgement = rates.judge_in_words(on, judged.margin)
    if judgement is None:
        return f"{name} succeeds in {rate}."
    difference, verdict = judgement
    by_task = ", task by task" if on.unpaired is not None and on.unpaired.by_task else ""
    return f"{name} succeeds in {rate}: {verdict}, difference {difference} points (95 %{by_task})."


_COLUMNS = [*rates.COLUMNS, Column("Lost / won"), Column("p (McNemar)")]


def _cells(judged: Judged, on: JudgedOnTask) -> list[str | None]:
    """Return the cells of ``_COLUMNS``."""
    pairs = on.paired
    compared = [None, None] if pairs is None else [f"{pairs.lost} / {pairs.won}", units.number(pairs.p, 2)]
    return [*rates.cells(on, judged.margin), *compared]


def _runs(judged: Judged) -> Table:
    rows = [
        Row([run.name, *_cells(judged, run.together)], "part" if number else "whole")
        for number, run in enumerate(judged.runs)
    ]
    return Table([Column("Run", numeric=False), *_COLUMNS], rows).without_empty_columns()


def _tasks(judged: Judged) -> Table:
    rows = [Row([task, run.name, *_cells(judged, run.tasks[task])]) for task in judged.tasks for run in judged.runs]
    columns = [Column("Task", numeric=False), Column("Run", numeric=False), *_COLUMNS]
    return Table(columns, rows).without_empty_columns()


def _about(judged: Judged) -> list[str]:
    interval = "Success with Clopper and Pearson's exact interval (95 %). "
    look = (
        "It is for one look at runs whose numbers of episodes were fixed beforehand, in whatever order they come; a "
        "difference is claimed where an exact test shows it as well." + rates.how_sure(len(judged.runs) - 1)
    )
    if judged.paired:
        return [
            interval
            + "Episode i of each task is a pair in all runs. The difference has Tango's score interval (95 %). "
            + look
            + " Lost and won are the pairs in which only the first or only this run succeeded. lerobot-eval's "
            "noise is not the same in both, only the starts are."
        ]
    of = (
        "The difference is that of each task, weighed by its episodes, with"
        if len(judged.tasks) > 1
        else ("The difference has")
    )
    return [f"{interval}{of} Miettinen and Nurminen's score interval for two independent rates (95 %). {look}"]
