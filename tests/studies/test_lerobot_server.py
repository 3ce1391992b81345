"""Calls to LeRobot's own policy server: their parts, what goes wrong, and what its filter drops."""

from __future__ import annotations

import json
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("grpc", reason="Strobe's extra 'remote' is missing")

from support.lerobot_server import Break, Policy, actions, serving
from support.openpi_server import delayed

from strobe.errors import UserError
from strobe.kinds import advise
from strobe.policies.servers.lerobot_observations import ServedPolicy
from strobe.policies.servers.observations import ObservationOptions, Source, read
from strobe.results.server import ServerAnswer
from strobe.studies.server import ServerOptions, server

FEATURES = {"observation.state": {"dtype": "float32", "shape": [6], "names": [f"j{i}.pos" for i in range(6)]}}


class Silent:
    """Shows nothing."""

    def stage(self, what: str) -> None:
        pass

    def progress(self, progress: Any) -> None:
        pass


@pytest.fixture
def checkpoint(tmp_path: Path) -> ServedPolicy:
    """The folder of a policy of which the client reads the config alone."""
    features = {"observation.state": {"shape": [6]}, "observation.images.top": {"shape": [3, 24, 32]}}
    (tmp_path / "config.json").write_text(json.dumps({"type": "act", "input_features": features}))
    return ServedPolicy(str(tmp_path))


def moving(step: float, frames: int = 4) -> Source:
    """Frames of a robot whose state moves by so much between two of them."""
    states = [np.full(6, number * step / np.sqrt(6), np.float32) for number in range(frames)]
    made = [{"observation.state": state, "task": "push"} for state in states]
    return Source(ObservationOptions(dataset=Path("made-up")), made, FEATURES)


def called(url: str, policy: ServedPolicy, calls: int = 6, source: Source | None = None, **more: Any) -> ServerAnswer:
    options = ServerOptions(url, iterations=calls, policy=policy, **{"timeout_s": 5.0} | more)
    return server(options, source or read(ObservationOptions()), Silent())


def asked(served: Policy, policy: ServedPolicy, calls: int = 6, **more: Any) -> ServerAnswer:
    with serving(served, Path(policy.path)) as url:
        return called(url, policy, calls, **more)


def rules(answer: ServerAnswer) -> set[str]:
    return {finding.rule for finding in advise(answer) if finding.level == "warning"}


def test_a_sound_server_has_parts_that_add_up_and_no_fault(checkpoint: ServedPolicy):
    served = Policy(infer_s=0.02)
    answer = asked(served, checkpoint, 10, control_hz=30.0)
    assert answer.trip is not None
    assert answer.protocol == "LeRobot"
    assert [part.name for part in answer.parts] == ["encode", "network and server", "decode"]
    assert sum(part.summary.mean for part in answer.parts) == pytest.approx(answer.trip.summary.mean, rel=0.02)
    assert (answer.calls, answer.chunk, answer.faults, answer.status) == (11, [10, 6], [], "complete")
    assert answer.ping is not None
    assert answer.dropped is None  # one observation cannot be similar to another
    assert any("filter" in line for line in answer.not_judged)
    assert not {rule for rule in rules(answer) if rule != "server-encoding"}


def test_the_server_gets_what_a_robot_gives(checkpoint: ServedPolicy):
    served = Policy()
    asked(served, checkpoint, 2)
    wanted = served.asked_for
    assert (wanted.policy_type, wanted.pretrained_name_or_path, wanted.device) == ("act", checkpoint.path, "cpu")
    assert wanted.lerobot_features["observation.images.top"]["shape"] == (24, 32, 3)
    seen = served.seen[0]
    assert seen["observation.state"].shape == (1, 6)
    assert seen["observation.images.top"].shape == (1, 3, 24, 32)
    assert seen["task"] == "pick up the cube"


def test_a_data_sets_joints_and_task_are_sent(checkpoint: ServedPolicy):
    served = Policy()
    asked(served, checkpoint, 1, source=moving(5.0))
    assert served.asked_for.lerobot_features["observation.state"]["names"] == [f"j{i}.pos" for i in range(6)]
    assert served.seen[0]["task"] == "push"


def test_a_network_delay_is_in_the_ping_twice_a_call_and_one_of_the_server_is_not(checkpoint: ServedPolicy):
    with serving(Policy(), Path(checkpoint.path)) as url, delayed(url, 0.04) as far:
        distant = called(far, checkpoint)
    slow = asked(Policy(infer_s=0.1), checkpoint)
    assert distant.ping is not None
    assert distant.trip is not None
    assert slow.ping is not None
    assert slow.trip is not None
    assert distant.ping.summary.min >= 80
    assert distant.trip.summary.min >= 160
    assert slow.trip.summary.min >= 100
    assert slow.ping.summary.median < 40


@pytest.mark.parametrize(("step", "drops"), [(0.2, 3), (5.0, 0)])
def test_the_filter_drops_what_is_similar_alone(step: float, drops: int, checkpoint: ServedPolicy):
    answer = asked(Policy(), checkpoint, 2, source=moving(step))
    assert answer.dropped is not None
    assert (answer.dropped.sent, answer.dropped.dropped) == (3, drops)
    assert answer.dropped.nearest == pytest.approx(step, rel=1e-3)
    assert ("server-drops-observations" in rules(answer)) == bool(drops)


def test_a_policy_that_fails_on_an_observation_is_not_taken_for_the_filter(checkpoint: ServedPolicy):
    def answer(observation: dict[str, Any], number: int) -> torch.Tensor:
        if observation["observation.state"].max() > 0.1:
            raise ValueError
        return actions()

    answered = asked(Policy(answer=answer), checkpoint, 4, source=moving(5.0))
    assert answered.dropped is None
    assert "server-drops-observations" not in rules(answered)


def from_third(bad: Any) -> Policy:
    """A server whose answers are sound twice."""

    def answer(observation: dict[str, Any], number: int) -> torch.Tensor | bytes:
        return actions() if number <= 2 else bad(number)

    return Policy(answer=answer)


def raises(error: Exception) -> Any:
    def bad(number: int) -> Any:
        raise error

    return bad


def test_a_policy_that_raises_is_an_empty_answer(checkpoint: ServedPolicy):
    answer = asked(from_third(raises(KeyError("observation.images.wrist"))), checkpoint)
    (fault,) = answer.faults
    assert (fault.kind, fault.name, fault.call, fault.count) == ("empty", "Empty", 3, 5)
    (finding,) = [each for each in advise(answer) if each.rule == "server-empty"]
    assert "must_go" in finding.why
    assert "strobe rollout -- policy_server" in finding.do


def test_a_slow_answer_is_a_timeout(checkpoint: ServedPolicy):
    answer = asked(from_third(lambda number: time.sleep(1.0) or actions()), checkpoint, timeout_s=0.7)
    (fault,) = answer.faults
    assert (fault.kind, fault.name) == ("slow", "TimeoutError")


def test_a_server_that_says_nothing_is_silent(checkpoint: ServedPolicy):
    wait = threading.Event()
    policy = from_third(lambda number: [wait.wait(9), actions()][1])
    with serving(policy, Path(checkpoint.path)) as url:
        answer = called(url, checkpoint, timeout_s=0.5)
        wait.set()
    (fault,) = answer.faults
    assert (fault.kind, fault.name) == ("silent", "TimeoutError")
    assert fault.waited_ms >= 1000


def test_a_server_that_ends_is_a_closed_connection(checkpoint: ServedPolicy):
    answer = asked(from_third(raises(Break())), checkpoint)
    (fault,) = answer.faults
    assert fault.kind == "closed"
    assert fault.name in ("UNAVAILABLE", "CANCELLED", "FutureCancelledError")


def test_another_shape_is_counted_and_the_calls_go_on(checkpoint: ServedPolicy):
    answer = asked(from_third(lambda number: actions(chunk=5 if number % 2 else 10)), checkpoint, 7)
    (fault,) = answer.faults
    assert (fault.kind, fault.call, fault.count) == ("other shape", 3, 3)


class Malicious:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('it ran')",))


@pytest.mark.parametrize("bad", [b"\x80", b"text", pickle.dumps(Malicious())])
def test_bytes_that_are_no_answer_are_named_and_never_run(bad: bytes, checkpoint: ServedPolicy):
    answer = asked(from_third(lambda number: bad), checkpoint)
    assert {fault.kind for fault in answer.faults} == {"undecodable"}


@pytest.mark.parametrize("things", [pickle.dumps([]), pickle.dumps({"a": 1}), pickle.dumps([1, 2])])
def test_an_answer_without_actions_is_named(things: bytes, checkpoint: ServedPolicy):
    answer = asked(from_third(lambda number: things), checkpoint)
    assert [(fault.kind, fault.name) for fault in answer.faults] == [("no actions", "TypeError")]


def test_a_policy_that_raises_at_every_call_ends_the_run_as_failed(checkpoint: ServedPolicy):
    answer = asked(Policy(answer=lambda observation, number: raises(ValueError())(number)), checkpoint, 500)
    assert (answer.status, answer.calls) == ("failed", 6)


def test_a_policy_that_cannot_be_loaded_is_a_line(checkpoint: ServedPolicy):
    refused = Policy(refuses=ValueError("Policy type act not supported"))
    with pytest.raises(UserError, match=r"does not load .*Policy type act not supported"):
        asked(refused, checkpoint)


def test_nobody_there_is_a_line(checkpoint: ServedPolicy):
    with pytest.raises(UserError, match=r"cannot connect to grpc://127.0.0.1:9: no gRPC server answers within 0.3 s"):
        called("grpc://127.0.0.1:9", checkpoint, timeout_s=0.3)


@pytest.mark.parametrize(
    ("policy", "source", "why"),
    [
        (ServedPolicy("elsewhere"), None, "nothing says what its observations are"),
        (ServedPolicy("elsewhere"), moving(1.0), "give the policy's type with --policy.type"),
        (ServedPolicy("x", "act"), Source(ObservationOptions(), given={"a": np.ones(2)}), "observation.state of shape"),
    ],
)
def test_what_nobody_tells_the_server_is_a_line(policy: ServedPolicy, source: Any, why: str, tmp_path: Path):
    with serving(Policy(), tmp_path) as url, pytest.raises(UserError, match=why):
        called(url, policy, source=source)
