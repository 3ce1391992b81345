"""A policy server's calls: their parts, and what goes wrong. The server is a stand-in for openpi's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import numpy as np
import pytest
from support.servers.openpi_server import Policy, actions, array, delay_network, serving, serving_one_at_a_time
from support.servers.protocols import Protocol, rules
from support.suite.places import ROOT

from strobe.core.errors import UserError
from strobe.core.kinds import advise
from strobe.core.studies.shared.progress import Silent
from strobe.servers import page
from strobe.servers.protocols import openpi
from strobe.servers.protocols.observations import ObservationOptions, Source, read
from strobe.servers.protocols.wire import CallFailedError, Exchange
from strobe.servers.results import ADDRESSES, ServerAnswer

SMALL: Source = read(ObservationOptions(image_size=(16, 16)))


OPENPI = Protocol("openpi", SMALL, [10, 7], needs="websockets")
called, asked = OPENPI.call_server, OPENPI.ask_policy


def median(answer: ServerAnswer, name: str) -> float:
    part = answer.part(name)
    assert part is not None
    return part.summary.median


def test_the_calls_lie_within_the_study_and_the_answer_says_who_asked_and_how_old_actions_are():
    began = time.perf_counter()
    answer = asked(Policy(infer_s=0.02), 12, control_hz=50.0)
    took_ms = 1e3 * (time.perf_counter() - began)
    # The calls lie one after another within the whole of the study.
    assert 20 * len(answer.values) <= sum(answer.values) <= took_ms
    assert answer.metadata == {"robot": "stand-in"}
    assert answer.machine is not None  # the client's
    assert answer.machine.cores > 0
    assert "msgpack" in answer.machine.versions
    assert answer.age is not None
    assert answer.age.last.median == pytest.approx(answer.age.first.median + 9 * 20)


def test_the_parts_are_what_a_stopwatch_around_the_call_shows(monkeypatch: pytest.MonkeyPatch):
    call, stopwatch = openpi.OpenpiWire.call, []

    def time_call(client: openpi.OpenpiWire, observation: Any) -> Exchange:
        began = time.perf_counter()
        exchange = call(client, observation)
        stopwatch.append(1e3 * (time.perf_counter() - began))
        return exchange

    monkeypatch.setattr(openpi.OpenpiWire, "call", time_call)
    answer = asked(Policy(infer_s=0.03), 10)
    around = float(np.mean(stopwatch[: answer.calls][-len(answer.values) :]))
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


def test_a_server_that_lists_its_inputs_as_sglangs_does_gets_these_names():
    keys = ["base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"]
    policy = Policy(metadata={"object": "action.metadata", "input": {"image_keys": keys}})
    assert "the server's names" in asked(policy, 2).inputs
    assert set(policy.seen[0]) == {*keys, "state", "prompt"}


@pytest.fixture
def slow_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = openpi.encode

    def slowly(message: Any) -> bytes:
        time.sleep(0.06)
        return encode(message)

    monkeypatch.setattr(openpi, "encode", slowly)


@contextmanager
def plant_delay(where: str) -> Iterator[str]:
    """A server with 60 ms planted at one place."""
    with serving(Policy(infer_s=0.06 if where == "server" else 0.0)) as url:
        if where != "network":
            yield url
            return
        with delay_network(url, 0.03) as far:
            yield far


@pytest.mark.parametrize("where", ["encode", "network", "server"])
def test_a_planted_delay_is_found_in_its_part_alone(where: str, request: pytest.FixtureRequest):
    if where == "encode":
        request.getfixturevalue("slow_encoding")
    with plant_delay(where) as url:
        answer = called(url, 8)
    shares = {part.name: part.share for part in answer.parts}
    assert max(shares, key=shares.__getitem__) == where
    assert median(answer, where) >= 60
    others = sum(part.summary.median for part in answer.parts if part.name != where)
    assert others < median(answer, where) / 2  # the rest takes a millisecond on a machine at rest


def test_a_way_without_data_is_measured_apart():
    with serving(Policy()) as url, delay_network(url, 0.03) as far:
        answer = called(far, 12)
    assert answer.ping is not None
    assert answer.ping.summary.min >= 60
    (finding,) = [each for each in advise(answer) if each.rule == "server-network"]
    assert "smaller payload does not help" in finding.why  # no payload would help


def test_without_the_servers_time_network_and_server_are_one_part():
    answer = asked(Policy(infer_s=0.02, tells=False))
    assert [part.name for part in answer.parts] == ["encode", "network and server", "decode"]
    assert any(line.startswith("network and server separately") for line in answer.not_judged)


def test_a_time_that_cannot_be_is_not_believed():
    answer = asked(Policy(answer=lambda seen, number: actions() | {"server_timing": {"infer_ms": 1e6}}))
    assert [part.name for part in answer.parts] == ["encode", "network and server", "decode"]
    assert answer.overstated == len(answer.values)
    assert any("reported more time than the call took" in line for line in answer.not_judged)


@pytest.mark.parametrize("told", ["soon", None, float("nan"), -1.0, True, {"infer_ms": []}])
def test_a_time_that_is_none_is_as_good_as_untold(told: Any):
    answer = asked(Policy(answer=lambda seen, number: actions() | {"server_timing": {"infer_ms": told}}), 2)
    assert answer.part("server") is None
    assert answer.overstated == 0


def test_ctrl_c_keeps_the_calls_that_were_made():
    class Impatient(Silent):
        def progress(self, progress: Any) -> None:
            if progress.done == 4:
                raise KeyboardInterrupt

    answer = asked(None, 1000, reporter=Impatient())
    assert answer.status == "interrupted"
    assert len(answer.values) + answer.warmup == 4
    assert answer.trip is not None


def sleep_longer_than_told(seen: Any, number: int) -> Any:
    time.sleep(0.075)  # the device computes
    return actions() | {"server_timing": {"infer_ms": 5.0}}


@pytest.mark.parametrize(
    ("policy", "link", "accused", "head", "do"),
    [
        (Policy(answer=sleep_longer_than_told), (0.0,), "clock", "neither the network nor in the", "stop its clock"),
        (Policy(infer_s=0.005), (0.0375,), "network", "The network takes", "Bring the server nearer"),
        (Policy(infer_s=0.005), (0.0, 4e6), "network", "The network takes", "Send less"),
        (Policy(infer_s=0.075), (0.0,), "inference", "The server's inference takes", "on the server's machine"),
    ],
    ids=["a clock that stops early", "a long way", "a slow link", "a slow server"],
)  # fmt: skip
def test_the_part_that_takes_75_ms_is_accused_and_no_other(policy: Policy, link: Any, accused: str, head: str, do: str):
    with serving(policy) as url, delay_network(url, *link) as far:
        answer = called(far, 14, source=read(ObservationOptions()) if len(link) > 1 else SMALL)  # 300 kB
    found = {finding.rule: finding for finding in advise(answer)}
    assert found.keys() & {"server-clock", "server-network", "server-inference"} == {f"server-{accused}"}
    assert head in page.answers(answer)[0]
    assert do in found[f"server-{accused}"].do


def test_another_path_is_a_line_that_names_it():
    with serving(Policy()) as url:
        with pytest.raises(
            UserError, match=r"HTTP 404 at the path /elsewhere .* is ws://\S+:30000/openpi/policy, vllm"
        ):
            called(f"{url}/elsewhere")
        with pytest.raises(UserError, match="HTTP 200 at the path /healthz and opens no websocket"):
            called(f"{url}/healthz")
    guide = (ROOT / "docs/guides/policy-server.md").read_text()  # its table is the one of the errors
    assert [url for url in ADDRESSES.values() if f"`{url}`" not in guide] == []


@pytest.mark.parametrize(
    ("policy", "kind", "said", "do"),
    [
        (Policy(max_size=1024), "too big", "takes at most 1.0 KiB a message, and this observation has 1.", "max_size"),
        (Policy(answer=lambda seen, number: {}[number]), "error", "close code 1011: ", "log"),
        (Policy(answer=lambda seen, number: {"error": "  File\nKeyError: 'x'"}), "error", "KeyError: 'x'", "names"),
        (Policy(answer=lambda seen, number: {"actions": {"buffer": b"1234", "dims": [1]}}), "undecodable",
         "an array with the keys buffer, dims; Strobe reads", "program at this address"),
        (Policy(answer=lambda seen, number: {"actions": [[1.0]]}), "no actions", "'actions' is a list, and", "Look"),
    ],
    ids=["1009", "1011", "SGLang's traceback", "an unknown array", "a list"],
)  # fmt: skip
def test_what_a_server_closes_or_answers_is_named(policy: Policy, kind: str, said: str, do: str):
    answer = asked(policy, 2)
    assert answer.faults[0].kind == kind
    (finding,) = [each for each in advise(answer) if each.rule == f"server-{kind.replace(' ', '-')}"]
    assert said in finding.found
    assert do in finding.do


def test_a_connection_that_was_closed_while_nobody_spoke_says_for_how_long():
    with serving(Policy()) as url, openpi.OpenpiWire(url, 5.0) as wire:
        (observation,) = wire.observations(SMALL).each
        wire.call(observation)
        time.sleep(1.1)
        wire.close()
        with pytest.raises(CallFailedError, match=r"no message for 1\.\d+ s before it"):
            wire.call(observation)


def chunk_of_sums(names: tuple[str, ...]) -> Any:
    def answer(seen: Any, number: int) -> Any:
        read = sum(len(value) if isinstance(value := seen[name], str) else sum(value[b"data"]) for name in names)
        return {"actions": array(np.full((10, 7), float(read)))}

    return answer


INPUTS = (*openpi.IMAGES, openpi.STATE, openpi.PROMPT)


@pytest.mark.parametrize(
    ("answer", "ignored", "rule"),
    [
        (chunk_of_sums(INPUTS), [], set()),
        (chunk_of_sums(INPUTS[1:]), ["observation/image"], {"server-ignored-inputs"}),
        (lambda seen, number: actions(), list(INPUTS), {"server-constant"}),
        (lambda seen, number: {"actions": array(np.full((10, 7), float(number)))}, [], set()),
    ],
    ids=["reads all", "ignores one", "a stub", "draws noise"],
)
def test_inputs_that_a_server_ignores_are_named(answer: Any, ignored: list[str], rule: set[str]):
    found = asked(Policy(answer=answer), 3)
    assert found.ignored == ignored
    assert {finding.rule for finding in advise(found)} & {"server-constant", "server-ignored-inputs"} == rule
    assert bool(found.replaced) == (not any("as with noise" in line for line in found.not_judged))


ARMS = {"left": array(np.zeros((10, 4))), "right": array(np.ones((10, 3)))}


@pytest.mark.parametrize(
    "answer", [array(np.zeros((10, 7))), ARMS, {"actions": ARMS}], ids=["an array", "parts", "parts of actions"]
)
def test_a_server_at_another_path_may_answer_with_arrays_alone(answer: Any):
    with serving(Policy(answer=lambda seen, number: bytes(msgpack.packb(answer) or b""))) as url:
        answered = called(f"{url}/v1/realtime/robot/openpi")
    assert answered.chunk == [10, 7]
    assert not answered.faults


def test_an_error_that_is_a_map_is_named_and_the_calls_go_on():
    error = {"type": "error", "message": "Robot policy not available"}
    answer = asked(Policy(answer=lambda seen, number: error if number == 3 else actions()))
    (fault,) = answer.faults
    assert (fault.kind, fault.call, fault.error) == ("error", 3, "Error: Robot policy not available")
    assert answer.calls > 3


@contextmanager
def another_client(url: str) -> Iterator[None]:
    """Another robot calls the same server meanwhile, 10 ms after each answer."""
    over = threading.Event()

    def call() -> None:
        with openpi.OpenpiWire(url, 5.0) as wire:
            (observation,) = wire.observations(SMALL).each
            while not over.wait(0.01):
                wire.call(observation)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)


def test_waiting_for_another_robots_call_is_told_from_computing_and_from_the_network():
    with serving_one_at_a_time(Policy(infer_s=0.04)) as url, delay_network(url, 0.004) as far:
        alone = called(far, 8)
        with another_client(url):
            shared = called(far, 10)
    assert "server-busy" not in rules(alone)
    assert median(shared, "wait") > max(10, 2 * median(alone, "wait"))
    assert median(shared, "wait") < 2 * median(shared, "server")
    assert median(shared, "server") < 40 + median(shared, "wait") / 2
    assert median(shared, "network") < median(shared, "wait")
    assert "server-busy" in rules(shared)


def test_a_slow_network_is_no_wait_and_says_what_smaller_messages_save():
    source = read(ObservationOptions(image_size=(240, 320)))
    with serving(Policy(infer_s=0.01)) as url, delay_network(url, 0.005, bytes_per_s=5e6) as far:
        answer = called(far, 8, source=source)
        sent = {each.kind: each for each in answer.encodings}
    assert median(answer, "wait") < 10
    assert answer.bytes_per_s == pytest.approx(5e6, rel=0.25)
    present, small = sent["as sent"], sent["resized"]
    assert small.saves_ms(present) == pytest.approx((present.payload_bytes - small.payload_bytes) / 5e3, rel=0.4)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [(None, "no metadata within"), ("hello", "is no map: hello"), (b"\xc1", "is no msgpack"), (b"\x01", "is no map")],
)
def test_a_server_of_another_protocol_is_a_line(metadata: Any, why: str):
    with serving(Policy(metadata=metadata)) as url, pytest.raises(UserError, match=why):
        called(url, timeout_s=0.3)
