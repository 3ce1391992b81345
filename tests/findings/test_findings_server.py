"""The rules on a policy server: each on a planted cause, and silent without it."""

from __future__ import annotations

from typing import Any

import pytest

from strobe.kinds import advise
from strobe.measure.server import Trip, action_age, parts, timed
from strobe.results.data import Quantiles
from strobe.results.finding import Finding
from strobe.results.server import DroppedObservations, ImageEncoding, ImageSent, ServerAnswer, ServerFault


def answered(trip: Trip, count: int = 20, *, ping: float | None = None, **more: Any) -> ServerAnswer:
    """An answer of so many equal round trips; ``more`` are its other fields."""
    trips = [trip] * count
    size = Quantiles(n=count, median=3e5, p95=3e5, p99=3e5, max=3e5)
    fields: dict[str, Any] = {
        "values": [each.whole for each in trips],
        "trip": timed([each.whole for each in trips]),
        "parts": parts(trips),
        "ping": None if ping is None else timed([ping]),
        "sent_bytes": size,
        "received_bytes": size,
        "images": [ImageSent(name="image", shape=[224, 224, 3], dtype="uint8", sent_bytes=150_528)],
        "chunk": [10, 7],
        "first_ms": trip.whole,
    }
    return ServerAnswer(
        strobe_version="1", title="policy server at robot:8000", url="ws://robot:8000", inputs="made up", timeout_s=60,
        calls=count + 1, **(fields | more),
    )  # fmt: skip


def found(answer: ServerAnswer) -> dict[str, Finding]:
    return {finding.rule: finding for finding in advise(answer)}


BALANCED = Trip(encode=1, away=60, decode=1, server=40)  # a third network, two thirds server
FAR = Trip(encode=1, away=60, decode=1, server=10)


def forms(jpeg: int) -> list[ImageEncoding]:
    return [
        ImageEncoding(kind="as sent", payload_bytes=300_000, ms=0),
        ImageEncoding(kind="JPEG", payload_bytes=jpeg, ms=3),
    ]


def test_a_balanced_round_trip_has_no_finding():
    assert found(answered(BALANCED, ping=5)) == {}


def test_bytes_that_take_time_are_named_with_what_sends_fewer():
    finding = found(answered(FAR, ping=2, encodings=forms(30_000)))["server-network"]
    assert finding.title == "81 % of a round trip is the network"
    assert "as JPEG of quality 95 30 kB (computed), which take 3 ms to make" in finding.do
    assert "no decoder for JPEG" in finding.do


def test_a_form_that_is_hardly_smaller_is_not_named():
    assert "JPEG" not in found(answered(FAR, ping=2, encodings=forms(290_000)))["server-network"].do


def test_a_long_way_is_not_blamed_on_the_bytes():
    finding = found(answered(FAR, ping=40, encodings=forms(30_000)))["server-network"]
    assert "JPEG" not in finding.do
    assert "smaller payload does not shorten" in finding.why


def test_without_the_servers_time_nothing_is_said_of_the_network():
    assert found(answered(Trip(encode=1, away=60, decode=1), ping=2)) == {}


def test_inference_that_is_most_of_it_is_named():
    finding = found(answered(Trip(encode=1, away=60, decode=1, server=58)))["server-inference"]
    assert finding.level == "info"
    assert finding.seen == "58 ms of 62 ms, as the server tells."


def test_encoding_that_takes_long_is_named():
    assert "server-encoding" in found(answered(Trip(encode=30, away=60, decode=1, server=40)))


@pytest.mark.parametrize(("dtype", "fires"), [("uint8", False), ("float32", True), ("int16", True)])
def test_images_of_several_bytes_are_named(dtype: str, fires: bool):
    image = ImageSent(name="image", shape=[224, 224, 3], dtype=dtype, sent_bytes=602_112)
    findings = found(answered(BALANCED, images=[image]))
    assert ("server-float-images" in findings) == fires
    if fires:
        assert "602" in findings["server-float-images"].seen
        assert "151 kB" in findings["server-float-images"].seen or "0.151 MB" in findings["server-float-images"].seen


@pytest.mark.parametrize(("hz", "fires"), [(100.0, False), (200.0, True)])
def test_a_server_that_is_slower_than_the_robot_is_named(hz: float, fires: bool):
    answer = answered(BALANCED)
    answer.age = action_age(answer.values, 10, hz)  # ten actions last 100 or 50 ms; a round trip 62
    findings = found(answer)
    assert ("server-slower-than-robot" in findings) == fires
    if fires:
        assert "Lower the control rate to 160 Hz" in findings["server-slower-than-robot"].do


def test_some_slow_round_trips_are_told_from_all():
    answer = answered(BALANCED)
    answer.age = action_age([*[62.0] * 60, *[120.0] * 4], 10, 100.0)
    assert found(answer)["server-slower-than-robot"].title.startswith("Some round trips")


@pytest.mark.parametrize(("first", "fires"), [(39_000.0, False), (41_000.0, True)])
def test_a_call_in_which_openpis_client_would_be_cut_off_is_named(first: float, fires: bool):
    findings = found(answered(BALANCED, first_ms=first))
    assert ("server-keepalive" in findings) == fires
    if fires:
        assert findings["server-keepalive"].seen == "The longest call takes 41 s, and it is the first."


@pytest.mark.parametrize(("first", "fires"), [(900.0, False), (1100.0, True)])
def test_a_long_first_call_is_named(first: float, fires: bool):
    assert ("server-first-call" in found(answered(BALANCED, first_ms=first))) == fires


def test_of_too_few_calls_for_an_interval_no_share_is_judged() -> None:
    rules = {"server-network", "server-inference", "server-encoding"}
    for parts_ms in ((1.0, 90.0, 5.0), (1.0, 5.0, 90.0), (90.0, 5.0, 1.0)):
        encode, network, server = parts_ms
        trip = Trip(encode=encode, away=network + server, decode=0.5, server=server)
        assert rules & found(answered(trip)).keys()
        assert not rules & found(answered(trip, count=3)).keys()


@pytest.mark.parametrize(("protocol", "fires"), [("openpi", True), ("GR00T", False), ("LeRobot", False)])
def test_only_a_client_that_pings_loses_a_connection_in_a_long_call(protocol: Any, fires: bool):
    slow = answered(BALANCED, ping=5, first_ms=50_000.0, protocol=protocol)
    assert ("server-keepalive" in found(slow)) == fires


def test_a_call_that_goes_there_and_back_twice_needs_two_pings():
    far = Trip(encode=1, away=100, decode=1, server=10)
    once = found(answered(far, ping=30, protocol="openpi"))["server-network"]
    twice = found(answered(far, ping=30, protocol="LeRobot"))["server-network"]
    assert "the way itself" not in once.why
    assert "the way itself" in twice.why
    assert "there and back 2 times" in twice.seen


@pytest.mark.parametrize("kind", ["slow", "silent", "closed", "error", "empty", "undecodable", "no actions"])
@pytest.mark.parametrize("protocol", ["openpi", "GR00T", "LeRobot"])
def test_a_fault_is_explained_with_the_servers_own_client(protocol: Any, kind: Any):
    fault = ServerFault(kind=kind, error="OddError: x", call=3, waited_ms=5)
    finding = found(answered(BALANCED, protocol=protocol, faults=[fault]))[f"server-{kind.replace(' ', '-')}"]
    others = {"openpi", "GR00T", "LeRobot"} - {protocol}
    assert not [other for other in others if f"{other}'s" in finding.why + finding.do]


def test_observations_that_a_filter_drops_are_named_alone():
    dropped = DroppedObservations(sent=3, dropped=2, nearest=0.1, farthest_dropped=0.25)
    finding = found(answered(BALANCED, protocol="LeRobot", dropped=dropped))["server-drops-observations"]
    assert "2 of 3 observations" in finding.seen
    assert "0.25" in finding.seen
    none = DroppedObservations(sent=3, dropped=0, nearest=0.1)
    assert found(answered(BALANCED, protocol="LeRobot", dropped=none)) == {}
