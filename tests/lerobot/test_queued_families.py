"""Families whose chunk comes out of queues or single actions: TD-MPC, VQ-BeT, multi-task DiT, the Gaussian actor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.checks.family_checks import part_names, require_parts
from support.suite.matrix import matrix

from strobe.core.errors import UserError
from strobe.core.treatments.catalogue import make
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject

KINDS = ("tdmpc", "vqbet", "multi_task_dit", "gaussian_actor")


@pytest.fixture(scope="module", params=matrix(KINDS))
def subject(request: pytest.FixtureRequest) -> PolicySubject:
    return load_tiny_subject(request.param)


def test_a_chunk_is_the_actions_that_the_robot_would_get(subject: PolicySubject) -> None:
    """``select_action``, fed tick by tick from a fresh start, gives the chunk's actions."""
    policy: Any = subject.policy
    batch = {
        key: value for key, value in subject.loaded.preprocessor(subject.observation(1)).items() if key != "action"
    }
    ticks = batch["observation.state"].shape[1] if batch["observation.state"].ndim == 3 else 1
    policy.reset()
    acted = None
    for tick in range(ticks):
        if ticks > 1:  # the actions of the first ticks are those of older windows
            getattr(policy, "_queues", {"action": []})["action"].clear()
        torch.manual_seed(7)
        one = {
            k: v[:, tick] if ticks > 1 and isinstance(v, torch.Tensor) and v.ndim > 2 else v for k, v in batch.items()
        }
        acted = policy.select_action(one)
    policy.reset()
    assert acted is not None
    assert torch.equal(subject.loaded.postprocessor(acted), subject.act(subject.observation(1), seed=7)[:, 0])


def test_a_chunk_does_not_depend_on_the_one_before_and_leaves_the_policy_as_it_was(subject: PolicySubject) -> None:
    first = subject.chunk(0)
    kept = {name: vars(subject.policy).get(name) for name in ("_queues", "_prev_mean")}
    subject.chunk(1)
    assert all(vars(subject.policy).get(name) is value for name, value in kept.items())
    assert not any(kept["_queues"].values() if kept["_queues"] else ())
    assert torch.equal(subject.chunk(0), first)


@pytest.mark.matrix
def test_a_policy_that_cannot_be_trained_here_says_why() -> None:
    actor = load_tiny_subject("gaussian_actor")
    with pytest.raises(UserError, match=r"no training forward pass here: its loss lives in lerobot\.rl"):
        actor.call("training forward", 2)


def test_vqbets_later_training_steps_are_one_setting_away() -> None:
    made = load_tiny_subject("vqbet", "--n_vqvae_training_steps=1")
    made.call("training forward", 2)(0)
    assert {"image encoder", "GPT", "action head", "loss"} <= set(part_names(made, "training forward"))


def test_the_value_of_a_plan_depends_on_its_weights() -> None:
    """LeRobot begins the heads at zero, where no treatment of them could be seen to be wrong."""
    made = load_tiny_subject("tdmpc")
    policy: Any = made.policy
    before = made.chunk(0)
    with torch.no_grad():
        for head in policy.model._Qs:
            head[-1].weight.neg_()
    assert not torch.equal(made.chunk(0), before)


def test_each_objective_of_the_dit_has_its_own_number_of_steps() -> None:
    made = load_tiny_subject("multi_task_dit")
    flow = ["--device=cpu", "--objective=flow_matching", "--use_separate_rgb_encoder_per_camera=true"]
    flowing = load_subject(PolicyOptions(type="multi_task_dit", size="tiny", overrides=flow))
    for subject, name, built in ((made, "num_inference_steps", 10), (flowing, "num_integration_steps", 100)):
        assert subject.traits("inference", 1).denoising_steps == built
        undo = make({f"policy.{name}": 3}).apply(subject)
        assert part_names(subject, "inference").count("denoise step") == 3
        undo()
    assert {"vision encoder 0", "vision encoder 1"} <= set(part_names(flowing, "inference"))
    require_parts(flowing, "inference", {"text encoder"})


def test_the_dit_reads_its_prompt_and_uses_its_blocks() -> None:
    made = load_tiny_subject("multi_task_dit")
    policy: Any = made.policy
    observation = made.observation(0)
    first, other = made.act(observation, 0), made.act(observation | {"task": "pick up the red cube"}, 0)
    assert not torch.equal(first, other)
    with torch.no_grad():
        policy.noise_predictor.transformer_blocks[1].mlp[0].weight.neg_()
    assert not torch.equal(made.act(observation, 0), first)
