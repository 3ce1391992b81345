"""Calls to policy servers of three protocols: their parts, and what goes wrong, the same of each."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.servers.openpi_server import TRACEBACK, array, delay_network
from support.servers.protocols import Protocol, protocols, rules

from strobe.core.errors import UserError
from strobe.core.kinds import advise
from strobe.servers import page

NAMES = ("openpi", "GR00T", "LeRobot")


@pytest.fixture
def every(tmp_path: Path) -> dict[str, Protocol]:
    return protocols(tmp_path)


@pytest.fixture(params=NAMES)
def protocol(request: pytest.FixtureRequest, every: dict[str, Protocol]) -> Protocol:
    return every[request.param]


def test_a_sound_server_has_parts_that_add_up_and_no_fault(protocol: Protocol) -> None:
    answer = protocol.ask_policy(protocol.stand_in_module.Policy(infer_s=0.02), 10, control_hz=30.0)
    apart = ["network", "wait", "server"] if protocol.name == "openpi" else ["network and server"]
    assert answer.protocol == protocol.name
    assert [part.name for part in answer.parts] == ["encode", *apart, "decode"]
    assert answer.trip is not None
    assert sum(part.summary.mean for part in answer.parts) == pytest.approx(answer.trip.summary.mean, rel=0.02)
    assert sum(part.share for part in answer.parts) == pytest.approx(1, abs=1e-9)
    assert (answer.calls, answer.chunk, answer.faults, answer.status) == (11, protocol.shape, [], "complete")
    assert answer.ping is not None
    assert rules(answer) - {"server-network", "server-encoding"} == {"server-constant"}  # it is a stub


def test_a_network_delay_is_in_the_ping_as_often_as_in_a_call_and_one_of_the_server_is_not(protocol: Protocol) -> None:
    with protocol.serving(protocol.stand_in_module.Policy()) as url, delay_network(url, 0.03) as far:
        distant = protocol.call_server(far)
    slow = protocol.ask_policy(protocol.stand_in_module.Policy(infer_s=0.1))
    assert distant.ping is not None
    assert distant.ping.summary.min >= 60
    assert distant.trip is not None
    assert distant.trip.summary.min >= 60 * protocol.trips
    assert slow.trip is not None
    assert slow.trip.summary.min >= 100
    assert slow.ping is not None
    assert slow.ping.summary.median < 40


class Malicious:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('it ran')",))


def raises(error: Exception) -> Callable[[Any, int], Any]:
    def bad(module: Any, number: int) -> Any:
        raise error

    return bad


def breaks(module: Any, number: int) -> Any:
    raise module.Break


def late(module: Any, number: int) -> Any:
    time.sleep(1.5)
    return module.actions()


def one_not_finite(module: Any, number: int) -> Any:
    actions = np.ones((10, 7))
    actions[2, 3] = np.nan
    return {"actions": array(actions)}


def other_shape(module: Any, number: int) -> Any:
    return module.actions(chunk=5 if number % 2 else 10)


def answers(bad: Any) -> Callable[[Any, int], Any]:
    return lambda module, number: dict(bad) if isinstance(bad, dict) else bad


# Protocol, its answers from the third on, the kind of the fault, the exception's name (or several, or none that is the
# same everywhere), and in how many of seven calls, where the calls go on.
OBJECT = b"\x81\xa7actions\x84\xc4\x0b__ndarray__\xc3\xc4\x04data\xc4\x01\x00\xc4\x05dtype\xa2|O\xc4\x05shape\x91\x01"
TWO_PARTS = {"a": np.ones((1, 3, 1)), "b": np.ones((1, 4, 1))}
PICKLED = [pickle.dumps(thing) for thing in ([], {"a": 1}, [1, 2])]
NO_ARRAYS = [{"action": array(np.ones((10, 7)))}, {"actions": [[1.0]]}, {}, {"actions": array(np.zeros((0, 7)))}]
FAULTS: list[tuple[str, Callable[[Any, int], Any], str, str, int | None]] = [
    ("openpi", answers(TRACEBACK), "error", "KeyError", None),
    ("GR00T", raises(AssertionError("Video key 'top' must be in observation")), "error", "RuntimeError", 5),
    ("LeRobot", raises(KeyError("observation.images.wrist")), "empty", "Empty", 5),
    ("openpi", breaks, "closed", "ConnectionClosedError", None),
    ("GR00T", breaks, "closed", "ConnectionResetError", None),
    ("LeRobot", breaks, "closed", "UNAVAILABLE CANCELLED FutureCancelledError", None),
    *((name, late, "slow", "TimeoutError", None) for name in NAMES),
    *((name, other_shape, "other shape", "ValueError", 3) for name in NAMES),
    ("openpi", one_not_finite, "not finite", "ValueError", 5),
    *(("openpi", answers(bad), "no actions", "KeyError ValueError", 5) for bad in NO_ARRAYS),
    *(("GR00T", answers(bad), "no actions", "", 5) for bad in ({}, {"arm": [1.0]}, TWO_PARTS)),
    *(("LeRobot", answers(bad), "no actions", "TypeError", 5) for bad in PICKLED),
    *(("openpi", answers(bad), "undecodable", "", None)
      for bad in (b"\xc1", b"", b"\x82\xa7acti", b"\x93\x01\x02\x03", OBJECT)),
    *(("GR00T", answers(bad), "undecodable", "", None)
      for bad in (b"\xc1", b"", b"\x81\xb1__ndarray_class__\xc3", b"ERROR\xff")),
    *(("LeRobot", answers(bad), "undecodable", "", None) for bad in (b"\x80", b"text", pickle.dumps(Malicious()))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "bad", "kind", "error", "count"), FAULTS, ids=[f"{kind} {name}" for name, _, kind, *_ in FAULTS]
)
def test_what_goes_wrong_is_named(name: str, bad: Any, kind: str, error: str, count: int | None, every: Any) -> None:
    protocol = every[name]
    answer = protocol.ask_policy(protocol.fail_from_third(bad), **{"timeout_s": 1.0} if kind == "slow" else {})
    assert {fault.kind for fault in answer.faults} == {kind}
    assert answer.faults[0].call == 3
    assert not error or answer.faults[0].name in error.split()
    assert count is None or [fault.count for fault in answer.faults] == [count]
    assert f"server-{kind.replace(' ', '-')}" in rules(answer)
    assert len(answer.values) + answer.warmup >= 1  # the first is apart, the second stays


def test_a_server_that_says_nothing_is_silent(protocol: Protocol) -> None:
    wait = threading.Event()
    with protocol.serving(protocol.fail_from_third(lambda module, number: [wait.wait(9), module.actions()][1])) as url:
        answer = protocol.call_server(url, timeout_s=0.6)
        wait.set()
    (fault,) = answer.faults
    assert (fault.kind, fault.name) == ("silent", "TimeoutError")
    assert fault.waited_ms >= 1200
    assert rules(answer) & {"server-slow", "server-silent"} == {"server-silent"}


def test_a_server_that_fails_at_every_call_ends_the_run_as_failed(protocol: Protocol) -> None:
    def fails(seen: Any, number: int) -> Any:
        if protocol.name == "openpi":
            return TRACEBACK  # and closes the connection
        raise KeyError("video")

    answer = protocol.ask_policy(protocol.stand_in_module.Policy(answer=fails), 500)
    assert (answer.status, answer.calls) == ("failed", 1 if protocol.name == "openpi" else 6)
    assert (answer.first_ms, answer.trip, answer.values) == (None, None, [])
    assert any(line.startswith("round trips") for line in answer.not_judged)


@pytest.mark.parametrize(
    ("name", "scheme", "listens", "why"),
    [
        ("openpi", "ws", False, "cannot connect to {url}: connection refused"),
        ("GR00T", "tcp", False, "cannot connect to {url}: connection refused"),
        ("LeRobot", "grpc", False, "cannot connect to {url}: no gRPC server answers within 0.3 s"),
        ("openpi", "ws", True, "no websocket handshake within 0.3 s"),
        ("GR00T", "tcp", True, "no answer to a ping"),
    ],
)
def test_nobody_there_and_a_listener_that_says_nothing_are_a_line(
    name: str, scheme: str, listens: bool, why: str, every: dict[str, Protocol]
) -> None:
    assert every[name].stand_in_module
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"{scheme}://127.0.0.1:{mute.getsockname()[1]}"
        if not listens:
            mute.close()
        with pytest.raises(UserError, match=why.format(url=url)):
            every[name].call_server(url, timeout_s=0.3)


@pytest.mark.parametrize(
    ("name", "bad", "said"),
    [
        ("openpi", answers(TRACEBACK), ("KeyError", "websocket_policy_server.py:61 in _handler", "--rename_map")),
        ("GR00T", raises(AssertionError("Video key 'top' must be in observation")), ("Video key 'top' must be in ",)),
        ("LeRobot", raises(KeyError("x")), ("must_go", "strobe rollout -- policy_server")),
        ("openpi", other_shape, ("(5, 7), after (10, 7)",)),
        ("openpi", one_not_finite, ("1 of 70 actions are NaN or infinite",)),
        ("openpi", late, ("no answer within 1 s",)),
    ],
)
def test_a_finding_says_what_the_server_said_and_what_to_do(name: str, bad: Any, said: Any, every: Any) -> None:
    answer = every[name].ask_policy(every[name].fail_from_third(bad), 3, timeout_s=1.0)
    kind = answer.faults[0].kind.replace(" ", "-")
    (finding,) = [each for each in advise(answer) if each.rule == f"server-{kind}"]
    text = " ".join((finding.title, finding.found, finding.why, finding.do, answer.faults[0].error))
    assert [words for words in said if words not in text] == []
    if kind == "not-finite":
        assert page.answers(answer)[0] == "2 of 4 calls returned NaN or infinite numbers."
