"""RTC's guidance in closed form is LeRobot's own, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lerobot.configs.types import RTCAttentionSchedule
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from lerobot.policies.rtc.modeling_rtc import RTCProcessor

from strobe.core.errors import UserError
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.treatments.flow.rtc import ClosedFormGuidance, Guidance, require_identity


@settings(deadline=None, max_examples=60)
@given(
    schedule=st.sampled_from(list(RTCAttentionSchedule)),
    lengths=st.tuples(st.integers(2, 12), st.integers(1, 12), st.integers(1, 14), st.integers(0, 14)),
    time=st.sampled_from([1.0, 0.9, 0.5, 0.1, 1e-3]) | st.floats(0.001, 1),
    narrow=st.booleans(),
    flat=st.booleans(),
    as_tensor=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_guided_velocity_has_the_same_bits(
    schedule: Any, lengths: tuple[int, int, int, int], time: float, narrow: bool, flat: bool, as_tensor: bool, seed: int
) -> None:
    steps, left, horizon, delay = lengths
    processor = RTCProcessor(RTCConfig(enabled=True, prefix_attention_schedule=schedule, execution_horizon=horizon))
    generator = torch.Generator().manual_seed(seed)
    latent = torch.randn(1, steps, 4, generator=generator)
    previous = torch.randn(1, min(left, steps), 3 if narrow else 4, generator=generator)
    weights = torch.randn(4, 4, generator=generator, requires_grad=True)
    if flat:
        latent, previous = latent[0], previous[0]
    at = torch.tensor(time) if as_tensor else time
    arguments = (latent, previous, delay, at, lambda x: torch.tanh(x @ weights))
    theirs = processor.denoise_step(*arguments)
    ours = Guidance(processor)(*arguments)
    assert torch.equal(theirs.detach(), ours)
    assert not ours.requires_grad


def test_the_first_chunk_has_nothing_to_continue() -> None:
    latent = torch.randn(1, 4, 2)
    guidance = Guidance(RTCProcessor(RTCConfig(enabled=True)))
    assert torch.equal(guidance(latent, None, 0, 1.0, lambda x: 2 * x), 2 * latent)


def test_a_previous_chunk_that_does_not_fit_is_told() -> None:
    guidance = Guidance(RTCProcessor(RTCConfig(enabled=True)))
    with pytest.raises(ValueError, match=r"does not fit into the latent \(1, 4, 2\)"):
        guidance(torch.randn(1, 4, 2), torch.randn(1, 5, 2), 0, 0.5, lambda x: x)


def test_a_lerobot_that_differentiates_through_the_denoiser_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = RTCProcessor(RTCConfig(enabled=True))
    require_identity(processor)

    def differentiate_denoiser(
        x_t: Any, prev_chunk_left_over: Any, inference_delay: int, time: float, **rest: Any
    ) -> Any:
        with torch.enable_grad():
            latent = x_t.clone().requires_grad_(True)
            velocity = rest["original_denoise_step_partial"](latent)
            clean = latent - time * velocity
            error = (prev_chunk_left_over - clean).detach()
            return velocity - torch.autograd.grad(clean, latent, error)[0]

    monkeypatch.setattr(processor, "denoise_step", differentiate_denoiser)
    with pytest.raises(UserError, match="not exact"):
        require_identity(processor)


def test_without_rtc_it_does_not_apply() -> None:
    subject = load_subject(PolicyOptions(type="smolvla", size="tiny", overrides=["--device=cpu"]))
    with pytest.raises(UserError, match=r"needs RTC: add --rtc\.execution_horizon"):
        ClosedFormGuidance().apply(subject)
