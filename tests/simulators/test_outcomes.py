"""Success as lerobot-eval's rollout counts it, of simulators that say it in other words or not at all."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from lerobot.envs.factory import make_env_config

from strobe.core.errors import UserError
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.simulators.simulator import Simulator


class Renamed(gym.Wrapper):
    """A PushT that says whether it succeeded under another name, or not at all."""

    name, value = "succeed", False

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        info.pop("is_success")
        return observation, reward, terminated, truncated, info | {self.name: self.value}


@pytest.fixture(scope="module")
def simulator():
    env = make_env_config("pusht", episode_length=3)
    simulator = Simulator(
        env, load_subject(PolicyOptions(type="act", size="tiny", overrides=["--device=cpu"]), InputOptions(env=env))
    )
    vector: Any = simulator.vectors["pusht"]
    vector.envs = tuple(Renamed(one) for one in vector.envs)
    yield simulator
    simulator.close()


@pytest.mark.parametrize("value", [False, True, np.True_])
def test_what_another_name_says_counts(simulator, value, monkeypatch):
    monkeypatch.setattr(Renamed, "value", value)
    assert simulator.play("pusht", 0).episode.success is bool(value)


def test_a_simulator_that_does_not_say_is_not_taken_for_success(simulator, monkeypatch):
    monkeypatch.setattr(Renamed, "name", "score")
    with pytest.raises(UserError, match=r"does not report whether an episode succeeded: no 'is_success' .*score"):
        simulator.play("pusht", 0)
