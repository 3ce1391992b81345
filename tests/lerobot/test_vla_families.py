"""Policies around a vision-language model that no other record shares: what they keep between calls, stand-ins."""

from __future__ import annotations

from typing import Any

import torch

from strobe.core.subjects.subject import Subject
from strobe.core.treatments.treatment import Treatment, Undo, Variant
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions


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


def test_the_config_of_eo1_needs_no_hub_and_has_the_real_sizes() -> None:
    config: Any = lerobot_policies.config_from_type("eo1", ["--device=cpu"])
    text, vision = config.vlm_backbone_config.text_config, config.vlm_backbone_config.vision_config
    assert (text.hidden_size, text.num_hidden_layers, text.vocab_size, text.rms_norm_eps) == (2048, 36, 151936, 1e-6)
    assert (vision.hidden_size, vision.depth, vision.out_hidden_size) == (1280, 32, 2048)
