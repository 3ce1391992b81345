"""X-VLA: its cameras, and the last block for the actions' rows alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat

from strobe.core.errors import UserError
from strobe.core.treatments.catalogue import find_entry, make
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe_zoo.xvla import FLORENCE


@pytest.fixture(scope="module")
def subject() -> PolicySubject:
    return load_tiny_subject("xvla")


def test_it_sees_each_camera_and_reads_its_prompt_and_does_without_a_camera(subject: PolicySubject) -> None:
    observation = subject.observation(0)
    first = subject.act(observation, 0)
    cameras = [key for key in observation if key.startswith("observation.images")]
    assert len(cameras) == 2
    for change in (
        {cameras[0]: observation[cameras[0]] * 0},
        {cameras[1]: observation[cameras[1]] * 0},
        {"task": "go"},
    ):
        assert not torch.equal(subject.act(observation | change, 0), first)
    del observation[cameras[1]]
    assert bool(subject.act(observation, 0).isfinite().all())


def test_the_stand_in_for_florence_has_the_sizes_of_the_published_model(subject: PolicySubject) -> None:
    full: Any = load_config()
    vision, text = full.get_florence_config().vision_config, full.get_florence_config().text_config
    assert (vision.embed_dim[-1], sum(vision.depths), vision.projection_dim) == (2048, 12, 1024)
    assert (text.encoder_layers, text.d_model, text.vocab_size) == (12, 1024, 51289)
    assert full.florence_config == FLORENCE


def load_config() -> Any:
    from strobe.lerobot.policies.lerobot_policies import config_from_type

    return config_from_type("xvla", ["--device=cpu"])


@torch.no_grad()
def test_the_last_block_for_the_read_rows_gives_the_same_actions_for_less(subject: PolicySubject) -> None:
    from strobe.core.measure.accounting import Accounting

    policy: Any = subject.policy
    block = policy.model.transformer.blocks[-1]
    x = torch.randn(2, 90, 64)
    whole, bare, cost = block(x), subject.chunk(1), count_gflop(subject, Accounting())
    with treat(subject, make({"last_block": "read_rows"})):
        rows = block(x)
        torch.testing.assert_close(rows, whole[:, :32])
        torch.testing.assert_close(subject.chunk(1), bare, rtol=1e-4, atol=1e-5)
        assert count_gflop(subject, Accounting()) < 0.9 * cost
        with torch.enable_grad():
            assert block(x).shape == whole.shape  # training learns from all rows' gradients
    assert torch.equal(subject.chunk(1), bare)


def count_gflop(subject: PolicySubject, accounting: Any) -> float:
    accounting.run(lambda: subject.chunk(1))
    return sum(account.gflop for path, account in accounting.accounts.items() if len(path) == 2)


def test_it_is_offered_where_a_step_reads_some_rows_and_refused_elsewhere(subject: PolicySubject) -> None:
    act = load_tiny_subject("act")
    assert list(find_entry("last_block").candidates(subject)) == [{"last_block": "read_rows"}]
    assert not find_entry("last_block").candidates(act)
    with pytest.raises(UserError, match="last_block is for xvla"):
        make({"last_block": "read_rows"}).apply(act)
