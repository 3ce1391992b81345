"""A policy server's calls: their parts, and what goes wrong. The server is a stand-in for openpi's."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from support.openpi_server import TRACEBACK, Break, Policy, actions, array, delayed, serving

from strobe.errors import UserError
from strobe.kinds import advise
from strobe.policies.servers import openpi
from strobe.policies.servers.observations import ObservationOptions, Source, read
from strobe.policies.servers.wire import Exchange
from strobe.results.server import ServerAnswer
from strobe.studies.server import ServerOptions, server

SMALL: Source = read(ObservationOptions(image_size=(16, 16)))


class Silent:
    """Shows nothing."""

    def stage(self, what: str) -> None:
        pass

    def progress(self, progress: Any) -> None:
        pass


def called(url: str, calls: int = 12, observations: Source = SMALL, **options: Any) -> ServerAnswer:
    """Twelve calls: an interval needs six, and the warm-up takes some of them on a busy machine."""
    given: dict[str, Any] = {"timeout_s": 5.0} | options
    return server(ServerOptions(url, iterations=calls, **given), observations, Silent())


def asked(policy: Policy, calls: int = 12, **options: Any) -> ServerAnswer:
    with serving(policy) as url:
        return called(url, calls, **options)


def rules(answer: ServerAnswer) -> set[str]:
    return {finding.rule for finding in advise(answer) if finding.level == "warning"}


def median(answer: ServerAnswer, name: str) -> float:
    part = answer.part(name)
    assert part is not None
    return part.summary.median


def test_a_sound_server_has_parts_that_add_up_to_the_round_trip_and_no_fault():
    policy = Policy(infer_s=0.02)
    began = time.perf_counter()
    answer = asked(policy, 12, control_hz=50.0)
    took_ms = 1e3 * (time.perf_counter() - began)
    assert [part.name for part in answer.parts] == ["encode", "network", "server", "decode"]
    assert answer.trip is not None
    assert sum(part.summary.mean for part in answer.parts) == pytest.approx(answer.trip.summary.mean, rel=0.02)
    assert sum(part.share for part in answer.parts) == pytest.approx(1, abs=1e-9)
    # The calls lie one after another within the whole of the study.
    assert 20 * len(answer.values) <= sum(answer.values) <= took_ms
    assert (answer.calls, answer.chunk, answer.faults) == (13, [10, 7], [])
    assert answer.status == "complete"
    assert answer.metadata == {"robot": "stand-in"}
    assert answer.machine is not None  # the client's
    assert answer.machine.cores > 0
    assert "msgpack" in answer.machine.versions
    assert answer.age is not None
    assert answer.age.last.median == pytest.approx(answer.age.first.median + 9 * 20)
    assert not {rule for rule in rules(answer) if rule not in ("server-network", "server-encoding")}


def test_the_parts_are_what_a_stopwatch_around_the_call_shows(monkeypatch: pytest.MonkeyPatch):
    call, stopwatch = openpi.OpenpiWire.call, []

    def timed(client: openpi.OpenpiWire, observation: Any) -> Exchange:
        began = time.perf_counter()
        exchange = call(client, observation)
        stopwatch.append(1e3 * (time.perf_counter() - began))
        return exchange

    monkeypatch.setattr(openpi.OpenpiWire, "call", timed)
    answer = asked(Policy(infer_s=0.03), 10)
    around = float(np.mean(stopwatch[-len(answer.values) :]))
    assert sum(part.summary.mean for part in answer.parts) == pytest.approx(around, rel=0.02)


def test_the_server_gets_what_openpi_gets():
    policy = Policy()
    asked(policy, 2)
    seen = policy.seen[0]
    assert set(seen) == {"observation/image", "observation/wrist_image", "observation/state", "prompt"}
    image = seen["observation/image"]
    assert (image[b"__ndarray__"], image[b"dtype"], image[b"shape"]) == (True, "|u1", [16, 16, 3])
    pixels = SMALL.generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert image[b"data"] == pixels.tobytes()
    assert seen["prompt"] == "pick up the cube"


@pytest.fixture
def slow_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = openpi.encode

    def slowly(message: Any) -> bytes:
        time.sleep(0.06)
        return encode(message)

    monkeypatch.setattr(openpi, "encode", slowly)


@contextmanager
def planted(where: str) -> Iterator[str]:
    """A server with 60 ms planted at one place."""
    with serving(Policy(infer_s=0.06 if where == "server" else 0.0)) as url:
        if where != "network":
            yield url
            return
        with delayed(url, 0.03) as far:
            yield far


@pytest.mark.parametrize("where", ["encode", "network", "server"])
def test_a_planted_delay_is_found_in_its_part_alone(where: str, request: pytest.FixtureRequest):
    if where == "encode":
        request.getfixturevalue("slow_encoding")
    with planted(where) as url:
        answer = called(url, 8)
    shares = {part.name: part.share for part in answer.parts}
    assert max(shares, key=shares.__getitem__) == where
    assert median(answer, where) >= 60
    others = sum(part.summary.median for part in answer.parts if part.name != where)
    assert others < median(answer, where) / 2  # the rest takes a millisecond on a machine at rest


def test_a_way_without_data_is_measured_apart():
    with serving(Policy()) as url, delayed(url, 0.03) as far:
        answer = called(far)
    assert answer.ping is not None
    assert answer.ping.summary.min >= 60
    (finding,) = [each for each in advise(answer) if each.rule == "server-network"]
    assert "the way itself" in finding.why  # no payload would help


def test_without_the_servers_time_network_and_server_are_one_part():
    answer = asked(Policy(infer_s=0.02, tells=False))
    assert [part.name for part in answer.parts] == ["encode", "network and server", "decode"]
    assert any(line.startswith("network and server apart") for line in answer.not_judged)


def test_a_time_that_cannot_be_is_not_believed():
    answer = asked(Policy(answer=lambda seen, number: actions() | {"server_timing": {"infer_ms": 1e6}}))
    assert [part.name for part in answer.parts] == ["encode", "network and server", "decode"]
    assert answer.overstated == len(answer.values)
    assert "server-time-impossible" in rules(answer)


@pytest.mark.parametrize("told", ["soon", None, float("nan"), -1.0, True, {"infer_ms": []}])
def test_a_time_that_is_none_is_as_good_as_untold(told: Any):
    answer = asked(Policy(answer=lambda seen, number: actions() | {"server_timing": {"infer_ms": told}}), 2)
    assert answer.part("server") is None
    assert answer.overstated == 0


def from_third(bad: Any) -> Policy:
    """A server whose answers are sound twice."""

    def answer(seen: dict[str, Any], number: int) -> Any:
        return actions() if number <= 2 else bad(number) if callable(bad) else bad

    return Policy(answer=answer)


def test_an_exception_of_the_policy_is_named():
    answer = asked(from_third(TRACEBACK))
    (fault,) = answer.faults
    assert (fault.kind, fault.name, fault.call) == ("error", "KeyError", 3)
    assert fault.error == "KeyError: 'observation/state'"
    (finding,) = [each for each in advise(answer) if each.rule == "server-error"]
    assert finding.title.endswith("KeyError")
    assert "websocket_policy_server.py:61 in _handler" in finding.seen
    assert "--rename_map" in finding.do
    assert len(answer.values) == 1  # the first is apart, the second stays


def test_a_slow_answer_is_a_timeout():
    policy = from_third(lambda number: time.sleep(1.5) or actions())
    answer = asked(policy, timeout_s=1.0)
    (fault,) = answer.faults
    assert (fault.kind, fault.name) == ("slow", "TimeoutError")
    assert "no answer within 1 s" in fault.error
    assert rules(answer) & {"server-slow", "server-silent"} == {"server-slow"}


def test_a_server_that_says_nothing_is_silent():
    wait = threading.Event()
    policy = from_third(lambda number: [wait.wait(9), actions()][1])
    with serving(policy) as url:
        answer = called(url, timeout_s=0.7)
        wait.set()
    (fault,) = answer.faults
    assert (fault.kind, fault.name) == ("silent", "TimeoutError")
    assert fault.waited_ms >= 1400
    assert rules(answer) & {"server-slow", "server-silent"} == {"server-silent"}


def breaks(number: int) -> Any:
    raise Break


def test_a_connection_that_ends_in_the_middle_of_an_answer_is_named():
    answer = asked(from_third(breaks))
    (fault,) = answer.faults
    assert (fault.kind, fault.name) == ("closed", "ConnectionClosedError")
    assert "server-closed" in rules(answer)


def test_another_shape_is_counted_and_the_calls_go_on():
    answer = asked(from_third(lambda number: actions(chunk=5 if number % 2 else 10)), 7)
    (fault,) = answer.faults
    assert (fault.kind, fault.name, fault.call, fault.count) == ("other shape", "ValueError", 3, 3)
    assert "(5, 7), after (10, 7)" in fault.error
    assert (answer.calls, len(answer.values) + answer.warmup) == (8, 4)
    assert "server-other-shape" in rules(answer)


@pytest.mark.parametrize(
    "bad", [{"action": array(np.ones((10, 7)))}, {"actions": [[1.0]]}, {}, {"actions": array(np.zeros((0, 7)))}]
)
def test_an_answer_without_actions_is_named(bad: dict[str, Any]):
    answer = asked(from_third(lambda number: dict(bad)), 6)
    (fault,) = answer.faults
    assert (fault.kind, fault.count) == ("no actions", 5)
    assert fault.name in ("KeyError", "ValueError")
    assert "server-no-actions" in rules(answer)


def test_actions_that_are_no_numbers_are_named():
    actions_of = np.ones((10, 7))
    actions_of[2, 3] = np.nan
    answer = asked(from_third(lambda number: {"actions": array(actions_of)}))
    (fault,) = answer.faults
    assert (fault.kind, fault.error) == ("not finite", "ValueError: 1 of 70 actions are no finite numbers")
    assert "server-not-finite" in rules(answer)


@pytest.mark.parametrize(
    "bad",
    [
        b"\xc1",
        b"",
        b"\x82\xa7acti",
        b"\x93\x01\x02\x03",
        b"\x81\xa7actions\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4\x01\x00\xc4\x05dtype\xa2|O\xc4\x05shape\x91\x01",
    ],
)
def test_bytes_that_are_no_answer_are_named(bad: bytes):
    answer = asked(from_third(bad))
    assert [fault.kind for fault in answer.faults] == ["undecodable"]
    assert answer.faults[0].name.endswith(("Error", "Exception", "ExtraData", "OutOfData"))
    assert "server-undecodable" in rules(answer)


def test_a_first_call_that_fails_leaves_an_answer_without_figures():
    answer = asked(Policy(answer=lambda seen, number: TRACEBACK))
    assert (answer.first_ms, answer.trip, answer.values, answer.calls) == (None, None, [], 1)
    assert answer.status == "failed"
    assert "server-error" in rules(answer)
    assert any(line.startswith("round trips") for line in answer.not_judged)


def test_ctrl_c_keeps_the_calls_that_were_made():
    def answered(seen: dict[str, Any], number: int) -> dict[str, Any]:
        return actions()

    class Impatient(Silent):
        def progress(self, progress: Any) -> None:
            if progress.done == 4:
                raise KeyboardInterrupt

    with serving(Policy(answer=answered)) as url:
        answer = server(ServerOptions(url, iterations=1000, timeout_s=5.0), SMALL, Impatient())
    assert answer.status == "interrupted"
    assert len(answer.values) + answer.warmup == 4
    assert answer.trip is not None


def test_nobody_there_is_a_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UserError, match=f"cannot connect to ws://127.0.0.1:{port}: connection refused"):
        called(f"ws://127.0.0.1:{port}")


def test_a_listener_that_says_nothing_is_a_line():
    mute = socket.create_server(("127.0.0.1", 0))
    with mute, pytest.raises(UserError, match=r"no websocket handshake within 0.2 s"):
        called(f"ws://127.0.0.1:{mute.getsockname()[1]}", timeout_s=0.2)


def test_another_path_is_a_line():
    with serving(Policy()) as url:
        with pytest.raises(UserError, match="answers HTTP 404 and opens no websocket"):
            called(f"{url}/elsewhere")
        with pytest.raises(UserError, match="answers HTTP 200 and opens no websocket"):
            called(f"{url}/healthz")


@pytest.mark.parametrize(
    ("metadata", "why"),
    [(None, "no metadata within"), ("hello", "is no map"), (b"\xc1", "is no msgpack"), (b"\x01", "is no map")],
)
def test_a_server_of_another_protocol_is_a_line(metadata: Any, why: str):
    with serving(Policy(metadata=metadata)) as url, pytest.raises(UserError, match=why):
        called(url, timeout_s=0.3)
