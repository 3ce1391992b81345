"""Policies as others know them: guided by RTC, cut along modules where no record is, and records that do not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from support.checks.family_checks import section_paths
from support.suite.matrix import matrix
from torch import nn

from strobe.core.families.modules import build_module_family
from strobe.core.families.registry import policy_family
from strobe.core.timeline import ProbeError, Timeline
from strobe.core.timeline.probe import Attached
from strobe.lerobot.families.answers import predict
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.treatments.flow.rtc import RealTimeChunking


@pytest.mark.parametrize("policy_type", matrix(["pi05", "smolvla", "pi0"]))
def test_rtc_wraps_every_denoising_step(policy_type):
    subject = load_subject(PolicyOptions(type=policy_type, size="tiny"))
    rtc = RealTimeChunking(RTCConfig(execution_horizon=4), inference_delay=2)
    plain = subject.chunk(0)
    undo = rtc.apply(subject)
    found = section_paths(subject, "inference")
    guided = subject.chunk(0)
    undo()
    steps = [path for path in found if path[-1] == "RTC step"]
    assert len(steps) == sum(path[-2:] == ("RTC step", "denoise step") for path in found)
    assert len(steps) == sum(path[-2:] == ("RTC step", "autograd correction") for path in found) > 0
    assert not torch.equal(plain, guided)
    assert torch.equal(subject.chunk(0), plain)
    config: Any = subject.policy.config
    assert config.rtc_config is None


@pytest.mark.parametrize("policy_type", matrix(["act", "diffusion", "smolvla", "pi0", "pi05"]))
def test_a_policy_that_nobody_here_has_seen_is_cut_along_its_modules(policy_type):
    subject = load_subject(PolicyOptions(type=policy_type, size="tiny"))
    generic = build_module_family(subject.policy)
    hooks = generic.hooks(subject.policy, training=False, depth=1)
    with Attached(hooks), Timeline() as timeline:
        subject.chunk(0)
    fired = {section.name for section in timeline.sections()}
    assert fired & {hook.name for hook in hooks}


def test_an_anatomy_that_does_not_fit_fails_with_the_probes_name():
    subject = load_subject(PolicyOptions(type="act", size="tiny"))
    policy: Any = subject.policy
    policy.model.trunk = policy.model.backbone
    del policy.model.backbone
    with pytest.raises(ProbeError, match=r"^probe 'backbone' does not fit lerobot's ACTPolicy"):
        policy_family(subject.policy).hooks(subject.policy, training=False)


def test_containers_are_looked_through_in_a_generic_cut():
    class Config:
        type = "never seen"

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = Config()
            self.model: Any = nn.Module()
            self.model.trunk = nn.Linear(2, 2)
            self.model.heads = nn.ModuleDict({"left": nn.Linear(2, 2), "right": nn.Linear(2, 2)})

        def forward(self, x):
            return sum(head(self.model.trunk(x)) for head in self.model.heads.values())

    policy = Policy()
    with Attached(policy_family(policy).hooks(policy, training=False)), Timeline() as timeline:
        policy(torch.ones(1, 2))
    assert [s.name for s in timeline.sections()] == ["trunk", "heads.left", "trunk", "heads.right"]


def test_a_generic_cut_names_the_methods_in_which_a_policys_own_modules_work(monkeypatch):
    """As a vision backbone that is trained at inference does (act_ttt, a plug-in)."""

    class Backbone(nn.Module):
        def forward(self, x):
            return x

        def adapt(self, x):
            return x + 1

        def _inner(self, x):
            return x

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.model: Any = nn.ModuleDict({"backbone": Backbone(), "head": nn.Linear(2, 2)})

        def forward(self, x):
            return self.model["head"](self.model["backbone"].adapt(self.model["backbone"]._inner(x)))

    for kind in (Policy, Backbone):
        monkeypatch.setattr(kind, "__module__", "lerobot_policy_made_up.modeling")
    policy = Policy()
    with Attached(build_module_family(policy).hooks(policy, training=False)), Timeline() as timeline:
        policy(torch.ones(1, 2))
    assert [section.name for section in timeline.sections()] == ["model.backbone.adapt", "model.head"]


class Smooth(nn.Module):
    """The part of ACT-Smooth that Strobe calls; the plug-in is not installed here."""

    def __init__(self, width):
        super().__init__()
        self.config = SimpleNamespace(type="act_smooth", action_feature=SimpleNamespace(shape=(width,)))

    def build_inference_action_prefix(self, future, past):
        assert past.shape[1] == 0
        return future, torch.zeros(future.shape[:2], dtype=torch.bool)

    def predict_action_chunk(self, batch):
        assert not batch["inference_action_is_pad"].any()
        return batch["inference_action"].expand(-1, 4, -1)


@pytest.mark.parametrize(("width", "continued"), [(3, 7.0), (2, 0.0)])
def test_a_chunk_that_must_continue_actions_continues_the_state(width, continued):
    chunk = predict(Smooth(width), {"observation.state": torch.full((1, 3), 7.0)})
    assert torch.equal(chunk, torch.full((1, 4, width), continued))
