"""Rules on a policy server: what went wrong, what a round trip waits for, and whether it keeps up with the robot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results import units
from strobe.core.results.finding import Finding, info, warning
from strobe.core.results.numerals import significant
from strobe.servers.results import IMAGE_FORMS, PROTOCOLS, FaultKind, ServerAnswer, ServerFault, Timed

BIG_NETWORK = 0.4  # share of a round trip
BIG_SERVER = 0.7
BIG_CLIENT = 0.2  # share that goes to encoding and decoding
BIG_WAIT = 0.15  # share of a round trip
STEADIER = 3.0  # times as far the waits must spread as the rest of the way does
SMALL_MS = 5.0  # milliseconds of a round trip: a shorter part does not matter, whatever its share
SHOWN = 6  # names of inputs
SMALLER = 0.7  # share of the payload: a form that sends less is named
SLOW_FIRST = 3.0  # times a later call
NOTABLE_FIRST_MS = 1000.0

_TITLES: dict[FaultKind, str] = {
    "slow": "The server answered too late",
    "silent": "The server did not answer",
    "closed": "The connection broke",
    "too big": "The server takes no message as large as this observation",
    "error": "The server raised an exception",
    "empty": "The server sent an empty answer",
    "undecodable": "The client cannot decode an answer",
    "no actions": "An answer had no actions",
    "other shape": "The shape of the action chunk changes between calls",
    "not finite": "Actions were NaN or infinite",
}
# The consequence and the place to look, whatever the protocol; `PROTOCOLS` has those of its own client.
_WHY: dict[FaultKind, str] = {
    "slow": "A robot that waits so long stands still, or continues with actions of an old observation.",
    "too big": "The server closes the connection at a larger message, and the robot gets no actions.",
    "empty": "The robot gets no actions.",
    "undecodable": "The client cannot read it, and the robot's program ends.",
    "no actions": "A client that reads actions ends with an exception.",
    "other shape": "A client that expects the first length runs out of a shorter chunk, or cuts a longer one.",
    "not finite": "A robot that executes them moves anywhere, or its driver refuses them.",
}
_DO: dict[FaultKind, str] = {
    "slow": "Look at the server's own times in the table of parts. If its first call compiles, raise --timeout.",
    "silent": "Look at the server's log and at its machine. If it compiles at the first call, raise --timeout.",
    "closed": "Look at the server's log: its process may have ended. A proxy or a firewall may close it, too.",
    "too big": "Raise the server's limit: `max_size` of websockets.serve, --ws-max-size of uvicorn.",
    "empty": "Look at the server's log.",
    "undecodable": "Check the program at this address: it may be of another version, or a proxy.",
    "other shape": "Look at the server's policy: its chunk should have one length for every observation.",
    "not finite": "Look at the normalisation statistics of the server's checkpoint, and at the observation's numbers.",
}

# Exceptions that an observation with other names or shapes usually raises.
_INPUT = ("KeyError", "ValueError", "TypeError", "IndexError", "AssertionError")
_OF_INPUT = (
    "Compare the observation's names and shapes with those that the server's config expects. --rename_map and "
    "--policy.observation set them. "
)
_PLACE = re.compile(r'File "(?:[^"\n]*[/\\])?([^"/\\\n]+)", line (\d+), in (\S+)')


def faults(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """Calls that failed, each kind with the exception's name."""
    protocol = PROTOCOLS[answer.protocol]
    for fault in sorted(answer.faults, key=lambda fault: fault.kind != "not finite"):
        first_look = _OF_INPUT if fault.kind == "error" and fault.name in _INPUT else ""
        if fault.kind == "too big":
            first_look = f"{_smaller(answer) or 'Send smaller images.'} "
        yield warning(
            rule=f"server-{fault.kind.replace(' ', '-')}",
            title=f"{_TITLES[fault.kind]}: {fault.name}",
            found=_fault_occurrence_text(answer, fault),
            why=protocol.then.get(fault.kind) or _WHY[fault.kind],
            do=f"{first_look}{protocol.look.get(fault.kind) or _DO[fault.kind]}",
            evidence={"error": fault.error, "call": fault.call, "count": fault.count, "waited_ms": fault.waited_ms},
        )


def _fault_occurrence_text(answer: ServerAnswer, fault: ServerFault) -> str:
    calls = units.count(answer.calls, "call")
    where = f"Call {fault.call:,} of {calls}"
    if fault.count > 1:
        where = f"{fault.count:,} of {calls}, first call {fault.call:,}"
    text, places = (
        f"{where}, after {significant(fault.waited_ms)} ms: {fault.error}",
        _PLACE.findall(fault.detail or ""),
    )
    if places:
        return "{}, raised at {}:{} in {}.".format(text, *places[-1])
    return text if text.endswith((".", "!", "?")) else f"{text}."


def slow_server(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """A round trip that lasts longer than its chunk."""
    age = answer.age
    if age is not None and answer.trip is not None and age.first.p99 > age.chunk_ms:
        median = age.first.median > age.chunk_ms
        hz = 0.99 * age.actions * 1e3 / (age.first.median if median else age.first.p99)
        yield warning(
            rule="server-slower-than-robot",
            title="A round trip lasts longer than its chunk of actions"
            if median
            else "Some round trips last longer than their chunk of actions",
            found=f"A round trip takes a median of {significant(age.first.median)} ms, and 99 % take at most "
            f"{significant(age.first.p99)} ms. A chunk of {age.actions:,} actions lasts {significant(age.chunk_ms)} "
            f"ms at {significant(age.control_hz)} Hz.",
            why="Even a robot that requests the next chunk while it executes this one runs out of actions.",
            do=f"Lower the control rate to {significant(hz)} Hz, use longer chunks, or make the largest part of the "
            "round trip faster.",
            evidence={"median_ms": age.first.median, "p99_ms": age.first.p99, "chunk_ms": age.chunk_ms},
        )


def network(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """The part of a round trip that the server's own clock does not explain: the network's, where that is known."""
    part, trip = answer.part("network"), _judged_trip(answer)
    if part is None or trip is None or answer.sent_bytes is None:
        return
    took, empty = part.summary.mean if answer.network_ms is None else answer.network_ms, answer.empty_ms
    share = took / trip.summary.mean
    if share < BIG_NETWORK or took < SMALL_MS:
        return
    title = f"The network takes {100 * share:.0f} % of a round trip"
    if answer.network_ms is None:
        title = f"{100 * share:.0f} % of a round trip is not explained by the server's own clock"
        why = "It is sending, receiving, and the server's work on messages. No measurement separates them."
        do = f"Run this on the server's machine too: what remains there is not the network. {_smaller(answer) or ''}"
    elif answer.transfer_ms is None or answer.transfer_ms < took / 2:
        why = "An empty message takes most of that time too, so a smaller payload does not help."
        do = "Bring the server nearer: Ethernet instead of Wi-Fi, no VPN or tunnel, the same building."
    else:
        why = "The bytes take most of that time: the server has read an observation that much later than a ping. A "
        why += "server that reads slowly looks alike."
        do = _smaller(answer) or "Send less, or use a faster network."
    down = _size(answer.received_bytes.median) if answer.received_bytes else "no bytes"
    pings = "" if empty is None else f" Without data, the ways of a call take {significant(empty)} ms."
    yield warning(
        rule="server-network",
        title=title,
        found=f"{significant(took)} of {significant(trip.summary.mean)} ms (means), {_size(answer.sent_bytes.median)} "
        f"up and {down} down.{pings}",
        why=why,
        do=do.strip(),
        evidence={"share": share, "network_ms": took, "ping_ms": empty, "gain_share": share},
    )


def short_clock(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """Time that is neither in the server's own time nor the network's. Another client's calls may hide there."""
    part, own, wait, trip = answer.part("network"), answer.part("server"), answer.part("wait"), _judged_trip(answer)
    if part is None or own is None or trip is None or answer.network_ms is None or answer.empty_ms is None:
        return
    left, busy = part.summary.mean - answer.network_ms, wait is not None and wait.share >= BIG_WAIT
    if left >= SMALL_MS and left >= BIG_NETWORK * trip.summary.mean and not busy:
        yield warning(
            rule="server-clock",
            title="The server's own time is short of what it takes",
            found=f"The server says {significant(own.summary.mean)} of {significant(trip.summary.mean)} ms (means). "
            f"Without data the ways of a call take {significant(answer.empty_ms)} ms, and its bytes take "
            f"{significant(answer.network_ms - answer.empty_ms)} ms more: {significant(left)} ms are none of it.",
            why="A clock that stops when the device is launched misses its computing, as the policy's time of openpi's "
            "server does with JAX (openpi#983). Other work, other clients and proxies that answer pings look alike.",
            do="If no other client calls it, stop its clock when the actions are on the host (jax.block_until_ready).",
            evidence={"server_ms": own.summary.mean, "left_ms": left, "network_ms": answer.network_ms},
        )


def _judged_trip(answer: ServerAnswer) -> Timed | None:
    return answer.trip if answer.trip is not None and answer.trip.summary.interval is not None else None


def _smaller(answer: ServerAnswer) -> str | None:
    """Return the sizes of smaller forms of the images, if one is much smaller."""
    better = [each for each in answer.encodings if each.payload_bytes < SMALLER * answer.encodings[0].payload_bytes]
    if not better:
        return None
    first = answer.encodings[0]
    named = [
        f"{IMAGE_FORMS[each.kind]} {_size(each.payload_bytes)} (computed), which take {significant(each.ms)} ms to make"
        + (f" and save {significant(saved)} ms of a call" if saved is not None and saved > 0 else "")
        for each in better
        for saved in [each.saves_ms(first)]
    ]
    decoder = f" {PROTOCOLS[answer.protocol].decoder}" if any("JPEG" in each.kind for each in better) else ""
    return f"Send less than {_size(first.payload_bytes)} per observation: {'; '.join(named)}.{decoder}"


def server_time(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    part, policy, trip = answer.part("server"), answer.policy, _judged_trip(answer)
    if part is not None and trip is not None and part.share >= BIG_SERVER:
        inside = f" The policy takes {significant(policy.summary.mean)} ms of that time." if policy else ""
        yield info(
            rule="server-inference",
            title=f"The server's inference takes {100 * part.share:.0f} % of a round trip",
            found=f"{significant(part.summary.mean)} of {significant(trip.summary.mean)} ms on average, by the "
            f"server's own clock.{inside}",
            why="A faster network or smaller images would change little.",
            do="Run `strobe breakdown` on the server's machine: it shows the parts of a policy that LeRobot can load. "
            "`strobe report TRACE` reads a torch.profiler trace of any other policy.",
            evidence={"share": part.share, "server_ms": part.summary.mean},
        )


def busy(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    part, network, trip = answer.part("wait"), answer.part("network"), _judged_trip(answer)
    if part is None or network is None or trip is None or part.share < BIG_WAIT:
        return
    # A network whose delay changes makes the rest of the trip as uneven as the pings.
    uneven, late = network.summary.p95 - network.summary.median, part.summary.p95
    if part.summary.mean >= SMALL_MS and late >= STEADIER * uneven:
        server = answer.part("server")
        own = "" if server is None else f" Its own time for this call is {significant(server.summary.median)} ms."
        yield warning(
            rule="server-busy",
            title=f"{100 * part.share:.0f} % of a round trip waits for a busy server",
            found=f"{significant(part.summary.mean)} of {significant(trip.summary.mean)} ms on average, p95 "
            f"{significant(late)} ms. By that time the server answers a ping just before the observation later than "
            f"its fastest ping.{own}",
            why="openpi's server computes one call at a time and reads from no other connection during a call. Its "
            "own time does not include the wait.",
            do="Look for another client of this server, or for its own work after an answer. A server for each "
            "robot, or a server that computes several calls at once, ends the wait; a faster network does not.",
            evidence={"share": part.share, "wait_ms": part.summary.mean, "gain_share": part.share},
        )


def client_time(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    ours, trip = [part for part in answer.parts if part.side == "client"], _judged_trip(answer)
    share, took = sum(part.share for part in ours), sum(part.summary.mean for part in ours)
    if share >= BIG_CLIENT and took >= SMALL_MS and trip is not None:
        named = " and ".join(f"{part.name} {significant(part.summary.mean)} ms" for part in ours)
        yield warning(
            rule="server-encoding",
            title=f"Encoding and decoding on the client take {100 * share:.0f} % of a round trip",
            found=f"{named}, of {significant(trip.summary.mean)} ms on average.",
            why="The client copies every byte of the observation into the message.",
            do=_smaller(answer) or "Send less in an observation.",
            evidence={"share": share, "client_ms": took, "gain_share": share},
        )


def first_call(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    if (first := answer.first_ms) is not None and answer.trip is not None:
        median = answer.trip.summary.median
        if first >= max(SLOW_FIRST * median, NOTABLE_FIRST_MS):
            yield info(
                rule="server-first-call",
                title=f"The first call takes {significant(first / 1e3)} s",
                found=f"The first call took {significant(first)} ms; later calls took a median of "
                f"{significant(median)} ms.",
                why="Most servers compile or load at their first call (another client's call takes time, too). A robot "
                "that connects then stands still.",
                do="Call the server once before the robot starts.",
                evidence={"first_ms": first, "median_ms": median},
            )


def keepalive(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    longest, limit = max([answer.first_ms or 0.0, *answer.values]), PROTOCOLS[answer.protocol].keepalive_ms
    if limit is not None and longest >= limit:
        first = ", and was the first" if longest == answer.first_ms else ""
        yield warning(
            rule="server-keepalive",
            title="Openpi's own client would lose the connection in a call this long",
            found=f"The longest call took {significant(longest / 1e3)} s{first}.",
            why="With websockets 15 or later, openpi-client pings every 20 s and closes the connection if the server "
            "answers no ping for 20 s. openpi's server answers none while its policy runs. Strobe sends no such pings.",
            do="Let the server compile before it accepts connections: call its policy once at start-up.",
            evidence={"longest_ms": longest},
        )


def dropped_observations(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    seen = answer.dropped
    if seen is not None and seen.dropped and seen.farthest_dropped is not None:
        yield warning(
            rule="server-drops-observations",
            title="The server drops observations as too similar",
            found=f"{seen.dropped} of {seen.sent} observations, each after another one, got no answer. The same "
            f"observations got one when marked must_go. Their states are up to {significant(seen.farthest_dropped)} "
            "from the state before.",
            why="LeRobot's server drops an observation whose state is less than 1 from the last one that it answered. "
            "1 is small in degrees and large in radians or metres. The robot then waits until its queue is empty.",
            do="Send the state in degrees or in LeRobot's own range of -100 to 100, or lower `atol` of "
            "observations_similar on the server.",
            evidence={"sent": seen.sent, "dropped": seen.dropped, "distance": seen.farthest_dropped},
        )


def ignored_inputs(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """Inputs that can be replaced without a change of the actions."""
    names = ", ".join(answer.ignored[:SHOWN])
    if answer.ignored and answer.ignored == answer.replaced:
        yield warning(
            rule="server-constant",
            title="The server answers every observation with the same actions",
            found=f"Noise or another text in place of {names}, one input in each call, changed no bit of them.",
            why="A stub does that. A policy that does it reads none of its inputs, and the robot repeats one chunk.",
            do="If the server is no stub, compare the observation's names with those that the server's config expects.",
            evidence={"replaced": len(answer.replaced)},
        )
    elif answer.ignored:
        yield info(
            rule="server-ignored-inputs",
            title=f"The server ignores {names}",
            found=f"Noise or another text in its place changed no bit of the actions, and that of "
            f"{len(answer.replaced) - len(answer.ignored)} other inputs did.",
            why="A policy that was trained without an input ignores it rightly. One that reads it under another name "
            "gets zeros in its place.",
            do="Compare its name with those that the server's config expects, or send it no more.",
            evidence={"ignored": len(answer.ignored), "replaced": len(answer.replaced)},
        )


def _size(value: float) -> str:
    return f"{significant(value / 1e6)} MB" if value >= 1e5 else f"{significant(value / 1e3)} kB"


RULES = (
    faults,
    slow_server,
    network,
    short_clock,
    busy,
    server_time,
    client_time,
    first_call,
    keepalive,
    dropped_observations,
    ignored_inputs,
)
