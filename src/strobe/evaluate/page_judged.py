"""Judged runs of lerobot-eval → document: the verdicts first, then the rates."""

from __future__ import annotations

from strobe.core.report import frame
from strobe.core.report.document import Columns, Document, Section, Table, figure, lift_columns, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.numerals import points
from strobe.evaluate import page_rates as rates
from strobe.evaluate.results import Judged, JudgedOnTask, JudgedRun


def outline(judged: Judged, _depth: int | None = None) -> Document:
    """Return the document of a judgement."""
    sections = [Section("runs", "Success", _runs(judged), _describe_judgement(judged))]
    if any(run.tasks for run in judged.runs):
        sections.append(Section("tasks", "Task by task", _tasks(judged), [rates.TASKS], detail=True))
    return frame.document(
        judged,
        answers(judged),
        sections,
        kind="evaluate --results",
        facts=[(run.name, run.file) for run in judged.runs],
    )


def plots(judged: Judged, _depth: int | None = None) -> Plots:
    """Return the success of each run with its interval."""
    seen = [(run.name, run.together.success) for run in judged.runs]
    return {"runs": [rates.success_plot(seen)]}


def answers(judged: Judged) -> list[str]:
    """Return which run succeeds more often than the first, the figures of each, and whether they are in pairs."""
    first, *others = judged.runs
    described = [_describe_run(judged, run) for run in others]
    names = [(run.name, run.together) for run in judged.runs]
    if not others:
        return [f"{first.name} succeeds in {_rate(first)}.", f"Success rate {rates.rate(first.together.success)}."]
    head = [_decision(judged, first, run) for run in others]
    said = [head[0], described[0], *head[1:], *described[1:], *rates.reward_disagrees(names)]
    return [*said, judged.pairing, *judged.differences]


def _rate(run: JudgedRun) -> str:
    success = run.together.success
    return f"{success.successes} of {units.count(success.episodes, 'episode')}"


def _decision(judged: Judged, first: JudgedRun, run: JudgedRun) -> str:
    kind = found[2] if (found := rates.verdict(run.together)) is not None else "undecided"
    if kind in ("worse", "better"):
        return f"{run.name} succeeds {'less' if kind == 'worse' else 'more'} often than {first.name}."
    if kind == "undecided":
        return f"Inconclusive: these episodes cannot distinguish {run.name} from {first.name}."
    return f"{run.name} loses at most {points(judged.margin)} of success vs {first.name}."


def _describe_run(judged: Judged, run: JudgedRun) -> str:
    first, on = judged.runs[0], run.together
    found = rates.verdict(on)
    difference = f", {rates.whole_points(*found[:2])}" if found is not None else ""
    by_task = on.unpaired is not None and on.unpaired.by_task
    how = "pairs" if judged.paired else "task by task" if by_task else "not in pairs"
    return (
        f"{rates.share(on.success)} vs {rates.share(first.together.success)} success, {_rate(run)} vs {_rate(first)}"
        f"{difference} (95 % CI, {how})."
    )


def _columns(judged: Judged) -> Columns[JudgedOnTask]:
    return [
        *rates.columns(judged.margin),
        figure("Lost / won", lambda on: on.paired, lambda pairs: f"{pairs.lost} / {pairs.won}"),
        figure("p (McNemar)", lambda on: on.paired, lambda pairs: units.number(pairs.p, 2)),
    ]


def _runs(judged: Judged) -> Table:
    columns: Columns[JudgedRun] = [
        words("Run", lambda run: run.name),
        *lift_columns(lambda run: run.together, _columns(judged)),
    ]
    rows = table(judged.runs, columns, kind=lambda run: "whole" if run is judged.runs[0] else "part")
    return rows.drop_empty_columns()


def _tasks(judged: Judged) -> Table:
    columns: Columns[tuple[str, JudgedRun]] = [
        words("Task", lambda on: on[0]),
        words("Run", lambda on: on[1].name),
        *lift_columns(lambda on: on[1].tasks[on[0]], _columns(judged)),
    ]
    return table([(task, run) for task in judged.tasks for run in judged.runs], columns).drop_empty_columns()


def _describe_judgement(judged: Judged) -> list[str]:
    interval = "Success with Clopper and Pearson's exact interval (95 %). "
    look = (
        "It is for one look at runs whose numbers of episodes were fixed beforehand, in whatever order they come; a "
        "difference is claimed where an exact test shows it as well."
        + rates.joint_confidence_sentence(len(judged.runs) - 1)
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
