"""A real simulator, a real policy of tiny size, and LeRobot's own rollout between them."""

from __future__ import annotations

import pytest
import torch
from lerobot.envs.factory import make_env_config

from strobe.core.errors import UserError
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.simulators.simulator import Simulator


@pytest.fixture(scope="module")
def env():
    return make_env_config("pusht", episode_length=20)


@pytest.fixture(scope="module")
def subject(env):
    return load_subject(PolicyOptions(type="diffusion", size="tiny", overrides=["--device=cpu"]), InputOptions(env=env))


def test_the_same_policy_from_the_same_seed_does_the_same_to_the_bit(env, subject):
    first, second = Simulator(env, subject), Simulator(env, subject)
    try:
        assert first.tasks == ["pusht"]
        a, b = first.play("pusht", 3), second.play("pusht", 3)
        other = second.play("pusht", 4)
        again = second.play("pusht", 3)
    finally:
        first.close()
        second.close()
    assert a.episode == b.episode == again.episode
    assert a.start == b.start == again.start != other.start
    assert a.actions.shape == (20, 2)
    assert a.same_ticks(b) == a.same_ticks(again) == 20
    assert a.largest_error(again) == 0
    assert a.same_ticks(other) < 20
    assert a.largest_error(other) > 0


def test_what_is_changed_in_the_policy_acts_in_the_episode(env, subject):
    simulator = Simulator(env, subject)
    before = simulator.play("pusht", 3)
    weight = next(subject.policy.diffusion.unet.final_conv.parameters())
    with torch.no_grad():
        weight.mul_(1.5)
        after = simulator.play("pusht", 3)
        weight.div_(1.5)
    simulator.close()
    assert before.start == after.start
    assert before.same_ticks(after) == 0


def test_what_goes_wrong_is_a_line(env, subject):
    with pytest.raises(UserError, match="the environment 'aloha' is not installed: pip install 'lerobot\\[aloha\\]'"):
        Simulator(make_env_config("aloha"), subject)
    simulator = Simulator(env, subject)
    keep = subject.policy.select_action
    subject.policy.select_action = lambda _: torch.zeros(1, 5)
    try:
        with pytest.raises(UserError, match="the environment 'pusht' failed in an episode: ") as caught:
            simulator.play("pusht", 0)
    finally:
        subject.policy.select_action = keep
        simulator.close()
    assert "\n" not in str(caught.value)
