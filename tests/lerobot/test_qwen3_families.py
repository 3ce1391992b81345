"""GR00T and VLA-JEPA, both on a Qwen3-VL: made of stand-ins, cut into their parts, guided."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from support.builders.tiny_policies import load_tiny_subject
from support.checks.family_checks import part_names
from support.checks.treatment_block import treat
from support.suite.matrix import matrix

from strobe.core.families.registry import building
from strobe.core.treatments import catalogue
from strobe.lerobot.policies.lerobot_policies import config_from_type
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.flow.rtc import RealTimeChunking
from strobe_zoo import qwen3, vla_jepa

KINDS = ("groot", "vla_jepa")


@cache
def tiny(kind: str) -> PolicySubject:
    # VLA-JEPA's default of bfloat16 cannot be trained on a CPU: LeRobot asks there for an autocast to float32.
    wide = ["--torch_dtype=float32"] if kind == "vla_jepa" else []
    return load_tiny_subject(kind, *wide)


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_fewer_steps_are_fewer_parts(kind):
    owner = tiny(kind)
    with treat(owner, catalogue.make({"policy.num_inference_timesteps": 2})):
        assert part_names(owner, "inference").count("denoise step") == 2
    assert part_names(owner, "inference").count("denoise step") == 4
    assert owner.traits("inference", 1).denoising_steps == 4


def test_groot_is_guided_in_its_own_way_and_left_as_it_was():
    owner = tiny("groot")
    before, names = owner.model_chunk(0), set(vars(owner.policy.config))
    rtc = RealTimeChunking(RTCConfig(enabled=True, execution_horizon=10), 4)
    undo = rtc.apply(owner)
    guided = owner.chunk(0)
    previous = rtc._left_over
    with torch.no_grad():
        batch = owner.loaded.preprocessor(owner.observation(0))
        torch.manual_seed(0)
        chunk = owner.policy.predict_action_chunk(batch, **owner.chunk_options)
    undo()
    assert previous is not None
    assert torch.allclose(chunk[0, :4], previous[:4], atol=0.01), "the first actions are those of the previous chunk"
    assert guided.shape[1] == 40
    assert torch.equal(owner.model_chunk(0), before)
    assert set(vars(owner.policy.config)) == names


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_their_weights_are_those_of_the_released_sizes(kind):
    """Counted on the meta device, so that nothing of that size is made."""
    config: Any = config_from_type(kind, ["--device=cpu"])
    if kind == "groot":
        from lerobot.policies.groot import groot_n1_7, modeling_groot

        with building(config, False), torch.device("meta"):
            model = modeling_groot.GR00TN17.from_pretrained(
                "-", tune_projector=True, tune_diffusion_model=True, tune_vlln=True
            )
        assert isinstance(model, groot_n1_7.GR00TN17)
        assert 3.13e9 < sum(parameter.numel() for parameter in model.parameters()) < 3.15e9
    else:
        from transformers import Qwen3VLForConditionalGeneration, VJEPA2Model

        with torch.device("meta"):
            qwen = Qwen3VLForConditionalGeneration(qwen3.config())
            jepa = VJEPA2Model(vla_jepa.jepa_config())
        assert 2.1e9 < sum(parameter.numel() for parameter in qwen.parameters()) < 2.2e9
        assert 3.0e8 < sum(parameter.numel() for parameter in jepa.parameters()) < 3.5e8


def test_the_tokens_of_images_have_their_own_ids_at_full_size():
    words = qwen3.words().get_vocab()
    assert (words["<|image_pad|>"], words["<|vision_start|>"], len(words)) == (151655, 151652, 151669)
    assert len(set(words.values())) == len(words)
