"""FastWAM and LingBot-VA, both on Wan 2.2: frozen modules outside of the policy's tree, states, memory."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from support.suite.matrix import matrix
from torch import nn

from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.families.capabilities import Unregistered
from strobe.core.measure.memory import weight_bytes
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.studies.shared.measuring import Options, measure
from strobe.core.treatments.treatment import Variant
from strobe.lerobot.policies import build, inputs
from strobe.lerobot.policies.build import build_fast
from strobe.lerobot.policies.lerobot_policies import config_from_type
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject

FEW = {"fastwam": ["--num_inference_steps=3"], "lingbot_va": ["--num_inference_steps=2"]}
KINDS = tuple(FEW)


@cache
def tiny(kind: str) -> PolicySubject:
    few = [*FEW[kind], *(["--action_num_inference_steps=3"] if kind == "lingbot_va" else [])]
    return load_tiny_subject(kind, *few)


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_what_stands_outside_of_the_tree_is_counted_and_in_eval_mode(kind):
    owner = tiny(kind)
    outside = Unregistered.from_family(owner.family).outside(owner.policy)
    registered = {id(module) for module in owner.policy.modules()}
    assert len(outside) == 2
    assert not registered & {id(module) for module in outside}
    assert not any(module.training for one in outside for module in one.modules())
    assert not any(p.is_meta for one in outside for p in one.parameters())
    whole = sum(p.numel() for one in (owner.policy, *outside) for p in one.parameters())
    assert owner.info.parameters == whole
    owner.policy.train()
    first = owner.chunk(0)
    assert torch.equal(owner.chunk(0), first), "no dropout outside either"


def test_fastwam_trains_in_float32():
    assert "in float32: LeRobot's FastWAM does not run in bfloat16 on a CPU" in tiny("fastwam").notes


def test_lingbot_va_says_in_a_line_what_training_it_takes(capsys: pytest.CaptureFixture[str]):
    few = ["--policy.num_inference_steps=1", "--policy.action_num_inference_steps=1"]
    told = ["breakdown", "--policy.type=lingbot_va", "--policy.size=tiny", "--policy.device=cpu", *few]
    assert main([*told, "--phases=[training forward]"]) == 2
    assert "training requires attn_mode='flex'" in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_chunk_of_lingbot_va_is_an_episodes_first_one():
    owner: Any = tiny("lingbot_va")
    chunks = [owner.model_chunk(0) for _ in range(2)]
    assert chunks[0].shape == (1, 12, 7)
    assert torch.equal(*chunks), "nothing of the first is left in the second"


def test_fastwams_own_dimensions_are_followed():
    owner = load_tiny_subject("fastwam", "--action_dim=6", "--proprio_dim=5", "--num_inference_steps=1", cameras=1)
    assert list(owner.policy.config.image_features) == ["observation.images.front"]
    assert owner.chunk(0).shape == (1, 32, 6)
    assert not torch.equal(owner.chunk(0), owner.chunk(1))


@pytest.mark.parametrize(("kind", "gib"), [("fastwam", "46.2"), ("lingbot_va", "21.4")])
def test_the_full_size_with_all_outside_of_it_is_refused_before_memory_is_taken(kind, gib, monkeypatch):
    free = 2**30
    monkeypatch.setattr(build.psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    monkeypatch.setattr(build._DeferredInit, "value", lambda *_: pytest.fail("memory was taken"))
    with pytest.raises(UserError, match=rf"its weights take {gib} GiB, and 1\.0 GiB are free on this machine"):
        load_subject(PolicyOptions(type=kind, overrides=["--device=cpu"]))


def test_modules_outside_of_the_tree_are_filled_like_those_inside():
    class Outside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            object.__setattr__(self, "hidden", nn.Linear(512, 512))

    built: Any = build_fast(Outside, above=1000, outside=lambda module: [module.hidden])
    weight = built.hidden.weight
    assert not weight.is_meta
    assert 0.9 < float(weight.detach().abs().max()) * 512**0.5 <= 1


def test_cameras_that_a_config_makes_up_give_way_to_the_arms():
    config = config_from_type("fastwam", ["--device=cpu"])
    assert config.pretrained_path is None, "not the Hub's checkpoint"
    seen = [key for key in inputs.synthetic(config, tiny=True).features if "images" in key]
    assert seen == ["observation.images.front", "observation.images.wrist"]


@pytest.mark.parametrize("kind", matrix(KINDS))
def test_the_memory_of_a_measurement_holds_the_weights_outside_of_the_tree(kind):
    owner = tiny(kind)
    found = measure(owner, "inference", [Variant("baseline")], Options(SamplingBudget(iterations=2), counted=False))
    weights = weight_bytes(owner.policy, *Unregistered.from_family(owner.family).outside(owner.policy))
    assert [one.memory.weights for one in found.measurements] == [weights]
    assert weights >= owner.info.weight_bytes > weight_bytes(owner.policy)
