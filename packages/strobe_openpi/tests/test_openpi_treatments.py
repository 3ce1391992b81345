"""Treatments on openpi's own model, as far as they need no openpi: a stand-in with its names.

`benchmarks/openpi_core.py` runs the real one, in openpi's environment.
"""

from __future__ import annotations

import copy
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support.devices.replayed_graph import Replayed
from torch import Tensor, nn

import strobe_openpi
from strobe.core.errors import UserError
from strobe.core.treatments.patch import Patches
from strobe.core.treatments.treatment import Treatment, Undo
from strobe.treatments.flow.prefix_cache import PrefixCache
from strobe.treatments.graphs.graph import CudaGraph
from strobe_openpi import treatments


def openpis_times(steps: int) -> list[float]:
    """The times as openpi meets them, in tensors of float32."""
    step, time = torch.tensor(-1.0 / steps), torch.tensor(1.0)
    met = []
    while time >= -step / 2:
        met.append(time.item())
        time += step
    return met


class Joint(nn.Module):
    """A stand-in for both transformers: the cache is the sum of the prefix."""

    def __init__(self) -> None:
        super().__init__()
        language: Any = nn.Linear(3, 3)
        expert: Any = nn.Linear(3, 3)
        self.paligemma: Any = nn.Module()
        self.paligemma.model = nn.Module()
        self.paligemma.model.language_model = self.paligemma.language_model = language
        self.gemma_expert: Any = nn.Module()
        self.gemma_expert.model = expert
        language.config = expert.config = SimpleNamespace()

    def forward(self, inputs_embeds: Any, past_key_values: Any = None, **_: Any) -> Any:
        prefix, suffix = inputs_embeds
        if suffix is None:
            return [prefix, None], self.paligemma.language_model(prefix).sum(1, keepdim=True)
        return [None, self.gemma_expert.model(suffix + past_key_values)], None


class PI0Pytorch(nn.Module):
    """A stand-in with the names of openpi's model."""

    __module__ = "openpi.models_pytorch.pi0_pytorch"
    gain = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.pi05, self.config = True, SimpleNamespace(action_horizon=4, action_dim=3)
        self.paligemma_with_expert = Joint()

    def sample_noise(self, shape: Any, device: Any) -> Tensor:
        return torch.normal(mean=0.0, std=1.0, size=shape, dtype=torch.float32, device=device)

    def _preprocess_observation(self, observation: Any, *, train: bool = True) -> Any:
        assert not train
        tokens = observation.tokenized_prompt
        return [observation.image], [torch.ones(1)], tokens, torch.ones_like(tokens), observation.state

    def embed_prefix(self, images: Any, image_masks: Any, tokens: Tensor, token_masks: Tensor) -> Any:
        return images[0] + tokens.sum(), token_masks, token_masks

    def _prepare_attention_masks_4d(self, mask: Tensor) -> Tensor:
        return mask

    def denoise_step(
        self, state: Tensor, prefix_pad_masks: Any, past_key_values: Any, x_t: Tensor, timestep: Tensor
    ) -> Any:
        joint = self.paligemma_with_expert
        (_, made), _ = joint.forward([None, x_t * timestep[:, None, None] + state], past_key_values=past_key_values)
        return made

    @torch.no_grad()
    def sample_actions(self, device: Any, observation: Any, noise: Any = None, num_steps: int = 10) -> Tensor:
        noise = self.sample_noise((1, 4, 3), device) if noise is None else noise
        images, image_masks, tokens, masks, state = self._preprocess_observation(observation, train=False)
        embedded, pads, _ = self.embed_prefix(images, image_masks, tokens, masks)
        _, cache = self.paligemma_with_expert.forward([embedded, None])
        x, step = noise, torch.tensor(-1.0 / num_steps)
        for time in openpis_times(num_steps):
            x = x + self.gain * step * self.denoise_step(state, pads, cache, x, torch.tensor([time]))
        return x


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    modeling: Any = ModuleType(PI0Pytorch.__module__)
    modeling.make_att_2d_masks = lambda pads, order: pads
    monkeypatch.setitem(sys.modules, PI0Pytorch.__module__, modeling)
    torch.manual_seed(0)
    return PI0Pytorch().eval().requires_grad_(False)


def observation(seed: int) -> Any:
    drawn = torch.Generator().manual_seed(seed)
    image, state = torch.randn(1, 5, 3, generator=drawn), torch.randn(1, 3, generator=drawn)
    return SimpleNamespace(image=image, state=state, tokenized_prompt=torch.arange(5)[None] + seed)


def sample_with_seed(model: Any, seed: int) -> Tensor:
    torch.manual_seed(seed)
    return model.sample_actions("cpu", observation(seed))


def apply_treatments(model: Any, played: Replayed, **more: Any) -> Any:
    return strobe_openpi.apply_treatments(model, "graph=chunk", replacing={"graph": CudaGraph("chunk", played)}, **more)


class Doubling(Treatment):
    """A treatment that is not exact: it doubles the velocity."""

    key, effect = "masks", "exact"

    def apply(self, subject: Any) -> Undo:
        patches = Patches()
        patches.wrap(subject.module.model, "denoise_step", lambda step: lambda *given: 2 * step(*given))
        return patches.undo


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 10, 30])
def test_times_are_those_that_openpi_adds_up(steps: int):
    assert treatments.times(steps) == openpis_times(steps)


def test_a_graph_of_the_whole_call_has_the_bits_of_openpis_own_and_draws_the_same_noise(model: Any):
    plain = [sample_with_seed(model, seed) for seed in (1, 2)]
    played = Replayed(warmups=1)
    on = apply_treatments(model, played)
    assert all(torch.equal(before, sample_with_seed(model, seed)) for before, seed in zip(plain, (1, 2), strict=True))
    assert played.recorded == 1
    on.revert()
    assert "sample_actions" not in vars(model)
    assert torch.equal(plain[0], sample_with_seed(model, 1))


def test_openpis_policy_calls_the_treated_model_over_its_own_number_of_steps(model: Any):
    policy = SimpleNamespace(_model=model, _sample_actions=model.sample_actions, _sample_kwargs={"num_steps": 4})
    own, played = policy._sample_actions, Replayed(warmups=1)
    plain = own("cpu", observation(1), noise=torch.ones(1, 4, 3), num_steps=4)
    on = apply_treatments(policy, played)
    assert torch.equal(plain, policy._sample_actions("cpu", observation(1), noise=torch.ones(1, 4, 3), num_steps=4))
    assert played.recorded == 1
    on.revert()
    assert policy._sample_actions == own


def test_a_copy_of_openpis_policy_calls_the_model_that_it_holds(model: Any):
    policy = SimpleNamespace(_model=model, _sample_actions=model.sample_actions)
    on = apply_treatments(policy, Replayed(warmups=1))
    plain = policy._sample_actions("cpu", observation(1), noise=torch.ones(1, 4, 3))
    twin = copy.deepcopy(policy)
    assert torch.equal(plain, twin._sample_actions("cpu", observation(1), noise=torch.ones(1, 4, 3)))
    with torch.no_grad():
        twin._model.paligemma_with_expert.gemma_expert.model.weight.zero_()
    assert not torch.equal(plain, twin._sample_actions("cpu", observation(1), noise=torch.ones(1, 4, 3)))
    assert torch.equal(plain, policy._sample_actions("cpu", observation(1), noise=torch.ones(1, 4, 3)))
    on.revert()


def test_a_model_that_samples_in_another_way_is_refused(model: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PI0Pytorch, "gain", 1.01)
    apply_treatments(model, Replayed(warmups=1))
    with pytest.raises(UserError, match="samples differently"):
        sample_with_seed(model, 1)


def test_the_first_call_is_held_against_the_model_without_any_treatment(model: Any):
    on = strobe_openpi.apply_treatments(model, "masks=once", replacing={"masks": Doubling()})
    for _ in range(2):  # it is refused until it was right once
        with pytest.raises(UserError, match="not exact"):
            sample_with_seed(model, 1)
    on.revert()
    assert "denoise_step" not in vars(model)


def test_what_is_not_shown_to_be_exact_is_refused(model: Any):
    for wrong in ("padding=trimmed", "graph=loop"):
        with pytest.raises(UserError, match="not for openpi's model"):
            strobe_openpi.apply_treatments(model, wrong)
    for other in (nn.Linear(2, 2), type("Derived", (PI0Pytorch,), {"__module__": __name__})()):
        with pytest.raises(UserError, match="pass openpi's PI0Pytorch"):
            strobe_openpi.apply_treatments(other, "masks=once")
    with pytest.raises(UserError, match="at least 1"):
        strobe_openpi.apply_treatments(model, "graph=chunk", steps=0)
    on = apply_treatments(model, Replayed(warmups=1), steps=5)
    with pytest.raises(UserError, match="for 5 denoising steps, not 10"):
        sample_with_seed(model, 1)
    with pytest.raises(UserError, match="already"):
        apply_treatments(model, Replayed())
    on.revert()


def test_a_cache_of_transformers_4_53_is_laid_down():
    keys, values = torch.randn(1, 1, 3, 2), torch.randn(1, 1, 3, 2)
    cache = PrefixCache().lay(SimpleNamespace(key_cache=[keys], value_cache=[values]))
    suffix = torch.randn(1, 1, 2, 2)
    with torch.no_grad():
        joined = cache.update(suffix, suffix, 0)
    assert torch.equal(joined[0], torch.cat([keys, suffix], dim=2))
    assert torch.equal(joined[1], torch.cat([values, suffix], dim=2))
