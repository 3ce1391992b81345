"""Rules on a policy server: what went wrong, what a round trip waits for, and whether it keeps up with the robot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from strobe.core.findings.thresholds import Thresholds
from strobe.core.results.finding import Finding
from strobe.core.results.numerals import significant
from strobe.servers.results import IMAGE_FORMS, PROTOCOLS, FaultKind, ServerAnswer, ServerFault

BIG_NETWORK = 0.4  # share of a round trip
BIG_SERVER = 0.7
BIG_CLIENT = 0.2  # share that goes to encoding and decoding
BIG_WAIT = 0.15  # share of a round trip
STEADIER = 3.0  # times as far the waits must spread as the rest of the way does
SMALL_MS = 5.0  # of a round trip: a part that costs less is no matter, whatever its share
MOSTLY_EMPTY = 0.5  # share of the network's time that a ping takes, from which the bytes are not what costs
SMALLER = 0.7  # share of the payload: a form that sends less is named
SLOW_FIRST = 3.0  # times a later call
NOTABLE_FIRST_MS = 1000.0

_TITLES: dict[FaultKind, str] = {
    "slow": "The server answers too late",
    "silent": "The server does not answer",
    "closed": "The connection breaks off",
    "error": "The server's policy raises",
    "empty": "The server answers with nothing",
    "undecodable": "An answer cannot be decoded",
    "no actions": "An answer has no actions",
    "other shape": "The actions change their shape",
    "not finite": "Actions are no finite numbers",
}
# What follows and where to look, whatever the protocol; `PROTOCOLS` has what its own client does.
_WHY: dict[FaultKind, str] = {
    "slow": "A robot that waits so long stands still, or goes on with actions of an old observation.",
    "silent": "A robot whose client has no time limit hangs.",
    "closed": "The robot gets no more actions.",
    "error": "The robot gets no actions.",
    "empty": "The robot gets no actions.",
    "undecodable": "The client cannot read it, and the robot's program ends.",
    "no actions": "A client that reads actions ends with an exception.",
    "other shape": "A client that expects the first length runs out of a shorter chunk, or drops the end of a longer "
    "chunk.",
    "not finite": "A robot that executes them moves anywhere, or its driver refuses them.",
}
_DO: dict[FaultKind, str] = {
    "slow": "Look at the server's own times in the table of parts. If it compiles at first, call it before the robot "
    "starts, or raise --timeout.",
    "silent": "Look at the server's log and at its machine. If it compiles at the first call, raise --timeout.",
    "closed": "Look at the server's log: its process may have ended. A proxy or a firewall between the two may also "
    "close connections.",
    "error": "Look at the server's log.",
    "empty": "Look at the server's log.",
    "undecodable": "Look at what answers at this address.",
    "no actions": "Look at what the server's policy returns.",
    "other shape": "Look at the server's policy: its chunk should have one length for every observation.",
    "not finite": "Look at the normalisation statistics of the server's checkpoint, and at the observation's numbers.",
}

# Exceptions that an observation with other names or shapes raises, as a rule.
_INPUT = ("KeyError", "ValueError", "TypeError", "IndexError", "AssertionError")
_OF_INPUT = (
    "Compare the names and shapes of the observation with what the server's config expects; --rename_map and "
    "--policy.observation set them. "
)
_PLACE = re.compile(r'File "(?:[^"\n]*[/\\])?([^"/\\\n]+)", line (\d+), in (\S+)')


def faults(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """Calls that failed, each kind with the exception's name."""
    protocol = PROTOCOLS[answer.protocol]
    for fault in answer.faults:
        of_input = _OF_INPUT if fault.kind == "error" and fault.name in _INPUT else ""
        yield Finding(
            rule=f"server-{fault.kind.replace(' ', '-')}",
            level="warning",
            title=f"{_TITLES[fault.kind]}: {fault.name}",
            seen=_seen(answer, fault),
            why=protocol.then.get(fault.kind, _WHY[fault.kind]),
            do=of_input + protocol.look.get(fault.kind, _DO[fault.kind]),
            evidence={"error": fault.error, "call": fault.call, "count": fault.count, "waited_ms": fault.waited_ms},
        )


def _seen(answer: ServerAnswer, fault: ServerFault) -> str:
    calls = "1 call" if answer.calls == 1 else f"{answer.calls:,} calls"
    where = (
        f"Call {fault.call:,} of {calls}"
        if fault.count == 1
        else f"{fault.count:,} of {calls}, first call {fault.call:,}"
    )
    places = _PLACE.findall(fault.detail)
    dot = (
        ", raised at {}:{} in {}.".format(*places[-1])
        if places
        else ""
        if fault.error.endswith((".", "!", "?"))
        else "."
    )
    return f"{where}, after {_ms(fault.waited_ms)}: {fault.error}{dot}"


def too_slow(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """A round trip that lasts longer than the chunk that it brings."""
    age = answer.age
    if age is None or answer.trip is None or age.first.p99 <= age.chunk_ms:
        return
    median = age.first.median > age.chunk_ms
    slow = age.first.median if median else age.first.p99
    yield Finding(
        rule="server-slower-than-robot",
        level="warning",
        title="A round trip lasts longer than the chunk that it brings"
        if median
        else "Some round trips last longer than the chunk that they bring",
        seen=f"A round trip takes {_ms(age.first.median)}; the 99th percentile is {_ms(age.first.p99)}. A chunk of "
        f"{age.actions:,} actions lasts {_ms(age.chunk_ms)} at {significant(age.control_hz)} Hz.",
        why="Even a robot that requests the next chunk while it executes this one runs out of actions.",
        do=f"Lower the control rate to {significant(0.99 * age.actions * 1e3 / slow)} Hz, use longer chunks, or make "
        "the largest part of the round trip faster.",
        evidence={"median_ms": age.first.median, "p99_ms": age.first.p99, "chunk_ms": age.chunk_ms},
    )


def network(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """Round trips that go to the network."""
    part = answer.part("network")
    if part is None or answer.sent_bytes is None or part.share < BIG_NETWORK or not _enough_calls(answer):
        return
    assert answer.trip is not None
    took, empty = part.summary.median, None if answer.ping is None else answer.ping.summary.median
    if took < SMALL_MS:
        return
    ways = PROTOCOLS[answer.protocol].ways
    latency = empty is not None and ways * empty >= MOSTLY_EMPTY * took
    without = "" if empty is None else f" A ping without data takes {_ms(empty)}."
    if empty is not None and ways > 1:
        without = f" A ping without data takes {_ms(empty)}, and a call goes there and back {ways} times."
    if latency:
        why = "Most of it is the way itself, which a smaller payload does not shorten."
        do = "Bring the server nearer: a cable in place of radio, no VPN or tunnel, the same building."
    else:
        why = (
            "Uncompressed images go over the network with every call."
            if answer.images
            else "It takes time by the byte."
        )
        do = _smaller(answer) or "Send less, or use a faster network."
    yield Finding(
        rule="server-network",
        level="warning",
        title=f"{100 * part.share:.0f} % of a round trip is the network",
        seen=f"{_ms(took)} of {_ms(answer.trip.summary.median)}, for {_size(answer.sent_bytes.median)} up and "
        f"{_size(answer.received_bytes.median) if answer.received_bytes else 'no bytes'} down.{without} The server's "
        "reading and writing of messages is in it.",
        why=why,
        do=do,
        evidence={"share": part.share, "network_ms": took, "ping_ms": empty, "gain_share": part.share},
    )


def _enough_calls(answer: ServerAnswer) -> bool:
    """Whether there are enough calls for an interval: of fewer, no share is judged."""
    return answer.trip is not None and answer.trip.summary.interval is not None


def _smaller(answer: ServerAnswer) -> str:
    """Return what other forms of the images would send; '' if none is much smaller."""
    first = next(iter(answer.encodings), None)
    if first is None:
        return ""
    better = [
        each
        for each in answer.encodings[1:]
        if each.payload_bytes < SMALLER * first.payload_bytes and "float32" not in each.kind
    ]
    if not better:
        return ""
    named = [
        f"{IMAGE_FORMS[each.kind]} {_size(each.payload_bytes)} (computed), which take {_ms(each.ms)} to make"
        + (f" and save {_ms(saved)} of a call" if saved is not None and saved > 0 else "")
        for each in better
        for saved in [each.saves_ms(first)]
    ]
    decoder = f" {PROTOCOLS[answer.protocol].decoder}" if any("JPEG" in each.kind for each in better) else ""
    return f"Send less. Instead of {_size(first.payload_bytes)} the observation would be {'; '.join(named)}.{decoder}"


def server_time(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """Round trips that are mostly the server's own time."""
    part = answer.part("server")
    if part is None or part.share < BIG_SERVER or not _enough_calls(answer):
        return
    assert answer.trip is not None
    policy = answer.policy
    inside = "" if policy is None else f" The policy itself takes {_ms(policy.summary.median)} of it."
    yield Finding(
        rule="server-inference",
        level="info",
        title=f"{100 * part.share:.0f} % of a round trip is the server's inference",
        seen=f"{_ms(part.summary.median)} of {_ms(answer.trip.summary.median)}, as the server tells.{inside}",
        why="A faster network or smaller images would change little.",
        do="On the server's machine, `strobe breakdown` shows the parts of a policy that LeRobot can load, and "
        "`strobe report TRACE` reads a trace of torch.profiler of any other.",
        evidence={"share": part.share, "server_ms": part.summary.median},
    )


def busy(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """A server that looks at this client late, as it computes another client's call."""
    part, network = answer.part("wait"), answer.part("network")
    if part is None or network is None or part.share < BIG_WAIT or not _enough_calls(answer):
        return
    assert answer.trip is not None
    # A network whose delay changes makes the rest of the trip as uneven as the pings.
    uneven = network.summary.p95 - network.summary.median
    if part.summary.mean < SMALL_MS or part.summary.p95 < STEADIER * uneven:
        return
    server = answer.part("server")
    own = "" if server is None else f" Its own time for this call is {_ms(server.summary.median)}."
    yield Finding(
        rule="server-busy",
        level="warning",
        title=f"{100 * part.share:.0f} % of a round trip is waiting for a server that is busy",
        seen=f"{_ms(part.summary.mean)} of {_ms(answer.trip.summary.mean)} on average, 95th percentile "
        f"{_ms(part.summary.p95)}: so late, beyond the fastest, it answers a ping just ahead of the observation.{own}",
        why="openpi's server computes one call at a time and reads from no other connection during it. Its own time is "
        "without that wait.",
        do="Look for another client of this server. A server for each robot, or one that computes several calls at "
        "once, ends the wait; a faster network does not.",
        evidence={"share": part.share, "wait_ms": part.summary.mean, "gain_share": part.share},
    )


def client_time(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """Round trips that go to encoding and decoding on the client."""
    ours = [part for part in answer.parts if part.side == "client"]
    share, took = sum(part.share for part in ours), sum(part.summary.median for part in ours)
    if share < BIG_CLIENT or took < SMALL_MS or not _enough_calls(answer):
        return
    assert answer.trip is not None
    named = " and ".join(f"{part.name} {_ms(part.summary.median)}" for part in ours)
    yield Finding(
        rule="server-encoding",
        level="warning",
        title=f"{100 * share:.0f} % of a round trip is encoding and decoding on the client",
        seen=f"{named}, of {_ms(answer.trip.summary.median)}.",
        why="The client copies every byte of the observation into the message.",
        do=_smaller(answer) or "Send less in an observation.",
        evidence={"share": share, "client_ms": took, "gain_share": share},
    )


def float_images(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """Images that are sent as numbers of several bytes."""
    wide = [image for image in answer.images if image.dtype != "uint8"]
    if not wide:
        return
    bytes_now = sum(image.sent_bytes for image in wide)
    small = sum(_count(image.shape) for image in wide)
    yield Finding(
        rule="server-float-images",
        level="warning",
        title="Images are sent as floating-point numbers"
        if wide[0].dtype.startswith("float")
        else "Images are sent wide",
        seen=f"{', '.join(f'{image.name} ({image.dtype})' for image in wide[:4])}: {_size(bytes_now)} in each call. As "
        f"uint8 they are {_size(small)} (computed).",
        why="A camera gives bytes, so the further ones carry nothing.",
        do="Send uint8, and scale on the server.",
        evidence={"bytes": bytes_now, "uint8_bytes": small},
    )


def overstated(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """A server that tells more time than the client waited."""
    if not answer.overstated:
        return
    yield Finding(
        rule="server-time-impossible",
        level="warning",
        title="The server tells more time than the call took",
        seen=f"In {answer.overstated:,} of {len(answer.values):,} calls its own time is longer than the client waited.",
        why="Network and server cannot be told apart with such a time, so they are one part here.",
        do="Look at what the server measures: it should be the inference of this call, in milliseconds.",
        evidence={"calls": answer.overstated},
    )


def first_call(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """A first call that takes much longer than the later ones."""
    if answer.first_ms is None or answer.trip is None:
        return
    median = answer.trip.summary.median
    if answer.first_ms < max(SLOW_FIRST * median, NOTABLE_FIRST_MS):
        return
    yield Finding(
        rule="server-first-call",
        level="info",
        title=f"The first call takes {significant(answer.first_ms / 1e3)} s",
        seen=f"{_ms(answer.first_ms)}, and {_ms(median)} later (median).",
        why="A server compiles or loads at its first call, and a robot that connects then stands still.",
        do="Call the server once before the robot starts.",
        evidence={"first_ms": answer.first_ms, "median_ms": median},
    )


def keepalive(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """A call so long that openpi's own client would have lost the connection meanwhile."""
    longest, limit = max([answer.first_ms or 0.0, *answer.values]), PROTOCOLS[answer.protocol].keepalive_ms
    if limit is None or longest < limit:
        return
    yield Finding(
        rule="server-keepalive",
        level="warning",
        title="openpi's own client would lose the connection in a call this long",
        seen=f"The longest call takes {significant(longest / 1e3)} s"
        + (", and it is the first." if longest == answer.first_ms else "."),
        why="With websockets 15 or later, openpi-client pings every 20 s and closes the connection when none is "
        "answered for 20 s. openpi's server answers none while its policy runs. Strobe sends no such pings.",
        do="Have the server compile before it accepts connections: call its policy once where it is made.",
        evidence={"longest_ms": longest},
    )


def filtered(answer: ServerAnswer, _: Thresholds) -> Iterator[Finding]:
    """A server that drops observations as too similar to the one before."""
    seen = answer.dropped
    if seen is None or not seen.dropped or seen.farthest_dropped is None:
        return
    yield Finding(
        rule="server-drops-observations",
        level="warning",
        title="The server drops observations as too similar",
        seen=f"{seen.dropped} of {seen.sent} observations, each after another one, got no answer. Marked must_go, the "
        f"same observations did. Their states are up to {significant(seen.farthest_dropped)} from the one before.",
        why="LeRobot's server drops an observation whose state is less than 1 from the last one that it answered. "
        "1 is little in degrees and much in radians or metres. The robot then waits until its queue is empty.",
        do="Give the state in degrees or in LeRobot's own range of -100 to 100, or lower `atol` of "
        "observations_similar on the server.",
        evidence={"sent": seen.sent, "dropped": seen.dropped, "distance": seen.farthest_dropped},
    )


def _count(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _ms(value: float) -> str:
    return f"{significant(value)} ms"


def _size(value: float) -> str:
    return f"{significant(value / 1e6)} MB" if value >= 1e5 else f"{significant(value / 1e3)} kB"


RULES = (
    faults,
    too_slow,
    network,
    busy,
    server_time,
    client_time,
    float_images,
    overstated,
    first_call,
    keepalive,
    filtered,
)
