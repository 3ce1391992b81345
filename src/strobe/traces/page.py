"""Traces → document: what the device did and waited for, who waits for whom, then each rank's iterations and parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, repeat

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot
from strobe.core.report.document import ColumnOf, Columns, Document, Section, Table, figure, scaled_column, table, words
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.traces import profiles_page as profiles
from strobe.traces.launches import blindness_text
from strobe.traces.results import CopyTime, DeviceTime, RankWait, SyncTime, TraceAnswer, TracedRank, TraceIterations

RANKS = 8  # ranks that have a section each; the data has all
CALLERS = 2


def outline(answer: TraceAnswer, depth: int | None = None) -> Document:
    """Return the document of traces; ``depth`` limits the levels of the parts."""
    sections = []
    if any(rank.devices for rank in answer.ranks):
        sections.append(Section("devices", "Devices", _devices(answer.ranks)))
    if answer.waits is not None:
        about = (
            f"{units.count(answer.waits.collectives, 'collective')} of all ranks. The rank with the shortest kernel "
            "came last, and the others waited for it."
        )
        decimals = units.digits(max((rank.waiting_ms for rank in answer.waits.ranks), default=0.0))
        sections.append(Section("waits", "Waiting ranks", table(answer.waits.ranks, _WAITS, decimals), [about]))
    for index, rank in enumerate(answer.ranks[:RANKS]):
        of = f" ({rank.name})" if len(answer.ranks) > 1 else ""
        sections += _rank_sections(rank, f"-{index}", of, depth, detail=index > 0)
    facts = [("Strobe", answer.strobe_version), ("Traces", ", ".join(rank.file for rank in answer.ranks[:RANKS]))]
    more = len(answer.ranks) - RANKS
    notes = [*answer.notes, *(f"not judged: {line}" for line in answer.not_judged)]
    notes += [f"{units.count(more, 'more rank')} in the data, without a section"] if more > 0 else []
    return frame.document(answer, answers(answer), sections, kind="report of a trace", notes=notes, facts=facts)


def plots(answer: TraceAnswer, _depth: int | None = None) -> Plots:
    """Return how busy each device is over time."""
    devices = [(rank, device) for rank in answer.ranks for device in rank.devices]
    named = [(rank.device_label(device), device) for rank, device in devices if device.gaps.is_judged]
    return {"devices": [_busy_plot(named[:RANKS])]} if named else {}


def answers(answer: TraceAnswer) -> list[str]:
    """Return what the devices wait for, then what the host does."""
    waits = answer.waits
    sentences = _most_waiting(waits.ranks, waits.collectives) if waits is not None and waits.ranks else []
    devices = [(rank, device) for rank in answer.ranks[:RANKS] for device in rank.devices]
    judged = [pair for pair in devices if pair[1].gaps.is_judged]
    if not sentences and judged:
        sentences.append(_busiest_sentence(judged))
    waiting = next((each for each in answer.findings if each.rule == "trace-late-rank" and sentences), None)
    sentences += [f"Next: {waiting.first_step}"] if waiting is not None else []
    sentences += [_device_summary(rank, device) for rank, device in devices]
    for rank in answer.ranks[:RANKS]:
        if not rank.devices:
            sentences.append(_host_summary(rank))
        if rank.iterations is not None and rank.iterations.ms:
            its, many = rank.iterations, len(rank.iterations.ms)
            ends = f" ({units.short_ms(min(its.ms))} to {units.short_ms(max(its.ms))})" if many > 1 else ""
            took = f"median {units.short_ms(its.median_ms)} ms{ends}"
            sentences.append(f"{rank.name}: {units.count(many, 'iteration')} of {its.name}, {took}.")
    return sentences or ["The trace has nothing to show."]


def _most_waiting(ranks: Sequence[RankWait], collectives: int) -> list[str]:
    most, last = max(ranks, key=lambda rank: rank.waiting_ms), max(ranks, key=lambda rank: rank.last)
    others = "other ranks" if most.name == last.name or 2 * last.last <= collectives else last.name
    of = units.count(collectives, "collective")
    return [
        f"{most.name} waits {units.short_ms(most.waiting_ms)} ms in total for {others}.",
        f"{last.name} came last in {last.last:,} of {of}; the others waited for it there.",
    ]


def _busiest_sentence(devices: Sequence[tuple[TracedRank, DeviceTime]]) -> str:
    rank, device = max(devices, key=lambda pair: pair[1].gaps.share(pair[1].gaps.idle_ms))
    name = f"The device of {rank.name}" if len(devices) > 1 else "The device"
    share, causes = device.gaps.share(device.gaps.idle_ms), device.gaps.causes
    if share < 0.05:
        return f"{name} is busy {100 * (1 - share):.0f} % of the time."
    waits = _WAITS_FOR.get((causes[0].kind if causes else None) or "", "the host")
    return f"{name} waits for {waits} {100 * share:.0f} % of the time."


_WAITS_FOR = {
    "queued": "other work on it",
    "wait": "the host to synchronise",
    "copy": "the host's copies",
    "unknown": "something that the trace does not show,",
    "idle": "the host to launch work",
}


def _host_summary(rank: TracedRank) -> str:
    host, took = rank.operators.host, units.short_ms(rank.operators.iteration_ms)
    share = ""
    if host is not None and rank.operators.operator_calls:
        share = f", {units.percent(host.share(host.busy_ms))} of it in torch's operators"
    device = blindness_text(rank.launches) if rank.lost_launches else "no device in this trace"
    return f"{rank.name}: {device}. The host's {took} ms are shown{share}."


def _device_summary(rank: TracedRank, device: DeviceTime) -> str:
    gaps = device.gaps
    if not gaps.is_judged:
        return f"{rank.device_label(device)}: idle is not judged, because {device.lacks}."
    cause = f", mostly: {gaps.causes[0].cause}" if gaps.causes else ""
    missing = f" {units.short_ms(gaps.unjudged_ms)} ms are not judged: kernels are missing." if gaps.unjudged_ms else ""
    return (
        f"{rank.device_label(device)}: busy {units.short_ms(gaps.busy_ms)} of {units.short_ms(gaps.span_ms)} ms, "
        f"idle {units.percent(gaps.share(gaps.idle_ms))}{cause}.{missing}"
    )


def _devices(ranks: Sequence[TracedRank]) -> Table:
    def share(title: str, get: Callable[[DeviceTime], float | None]) -> ColumnOf[tuple[TracedRank, DeviceTime]]:
        def span_share(pair: tuple[TracedRank, DeviceTime]) -> float | None:
            ms, gaps = get(pair[1]), pair[1].gaps
            return gaps.share(ms) if ms is not None and gaps.is_judged else None

        return figure(title, span_share, units.percent)

    columns: Columns[tuple[TracedRank, DeviceTime]] = [
        words("Device", lambda pair: pair[0].device_label(pair[1])),
        figure("Span ms", lambda pair: units.ms(pair[1].gaps.span_ms, units.digits(pair[1].gaps.span_ms)), str),
        share("Busy %", lambda device: device.gaps.busy_ms),
        share("Computing %", lambda device: device.compute_ms),
        share("Collectives %", lambda device: device.communication_ms),
        share("Exposed collectives %", lambda device: device.exposed_communication_ms),
        share("Copies %", lambda device: device.copies_ms),
        share("Exposed copies %", lambda device: device.exposed_copies_ms),
        share("Idle %", lambda device: device.gaps.idle_ms),
        share("Launch-bound %", lambda device: device.launch_bound and device.launch_bound.ms),
        figure("Kernels", lambda pair: pair[1].kernels),
        figure("Streams", lambda pair: pair[1].streams),
    ]
    if any(device.graph_kernels for rank in ranks for device in rank.devices):
        columns = [*columns, figure("In graphs", lambda pair: pair[1].graph_kernels)]
    return table([(rank, device) for rank in ranks for device in rank.devices], columns).drop_empty_columns()


def _rank_sections(rank: TracedRank, key: str, of: str, depth: int | None, *, detail: bool) -> list[Section]:
    sections: list[Section] = []

    def add(name: str, title: str, table: Table, text: Sequence[str] = ()) -> None:
        if table.rows:
            sections.append(Section(f"{name}{key}", f"{title}{of}", table, list(text), detail=detail))

    for device in (each for each in rank.devices if each.gaps.is_judged):
        which = f"device {device.device}" if len(rank.devices) > 1 else "the device"
        add(f"gaps-{device.device}", f"Causes of the gaps of {which}", profiles.gaps(device.gaps, "its time"))
    if rank.iterations is not None:
        add("iterations", f"Iterations of {rank.iterations.name}", _iterations(rank.iterations))
    add("parts", "Parts (annotations)", profiles.parts(rank.parts, depth))
    sections += profiles.graphs(rank.graphs, key, of, detail=detail)
    add("copies", "Copies", table(rank.copies, _COPIES).drop_empty_columns())
    add("syncs", "Synchronisations", table(rank.syncs, _SYNCS))
    took = units.ms(rank.operators.iteration_ms, units.digits(rank.operators.iteration_ms))
    for section in profiles.tables(rank.operators, f"{took} ms of the host under torch.profiler.", "trace", key):
        if section.table is not None and section.table.rows:
            sections.append(Section(section.key, f"{section.title}{of}", section.table, section.text, detail=detail))
    if rank.operators.host is not None and rank.operators.operator_calls:
        add("host-gaps", "Gaps between operators", profiles.gaps(rank.operators.host, "trace"))
    return sections


def _iterations(its: TraceIterations) -> Table:
    rows = [*zip(count(1), its.ms, its.busy_ms or repeat(None), its.work or repeat(None))]
    return table(rows, _ITERATIONS, units.digits(max(its.ms, default=0.0))).drop_empty_columns()


_ITERATIONS: Columns[tuple[int, float, float | None, int | None]] = [
    figure("Iteration", lambda row: row[0]),
    scaled_column("ms", lambda row: row[1]),
    scaled_column("Device busy ms", lambda row: row[2]),
    figure("% busy", lambda row: row[2] / row[1] if row[2] is not None and row[1] > 0 else None, units.percent),
    figure("Kernels, copies", lambda row: row[3]),
]
_WAITS: Columns[RankWait] = [
    words("Rank", lambda rank: rank.name),
    scaled_column("Waits ms", lambda rank: rank.waiting_ms),
    figure("Came last", lambda rank: rank.last),
]
_COPIES: Columns[CopyTime] = [
    words("Copies", lambda copy: copy.kind),
    figure("Calls", lambda copy: copy.calls),
    figure("ms", lambda copy: copy.ms, units.places(3)),
    figure("Size", lambda copy: copy.size, units.size),
    figure(
        "GB/s", lambda copy: copy.size / copy.ms / 1e6 if copy.size is not None and copy.ms > 0 else None, units.rate
    ),
    figure("Host waited", lambda copy: copy.waited or None),
    figure("Host ms", lambda copy: copy.waited_ms if copy.waited else None, units.places(3)),
    words("From", lambda copy: ", ".join(copy.callers[:CALLERS]) or None),
]
_SYNCS: Columns[SyncTime] = [
    words("Call", lambda sync: sync.name),
    figure("Calls", lambda sync: sync.calls),
    figure("Host ms", lambda sync: sync.ms, units.places(3)),
    words("From", lambda sync: ", ".join(sync.callers[:CALLERS]) or None),
]


def _busy_plot(named: Sequence[tuple[str, DeviceTime]]) -> Plot:
    drawn = []
    for index, (name, device) in enumerate(named):
        shares = [None if share is None else 100 * share for share in device.busy_shares]
        at = [device.gaps.span_ms * (place + 0.5) / len(shares) for place in range(len(shares))]
        drawn.append(charts.line(name, at, shares, charts.colour(index), style={"shape": "hvh"}))
    x, y = charts.axis("ms since the device's first work"), charts.from_zero("busy (%)")
    layout = charts.layout(300, x, y, legend=charts.LEGEND_ABOVE)
    return Plot("How busy the device is", "Busy share of each slice of its time.", drawn, layout)
