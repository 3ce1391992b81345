"""The sections of a preflight's page on recorded frames: errors beside yardsticks, hypotheses, and their pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strobe.core.report import charts
from strobe.core.report.charts import MUTED, OTHER, Plot, Trace
from strobe.core.report.document import Column, ColumnOf, Columns, Row, Section, Table, figure, heads, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.numerals import format_fixed, significant
from strobe.preflight.results.hypothesis import Hypothesis
from strobe.preflight.results.open_loop import DimensionError, OpenLoop, PairedError, PartErrors, Strip
from strobe.preflight.results.preflight import PreflightResult

NAIVE = ("the mean action", "hold still", "the last action")
SHOWN_HYPOTHESES = 12  # judged hypotheses in the table; the others are counted
ROW = 130  # pixels of a dimension's plot


def sentences(result: PreflightResult) -> list[str]:
    """Return what the policy explains of the recorded actions, and what would explain more; [] if it was not run."""
    loop = result.open_loop
    if loop is None:
        return []
    part = loop.whole
    if part is None:
        return [f"Its actions were not compared with recorded ones: {loop.unjudged}."]
    explained = f"explains {_share(part.explained)}" if part.explained > 0 else "explains nothing"
    text = f"On {units.count(part.frames, 'recorded frame')} of {units.count(part.episodes, 'episode')} the policy "
    text += f"{explained} of the actions"
    verdicts = [f"{_verdict(each.paired)} {_words(each.name)}" for each in part.naive if each.paired is not None]
    claims = [each for each in result.hypotheses if each.outcome == "claimed"]
    more = [f"{text}. It {', '.join(verdicts)}." if verdicts else f"{text}."]
    more += [f"It would explain {_share(each.explained or 0.0)} if {each.name}." for each in claims]
    return more


def sections(result: PreflightResult) -> list[Section]:
    """Return the sections, [] if the policy was not run on frames."""
    loop = result.open_loop
    if loop is None or not loop.parts:
        return []
    shown = [
        Section("open-loop", "Predicted against recorded actions", _parts(loop.parts), _notes(loop)),
        Section("dimensions", "Errors by dimension", _dimensions(loop)),
    ]
    if result.hypotheses:
        judged = [each for each in result.hypotheses if each.outcome != "not judged"][:SHOWN_HYPOTHESES]
        shown.append(
            Section("hypotheses", "Other wirings", table(judged, _HYPOTHESES), _describe_hypotheses(result.hypotheses))
        )
    return [*shown, Section("strips", "Predicted chunks over recorded actions", detail=True)]


def figures(result: PreflightResult) -> Plots:
    """Return the error along the chunk, and a strip of each shown episode."""
    loop = result.open_loop
    if loop is None or not loop.parts:
        return {}
    return {"open-loop": [_chunk_error_plot(loop)], "strips": [_strip(strip, loop) for strip in loop.strips]}


def _verdict(paired: PairedError | None) -> str:
    if paired is None or paired.smaller is None:
        return "is not shown to beat"
    return "beats" if paired.smaller else "loses to"


def _share(explained: float) -> str:
    """Return a share of the data in per cent; it is negative where the mean action is nearer."""
    return f"{format_fixed(100 * explained, 0)} %"


def _words(naive: str) -> str:
    return "holding still" if naive == "hold still" else naive


def _notes(loop: OpenLoop) -> list[str]:
    notes = [
        "σ is the spread of each dimension in the recorded frames. Where a ratio is below 1, the policy is nearer; its "
        "interval is 95 %, over episodes."
    ]
    if loop.unjudged:
        notes.append(f"Not judged: {loop.unjudged}.")
    if loop.stopped:
        notes.append("Interrupted: the later frames are not judged.")
    notes += [f"{each.name}: not judged, as {each.unjudged}." for each in loop.parts[0].naive if each.unjudged]
    return notes


def _parts(parts: Sequence[PartErrors]) -> Table:
    names = [each for each in NAIVE if any(naive.name == each and naive.paired for naive in parts[0].naive)]
    columns = heads("<Episodes | Number | Frames | Explained | Error (σ)")
    columns += [Column(f"Error over that of {_words(name)}") for name in names]
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


_DIMENSIONS: Columns[DimensionError] = [
    words("Dimension", lambda each: each.name),
    figure("σ", lambda each: each.spread, "{:.4g}".format),
    figure("Error (σ)", lambda each: each.rms, "{:.3g}".format),
    figure("Offset (σ)", lambda each: significant(each.offset, 2, plus=True), str),
    figure("Explained", lambda each: each.explained, _share),
]


def _naive(name: str) -> ColumnOf[DimensionError]:
    return figure(f"{_words(name).capitalize()} (σ)", lambda each: each.naive.get(name), "{:.3g}".format)


_HYPOTHESES: Columns[Hypothesis] = [
    words("If …", lambda each: each.name),
    figure("Explained", lambda each: each.explained, lambda share: _share(max(share, -99.99))),
    figure("Error, divided by the present error", lambda each: each.paired, _ratio),
    words("Outcome", lambda each: f"{each.outcome}: {each.why}" if each.why else each.outcome),
]


def _describe_hypotheses(hypotheses: Sequence[Hypothesis]) -> list[str]:
    judged = [each for each in hypotheses if each.outcome != "not judged"]
    level = next((each.paired.interval.level for each in judged if each.paired and each.paired.interval), 0.95)
    notes = [f"{len(judged)} hypotheses were judged in pairs over episodes; intervals at "
             f"{level * 100:.2f} %, which is 95 % for all together."]  # fmt: skip
    if len(judged) > SHOWN_HYPOTHESES:
        notes.append(f"{len(judged) - SHOWN_HYPOTHESES} other hypotheses are worse than these.")
    reasons: dict[str, list[str]] = {}
    for each in hypotheses:
        if each.outcome == "not judged":
            reasons.setdefault(each.why, []).append(each.name)
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
