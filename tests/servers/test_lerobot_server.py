"""Calls to LeRobot's own policy server: their parts, what goes wrong, and what its filter drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("grpc", reason="Strobe's extra 'remote' is missing")

from support.servers.lerobot_server import Policy, actions
from support.servers.protocols import Protocol, protocols, rules

from strobe.core.demo import CHECKPOINT
from strobe.core.errors import UserError
from strobe.servers.protocols.lerobot_messages import ServedPolicy
from strobe.servers.protocols.observations import ObservationOptions, Source

FEATURES = {"observation.state": {"dtype": "float32", "shape": [6], "names": [f"j{i}.pos" for i in range(6)]}}


@pytest.fixture
def lerobot(tmp_path: Path) -> Protocol:
    return protocols(tmp_path)["LeRobot"]


def moving(step: float, frames: int = 4) -> Source:
    """Frames of a robot whose state moves by so much between two of them."""
    states = [np.full(6, number * step / np.sqrt(6), np.float32) for number in range(frames)]
    made = [{"observation.state": state, "task": "push"} for state in states]
    return Source(ObservationOptions(dataset=Path("made-up")), made, FEATURES)


def test_one_observation_cannot_be_similar_to_another(lerobot: Protocol):
    answer = lerobot.ask_policy()
    assert answer.dropped is None
    assert any("filter" in line for line in answer.not_judged)


def test_the_server_gets_what_a_robot_gives(lerobot: Protocol):
    served = Policy()
    lerobot.ask_policy(served, 2)
    wanted = served.asked_for
    assert (wanted.policy_type, wanted.pretrained_name_or_path, wanted.device) == (
        "act",
        lerobot.more["policy"].path,
        "cpu",
    )
    assert wanted.lerobot_features["observation.images.top"]["shape"] == (24, 32, 3)
    seen = served.seen[0]
    assert seen["observation.state"].shape == (1, 6)
    assert seen["observation.images.top"].shape == (1, 3, 24, 32)
    assert seen["task"] == "pick up the cube"


def test_a_data_sets_joints_and_task_are_sent(lerobot: Protocol):
    served = Policy()
    lerobot.ask_policy(served, 1, source=moving(5.0))
    assert served.asked_for.lerobot_features["observation.state"]["names"] == [f"j{i}.pos" for i in range(6)]
    assert served.seen[0]["task"] == "push"


@pytest.mark.parametrize(("step", "drops"), [(0.2, 3), (5.0, 0)])
def test_the_filter_drops_what_is_similar_alone(step: float, drops: int, lerobot: Protocol):
    answer = lerobot.ask_policy(Policy(), 2, source=moving(step))
    assert answer.dropped is not None
    assert (answer.dropped.sent, answer.dropped.dropped) == (3, drops)
    assert ("server-drops-observations" in rules(answer)) == bool(drops)


def test_a_policy_that_fails_on_an_observation_is_not_taken_for_the_filter(lerobot: Protocol):
    def answer(observation: dict[str, Any], number: int) -> torch.Tensor:
        if observation["observation.state"].max() > 0.1:
            raise ValueError
        return actions()

    answered = lerobot.ask_policy(Policy(answer=answer), 4, source=moving(5.0))
    assert answered.dropped is None
    assert "server-drops-observations" not in rules(answered)


def test_a_policy_that_cannot_be_loaded_is_a_line(lerobot: Protocol):
    refused = Policy(refuses=ValueError("Policy type act not supported"))
    with pytest.raises(UserError, match=r"does not load .*Policy type act not supported"):
        lerobot.ask_policy(refused)


@pytest.mark.parametrize("source", [None, moving(1.0)])
def test_a_policy_that_reads_what_the_server_drops_is_a_line_before_the_first_call(source: Any, lerobot: Protocol):
    served, demo = Policy(), ServedPolicy(str(CHECKPOINT))
    with lerobot.serving(served) as url, pytest.raises(UserError, match=r"also reads observation\.environment_state\."):
        lerobot.call_server(url, policy=demo, source=source)
    assert not served.seen


@pytest.mark.parametrize(
    ("policy", "source", "why"),
    [
        (ServedPolicy("elsewhere"), None, "nothing says what its observations are"),
        (ServedPolicy("elsewhere"), moving(1.0), "give the policy's type with --policy.type"),
        (ServedPolicy("x", "act"), Source(ObservationOptions(), given={"a": np.ones(2)}), "observation.state of shape"),
    ],
)
def test_what_nobody_tells_the_server_is_a_line(policy: ServedPolicy, source: Any, why: str, lerobot: Protocol):
    with lerobot.serving(Policy()) as url, pytest.raises(UserError, match=why):
        lerobot.call_server(url, policy=policy, source=source)
