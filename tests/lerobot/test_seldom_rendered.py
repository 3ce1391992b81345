"""Only what the policy looks at is drawn: the same actions and outcomes, to the bit, from fewer images."""

from __future__ import annotations

import collections
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lerobot.envs.factory import make_env_config
from support.builders.tiny_policies import load_tiny_subject

from strobe.core.timeline.probe import Attached
from strobe.lerobot.envs.seldom_rendered import Looks, SeldomRendered
from strobe.lerobot.policies import inputs
from strobe.simulators.simulator import TimedSimulator

TICKS = 24
DIFFUSION = ["--num_inference_steps=2", "--n_obs_steps=2", "--n_action_steps=5"]
POLICIES = {
    "two observations": ("diffusion", DIFFUSION, {4, 5, 9, 10, 14, 15, 19, 20, 24}),
    "one observation": ("act", ["--chunk_size=10", "--n_action_steps=7"], {7, 14, 21}),
    "a call every tick": ("act", ["--chunk_size=10", "--n_action_steps=1", "--temporal_ensemble_coeff=0.01"], None),
}


def both(env, kind: str, overrides: list[str], ticks: int, seed: int = 3):
    """An episode with all images, one with those that are needed, and the times of the second."""
    subject = load_tiny_subject(kind, *overrides, env=env)
    simulator = TimedSimulator(env, subject, "always")
    vector: Any = simulator.vectors[simulator.tasks[0]]
    vector.envs[0].unwrapped._max_episode_steps = ticks
    try:
        always = simulator.play(simulator.tasks[0], seed)
        simulator.rendering = "needed"
        needed, times = simulator.play_timed(simulator.tasks[0], seed)
    finally:
        simulator.close()
    return always, needed, times


@pytest.mark.parametrize("name", POLICIES)
def test_an_episode_ends_alike_with_the_images_that_are_looked_at(name):
    kind, overrides, looks = POLICIES[name]
    env = make_env_config("pusht", episode_length=TICKS)
    always, needed, times = both(env, kind, overrides, TICKS)
    assert always.start == needed.start
    assert always.same_ticks(needed) == len(always.actions) == TICKS
    # pymunk keeps the block's shapes in a set: PushT's reward differs in its last bit from episode to episode.
    assert needed.episode.reward == pytest.approx(always.episode.reward, rel=1e-12)
    assert always.drawn == TICKS
    assert needed.drawn == (TICKS if looks is None else len(looks))
    assert times.render_ms is not None
    assert times.render_ms > 0


# Ten seconds: MetaWorld is the slowest of LeRobot's simulators to draw, and the one that this was made for.
@pytest.mark.matrix
def test_metaworld_ends_alike_too(monkeypatch):
    pytest.importorskip("metaworld")
    monkeypatch.setattr(inputs, "COUNT", 1)  # of observations that a policy is loaded with
    monkeypatch.setattr(inputs, "STRIDE", 1)
    env = make_env_config("metaworld", task="button-press-topdown-v3")
    always, needed, _ = both(env, "diffusion", DIFFUSION, 6)
    assert always.start == needed.start
    assert always.same_ticks(needed) == len(always.actions) == 6
    assert always.episode == needed.episode
    assert (always.drawn, needed.drawn) == (6, 2)


class Queued:
    """A policy with an action queue that no one has read: it may look at images in between."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(n_obs_steps=1)
        self._action_queue = collections.deque([0] * 8)

    def select_action(self, batch):
        return torch.zeros(1, 2)


def test_a_policy_that_nobody_read_sees_every_image():
    policy: Any = Queued()
    assert Looks(policy, []).looks_next()


def test_a_processor_of_somebody_else_sees_every_image():
    subject = load_tiny_subject("act")
    policy: Any = subject.policy
    policy._action_queue.extend(range(4))
    assert not Looks(subject.policy, subject.loaded.preprocessor.steps).looks_next()
    assert Looks(subject.policy, [*subject.loaded.preprocessor.steps, Queued()]).looks_next()


def test_a_video_and_a_simulator_that_nobody_knows_are_drawn():
    class Counting:
        images = 0

        def render(self, camera: str = "front"):
            self.images += 1
            return self.images

        def step(self):
            return self.render(), self.render("wrist")

    def play_ticks(module: str, *, looks_next: bool = False) -> tuple[int, int, int]:
        env = type("Env", (Counting,), {"__module__": module})()
        vector: Any = SimpleNamespace(envs=[env], step=env.step)
        looks: Any = SimpleNamespace(looks_next=lambda: looks_next)
        seldom = SeldomRendered(looks)
        with Attached(seldom.hooks(vector), seldom.wrap):
            env.step()
            in_ticks = [vector.step() for _ in range(3)]
            video = env.render()
        return *in_ticks[-1], video

    assert play_ticks("gym_pusht.envs.pusht") == (1, 2, 3)
    assert play_ticks("gym_pusht.envs.pusht", looks_next=True) == (7, 8, 9), "each camera is drawn"
    assert play_ticks("somebody.envs") == (7, 8, 9)
