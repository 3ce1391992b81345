"""A policy server → document: the parts of a round trip, its payload, the age of actions, failed calls."""

from __future__ import annotations

from strobe.core.report import charts, frame
from strobe.core.report.charts import Plot
from strobe.core.report.document import (
    Columns,
    Document,
    Row,
    Section,
    Table,
    figure,
    heads,
    listing,
    scaled_column,
    table,
    words,
)
from strobe.core.report.frame import Plots
from strobe.core.results import units
from strobe.core.results.data import Quantiles
from strobe.loops.results.rollout import FEWEST_FOR_P95
from strobe.servers.results import IMAGE_FORMS, PROTOCOLS, ActionAge, ImageEncoding, ServerAnswer, ServerFault, Timed


def outline(answer: ServerAnswer, _depth: int | None = None) -> Document:
    """Return the document of a policy server."""
    sections = []
    if answer.parts and answer.trip is not None:
        about = f"{units.count(len(answer.values), 'call')} after the first, one after another. The parts add up."
        sections.append(Section("parts", "Parts of a round trip", _parts(answer, answer.trip), [about]))
    if answer.sent_bytes is not None:
        sections.append(Section("payload", "Payload", _payload(answer)))
    if len(answer.encodings) > 1:
        jpeg = any("JPEG" in each.kind for each in answer.encodings)
        transfer = (
            "The transfer time of these forms is not measured."
            if answer.bytes_per_s is None
            else f"Transfer times are computed with {units.rate(answer.bytes_per_s / 1e6)} MB/s, by when the server "
            "had read an observation. The saving is per call."
        )
        measured = f"Payload: that of the first observation. Times: measured on this client. {transfer}"
        about = [measured, *([PROTOCOLS[answer.protocol].decoder] if jpeg else [])]
        sections += listing("encodings", "Other image encodings", answer.encodings, _encodings(answer), *about)
    if (age := answer.age) is not None:
        ages = [("first of a chunk", age.first), (f"last of {age.actions:,}", age.last)]
        sections.append(Section("age", "Age of actions", table(ages, _AGES, units.digits(age.last.max))))
    sections += listing("faults", "Failed calls", answer.faults, _FAULTS, whole=True)
    sections += listing("metadata", "Metadata", list(answer.metadata.items()), _METADATA, detail=True, whole=True)
    facts = [("Server", f"{answer.url}, protocol of {answer.protocol}"), ("Observations", answer.inputs)]
    facts += [("Time limit of a call", f"{units.rate(answer.timeout_s)} s")]
    if answer.first_ms is not None:
        facts.append(("First call", f"{units.short_ms(answer.first_ms)} ms, not in any other figure"))
    if (dropped := answer.dropped) is not None:
        facts.append(("Filter", f"{dropped.dropped} of {dropped.sent} observations dropped as similar to the last"))
    notes = [*answer.notes, *(f"not judged: {line}" for line in answer.not_judged)]
    if answer.warmup:
        notes.append(f"no figure contains {units.count(answer.warmup, 'warm-up call')} after the first call")
    return frame.document(answer, answers(answer), sections, kind=ServerAnswer.called, notes=notes, facts=facts)


def plots(answer: ServerAnswer, _depth: int | None = None) -> Plots:
    """Return each call's round trip in order."""
    if not answer.values or answer.trip is None:
        return {}
    calls, hover = list(range(1, len(answer.values) + 1)), "call %{x}: %{y:.2f} ms<extra></extra>"
    trips = [charts.line("round trip", calls, answer.values, charts.colour(0), hover, points=4)]
    layout = charts.layout(260, charts.axis("call after the first"), charts.from_zero("ms"))
    caption = "A slow server or network shows as a step, a busy one as spikes."
    return {"parts": [Plot("Round trips in the order of the calls", caption, trips, layout)]}


def answers(answer: ServerAnswer) -> list[str]:
    """Return failed calls or the largest part first, then the round trip, the age of actions and the next command."""
    sentences, largest = [], max(answer.parts, key=lambda part: part.share, default=None)
    if odd := sum(fault.count for fault in answer.faults if fault.kind == "not finite"):
        sentences.append(f"{odd:,} of {units.count(answer.calls, 'call')} returned NaN or infinite numbers.")
    if failed := sum(fault.count for fault in answer.faults) - odd:
        kinds = dict.fromkeys(fault.name for fault in answer.faults if fault.kind != "not finite")
        names = ", ".join(list(kinds)[:3])
        sentences.append(f"{failed:,} of {units.count(answer.calls, 'call')} failed: {names}.")
    if largest is not None:
        share = f"{100 * largest.share:.0f} %"
        names = {"wait": "Waiting for a busy server", "server": "The server's inference"}
        takes = "take" if " and " in largest.name else "takes"
        text = f"{names.get(largest.name, largest.name.capitalize())} {takes} {share} of a round trip."
        if largest.name == "network":
            text = f"{share} of a round trip is not explained by the server's own clock."
            if answer.network_ms is not None and answer.trip is not None:
                explained = answer.network_ms / answer.trip.summary.mean
                text = f"The network takes {100 * explained:.0f} % of a round trip."
                if explained < largest.share / 2:
                    left = 100 * (largest.share - explained)
                    text = f"{left:.0f} % of a round trip is neither the network nor in the server's own time."
        sentences.append(text)
    if answer.trip is not None:
        took, values = answer.trip.summary, answer.values
        shown = [("median", took.median), *([("p95", took.p95)] if len(values) >= FEWEST_FOR_P95 else [])]
        shown.append(("max", max(values, default=took.p95)))
        listed = ", ".join(f"{name} {units.short_ms(ms)} ms" for name, ms in shown)
        listed = f"{units.short_ms(took.median)} ms" if len(values) == 1 else listed
        sentences.append(f"Round trip: {listed} ({units.count(len(values), 'call')}).")
    if answer.age is not None:
        sentences.append(_describe_action_age(answer.age))
    rules = {f"server-{fault.kind.replace(' ', '-')}" for fault in answer.faults} | {"server-clock"}
    failing = next((each for each in answer.findings if each.rule in rules), None)
    if failing is not None:
        sentences.insert(2, f"Next: {failing.first_step}")
    elif largest is not None and answer.age is None:
        sentences.append("Next: add --control_hz=HZ, the robot's control rate, to get the age of each action.")
    return sentences or ["No call returned actions."]


def _describe_action_age(age: ActionAge) -> str:
    return (
        f"At {units.rate(age.control_hz)} Hz the first action of a chunk is {units.short_ms(age.first.median)} ms old, "
        f"and the last of {age.actions:,} is {units.short_ms(age.last.median)} ms old. To move without a stop, the "
        f"robot needs {units.count(age.ticks, 'action')} in its queue when it sends an observation."
    )


def _timed_row(name: str, about: str | None, timed: Timed, decimals: int, share: float | None, depth: int = 0) -> Row:
    summary = timed.summary
    cells = [name, about, units.ms(summary.median, decimals), units.span(summary.interval, decimals)]
    cells += [units.ms(summary.p95, decimals), units.ms(timed.p99, decimals), units.percent(share)]
    return Row(cells, depth=depth)


def _parts(answer: ServerAnswer, trip: Timed) -> Table:
    decimals = units.digits(trip.summary.median)
    protocol, rows = PROTOCOLS[answer.protocol], []
    about_parts = {
        "encode": f"{protocol.packs} of the observation",
        "wait": "additional time of a ping just before the observation: the server was busy with another call",
        "network": "sending both ways, and the server's reading and writing of messages: the rest of the round trip",
        "server": protocol.own_time,
        "network and server": "from sending to the last byte of the answer",
        "decode": f"{protocol.packs} of the answer",
    }
    for part in answer.parts:
        known = part.name != "network" or (answer.network_ms or 0.0) >= part.summary.mean / 2
        name = part.name if known else "outside of the server's clock"
        rows.append(_timed_row(name, about_parts.get(part.name), part, decimals, part.share))
        if part.name == "server" and answer.policy is not None:
            rows.append(_timed_row("policy", "its own time in the server", answer.policy, decimals, None, depth=1))
    rows.append(_timed_row("round trip", "all parts", trip, decimals, 1.0))
    if answer.ping is not None:
        rows.append(_timed_row("ping", "an empty message there and back", answer.ping, decimals, None))
    if answer.transfer_ms is not None:
        transfer = units.ms(answer.transfer_ms, decimals)
        rows.append(Row(["transfer", "the bytes of a call, in addition to a ping", transfer, None, None, None, None]))
    return Table(heads("<Part | <Contents | Median (ms) | 95 % CI | p95 | p99 | Share"), rows)


def _payload(answer: ServerAnswer) -> Table:
    rows = []
    for name, sizes in (("observation", answer.sent_bytes), ("answer", answer.received_bytes)):
        if sizes is not None:
            rows.append(Row([name, None, units.size(round(sizes.median)), units.size(round(sizes.max))]))
    for image in answer.images:
        shape = f"{'×'.join(map(str, image.shape))} {image.dtype}"
        rows.append(Row([image.name, shape, units.size(image.sent_bytes), None], depth=1))
    rows.sort(key=lambda row: row.cells[0] == "answer")
    return Table(heads("<Message | <Shape | Size | Largest"), rows)


def _encodings(answer: ServerAnswer) -> Columns[ImageEncoding]:
    sent, first = answer.encodings[0], answer.encodings[0].payload_bytes

    def saved_ms(each: ImageEncoding) -> float | None:
        return None if each.kind == "as sent" else each.saves_ms(sent)

    return [
        words("Images", lambda each: IMAGE_FORMS[each.kind]),
        figure("Payload", lambda each: each.payload_bytes, units.size),
        figure("Share of present", lambda each: each.payload_bytes / first if first > 0 else None, units.percent),
        figure("Encode (ms)", lambda each: each.ms if each.kind != "as sent" else None, units.ms),
        figure("Serialise (ms)", lambda each: each.encode_ms, units.ms),
        figure("Transfer (ms)", lambda each: each.transfer_ms, units.ms),
        figure("Saves (ms)", saved_ms, lambda ms: units.format_signed(ms, 1)),
    ]


_AGES: Columns[tuple[str, Quantiles]] = [
    words("Action", lambda age: age[0]),
    scaled_column("Median (ms)", lambda age: age[1].median),
    scaled_column("p95", lambda age: age[1].p95),
    scaled_column("p99", lambda age: age[1].p99),
    scaled_column("Max", lambda age: age[1].max),
]
_FAULTS: Columns[ServerFault] = [
    words("Fault", lambda fault: fault.kind),
    words("Exception", lambda fault: fault.error),
    figure("Calls", lambda fault: fault.count),
    figure("First", lambda fault: fault.call, "call {:,}".format),
    figure("After (ms)", lambda fault: fault.waited_ms, units.ms),
]
_METADATA: Columns[tuple[str, str]] = [
    words("Server metadata", lambda pair: pair[0]),
    words("", lambda pair: pair[1]),
]
