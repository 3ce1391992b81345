"""Records of the policies around a vision-language model that no other record shares: parts, stand-ins, chunks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.family_checks import parts_of, require_parts, require_the_same_actions_under_probes
from support.matrix import matrix

from strobe.policies import lerobot_policies
from strobe.policies.loading import load_subject
from strobe.policies.options import PolicyOptions
from strobe.policies.policy_subject import PolicySubject
from strobe.policies.subject import Subject
from strobe.treatments.treatment import Treatment, Undo, Variant

# policy type → parts that inference and the training forward pass must show at the default depth
PARTS = {
    "eo1": (
        {"prefix embedding", "vision tower", "prefix KV cache", "denoise step", "action expert", "action head"},
        {"prefix embedding", "suffix embedding", "vision tower", "joint transformer", "action head"},
    ),
    "evo1": (
        {"vision tower", "language model", "denoise step", "cross-attention blocks", "action head"},
        {"vision tower", "language model", "action encoder", "cross-attention blocks", "action head"},
    ),
    "molmoact2": (
        {"vision backbone", "prefix KV cache", "context keys and values", "timesteps", "denoise step"},
        {"vision backbone", "language model", "context keys and values", "action expert", "action head"},
    ),
    "wall_x": (
        {"prompt and pixels", "vision tower", "denoise step", "language model", "action head"},
        {"prompt and pixels", "vision tower", "suffix embedding", "language model", "words head", "action head"},
    ),
}
STEPS = {"eo1": 10, "evo1": 32, "molmoact2": 10, "wall_x": 10}


@pytest.fixture(scope="module", params=matrix(PARTS))
def subject(request: pytest.FixtureRequest) -> PolicySubject:
    return load_subject(PolicyOptions(type=request.param, size="tiny"))


def test_parts_hold_all_of_the_work(subject: PolicySubject) -> None:
    inference, training = PARTS[subject.policy.config.type]
    require_parts(subject, "inference", inference)
    require_parts(subject, "training forward", training)


def test_probes_change_no_action(subject: PolicySubject) -> None:
    require_the_same_actions_under_probes(subject)


def test_each_denoising_step_is_seen(subject: PolicySubject) -> None:
    steps = STEPS[subject.policy.config.type]
    assert parts_of(subject, "inference").count("denoise step") == steps
    if subject.family.steps:
        assert subject.traits("inference", 1).denoising_steps == steps


class Doubled(Treatment):
    """Twice the shift, scale and gate of the action expert's first block."""

    effect = "lossy"

    def apply(self, subject: Subject) -> Undo:
        weight = subject.module.get_parameter("model.model.action_expert.blocks.0.modulation.linear.weight")
        weight.data *= 2

        def undo() -> None:
            weight.data /= 2

        return undo


def test_what_a_policy_keeps_from_call_to_call_is_each_variants_own() -> None:
    owner = load_subject(PolicyOptions(type="molmoact2", size="tiny"))
    variant = Variant("doubled", (Doubled(),))
    expert: Any = owner.policy.get_submodule("model.model.action_expert")
    plain, kept = owner.chunk(0), expert._modulation_cache_value
    for _ in range(2):
        undo = variant.apply(owner)
        treated = owner.chunk(0)
        undo()
        assert not torch.equal(plain, treated)
        assert expert._modulation_cache_value is kept
        assert torch.equal(owner.chunk(0), plain)


def test_the_checks_change_what_it_is_told(subject: PolicySubject) -> None:
    assert len({str(observation["task"]) for observation in subject.checks(8).observations}) > 1


def test_the_config_of_eo1_needs_no_hub_and_has_the_real_sizes() -> None:
    config: Any = lerobot_policies.config_from_type("eo1", ["--device=cpu"])
    text, vision = config.vlm_backbone_config.text_config, config.vlm_backbone_config.vision_config
    assert (text.hidden_size, text.num_hidden_layers, text.vocab_size, text.rms_norm_eps) == (2048, 36, 151936, 1e-6)
    assert (vision.hidden_size, vision.depth, vision.out_hidden_size) == (1280, 32, 2048)
