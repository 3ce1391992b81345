"""The levers of training on tiny versions of real policies: what they compute, and that they leave no trace."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.builders.tiny_policies import load_tiny_subject
from support.checks.treatment_block import treat
from support.suite.matrix import matrix
from torch import Tensor

from strobe.commands.variants import lever, parse_levers, worth_trying
from strobe.core.errors import UserError
from strobe.core.measure.sampling import SamplingBudget
from strobe.core.studies.compare import compare
from strobe.core.studies.shared.gradients import gradients
from strobe.core.studies.shared.measuring import Options
from strobe.core.treatments.treatment import Effect, Treatment, Undo, Variant
from strobe.core.treatments.words import BATCH_NORM, LEVERS
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.policies.training_step import own_autocast
from strobe.treatments.numbers.channels_last import ChannelsLast
from strobe.treatments.training import Accumulate, MixedPrecision, OptimizerForm

POLICIES = ("act", "diffusion", "smolvla")
SMALL = InputOptions(image_size=(32, 32))  # what is tested does not depend on the images
USUAL = InputOptions(image_size=(64, 64))  # a diffusion policy normalises over the images' places, and needs several
ON_A_CPU = ("amp", "channels_last", "fused", "accumulate=2")


@cache
def subject(kind: str) -> PolicySubject:
    size = USUAL if kind == "diffusion" else SMALL
    return load_tiny_subject(kind, inputs=size)


@cache
def raw(kind: str, size: int = 2) -> dict[str, Any]:
    return subject(kind).inputs.batch(size)


def gradient(kind: str, *treatments: Any) -> list[Tensor]:
    owner = subject(kind)
    undo = Variant("it", treatments).apply(owner)
    try:
        owner.gradient(raw(kind))
        return [p.grad.clone() for p in owner.policy.parameters() if p.grad is not None]
    finally:
        undo()
        owner.policy.zero_grad()


def cosine(one: list[Tensor], other: list[Tensor]) -> float:
    a, b = (torch.cat([g.double().flatten() for g in gradient]) for gradient in (one, other))
    return float(a @ b / (a.norm() * b.norm()))


def weights(kind: str) -> list[Tensor]:
    policy = subject(kind).policy
    return [t.detach().clone() for t in policy.parameters()]


def layouts(kind: str) -> list[tuple[int, ...]]:
    return [p.stride() for p in subject(kind).policy.parameters()]


def same_bits(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", matrix(POLICIES))
def test_a_step_leaves_the_weights_where_they_were(kind: str):
    before = weights(kind)
    call = subject(kind).call("training step", 2)
    call(0)
    call(1)
    assert same_bits(before, weights(kind))


@pytest.mark.parametrize("kind", matrix(POLICIES))
@pytest.mark.parametrize("form", matrix(["fused", "foreach"]))
def test_the_optimizer_in_another_form_takes_the_same_step(kind: str, form: str):
    owner = subject(kind)
    optimizer = owner.training.optimizer
    start, state = weights(kind), copy.deepcopy(optimizer.state_dict())
    moved = []
    for treatments in ((OptimizerForm("forloop"),), (OptimizerForm(form),)):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        undo = Variant("it", treatments).apply(owner)
        owner.call("training step", 2)  # checks the memory, as a study does
        owner._train(raw(kind), 0, step=True)
        undo()
        moved.append(weights(kind))
        with torch.no_grad():
            for parameter, value in zip(owner.policy.parameters(), start, strict=True):
                parameter.copy_(value)
        optimizer.load_state_dict(copy.deepcopy(state))
    assert not same_bits(start, moved[0])
    for a, b in zip(*moved, strict=True):
        # Of a step of 1e-3 in any direction; SmolVLA holds weights, and so moments, in bfloat16 and rounds both.
        eps = torch.finfo(a.dtype).eps
        assert torch.allclose(a, b, rtol=2 * eps, atol=max(1e-6, 1e-3 * 4 * eps))


@pytest.mark.parametrize("kind", matrix(["act", "diffusion"]))
def test_channels_last_gives_the_same_gradient_and_the_bits_back(kind: str):
    before, strides, plain = weights(kind), layouts(kind), gradient(kind)
    treatment = ChannelsLast()
    with treat(subject(kind), treatment):
        convolution = next(p for p in subject(kind).policy.parameters() if p.dim() == 4 and p.shape[-1] > 1)
        assert convolution.is_contiguous(memory_format=torch.channels_last)
        assert same_bits(before, weights(kind))
    changed = gradient(kind, treatment)
    assert cosine(plain, changed) > 1 - 1e-4
    assert same_bits(before, weights(kind))
    assert layouts(kind) == strides


def test_channels_last_keeps_what_a_step_learnt_in_it():
    owner = subject("act")
    optimizer = owner.training.optimizer
    start, state = weights("act"), copy.deepcopy(optimizer.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    undo = ChannelsLast().apply(owner)
    owner._train(raw("act"), 0, step=True)
    learnt = weights("act")
    undo()
    assert same_bits(learnt, weights("act"))
    assert not same_bits(start, learnt)
    kept = [m for held in optimizer.state.values() for m in held.values() if isinstance(m, Tensor) and m.dim() == 4]
    assert kept
    assert all(m.is_contiguous() for m in kept)
    with torch.no_grad():
        for parameter, value in zip(owner.policy.parameters(), start, strict=True):
            parameter.copy_(value)
    optimizer.load_state_dict(state)


@pytest.mark.parametrize("kind", matrix(POLICIES))
def test_mixed_precision_casts_the_forward_pass_and_keeps_the_direction(kind: str):
    owner = subject(kind)
    seen = []
    layers = [m for m in owner.policy.modules() if isinstance(m, torch.nn.Linear) and m.weight.requires_grad]
    hooks = [m.register_forward_hook(lambda _module, _input, output: seen.append(output.dtype)) for m in layers]
    try:
        plain, half = gradient(kind), gradient(kind, MixedPrecision("bf16"))
    finally:
        for hook in hooks:
            hook.remove()
    if kind != "smolvla":  # which holds most of its weights in bfloat16 already
        assert set(seen) == {torch.float32, torch.bfloat16}
    assert all(g.dtype == p.dtype for g, p in zip(half, plain, strict=True))
    assert cosine(plain, half) > 0.8  # Diffusion's tiny U-Net normalises over few numbers


def test_float16_scales_its_loss_and_its_step_is_finite():
    owner = subject("act")
    with treat(owner, MixedPrecision("fp16")):
        scaler = owner.training.scaler
        assert scaler is not None
        owner.call("training step", 2)(0)
        assert scaler.get_scale() > 1
        assert owner.training.scaler is scaler, "its scale must live through the steps"
    assert owner.training.scaler is None


def test_autocast_to_the_other_format_of_16_bits_is_refused_in_a_line():
    """SmolVLA's backbone is in bfloat16, which autocast to float16, CUDA's default, cannot join with its own."""
    with pytest.raises(UserError, match=r"amp=fp16: .* has weights in bf16, .*: amp=bf16"):
        MixedPrecision("fp16").apply(subject("smolvla"))
    MixedPrecision("fp16").apply(subject("act"))()


def test_micro_batches_give_the_batch_s_gradient():
    # In float64 and without noise, where nothing but the order of sums differs.
    owner = load_tiny_subject("act", "--use_vae=false", "--dropout=0.0", inputs=SMALL)
    owner.policy.double()
    latent = owner.policy.get_submodule("model.encoder_latent_input_proj")  # which ACT hands float32 zeros
    latent.register_forward_pre_hook(lambda _module, given: (given[0].double(),))
    batch = owner.inputs.batch(4)
    wide = {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in batch.items()}
    preprocess = owner.loaded.preprocessor

    def to_double(part: dict[str, Any]) -> dict[str, Any]:
        done = preprocess(part)
        return {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in done.items()}

    owner.loaded.preprocessor = to_double  # type: ignore[assignment]
    with treat(subject("diffusion"), halves := Accumulate(2)):
        assert halves.traits().notes[BATCH_NORM]
    found = []
    for treatments in ((), (halves,), (Accumulate(4),)):
        undo = Variant("it", treatments).apply(owner)
        loss = owner.gradient(wide)
        undo()
        found.append((float(loss), [p.grad.clone() for p in owner.policy.parameters() if p.grad is not None]))
    for loss, one in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-12)
        for a, b in zip(one, found[0][1], strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-13)


def test_a_batch_that_cannot_be_cut_is_refused():
    with pytest.raises(UserError, match="cannot be split into 4"):
        gradient("act", Accumulate(4))


@pytest.mark.parametrize("kind", matrix(["act", "diffusion"]))
@given(order=st.permutations(ON_A_CPU), steps=st.integers(1, 2))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_levers_together_in_any_order_compute_the_same_and_leave_no_trace(order: list[str], kind: str, steps: int):
    owner = subject(kind)
    before, strides = weights(kind), layouts(kind)
    groups = [{k: v for k, v in g.items() if k != "params"} for g in owner.training.optimizer.param_groups]
    variant = parse_levers("+".join(order))[0]
    together = gradient(kind, *variant.treatments)
    reference = gradient(kind, MixedPrecision("bf16"), Accumulate(2))
    assert cosine(together, reference) > 0.9  # sums in another order, rounded to bfloat16
    for index in range(steps):
        undo = variant.apply(owner)
        owner._train(raw(kind), index, step=True)
        undo()
    assert same_bits(before, weights(kind))
    assert layouts(kind) == strides
    assert [{k: v for k, v in g.items() if k != "params"} for g in owner.training.optimizer.param_groups] == groups
    training = owner.training
    assert (training.autocast, training.micro_batches, training.image_format) == (None, 1, None)


@pytest.mark.slow("training steps under each lever")
def test_gradients_are_compared_on_the_same_weights_and_seed(monkeypatch):
    # A CPU takes seconds for a pass in float16: a scale that is too large once rather than seven times.
    monkeypatch.setattr("strobe.core.studies.shared.gradients.LARGEST_SCALE", 2048.0)
    owner = load_tiny_subject("act", inputs=SMALL)
    variants = [Variant("baseline"), Variant("again"), *parse_levers("amp=fp16,accumulate=2")]
    check = gradients(owner, variants, 2)
    assert not check.note
    found = check.agreements
    assert found["again"].cosine == pytest.approx(1, abs=1e-12)
    assert found["again"].loss_error == 0
    assert found["again"].seed_cosine is not None
    assert found["again"].seed_cosine < 0.9999, "another seed must draw other noise"
    half = found["amp=fp16"]
    assert half.cosine > 0.99
    assert half.underflow is not None
    assert 0 < half.underflow < 1
    assert found["accumulate=2"].own_noise
    assert "noise of their own" in found["accumulate=2"].note


def test_a_broken_lever_is_seen_in_the_gradient():
    class Reversed(Treatment):
        effect: Effect = "lossy"

        def apply(self, subject: Any) -> Undo:
            forward = subject.policy.forward
            subject.policy.__dict__["forward"] = lambda batch: (-forward(batch)[0], {})
            return lambda: subject.policy.__dict__.pop("forward")

    found = gradients(subject("act"), [Variant("baseline"), Variant("broken", (Reversed(),))], 2).agreements
    assert found["broken"].cosine == pytest.approx(-1)
    assert found["broken"].loss_error == pytest.approx(2)


@pytest.mark.slow("a whole comparison of training steps")
def test_a_comparison_of_levers_has_verdicts_memory_and_gradients():
    variants = [Variant("baseline"), *parse_levers("amp,fused,accumulate=2")]
    result, _ = compare(subject("act"), variants, "training step", Options(SamplingBudget(iterations=2), batch_size=2))
    assert [c.candidate for c in result.comparisons] == ["amp", "fused", "accumulate=2"]
    assert all(c.gradient is not None for c in result.comparisons)
    assert all(m.memory.peak_activations for m in result.measurements)
    assert [one.lerobot_flag for one in result.measurement("amp").traits.treatments] == ["--policy.use_amp=true"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amb", "did you mean 'amp'"), ("amp=int8", "amp=int8"), ("fused=yes", "takes no value"),
        ("accumulate", "whole number"), ("cudnn", "benchmark or default"), ("tf32=yes", "true or false"),
        ("accumulate=1", "at least 2"), ("amp,amp", "twice"), ("fused+foreach", "twice"),
        ("compile=fast", "compile=fast"), ("", "no lever"),
    ],
)  # fmt: skip
def test_what_is_no_lever_is_told_in_a_line(text: str, said: str):
    with pytest.raises(UserError, match=said):
        parse_levers(text)


def test_a_lever_that_does_not_apply_is_told_in_a_line():
    with pytest.raises(UserError, match="tensor cores"):
        lever("tf32").apply(subject("act"))
    variants, left_out = worth_trying(subject("act"), 6)
    assert [v.name for v in variants] == ["amp", "channels_last", "fused", "compile", "amp+channels_last+fused"]
    assert [text.split(":")[0] for text in left_out] == ["accumulate=4", "checkpointing"]


def test_the_config_says_what_lerobot_train_casts_to():
    owner = load_tiny_subject("act", "--use_amp=true", image_size=(64, 64))
    # LeRobot itself turns use_amp off where it knows no AMP for the device.
    wanted = torch.get_autocast_dtype("cpu") if owner.policy.config.use_amp else None
    assert own_autocast(owner.policy) == wanted
    owner.policy.config.dtype = "bfloat16"  # type: ignore[attr-defined]
    assert own_autocast(owner.policy) is torch.bfloat16
    owner.policy.config.dtype = "float32"  # type: ignore[attr-defined]
    assert own_autocast(owner.policy) is None


def test_every_lever_has_a_treatment():
    for name in LEVERS:
        assert lever(name, {"accumulate": "2", "cudnn": "default"}.get(name, "")).traits().key == name


@pytest.mark.gpu
def test_levers_on_a_gpu_leave_the_weights_and_the_counters_where_they_were():
    owner = load_subject(
        PolicyOptions(type="act", size="tiny", overrides=["--device=cuda"]), InputOptions(image_size=(64, 64))
    )
    before = [p.detach().clone() for p in owner.policy.parameters()]
    batch = owner.inputs.batch(4)
    owner._train(batch, 0, step=True)
    for variant in parse_levers("tf32+amp=fp16+channels_last+fused+accumulate=2,amp=bf16,fused"):
        undo = variant.apply(owner)
        owner._train(batch, 0, step=True)
        undo()
        owner._train(batch, 0, step=True)
    assert same_bits(before, [p.detach() for p in owner.policy.parameters()])
    steps = [state["step"] for state in owner.training.optimizer.state.values()]
    assert {s.device.type for s in steps} == {"cpu"}


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_gradients_on_a_gpu_agree_but_for_noise_that_a_lever_draws_itself(dropout: float):
    owner = load_subject(
        PolicyOptions(type="act", size="tiny", overrides=["--device=cuda", f"--dropout={dropout}"]),
        InputOptions(image_size=(64, 64)),
    )
    variants = [Variant("baseline"), *parse_levers("tf32,amp=fp16,amp=bf16,channels_last,fused")]
    found = gradients(owner, variants, 4).agreements
    assert {name for name, one in found.items() if one.own_noise} == {"amp=fp16", "amp=bf16"}
    assert all(one.cosine > (0.999 if dropout == 0 else 0.95) for one in found.values())
    assert all(one.cosine > 0.999 for one in found.values() if not one.own_noise)
