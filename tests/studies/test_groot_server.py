"""Calls to GR00T's policy server of each generation: their parts, and what goes wrong. The server is a stand-in."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("zmq", reason="Strobe's extra 'remote' is missing")

from support.groot_server import Break, Generation, Policy, actions, serving
from support.openpi_server import delayed

from strobe.errors import UserError
from strobe.kinds import advise
from strobe.policies.servers.observations import ObservationOptions, Source, read
from strobe.results.server import ServerAnswer
from strobe.studies.server import ServerOptions, server

SMALL = read(ObservationOptions(image_size=(16, 24)))


class Silent:
    """Shows nothing."""

    def stage(self, what: str) -> None:
        pass

    def progress(self, progress: Any) -> None:
        pass


def called(url: str, calls: int = 6, source: Source = SMALL, **options: Any) -> ServerAnswer:
    given: dict[str, Any] = {"timeout_s": 5.0} | options
    return server(ServerOptions(url, iterations=calls, **given), source, Silent())


def asked(policy: Policy, calls: int = 6, **options: Any) -> ServerAnswer:
    with serving(policy) as url:
        return called(url, calls, **options)


def rules(answer: ServerAnswer) -> set[str]:
    return {finding.rule for finding in advise(answer) if finding.level == "warning"}


@pytest.mark.parametrize("generation", ["N1.5", "N1.6", "later"])
def test_a_sound_server_has_parts_that_add_up_and_no_fault(generation: Generation):
    policy = Policy(infer_s=0.02, generation=generation)
    answer = asked(policy, 10, control_hz=30.0)
    assert answer.trip is not None
    assert answer.protocol == "GR00T"
    assert [part.name for part in answer.parts] == ["encode", "network and server", "decode"]
    assert sum(part.summary.mean for part in answer.parts) == pytest.approx(answer.trip.summary.mean, rel=0.02)
    assert (answer.calls, answer.chunk, answer.faults, answer.status) == (11, [10, 7], [], "complete")
    assert answer.metadata["action"].endswith("steps 0 to 9 (10)")
    assert not rules(answer) - {"server-encoding"}


def test_each_generation_gets_the_observation_that_it_takes():
    old, new = Policy(generation="N1.5"), Policy(generation="later")
    asked(old, 1)
    asked(new, 1)
    assert {name: getattr(value, "shape", value) for name, value in old.seen[0].items()} == {
        "video.top": (1, 16, 24, 3),
        "state.arm": (1, 8),
        "task": ["pick up the cube"],
    }
    seen = new.seen[0]
    assert seen["video"]["top"].shape == (1, 1, 16, 24, 3)
    assert seen["video"]["top"].dtype == np.uint8
    assert (seen["state"]["arm"].shape, seen["state"]["arm"].dtype) == ((1, 1, 8), np.float32)
    assert seen["language"] == {"task": [["pick up the cube"]]}
    assert np.array_equal(seen["video"]["top"][0], old.seen[0]["video.top"])


def test_frames_of_a_data_set_get_the_servers_names():
    frame = {
        "observation.images.front": np.full((16, 24, 3), 7, np.uint8),
        "observation.state": np.ones(6),
        "task": "x",
    }
    policy = Policy()
    with serving(policy) as url:
        answer = called(url, 1, Source(ObservationOptions(dataset=Path("made-up")), [frame]))
    assert policy.seen[0]["state"]["arm"].tolist() == [[[1.0] * 6]]
    assert policy.seen[0]["language"] == {"task": [["x"]]}
    assert [image.name for image in answer.images] == ["video.top"]
    assert [each.kind for each in answer.encodings] == ["as sent", "JPEG"]


def test_more_cameras_than_the_server_takes_are_a_line():
    frame = {f"observation.images.{name}": np.zeros((16, 16, 3), np.uint8) for name in "ab"}
    source = Source(ObservationOptions(dataset=Path("made-up")), [{**frame, "observation.state": np.ones(2)}])
    with serving(Policy()) as url, pytest.raises(UserError, match=r"2 cameras.*takes the videos top"):
        called(url, source=source)


def test_a_network_delay_is_in_the_ping_and_one_of_the_server_is_not():
    with serving(Policy()) as url, delayed(url, 0.03) as far:
        distant = called(far)
    slow = asked(Policy(infer_s=0.06))
    for answer in (distant, slow):
        part = answer.part("network and server")
        assert part is not None
        assert part.summary.min >= 60
    assert distant.ping is not None
    assert slow.ping is not None
    assert distant.ping.summary.min >= 60
    assert slow.ping.summary.median < 30


def from_third(bad: Any) -> Policy:
    """A server whose answers are sound twice."""
    return Policy(answer=lambda seen, number: actions() if number <= 2 else bad(number))


def raises(error: Exception) -> Any:
    def bad(number: int) -> Any:
        raise error

    return bad


def test_an_exception_of_the_policy_is_named_as_the_client_sees_it():
    answer = asked(from_third(raises(AssertionError("Video key 'top' must be in observation"))))
    (fault,) = answer.faults
    assert (fault.kind, fault.name, fault.call, fault.count) == ("error", "RuntimeError", 3, 5)
    assert "Video key 'top' must be in observation" in fault.error
    assert "server-error" in rules(answer)


def test_a_slow_answer_is_a_timeout():
    answer = asked(from_third(lambda number: time.sleep(1.0) or actions()), timeout_s=0.7)
    assert [(fault.kind, fault.name) for fault in answer.faults] == [("slow", "TimeoutError")]


def test_a_server_that_says_nothing_is_silent():
    wait = threading.Event()
    with serving(from_third(lambda number: [wait.wait(9), actions()][1])) as url:
        answer = called(url, timeout_s=0.5)
        wait.set()
    assert [(fault.kind, fault.name) for fault in answer.faults] == [("silent", "TimeoutError")]


def test_a_server_that_ends_is_a_closed_connection():
    answer = asked(from_third(raises(Break())))
    assert [(fault.kind, fault.name) for fault in answer.faults] == [("closed", "ConnectionResetError")]


def test_another_shape_is_counted_and_the_calls_go_on():
    answer = asked(from_third(lambda number: actions(chunk=5 if number % 2 else 10)), 7)
    (fault,) = answer.faults
    assert (fault.kind, fault.call, fault.count) == ("other shape", 3, 3)


@pytest.mark.parametrize("bad", [b"\xc1", b"", b"\x81\xb1__ndarray_class__\xc3", b"ERROR\xff"])
def test_bytes_that_are_no_answer_are_named(bad: bytes):
    answer = asked(from_third(lambda number: bad))
    assert {fault.kind for fault in answer.faults} == {"undecodable"}


@pytest.mark.parametrize("bad", [{}, {"arm": [1.0]}, {"a": np.ones((1, 3, 1)), "b": np.ones((1, 4, 1))}])
def test_an_answer_without_actions_is_named(bad: dict[str, Any]):
    answer = asked(from_third(lambda number: bad))
    assert {fault.kind for fault in answer.faults} == {"no actions"}


def test_a_policy_that_raises_at_every_call_ends_the_run_as_failed():
    answer = asked(Policy(answer=lambda seen, number: raises(KeyError("video"))(number)), 500)
    assert (answer.status, answer.calls) == ("failed", 6)


def test_nobody_there_is_a_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UserError, match=f"cannot connect to tcp://127.0.0.1:{port}: connection refused"):
        called(f"tcp://127.0.0.1:{port}")


def test_a_listener_that_says_nothing_is_a_line():
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(UserError, match="no answer to a ping"):
        called(f"tcp://127.0.0.1:{mute.getsockname()[1]}", timeout_s=0.3)
