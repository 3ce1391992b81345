"""A simulator on a clock of its own: which of its ticks takes which action, and what is seen when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from strobe.simulators.held_action import Hold, choose_hold
from strobe.simulators.realtime_simulator import TICKET, ActedWorld

PERIOD = 100_000_000  # 10 Hz
MS = 1_000_000


class Counting:
    """A simulator whose observation is the number of steps so far, and that succeeds in the step ``success``."""

    def __init__(self, size=2, most=50, success=None, position=True):
        self.num_envs, self.single_action_space = 1, SimpleNamespace(shape=(size,))
        self.most, self.success, self.position, self.got = most, success, position, []

    def reset(self, seed, options):
        assert options["lerobot_new_rollout"]
        return self._observation()

    def _observation(self):
        at = np.full((1, 2), 7.0 + len(self.got))
        return ({"agent_pos": at} if self.position else {"environment_state": at}), {}

    def step(self, action):
        self.got.append(action[0].tolist())
        done = len(self.got) == self.success
        info = {"final_info": {"is_success": np.array([True])}} if done else {"is_success": np.array([False])}
        return self._observation()[0], np.array([1.0]), np.array([done]), np.array([False]), info

    def call(self, name):
        if name == "_max_episode_steps":
            return (self.most,)
        raise AttributeError


def world(vector, hold=None):
    made = ActedWorld(vector, lambda seen: seen, lambda action: action, PERIOD, hold or Hold("last"))
    made.begin(3)
    return made


def observed_lag(made, ms):
    assert made.observe(ms * MS)() == {TICKET: 0.0}
    return next(float(value[0, 0]) - 7 for key, value in made.looked.items() if key != "task")


def act(made, ms, value):
    made.act(ms * MS, None if value is None else torch.full((2,), float(value)))


def test_each_tick_takes_the_action_sent_last_before_its_middle_and_the_first_ones_hold_the_position():
    simulator = Counting()
    made = world(simulator)
    assert observed_lag(made, 0) == 0
    act(made, 140, 1)  # after the middle of the tick from 0, before that of the tick from 100
    assert observed_lag(made, 200) == 2
    act(made, 200, 2)
    act(made, 240, 3)
    assert observed_lag(made, 510) == 5
    assert simulator.got == [[7.0, 7.0], [1, 1], [3, 3], [3, 3], [3, 3]]
    assert made.taken == [None, 0, 2, None, None]
    assert made.lost == 1, "the action that another one followed at once"


def test_an_observation_is_the_last_that_had_passed_though_the_tick_has_its_action():
    made = world(Counting())
    observed_lag(made, 0)
    act(made, 0, 1)
    act(made, 60, 2)  # past the middle: the tick from 0 is over with the first action
    assert observed_lag(made, 80) == 0
    assert observed_lag(made, 100) == 1
    assert made.taken == [0]


def test_movements_are_held_by_none_and_a_gripper_keeps_its_goal():
    simulator = Counting(position=False)
    made = world(simulator, Hold("zero", gripper=1))
    observed_lag(made, 0)
    act(made, 100, 5)
    observed_lag(made, 300)
    assert simulator.got == [[0, 0], [5, 5], [0, 5]]
    assert made.rests


def test_where_no_position_is_known_it_stands_still_until_the_first_action():
    simulator = Counting(position=False)
    made = world(simulator)
    assert observed_lag(made, 300) == 0
    act(made, 300, 4)
    assert observed_lag(made, 500) == 2
    assert simulator.got == [[4, 4], [4, 4]]
    assert not made.rests


@pytest.mark.parametrize(("success", "ticks"), [(3, 3), (None, 6)])
def test_it_ends_by_success_or_by_its_own_limit_though_nothing_is_sent(success, ticks):
    made = world(Counting(success=success, most=6))
    observed_lag(made, 0)
    act(made, 5000, 1)
    assert made.is_over
    episode = made.finished_episode().episode
    assert (episode.success, episode.ticks, episode.reward) == (success is not None, ticks, float(ticks))


def test_who_watches_sees_the_reset_and_each_tick():
    simulator: Any = Counting(most=3)
    frames: list[int] = []
    made = ActedWorld(simulator, lambda seen: seen, lambda action: action, PERIOD, Hold("last"))
    made.watch = lambda vector: frames.append(len(simulator.got))
    made.begin(3)
    act(made, 1000, 1)
    assert frames == [0, 1, 2, 3]


def test_the_default_fits_the_actions_of_the_simulator():
    def env(kind: str, **more: str) -> Any:
        return SimpleNamespace(type=kind, **more)

    assert choose_hold(env("pusht")) == Hold("last")
    assert choose_hold(env("metaworld")) == Hold("zero", gripper=3)
    assert choose_hold(env("libero", control_mode="relative")) == Hold("zero", gripper=6)
    assert choose_hold(env("libero", control_mode="absolute")) == Hold("last")
    assert choose_hold(env("metaworld"), "last") == Hold("last")
    assert not choose_hold(env("a plug-in's")).known
