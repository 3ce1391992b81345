"""The rules on a policy server: each on a planted cause, and silent without it."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from support.examples.findings_results import approve_findings

from strobe.core.kinds import advise
from strobe.core.results.data import Quantiles
from strobe.servers.figures import Trip, action_age, parts, summarize_times
from strobe.servers.results import DroppedObservations, ImageEncoding, ImageSent, ServerAnswer, ServerFault

PROTOCOLS = ("openpi", "GR00T", "LeRobot")
BALANCED = Trip(encode=1, away=60, decode=1, server=40)  # a third network, two thirds server
FAR = Trip(encode=1, away=60, decode=1, server=10)


def make_answer(trip: Trip = BALANCED, count: int = 20, *, ping: float | None = None, **more: Any) -> ServerAnswer:
    """An answer of so many equal round trips; ``more`` are its other fields."""
    size = Quantiles(n=count, median=3e5, p95=3e5, p99=3e5, max=3e5)
    fields: dict[str, Any] = {
        "values": [trip.whole] * count, "trip": summarize_times([trip.whole] * count), "parts": parts([trip] * count),
        "ping": None if ping is None else summarize_times([ping]), "sent_bytes": size, "received_bytes": size,
        "images": [image()], "chunk": [10, 7], "first_ms": trip.whole,
    }  # fmt: skip
    return ServerAnswer(
        strobe_version="1", title="policy server at robot:8000", url="ws://robot:8000", inputs="made up", timeout_s=60,
        calls=count + 1, **(fields | more),
    )  # fmt: skip


def image() -> ImageSent:
    return ImageSent(name="image", shape=[224, 224, 3], dtype="uint8", sent_bytes=150_528)


def jpeg(size: int) -> dict[str, Any]:
    sent = ImageEncoding(kind="as sent", payload_bytes=300_000, ms=0)
    return {"encodings": [sent, ImageEncoding(kind="JPEG", payload_bytes=size, ms=3)]}


def make_robot_answer(hz: float, *trips: float) -> ServerAnswer:
    """A robot that uses ten actions at so many Hz."""
    answer = make_answer()
    answer.age = action_age([*trips] or answer.values, 10, hz)
    return answer


def mostly(encode: float, network: float, server: float, count: int = 20) -> ServerAnswer:
    return make_answer(Trip(encode=encode, away=network + server, decode=0.5, server=server), count)


def waiting(waits: list[float], uneven: float = 0.0) -> ServerAnswer:
    """Round trips of 40 ms of server, 8 ms of network or more, and a wait."""
    trips = [Trip(1, 48 + wait + uneven * number, 1, 40, wait) for number, wait in enumerate(waits)]
    values = [trip.whole for trip in trips]
    answer = make_answer(count=len(trips), values=values, parts=parts(trips))
    answer.trip = summarize_times(values)
    return answer


def dropping(count: int, farthest: float | None = None) -> ServerAnswer:
    dropped = DroppedObservations(sent=3, dropped=count, farthest_dropped=farthest)
    return make_answer(protocol="LeRobot", dropped=dropped)


def test_what_is_found() -> None:
    network, twice = "server-network", Trip(encode=1, away=100, decode=1, server=10)
    approve_findings("server", {
        ".*": {
            "a balanced round trip": ("", make_answer(ping=5)),
            "a server that tells no time": ("", make_answer(Trip(encode=1, away=60, decode=1), ping=2)),
            "a filter that drops nothing": ("", dropping(0)),
            "a filter that drops observations": ("server-drops-observations", dropping(2, 0.25)),
        },
        network: {
            "bytes that take time": (network, make_answer(FAR, ping=2, **jpeg(30_000))),
            "a form that is hardly smaller": (network, make_answer(FAR, ping=2, **jpeg(290_000))),
            "a long way": (network, make_answer(FAR, ping=40, **jpeg(30_000))),
            "a slow link": (network, make_answer(FAR, ping=2, transfer_ms=40.0, **jpeg(30_000))),
            "a clock that is short": ("", make_answer(FAR, ping=2, transfer_ms=1.0, **jpeg(30_000))),
            "a call that goes there and back once": (network, make_answer(twice, ping=30, protocol="openpi")),
            "a call that goes there and back twice": (network, make_answer(twice, ping=30, protocol="LeRobot")),
        },
        "server-network|server-inference|server-encoding": {
            "mostly inference": ("server-inference", make_answer(Trip(encode=1, away=60, decode=1, server=58))),
            "much encoding": ("server-encoding", make_answer(Trip(encode=30, away=60, decode=1, server=40))),
            "0.9 ms of network, on one machine": ("", mostly(0.1, 0.9, 0.1)),
            "2 ms of encoding": ("", mostly(2, 0.5, 0.1)),
            "90 ms of network": (network, mostly(1, 90, 5)),
            "90 ms of server": ("server-inference", mostly(1, 5, 90)),
            "90 ms of encoding": ("server-encoding", mostly(90, 5, 1)),
            # Of too few calls for an interval no share is judged.
            "90 ms of network in three calls": ("", mostly(1, 90, 5, count=3)),
            "90 ms of server in three calls": ("", mostly(1, 5, 90, count=3)),
            "90 ms of encoding in three calls": ("", mostly(90, 5, 1, count=3)),
        },
        "server-clock": {
            "a network that is explained": ("", make_answer(FAR, ping=40, transfer_ms=5.0)),
            "pings and bytes that explain 3 of 50 ms": ("server-clock", make_answer(FAR, ping=2, transfer_ms=1.0)),
            "the same in three calls": ("", make_answer(FAR, ping=2, transfer_ms=1.0, count=3)),
        },
        "server-constant|server-ignored-inputs": {
            "a stub": ("server-constant", make_answer(replaced=["image", "state"], ignored=["image", "state"])),
            "an image": ("server-ignored-inputs", make_answer(replaced=["image", "state"], ignored=["image"])),
            "a server that reads all": ("", make_answer(replaced=["image", "state"])),
        },
        "server-busy|server-network": {  # a server that computes another client's call
            "waits of 0 to 60 ms": ("server-busy", waiting([3.0 * number for number in range(20)])),
            "waits of 1 ms": ("", waiting([1.0] * 20)),
            "a network that is as uneven": ("", waiting([3.0 * number for number in range(20)], uneven=3.0)),
            "waits in three calls": ("", waiting([40.0] * 3)),
        },
        "server-slower-than-robot": {  # ten actions last 100 or 50 ms; a round trip 62
            "a robot of 100 Hz": ("", make_robot_answer(100.0)),
            "a robot of 200 Hz": ("server-slower-than-robot", make_robot_answer(200.0)),
            "some slow round trips": ("server-slower-than-robot", make_robot_answer(100.0, *[62.0] * 60, *[120.0] * 4)),
        },
        "server-keepalive": {  # openpi's client pings
            "a first call of 39 s": ("", make_answer(first_ms=39_000.0)),
            "a first call of 41 s": ("server-keepalive", make_answer(first_ms=41_000.0)),
            "one of 50 s with openpi": ("server-keepalive", make_answer(ping=5, first_ms=50_000.0, protocol="openpi")),
            "one of 50 s with GR00T": ("", make_answer(ping=5, first_ms=50_000.0, protocol="GR00T")),
            "one of 50 s with LeRobot": ("", make_answer(ping=5, first_ms=50_000.0, protocol="LeRobot")),
        },
        "server-first-call": {
            "a first call of 0.9 s": ("", make_answer(first_ms=900.0)),
            "a first call of 1.1 s": ("server-first-call", make_answer(first_ms=1100.0)),
        },
    })  # fmt: skip


@pytest.mark.parametrize("kind", get_args(ServerFault.model_fields["kind"].annotation))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fault_is_explained_with_the_servers_own_client(protocol: str, kind: Any) -> None:
    fault = ServerFault(kind=kind, error="OddError: x", call=3, waited_ms=5)
    findings = {each.rule: each for each in advise(make_answer(protocol=protocol, faults=[fault]))}
    finding = findings[f"server-{kind.replace(' ', '-')}"]
    assert not [other for other in {*PROTOCOLS} - {protocol} if f"{other}'s" in finding.why + finding.do]
