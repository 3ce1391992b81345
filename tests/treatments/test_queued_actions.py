"""A raised `policy.n_action_steps` executes the first actions of a chunk, whatever the queue was made for."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from support.builders.tiny_policies import build

from strobe.core.errors import UserError
from strobe.lerobot.config_fields import Settings
from strobe.lerobot.policies.policy_subject import PolicySubject

CHUNK, FEW, MANY = 8, 2, 6


@pytest.fixture
def subject() -> PolicySubject:
    _, made, loaded = build("act", f"--chunk_size={CHUNK}", f"--n_action_steps={FEW}")
    loaded.policy.eval()
    return PolicySubject(loaded, made, 0)


def select_actions(subject: PolicySubject, ticks: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The actions that LeRobot's own ``select_action`` hands out for an observation, and the chunk that they are of."""
    policy, prepared = subject.policy, subject.prepare(subject.observation(0))
    with torch.inference_mode():
        chunk = policy.predict_action_chunk(dict(prepared))[0]
        return [policy.select_action(dict(prepared))[0] for _ in range(ticks)], chunk


def test_a_raised_number_executes_the_first_actions_of_the_chunk(subject):
    undo = Settings({"n_action_steps": MANY}).apply(subject)
    actions, chunk = select_actions(subject, MANY)
    assert torch.equal(torch.stack(actions), chunk[:MANY])
    undo()
    actions, chunk = select_actions(subject, FEW)
    assert torch.equal(torch.stack(actions), chunk[:FEW])


def test_a_queue_that_is_shorter_than_the_config_says_gets_a_new_one(subject):
    """Somebody wrote the number into the config of a built policy: LeRobot's queue keeps its old length."""
    subject.policy.config.n_action_steps = MANY
    actions, chunk = select_actions(subject, 1)
    assert not torch.equal(actions[0], chunk[0]), "LeRobot drops the first actions: the handling is needed"
    Settings({"n_action_steps": MANY}).apply(subject)
    actions, chunk = select_actions(subject, MANY)
    assert torch.equal(torch.stack(actions), chunk[:MANY])


def test_a_policy_that_keeps_its_short_queue_is_refused(subject):
    policy = subject.policy
    policy.reset = lambda: setattr(policy, "_action_queue", deque(maxlen=FEW))
    with pytest.raises(UserError, match="holds 2 actions, fewer than n_action_steps=6"):
        Settings({"n_action_steps": MANY}).apply(subject)
    assert policy.config.n_action_steps == FEW


def test_a_policy_that_keeps_the_length_of_its_queue_gets_another_length(subject):
    """As GR00T does: `reset` takes a length that was found at construction."""
    policy = subject.policy
    policy._action_queue_steps = FEW
    policy._resolve_action_queue_steps = lambda: policy.config.n_action_steps
    policy.reset = lambda: setattr(policy, "_action_queue", deque(maxlen=policy._action_queue_steps))
    undo = Settings({"n_action_steps": MANY}).apply(subject)
    assert policy._action_queue.maxlen == MANY
    undo()
    assert policy._action_queue.maxlen == FEW


@pytest.mark.parametrize("coefficient", [None, 0.5], ids=["built without", "built with"])
def test_an_average_of_chunks_is_lerobots_own(coefficient):
    """ACT with temporal ensembling put on acts as ACT that was built with it, and as before once it is reverted."""
    flags = [f"--chunk_size={CHUNK}", "--n_action_steps=1"]
    own = [] if coefficient is None else [f"--temporal_ensemble_coeff={coefficient}"]
    (_, made, loaded), (_, _, wanted) = (
        build("act", *flags, *own),
        build("act", *flags, "--temporal_ensemble_coeff=0.1"),
    )
    subject, other = PolicySubject(loaded, made, 0), PolicySubject(wanted, made, 0)
    wanted.policy.load_state_dict(loaded.policy.state_dict())
    before = select_five_actions(subject)
    undo = Settings({"temporal_ensemble_coeff": 0.1}).apply(subject)
    averaged, chunks = select_five_actions(subject), select_five_actions(other)
    assert torch.equal(averaged, chunks)
    assert not torch.equal(averaged, before)
    undo()
    assert torch.equal(select_five_actions(subject), before)


def select_five_actions(subject: PolicySubject) -> torch.Tensor:
    """The actions of five ticks on five observations."""
    subject.policy.eval()
    subject.policy.reset()
    with torch.inference_mode():
        seen = [subject.prepare(subject.observation(index)) for index in range(5)]
        return torch.stack([subject.policy.select_action(one)[0] for one in seen])


def test_an_average_of_chunks_takes_a_call_for_each_action(subject):
    with pytest.raises(UserError, match="must be 1 when using temporal ensembling"):
        Settings({"temporal_ensemble_coeff": 0.1}).apply(subject)
    Settings({"temporal_ensemble_coeff": 0.1, "n_action_steps": 1}).apply(subject)()
    assert subject.policy.config.n_action_steps == FEW
