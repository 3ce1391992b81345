"""The frame of every measured answer's document: banner, measurements one by one, notes, facts, and their plots."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.core.report import charts, frame, tables
from strobe.core.report.charts import OTHER, Colours, Plot, Trace
from strobe.core.report.document import Columns, Document, Section, figure, listing, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.answer import Result
from strobe.core.results.data import Samples
from strobe.core.results.measurement import Compilation, CompiledPlace, Measurement, Span


def document(
    result: Result,
    answers: list[str],
    sections: list[Section],
    *,
    command: str = "",
    notes: Sequence[str] = (),
    failure: str | None = "it says nothing more",
    done: str | None = None,
) -> Document:
    """Return the document of ``result``: what its study says, within what all measured answers say alike.

    Args:
        sections: left out where nothing was measured, unless ``done`` is given.
        command: that made it, where it is not called like the study.
        notes: the study's, after the result's own.
        failure: what ended a run that failed, in a line; None where it is not told.
        done: how much of a run that is not complete was done; None for its samples.
    """
    subject, machine = result.subject.model_dump(mode="json"), result.machine.model_dump(mode="json")
    return frame.document(
        result,
        answers,
        [*sections, *compiled_code(result.measurements)] if result.measurements or done is not None else [],
        kind=command,
        banner=_banner(result, failure, done),
        notes=_notes(result, notes),
        facts=_facts(result),
        raw={"Subject": subject, "Machine": machine},
    )


def sections(result: Result, depth: int | None) -> list[Section]:
    """Return the measurements one after the other, then their samples and their blocks."""
    samples = Section("samples", "Samples", tables.metrics(result))
    return [*guidance(result), *each(result, depth), samples, *blocks(result)]


def guidance(result: Result) -> list[Section]:
    """Return Real-Time Chunking's share of a chunk, where there is any."""
    table = tables.guidance(result.measurements)
    return [] if table is None else [Section("guidance", "Inside Real-Time Chunking", table, asked=True)]


def each(result: Result, depth: int | None, *, detail: bool = False) -> list[Section]:
    """Return the parts of each measurement, as a ``detail`` where a table side by side shows most of it."""
    shown = []
    for index, m in enumerate(result.measurements):
        table = tables.breakdown(m, depth) if m.components else None
        clock = "device time" if m.clock == "device" else "host time"
        clock += f" ({tables.SHARES})" if m.components else ""
        about = [f"{name}: {value}" for name, value in m.traits.labelled_values().items()]
        text = [", ".join([*([m.phase] if m.phase != m.name else []), clock, *about])]
        title = m.name + (" in detail" if detail else "")
        shown.append(Section(f"measurement-{index}", title, table, text, detail))
    return shown


def blocks(result: Result) -> list[Section]:
    """Return the like blocks of each part, and the slowest of them."""
    shown = []
    if (table := tables.blocks(result.measurements)) is not None:
        shown.append(Section("blocks", "Blocks", table, tables.describe_blocks(result.measurements)))
    if (slowest := tables.slowest_blocks(result.measurements)) is not None:
        shown.append(Section("slowest-blocks", "Slowest blocks", slowest))
    return shown


def compiled_code(measurements: Sequence[Measurement]) -> list[Section]:
    """Return what was compiled for each measurement, and the places to look at; none where nothing was compiled."""
    compiled = [(m.name, m.compilation) for m in measurements if m.compilation is not None]
    about = (
        "By torch's own records. The warm-up is the time of the samples that were cut, without the compilations in it."
    )
    text = [about, *(f"{name}: not judged: {seen.unjudged}." for name, seen in compiled if seen.unjudged)]
    places = [(name, place) for name, seen in compiled for place in seen.places]
    shown = listing("compiled", "Compiled code", compiled, _COMPILED, *text, whole=True)
    return shown + listing("compiled-places", "Breaks and recompilations of compiled code", places, _PLACES)


def _place_reasons(place: CompiledPlace) -> str:
    marks = [f"reached {place.limit}"] * bool(place.limit) + [f"{place.late} after the warm-up"] * bool(place.late)
    return "; ".join([*marks, *place.reasons])


_COMPILED: Columns[tuple[str, Compilation]] = [
    words("Compiled", lambda one: one[0]),
    figure("Graphs", lambda one: one[1].graphs),
    figure("Breaks (lines)", lambda one: len(one[1].breaks)),
    figure("Recompiled", lambda one: sum(place.times for place in one[1].select_places("recompiled"))),
    figure("after warm-up", lambda one: sum(place.late for place in one[1].places)),
    figure("Compile s", lambda one: one[1].compile_s, units.figures(3)),
    figure("Capture s", lambda one: one[1].capture_s, units.figures(3)),
    figure("Warm-up s", lambda one: one[1].warmup_s, units.figures(3)),
]
_PLACES: Columns[tuple[str, CompiledPlace]] = [
    words("Of", lambda one: one[0]),
    words("What", lambda one: one[1].what),
    words("Where", lambda one: one[1].where),
    words("In", lambda one: one[1].function or None),
    figure("Times", lambda one: one[1].times),
    words("Why", lambda one: _place_reasons(one[1])),
]


def plots(result: Result, _depth: int | None = None) -> Plots:
    """Return the plots of the samples and of each measurement, by the key of their section."""
    drawn = {"samples": _samples(result.measurements)}
    colours = Colours(
        [part.name for m in result.measurements for part in m.components]
        + [span.name for m in result.measurements for span in m.spans]
    )
    for index, m in enumerate(result.measurements):
        parts = [icicle(m, colours)] if m.components else []
        drawn[f"measurement-{index}"] = parts + ([timeline(m.spans, colours)] if m.spans else [])
    return drawn


def _samples(measurements: Sequence[Measurement]) -> list[Plot]:
    drawn = []
    phases = list(dict.fromkeys(m.phase for m in measurements))
    for phase in phases:
        group = [(m.name, m.samples) for m in measurements if m.phase == phase and m.samples.values]
        label = f" ({phase})" if len(phases) > 1 else ""
        if group:
            drawn += [
                spread(f"Spread of the samples{label}", group),
                plot_sample_order(f"In the order taken{label}", group),
            ]
    return drawn


def _banner(result: Result, failure: str | None, done: str | None) -> str | None:
    if result.status == "complete":
        return None
    took = "; ".join(f"{m.name}: {units.count(len(m.samples.values), 'sample')}" for m in result.measurements)
    ended = "Interrupted: this run was stopped before it was done"
    if result.status == "failed":
        ended = "Failed" if failure is None else f"Failed: {failure}"
    return f"{ended} ({done or took or 'nothing measured'})."


def _notes(result: Result, of_study: Sequence[str]) -> list[str]:
    notes = [*result.notes, *of_study]
    notes += [f"Placeholder: {text}" for text in result.subject.stand_ins]
    for m in result.measurements:
        warmup, count = len(m.samples.warmup), len(m.samples.values)
        if warmup:
            notes.append(f"{m.name}: {units.count(warmup, 'warm-up sample')} cut, {count:,} used")
        if (seen := m.samples.longest_state_s) is not None:  # of all variants, which run in the same rounds
            notes.append(
                f"{m.phase}: this run can miss states of the machine that last longer than {units.rate(seen)} s "
                f"({units.count(count - count // 4, 'call')})"
            )
        notes += [f"{m.name}: {text}" for text in [*m.samples.notes, *m.notes]]
        notes += [f"{m.name}: not timed: {name} ({why})" for name, why in m.unseen.items()]
    return notes


def _facts(result: Result) -> list[tuple[str, str | None]]:
    subject, m = result.subject, result.machine
    about = [subject.name] if subject.name == subject.kind else [subject.name, subject.kind]
    if subject.parameters:
        about += [f"{units.metric(subject.parameters)} parameters", f"{units.size(subject.weight_bytes)}"]
    about += [*subject.dtypes, subject.source]
    about += ["tiny: the same architecture, with small layers"] if subject.size == "tiny" else []
    named_by = f"the anatomy of {subject.anatomy}" if subject.anatomy != "modules" else "modules"
    return [
        ("Subject", ", ".join(about)),
        ("Inputs", subject.inputs),
        ("Parts named by", named_by if subject.parameters or subject.anatomy != "modules" else None),
        ("Machine", frame.machine(m)),
        ("Peak", frame.ceiling(m)),
        ("Power", frame.power(m)),
        ("Versions", frame.versions(result, m)),
    ]


MANY = 4000  # spans and samples in one plot; more only make the page heavy
FEW = 8  # samples from which a violin is drawn


def icicle(m: Measurement, colours: Colours) -> Plot:
    """Return parts as nested boxes, as wide as their share of the whole."""
    mean = m.samples.summary.mean
    decimals = units.digits(m.samples.summary.median)
    parts = {tuple(c.path): c for c in m.components}
    totals = {(): mean} | {path: c.share * mean for path, c in parts.items()}
    inside = dict.fromkeys(totals, 0.0)
    for path, value in totals.items():
        if path and path[:-1] in inside:
            inside[path[:-1]] += value
    ids = {path: str(index) for index, path in enumerate(totals)}
    shares = [1.0, *(c.share for c in parts.values())]
    trace = {
        "type": "icicle",
        "ids": list(ids.values()),
        "labels": [m.name, *(c.name for c in parts.values())],
        "parents": ["" if not path else ids.get(path[:-1], ids[()]) for path in totals],
        # Plotly refuses a tree whose children add up to more than their parent, if only by rounding: it is given
        # what each part spends outside its children and does the sums itself.
        "values": [max(0.0, round(value - inside[path], 9)) for path, value in totals.items()],
        "branchvalues": "remainder",
        "sort": False,
        "customdata": [
            [f"{units.ms(total, decimals)} ms", units.percent(share)]
            for total, share in zip(totals.values(), shares, strict=True)
        ],
        "texttemplate": "%{label}<br>%{customdata[1]}",
        "hovertemplate": "%{label}<br>%{customdata[0]} (mean), %{customdata[1]}<extra></extra>",
        "leaf": {"opacity": 1},
        "marker": {
            "colors": ["rgba(0,0,0,0)", *(OTHER if c.other else colours.part_colour(c.name) for c in parts.values())]
        },
        "tiling": {"orientation": "v", "pad": 1},
        "pathbar": {"visible": False},
    }
    levels = 1 + max(c.depth for c in m.components)
    layout = {"height": 60 + 58 * min(levels, 8), "margin": {"t": 8, "b": 8, "l": 4, "r": 4}}
    layout |= {"uniformtext": charts.ROOM}
    return Plot("Where the time goes", "Click a part to enter it, its parent to leave.", [trace], layout)


def timeline(spans: Sequence[Span], colours: Colours) -> Plot:
    """Return one iteration on a time axis: a row per depth of each thread, threads below each other."""
    drawn = sorted(spans, key=lambda s: s.duration_ms, reverse=True)[:MANY]
    threads = list(dict.fromkeys(span.thread for span in sorted(drawn, key=lambda s: s.start_ms)))
    rows = sorted({(threads.index(s.thread), s.depth) for s in drawn})
    places = {row: index for index, row in enumerate(rows)}
    ticks = {min(p for (t, _), p in places.items() if t == i): name for i, name in enumerate(threads)}
    end = max(s.start_ms + s.duration_ms for s in drawn)
    decimals = units.digits(end)
    trace = charts.bars(
        "",
        [places[threads.index(s.thread), s.depth] for s in drawn],
        [s.duration_ms for s in drawn],
        [colours.part_colour(s.name) for s in drawn],
        "%{text}<br>%{customdata[1]}, from %{base:.3f} ms<br>%{customdata[0]}<extra></extra>",
        **charts.bar_text_properties([s.name for s in drawn]),
        base=[round(s.start_ms, 6) for s in drawn],
        customdata=[[s.thread, f"{units.ms(s.duration_ms, decimals)} ms"] for s in drawn],
        width=0.92,
    )
    y = {"tickvals": list(ticks), "ticktext": list(ticks.values()), "visible": len(threads) > 1}
    layout = charts.layout(
        96 + 34 * len(rows),
        charts.axis("ms from the start of the iteration", range=[0, end]),
        {**y, **charts.DOWN, "showgrid": False, "fixedrange": True},
        showlegend=False,
        bargap=0,
        uniformtext=charts.ROOM,
    )
    left_out = f" The {units.count(len(spans) - MANY, 'shortest section')} are left out." if len(spans) > MANY else ""
    return Plot("One iteration in time", f"The iteration nearest the median.{left_out}", [trace], layout)


def spread(title: str, group: Sequence[tuple[str, Samples]], *, split: bool = False) -> Plot:
    """Return every sample as a point, next to its violin and box; ``split`` lays two back to back on one row."""
    traces = [_spread(index, name, samples, split) for index, (name, samples) in enumerate(group)]
    layout = charts.layout(
        110 + 74 * (2 if split else len(group)),
        charts.axis("ms"),
        {"type": "category", **charts.DOWN, "showgrid": False, "fixedrange": True},
        showlegend=split,
        violinmode="overlay",
    )
    return Plot(title, "Each point is a sample after the warm-up.", traces, layout)


def _spread(index: int, name: str, samples: Samples, split: bool) -> Trace:
    colour = charts.colour(index)
    trace: Trace = {
        "orientation": "h",
        "x": [float(f"{value:.6g}") for value in samples.values[:MANY]],
        "y0": name,
        "name": name,
        "marker": {"color": colour, "size": 4, "opacity": 0.55},
        "line": {"color": colour, "width": 1.5},
        "hovertemplate": "%{x:.4~g} ms<extra></extra>",
        "hoveron": "points",
    }
    if len(samples.values) < FEW:
        return trace | {"type": "box", "boxpoints": "all"}
    trace |= {"type": "violin", "points": "all", "spanmode": "hard", "width": 0.9, "jitter": 0.35}
    if not split:
        return trace | {"box": {"visible": True, "width": 0.2}, "pointpos": -0.55, "side": "positive"}
    trace |= {"y0": " ", "side": ("positive", "negative")[index % 2], "pointpos": (0.5, -0.5)[index % 2]}
    return trace | {"box": {"visible": False}, "meanline": {"visible": True}}


def plot_sample_order(title: str, group: Sequence[tuple[str, Samples]]) -> Plot:
    """Return samples over the course of the run, with those of the warm-up drawn hollow."""
    traces = []
    for index, (name, samples) in enumerate(group):
        colour, cut = charts.colour(index), len(samples.warmup)
        hover, together = "%{x}: %{y:.4~g} ms<extra>%{fullData.name}</extra>", {"legendgroup": str(index)}
        if cut:
            at, values = list(range(1, cut + 1))[:MANY], samples.warmup[:MANY]
            drawn = charts.points(
                f"{name}: warm-up", at, values, colour, hover, size=7, symbol="circle-open", **together
            )
            traces.append(drawn)
        at, values = list(range(cut + 1, cut + 1 + len(samples.values))), samples.values[:MANY]
        traces.append(charts.line(name, at, values, colour, hover, points=4, style={"width": 1}, **together))
    steady = [v for _, s in group for v in s.values]
    warm = [v for _, s in group for v in s.warmup]
    low, high = min(steady + warm), max(steady)
    y: dict[str, object] = charts.axis("ms")
    caption = "Hollow points are warm-up, which no figure includes." if warm else "No warm-up was found."
    if warm and max(warm) > 2 * high:
        # One slow first call would press all others flat.
        above = sum(v > 1.25 * high for v in warm)
        y["range"] = [max(0.0, low - 0.1 * (high - low)), 1.25 * high]
        caption += f" {units.count(above, 'warm-up sample')} above the axis, up to {units.ms(max(warm))} ms."
    return Plot(title, caption, traces, charts.layout(300, charts.axis("sample"), y, showlegend=len(traces) > 1))
