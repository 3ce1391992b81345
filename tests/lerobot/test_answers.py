"""Policies whose methods give what LeRobot does not take, or single actions only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject

from strobe.core.errors import UserError
from strobe.lerobot.families.answers import predict
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.refusals import convert_errors


class Recurrent:
    """A policy with a state of its own, which gives one action at a time."""

    config = SimpleNamespace(type="recurrent")
    name = "recurrent"

    def __init__(self) -> None:
        self.seen = torch.zeros(1, 2)

    def reset(self) -> None:
        self.seen = torch.zeros(1, 2)

    def predict_action_chunk(self, batch: Any) -> Any:
        raise NotImplementedError("one action at a time")

    def select_action(self, batch: dict[str, Any]) -> Any:
        self.seen = self.seen + batch["observation.state"]
        return self.seen


BATCH = {"observation.state": torch.ones(1, 2)}


def test_a_policy_of_single_actions_gives_chunks_of_one_and_none_depends_on_the_one_before() -> None:
    policy = Recurrent()
    chunks = [predict(policy, BATCH) for _ in range(2)]
    assert chunks[0].shape == (1, 1, 2)
    assert torch.equal(*chunks)


def test_what_is_missing_deeper_inside_stays_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def inner() -> None:
        raise NotImplementedError("no such kernel")

    monkeypatch.setattr(Recurrent, "predict_action_chunk", lambda self, batch: inner())
    with pytest.raises(NotImplementedError, match="no such kernel"):
        predict(Recurrent(), BATCH)


def test_actions_that_are_no_tensor_are_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recurrent, "select_action", lambda self, batch: {"action": 1})
    with pytest.raises(UserError, match=r"^recurrent: its select_action gives a dict, where LeRobot takes a tensor"):
        predict(Recurrent(), BATCH)


@pytest.mark.parametrize(
    ("method", "made", "said"),
    [
        (
            "predict_action_chunk",
            lambda self, batch: torch.zeros(1, 2),
            r"a tensor of \(1, 2\).*\(batch, chunk, action",
        ),
        ("select_action", lambda self, batch: torch.zeros(2), r"a tensor of \(2,\).*\(batch, action dim\)"),
        ("reset", lambda self, environments: None, "calls its reset with nothing, but: .*'environments'"),
        ("select_action", lambda self, batch, goal: batch, "its select_action with a batch, but: .*'goal'"),
    ],
)
def test_methods_unlike_those_that_lerobot_calls_are_a_line(
    method: str, made: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recurrent, method, made)
    with pytest.raises(UserError, match=f"^recurrent: .*{said}"):
        predict(Recurrent(), BATCH)


def test_a_mistake_inside_of_a_method_stays_the_policys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recurrent, "select_action", lambda self, batch: batch + 1)
    with pytest.raises(TypeError, match="unsupported operand"):
        predict(Recurrent(), BATCH)


@pytest.fixture(scope="module")
def act() -> PolicySubject:
    return load_tiny_subject("act")


@pytest.mark.parametrize(
    ("given", "said"),
    [({"loss": torch.tensor(1.0), "l1": 1.0}, "a dict"), (torch.tensor(1.0), "a tensor alone"), (None, "a NoneType")],
)
def test_a_loss_that_lerobot_train_could_not_unpack_is_a_line(
    act: PolicySubject, given: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(act.policy.__dict__, "forward", lambda _: given)
    with pytest.raises(UserError, match=f"act: its forward gives {said}, where lerobot-train takes a loss and a dict"):
        act.call("training forward", 2)(0)


def test_a_constructor_that_ends_the_program_is_a_line() -> None:
    with (
        pytest.raises(UserError, match=r"type 'made_up' ends the program while it is built: exit code 3"),
        convert_errors("made_up"),
    ):
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("phase", "given", "said"),
    [
        ("training forward", torch.ones(2, 3), r"gives a tensor of \(2, 3\) as the loss, .* takes one number"),
        ("training step", torch.tensor(1.0), "gives a loss without a gradient"),
    ],
)
def test_a_loss_that_no_backward_pass_can_start_from_is_a_line(
    phase: Any, given: torch.Tensor, said: str, act: PolicySubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act.policy, "forward", lambda batch: (given, {}))
    with pytest.raises(UserError, match=said):
        act.call(phase, 2)(0)


def test_the_chunk_of_a_policy_of_single_actions_is_one_long(
    act: PolicySubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict_action_chunk(batch: Any) -> None:
        raise NotImplementedError

    act.chunk()
    config: Any = act.policy.config
    assert act.traits("inference", 1).chunk_size == config.chunk_size
    monkeypatch.setattr(act.policy, "predict_action_chunk", predict_action_chunk)
    monkeypatch.setattr(act.policy, "select_action", lambda batch: torch.zeros(1, 6))
    act.chunk()
    assert act.traits("inference", 1).chunk_size == 1
