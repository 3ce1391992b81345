"""The sections of a preflight's page on recorded frames and on the training that saved the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.core.report import charts
from strobe.core.report.charts import MUTED, OTHER, Plot, Trace
from strobe.core.report.document import Column, ColumnOf, Columns, Row, Section, Table, figure, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.answer import Answer
from strobe.core.results.numerals import format_fixed, significant
from strobe.open_loop.results import DimensionError, Hypothesis, Learnt, OpenLoop, PairedError, PartErrors, Strip
from strobe.open_loop.training_log import TrainingLog
from strobe.preflight.findings.preflight import preflight_of_run
from strobe.preflight.results.wiring import PreflightResult, SavedTraining

NAIVE = ("the mean action", "hold still", "the last action")
SHOWN_HYPOTHESES = 12  # judged hypotheses in the table; the others are counted
ROW = 130  # pixels of a dimension's plot


def sentences(result: PreflightResult) -> list[str]:
    """Return the R² of the policy on recorded frames, and of claimed hypotheses; [] if it was not run."""
    loop = result.open_loop
    if loop is None:
        return []
    part = loop.whole
    if part is None:
        return [f"The policy's actions were not compared with recorded ones: {loop.unjudged}."]
    text = f"On {units.count(part.frames, 'recorded frame')} of {units.count(part.episodes, 'episode')} the policy "
    text += f"predicts the actions with R² = {_share(part.explained)}"
    by_verdict: dict[str, list[str]] = {}
    for each in part.naive:
        if each.paired is not None:
            by_verdict.setdefault(_verdict(each.paired), []).append(_words(each.name))
    verdicts = [f"{verdict} {', '.join(names)}" for verdict, names in by_verdict.items()]
    claims = [each for each in result.hypotheses if each.outcome == "claimed"]
    sentences = [f"{text}: {'; '.join(verdicts)}." if verdicts else f"{text}."]
    return sentences + [f"R² would be {_share(each.explained or 0.0)} if {each.name}." for each in claims]


def sections(answer: Answer) -> list[Section]:
    """Return the sections, [] if the policy was not run on frames. Those of a run are tables, without the strips."""
    result = answer if isinstance(answer, PreflightResult) else preflight_of_run(answer)
    loop = result.open_loop if result is not None else None
    if result is None or loop is None or not loop.parts:
        return []
    asked = result is not answer
    shown = [
        Section("open-loop", "Predicted against recorded actions", _parts(loop.parts), _notes(loop)),
        Section("dimensions", "Errors by dimension", _dimensions(loop)),
    ]
    if loop.learnt is not None:
        about = _describe_learnt(loop.learnt)
        shown.append(Section("learnt", "What did it learn?", _learnt(loop.learnt), about, asked=asked))
    if result.hypotheses:
        judged = [each for each in result.hypotheses if each.outcome != "not judged"][:SHOWN_HYPOTHESES]
        notes = _describe_hypotheses(result.hypotheses)
        shown.append(Section("hypotheses", "Hypotheses on the wiring", table(judged, _HYPOTHESES), notes))
    strips = Section("strips", "Predicted chunks over recorded actions", detail=True)
    return shown if asked else [*shown, strips]


_TRAINING: Columns[tuple[str, str]] = [words("Of the training", lambda row: row[0]), words("", lambda row: row[1])]
UNKNOWN = (
    "Not known from a checkpoint: the dtypes that products ran in, which layers got no gradient, which frames each "
    "process read, samples that came again after --resume, and whether image transforms change anything. strobe train "
    "shows it of a run."
)


def training_sections(training: SavedTraining | None) -> list[Section]:
    """Return what the files of a checkpoint and a log say of its training; [] without both."""
    if training is None:
        return []
    notes, log = [UNKNOWN], training.log
    if log is None:
        notes.append("Not judged without --training_log=FILE: the loss, and whether the training waited for its data.")
    elif "prep_s" not in log.seconds:
        notes.append("Before LeRobot 0.6.2 data_s has the preprocessing and the transfer to the device in it.")
    rows = _training_rows(training) | (_log_rows(log) if log is not None else {})
    shown = [(name, text) for name, text in rows.items() if text]
    return [Section("training", "The training that saved it", table(shown, _TRAINING), notes)]


def _training_rows(training: SavedTraining) -> dict[str, str]:
    step, batch, processes, frames = training.step, training.batch_size, training.processes, training.frames
    epochs = step * batch * processes / frames if step and batch and processes and frames else None
    whole, stepped, planned = training.trained, training.stepped, training.planned
    return {
        "steps": f"{step or 'unknown'} of {planned or 'unknown'} (--steps)" if step or planned else "",
        "samples per step": f"batch {batch} × {processes or 'an unknown number of processes'}" if batch else "",
        "epochs": f"{units.number(epochs, 3)}, if --dataset.root has all of its data" if epochs else "",
        "learning rate of the next step": ", ".join(f"{rate:.3g}" for rate in dict.fromkeys(training.learning_rates)),
        "tensors of the optimizer": f"{whole}; {whole - stepped} never had a gradient, or are frozen" if whole else "",
        "precision asked for": ", ".join(f"{name}={value}" for name, value in training.precision.items()),
        "image transforms": "" if training.transforms is None else ", ".join(training.transforms) or "off",
    }


def _log_rows(log: TrainingLog) -> dict[str, str]:
    first, last = ("not finite" if loss is None else f"{loss:g}" for loss in (log.losses[0], log.losses[-1]))
    whole = sum(log.seconds.values())
    left = max(0.0, (log.wall_s or 0.0) - whole)
    return {
        "loss": f"{first} to {last}, in {units.count(len(log.losses), 'line')} of the log",
        "epochs by the log": "" if log.epochs is None else f"{log.epochs:g}",
        "learning rate by the log": "" if log.learning_rate is None else f"{log.learning_rate:g}",
        "a step": ", ".join(f"{name} {_part(each, whole)}" for name, each in log.seconds.items()),
        "in none of these": f"{_part(left, log.wall_s)}: checkpoints, evaluations, logging" if log.wall_s else "",
    }


def _part(seconds: float, whole: float) -> str:
    return f"{1e3 * seconds:.0f} ms ({100 * seconds / whole:.0f} %)" if whole > 0 else "0 ms"


def figures(result: PreflightResult) -> Plots:
    """Return the error along the chunk, and a strip of each shown episode."""
    loop = result.open_loop
    if loop is None or not loop.parts:
        return {}
    return {"open-loop": [_chunk_error_plot(loop)], "strips": [_strip(strip, loop) for strip in loop.strips]}


def _verdict(paired: PairedError | None) -> str:
    if paired is None or paired.smaller is None:
        return "inconclusive against"
    return "better than" if paired.smaller else "worse than"


def _share(explained: float) -> str:
    return format_fixed(explained, 2)


def _words(naive: str) -> str:
    return "holding still" if naive == "hold still" else naive


def _notes(loop: OpenLoop) -> list[str]:
    notes = [
        "σ is the spread of each action dimension in the recorded frames. Below a ratio of 1 the policy's error is "
        "smaller; 95 % interval over episodes."
    ]
    if loop.unjudged:
        notes.append(f"Not judged: {loop.unjudged}.")
    if loop.stopped:
        notes.append("Interrupted: the later frames are not judged.")
    notes += [f"{each.name}: not judged, because {each.unjudged}." for each in loop.parts[0].naive if each.unjudged]
    return notes


def _parts(parts: Sequence[PartErrors]) -> Table:
    names = [each for each in NAIVE if any(naive.name == each and naive.paired for naive in parts[0].naive)]
    columns = heads("<Episodes | Number | Frames | R² | Error (σ)")
    columns += [Column(f"Error ÷ error of {_words(name)}") for name in names]
    rows = []
    for part in parts:
        naive = {each.name: each.paired for each in part.naive}
        cells = [part.name, str(part.episodes), str(part.frames), _share(part.explained), f"{part.rms:.3g}"]
        rows.append(Row([*cells, *(_ratio(naive.get(name)) for name in names)]))
    return Table(columns, rows)


def _ratio(paired: PairedError | None) -> str | None:
    if paired is None:
        return None
    interval = paired.interval
    return f"{paired.ratio:.2g}" + (f" [{interval.low:.2g}, {interval.high:.2g}]" if interval is not None else "")


def _dimensions(loop: OpenLoop) -> Table:
    names = [name for name in NAIVE if any(name in dimension.naive for dimension in loop.dimensions)]
    return table(loop.dimensions, [*_DIMENSIONS, *map(_naive, names)])


def _learnt(learnt: Learnt) -> Table:
    rows = [
        ("its chunks differ from frame to frame by", learnt.spread, learnt.recorded_spread),
        ("two calls on one frame differ by", learnt.noise, None),
        ("from the state to the last action of a chunk", learnt.from_state, learnt.recorded_from_state),
        ("its error in the first chunk of an episode", learnt.start_rms, None),
        ("its error later", learnt.later_rms, None),
        *((f"{_other(each.name)} changes its actions by", each.moved, None) for each in learnt.inputs),
        ("the simulator's task changes its actions by", learnt.simulator_task, None),
    ]
    columns: Columns[tuple[str, float | None, float | None]] = [
        words("In σ of the recorded actions", lambda row: row[0]),
        figure("The policy", lambda row: row[1], "{:.3g}".format),
        figure("The recording", lambda row: row[2], "{:.3g}".format),
    ]
    return table([row for row in rows if row[1] is not None], columns)


def _other(name: str) -> str:
    return "a prompt of no task" if name == "task" else f"another frame's {name}"


def _describe_learnt(learnt: Learnt) -> list[str]:
    notes = [
        f"{each.name} opens or closes in {units.count(each.changes, 'recorded chunk')}: the policy does it in "
        f"{each.caught} of them, and in {each.invented} of the {each.steady} others."
        for each in learnt.switches
    ]
    notes += [
        f"The actions of {each.name} are steps of the state. One is off by {each.single:.2f} times its size, and the "
        f"sum of the {each.actions} executed ones by {_ratio(each.summed)} times the recorded sum."
        for each in learnt.steps
    ]
    if learnt.noise == 0:
        notes.append("Two calls on one frame are equal to the bit: the policy draws no noise, or its noise is fixed.")
    return notes if learnt.inputs else [*notes, "Not judged: which inputs it looks at; its calls take too long."]


_DIMENSIONS: Columns[DimensionError] = [
    words("Dimension", lambda each: each.name),
    figure("σ", lambda each: each.spread, "{:.4g}".format),
    figure("Error (σ)", lambda each: each.rms, "{:.3g}".format),
    figure("Offset (σ)", lambda each: significant(each.offset, 2, plus=True), str),
    figure("R²", lambda each: each.explained, _share),
]


def _naive(name: str) -> ColumnOf[DimensionError]:
    return figure(f"{_words(name).capitalize()} (σ)", lambda each: each.naive.get(name), "{:.3g}".format)


_HYPOTHESES: Columns[Hypothesis] = [
    words("If …", lambda each: each.name),
    figure("R²", lambda each: each.explained, lambda share: _share(max(share, -99.99))),
    figure("Error ÷ present error", lambda each: each.paired, _ratio),
    words("Outcome", lambda each: f"{each.outcome}: {each.why}" if each.why else each.outcome),
]


def _describe_hypotheses(hypotheses: Sequence[Hypothesis]) -> list[str]:
    judged = [each for each in hypotheses if each.outcome != "not judged"]
    level = next((each.paired.interval.level for each in judged if each.paired and each.paired.interval), 0.95)
    notes = [f"Strobe judged {len(judged)} hypotheses in pairs over episodes; intervals at "
             f"{level * 100:.2f} %, which is 95 % for all together."]  # fmt: skip
    if len(judged) > SHOWN_HYPOTHESES:
        notes.append(f"The table leaves out {len(judged) - SHOWN_HYPOTHESES} hypotheses with larger errors.")
    reasons: dict[str, list[str]] = {}
    for each in hypotheses:
        if each.outcome == "not judged":
            reasons.setdefault(each.why or "", []).append(each.name)
    notes += [f"Not judged: {'; '.join(names)}: {why}." for why, names in reasons.items()]
    return notes


def _chunk_error_plot(loop: OpenLoop) -> Plot:
    at = list(range(1, loop.chunk + 1))
    data: list[Trace] = [charts.line("the policy", at, loop.along, charts.colour(0))]
    for number, (name, values) in enumerate(loop.naive_along.items(), 1):
        data.append(charts.line(name, at, values, MUTED, style={"dash": charts.DASHES[number % len(charts.DASHES)]}))
    x, y = charts.axis("action of the chunk"), charts.from_zero("error (σ)")
    layout = charts.layout(300, x, y, hovermode="x unified", showlegend=True)
    return Plot("Error along the chunk", "Root mean square over frames and dimensions.", data, layout)


def _strip(strip: Strip, loop: OpenLoop) -> Plot:
    data: list[Trace] = []
    for row, recorded in enumerate(strip.recorded):
        on: dict[str, Any] = {"yaxis": charts.row_name(row), "hoverinfo": "skip"}
        first = row == 0
        data.append(charts.line("recorded", strip.ticks, recorded, OTHER, showlegend=first, **on))
        x: list[float | str | None] = []
        y: list[float | None] = []
        for chunk in strip.chunks:
            values = chunk.values[row]
            x += [*(chunk.tick + chunk.every * number for number in range(len(values))), None]
            y += [*values, None]
        style = {"width": 1.2}
        data.append(charts.line("predicted", x, y, charts.colour(1), style=style, showlegend=first, **on))
    titles = loop.names[: len(strip.recorded)]
    layout = charts.layout_of_rows(70 + ROW * len(titles), titles, 0.04)
    for row in range(len(titles)):
        layout[charts.row_name(row).replace("y", "yaxis")].pop("rangemode", None)
    layout["xaxis"] |= charts.axis(f"tick ({loop.fps:g} a second)" if loop.fps else "tick")
    held = ", held out" if strip.held_out else ""
    caption = "Each thin line is a chunk, from the frame on which it was predicted."
    return Plot(f"Episode {strip.episode}{held}", caption, data, {**layout, "showlegend": True})
