"""A policy server → document: the parts of a round trip, its payload, the age of actions, what went wrong."""

from __future__ import annotations

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot
from strobe.core.report.document import Column, Document, Row, Section, Table
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.servers.results.server import ActionAge, ServerAnswer, Timed
from strobe.servers.results.server_protocols import IMAGE_FORMS, PROTOCOLS


def outline(answer: ServerAnswer, _depth: int | None = None) -> Document:
    """Return the document of a policy server."""
    sections = []
    if answer.parts and answer.trip is not None:
        text = [
            f"{units.count(len(answer.values), 'call')} after the first, one after another. "
            "The parts add up to the round trip."
        ]
        sections.append(Section("parts", "Parts of a round trip", _parts(answer, answer.trip), text))
    if answer.sent_bytes is not None:
        sections.append(Section("payload", "Payload", _payload(answer)))
    if len(answer.encodings) > 1:
        text = [
            "The payload is computed from the first observation, and the time was measured on this client. What the "
            "network would take is not measured."
        ]
        if any("JPEG" in each.kind for each in answer.encodings):
            text.append(PROTOCOLS[answer.protocol].decoder)
        sections.append(Section("encodings", "The images in other forms", _encodings(answer), text))
    if answer.age is not None:
        sections.append(Section("age", "Age of actions", _ages(answer.age)))
    if answer.faults:
        sections.append(Section("faults", "What went wrong", _faults(answer)))
    if answer.metadata:
        rows = [Row([name, text]) for name, text in answer.metadata.items()]
        columns = [Column("Metadata of the server", numeric=False), Column("", numeric=False)]
        sections.append(Section("metadata", "Metadata", Table(columns, rows), detail=True))
    facts = [("Server", f"{answer.url}, protocol of {answer.protocol}"), ("Observations", answer.inputs)]
    facts += [("Time limit of a call", f"{units.rate(answer.timeout_s)} s")]
    if answer.first_ms is not None:
        facts.append(("First call", f"{units.short_ms(answer.first_ms)} ms, in no other figure"))
    if (seen := answer.dropped) is not None:
        facts.append(("Filter", f"{seen.dropped} of {seen.sent} observations dropped as similar to the one before"))
    notes = [*answer.notes, *(f"not judged: {line}" for line in answer.not_judged)]
    if answer.warmup:
        notes.append(f"{units.count(answer.warmup, 'more call')} after the first left out as warm-up")
    return frame.document(
        answer, _answers(answer), sections, kind="breakdown of a policy server", notes=notes, facts=facts
    )


def plots(answer: ServerAnswer, _depth: int | None = None) -> Plots:
    """Return each call's round trip in order, and what it is made of."""
    if not answer.values or answer.trip is None:
        return {}
    calls = list(range(1, len(answer.values) + 1))
    drawn = charts.line(
        "round trip", calls, answer.values, charts.colour(0), "call %{x}: %{y:.2f} ms<extra></extra>", points=4
    )
    over_time = Plot(
        "Round trips in the order of the calls",
        "A slow server or network shows as a step, a busy one as spikes.",
        [drawn],
        charts.layout(260, charts.axis("call after the first"), charts.from_zero("ms")),
    )
    made_of = [
        charts.bars(
            part.name, ["round trip"], [part.summary.median], charts.colour(place), "%{fullData.name}: %{x:.2f} ms"
        )
        for place, part in enumerate(answer.parts)
    ]
    parts = Plot(
        "What a round trip is made of",
        "Medians of the parts.",
        made_of,
        charts.layout(180, charts.from_zero("ms"), charts.axis(), barmode="stack", legend=charts.LEGEND_ABOVE),
    )
    return {"parts": [parts, over_time]}


def _answers(answer: ServerAnswer) -> list[str]:
    sentences = []
    if answer.trip is not None:
        trip = answer.trip
        sentences.append(
            f"A round trip takes {units.short_ms(trip.summary.median)} ms; the 99th percentile is "
            f"{units.short_ms(trip.p99)} ms."
        )
        largest = max(answer.parts, key=lambda part: part.share, default=None)
        if largest is not None:
            sentences.append(
                f"The largest part is {largest.name}: {units.short_ms(largest.summary.median)} ms, "
                f"{units.percent(largest.share)}."
            )
    if answer.age is not None:
        sentences.append(_how_old(answer.age))
    if answer.faults:
        failed = sum(fault.count for fault in answer.faults)
        names = ", ".join(list(dict.fromkeys(fault.name for fault in answer.faults))[:3])
        sentences.append(f"{failed:,} of {units.count(answer.calls, 'call')} failed: {names}.")
    return sentences or ["No call was answered with actions."]


def _how_old(age: ActionAge) -> str:
    return (
        f"At {units.rate(age.control_hz)} Hz the first action of a chunk is {units.short_ms(age.first.median)} ms old, "
        f"and the last of {age.actions:,} is {units.short_ms(age.last.median)} ms old. A robot that does not "
        f"stop needs {units.count(age.ticks, 'action')} in its queue when it sends an observation."
    )


def _timed(name: list[str | None], timed: Timed, decimals: int, share: float | None, depth: int = 0) -> Row:
    summary = timed.summary
    cells = [units.ms(summary.median, decimals), units.span(summary.interval, decimals)]
    cells += [units.ms(summary.p95, decimals), units.ms(timed.p99, decimals), units.percent(share)]
    return Row([*name, *cells], depth=depth)


def _parts(answer: ServerAnswer, trip: Timed) -> Table:
    columns = [
        Column("Part", numeric=False),
        Column("What it is", numeric=False),
        Column("ms"),
        Column("95 % interval"),
    ]
    columns += [Column("p95"), Column("p99"), Column("Share")]
    decimals = units.digits(trip.summary.median)
    protocol, rows = PROTOCOLS[answer.protocol], []
    about_parts = {
        "encode": f"{protocol.packs} of the observation",
        "network": "the rest of the wait: sending, both ways, and the server's reading and writing of messages",
        "server": protocol.own_time,
        "network and server": "from sending to the last byte of the answer",
        "decode": f"{protocol.packs} of the answer",
    }
    for part in answer.parts:
        rows.append(_timed([part.name, about_parts.get(part.name)], part, decimals, part.share))
        if part.name == "server" and answer.policy is not None:
            about = "within it, as its policy tells"
            rows.append(_timed(["policy", about], answer.policy, decimals, None, depth=1))
    rows.append(_timed(["round trip", "the whole"], trip, decimals, 1.0))
    if answer.ping is not None:
        rows.append(_timed(["ping", "a way there and back without data"], answer.ping, decimals, None))
    return Table(columns, rows)


def _payload(answer: ServerAnswer) -> Table:
    rows = []
    for name, sizes in (("observation", answer.sent_bytes), ("answer", answer.received_bytes)):
        if sizes is not None:
            rows.append(Row([name, None, units.size(round(sizes.median)), units.size(round(sizes.max))]))
    for image in answer.images:
        shape = f"{'×'.join(map(str, image.shape))} {image.dtype}"
        rows.append(Row([image.name, shape, units.size(image.sent_bytes), None], depth=1))
    columns = [Column("Message", numeric=False), Column("Shape", numeric=False), Column("Size"), Column("Largest")]
    rows.sort(key=lambda row: row.cells[0] == "answer")
    return Table(columns, rows)


def _encodings(answer: ServerAnswer) -> Table:
    first = answer.encodings[0].payload_bytes
    columns = [Column("Images", numeric=False), Column("Payload"), Column("Of the present one"), Column("ms to make")]
    rows = [
        Row(
            [
                IMAGE_FORMS[each.kind],
                units.size(each.payload_bytes),
                units.percent(each.payload_bytes / first) if first > 0 else None,
                units.ms(each.ms) if each.kind != "as sent" else None,
            ]
        )
        for each in answer.encodings
    ]
    return Table(columns, rows)


def _ages(age: ActionAge) -> Table:
    columns = [Column("Action", numeric=False), Column("Median ms"), Column("p95"), Column("p99"), Column("Longest")]
    decimals = units.digits(age.last.max)
    rows = []
    for name, ages in (("first of a chunk", age.first), (f"last of {age.actions:,}", age.last)):
        rows.append(Row([name, *(units.ms(each, decimals) for each in (ages.median, ages.p95, ages.p99, ages.max))]))
    return Table(columns, rows)


def _faults(answer: ServerAnswer) -> Table:
    columns = [Column("What", numeric=False), Column("Exception", numeric=False), Column("Calls"), Column("First")]
    columns += [Column("After ms")]
    rows = [
        Row([each.kind, each.error, f"{each.count:,}", f"call {each.call:,}", units.ms(each.waited_ms)])
        for each in answer.faults
    ]
    return Table(columns, rows)
