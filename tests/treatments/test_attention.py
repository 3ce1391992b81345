"""torch's fused attention in place of eager attention: the same numbers under every mask, and no trace."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_short_subject
from support.checks.treatment_block import treat
from support.fakes.module_subject import Bare
from support.suite.matrix import matrix
from torch import Tensor, nn
from transformers import SiglipVisionConfig, SiglipVisionModel
from transformers.models.gemma.modeling_gemma import eager_attention_forward

from strobe.core.errors import UserError
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.engines.backends import convert_to_openvino
from strobe.treatments.layers import attention
from strobe.treatments.layers.attention import FusedAttention, attend

LOW = -2.3819763e38  # LeRobot's
tiny = functools.cache(load_short_subject)


def chunk(subject: PolicySubject, *treatments: Treatment) -> Tensor:
    with treat(subject, Variant("v", treatments)):
        return subject.model_chunk(0)


def fused_calls(run: Any) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    return sum(event.count for event in profile.key_averages() if event.key == "aten::scaled_dot_product_attention")


def places(module: nn.Module) -> list[Any]:
    return [{name: id(value) for name, value in vars(child).items()} for child in module.modules()]


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (8, 1), (6, 3)])
@pytest.mark.parametrize("mask", ["none", "additive", "boolean", "of another dtype"])
def test_it_is_eager_attention(heads: int, shared: int, mask: str) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(2, count, length, 8, generator=generator, dtype=torch.float64)
        for count, length in ((heads, 5), (shared, 7), (shared, 7))
    )
    look = torch.rand(2, 1, 5, 7, generator=generator) < 0.6
    look[1, 0, 3] = False  # a query that is padding
    given = {
        "none": None,
        "additive": torch.where(look, 0.0, LOW).double(),
        "boolean": look,
        "of another dtype": torch.where(look, 0.0, LOW),
    }[mask]
    added = None if given is None else attention.Masks().additive_mask(given, query.dtype)
    ours = attend(query, key, value, added, 0.4)
    scores = query @ key.repeat_interleave(heads // shared, 1).transpose(2, 3) * 0.4
    if given is not None:
        scores = scores + torch.where(look, 0.0, LOW)
    theirs = scores.softmax(-1) @ value.repeat_interleave(heads // shared, 1)
    assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    if given is not None:
        mean = value.mean(2).repeat_interleave(heads // shared, 1)
        assert torch.allclose(ours[1, :, 3], mean[1], rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_no_mask_makes_nan_in_16_bits(dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(1, heads, 4, 8).to(dtype) * 10 for heads in (4, 1, 1))
    nothing = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    for mask in (nothing, torch.where(nothing, 0.0, LOW), torch.full((1, 1, 4, 4), torch.finfo(torch.float32).min)):
        made = attention.Masks().additive_mask(mask, dtype)
        assert made.dtype == dtype
        assert attend(query, key, value, made, None).isfinite().all()


def test_a_mask_is_prepared_once_and_again_when_it_changes() -> None:
    masks = attention.Masks()
    mask = torch.zeros(1, 1, 4, 4)
    first = masks.additive_mask(mask, torch.bfloat16)
    assert masks.additive_mask(mask, torch.bfloat16) is first
    mask[..., 2:] = LOW
    assert masks.additive_mask(mask, torch.bfloat16)[0, 0, 0, 3] < -1e30
    assert masks.additive_mask(mask, torch.float32).dtype == torch.float32


# Two transformers' layers in the prefix and in each of two steps; SmolVLA's vision tower is fused as it is, ACT has a
# self-attention in two encoder layers and self- and cross-attention in one decoder layer.
@pytest.mark.parametrize(
    ("kind", "more", "tolerance"),
    matrix([("pi05", 2 + 2 * 2, 1e-4), ("pi0", 2 + 2 * 2, 1e-4), ("smolvla", 4 + 2 * 4, 1e-2), ("act", 2 + 2, 1e-4)]),
)
def test_chunks_agree_and_nothing_is_left_behind(kind: str, more: int, tolerance: float) -> None:
    subject = tiny(kind)
    fused = FusedAttention()
    plain = chunk(subject)
    before = places(subject.module)
    assert torch.allclose(chunk(subject, fused), plain, atol=tolerance)
    assert fused_calls(lambda: chunk(subject, fused)) - fused_calls(lambda: chunk(subject)) == more
    assert torch.equal(chunk(subject), plain)
    assert places(subject.module) == before


def test_a_transformers_model_that_is_eager() -> None:
    fields: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = SiglipVisionConfig(**fields)
    torch.manual_seed(0)
    model = SiglipVisionModel._from_config(config, attn_implementation="eager").eval()
    pixels = torch.randn(1, 3, 28, 28)
    with torch.no_grad():
        plain = model(pixels).last_hidden_state
        undo = FusedAttention().apply(Bare(model))  # type: ignore[arg-type]
        assert torch.allclose(model(pixels).last_hidden_state, plain, atol=1e-5)
        weights = model(pixels, output_attentions=True).attentions  # which only eager attention has
        undo()
        assert all(weight is None or weight.shape[-1] == 4 for weight in weights or ())
        assert torch.equal(model(pixels).last_hidden_state, plain)
    sdpa = SiglipVisionModel._from_config(config, attn_implementation="sdpa")
    with pytest.raises(UserError, match="no eager attention"):
        FusedAttention().apply(Bare(sdpa))  # type: ignore[arg-type]


def test_openvino_computes_attention_with_shared_heads() -> None:
    class Attending(nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend(query, key, value, None, 0.3)

    openvino: Any = pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    given = torch.randn(1, 6, 4, 8), torch.randn(1, 3, 4, 8), torch.randn(1, 3, 4, 8)
    model = convert_to_openvino(torch.export.export(Attending(), given, strict=False), given)
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert torch.allclose(torch.from_numpy(compiled(given)[0]), Attending()(*given), atol=1e-5)


def test_attention_with_something_added_is_left_alone() -> None:
    module = nn.Module()
    assert attention._same(module, functools.partial(_attend_grouped, eager_attention_forward))

    def attend_with_sink(*args: Any, **kwargs: Any) -> Any:
        out, weights = _attend_grouped(eager_attention_forward, *args, **kwargs)
        return out * 0.9, weights

    assert not attention._same(module, attend_with_sink)


def _attend_grouped(eager: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    module.num_key_value_groups = 1
    return eager(module, *args, **kwargs)


def test_a_dropout_is_drawn_by_the_model_itself() -> None:
    subject = tiny("act")
    layer: Any = next(child for child in subject.module.modules() if isinstance(child, nn.MultiheadAttention))
    x = torch.randn(3, 1, layer.embed_dim)
    layer.train()
    try:
        torch.manual_seed(0)
        plain = layer(x, x, value=x)[0]
        undo = FusedAttention().apply(subject)
        torch.manual_seed(0)
        assert torch.equal(layer(x, x, value=x)[0], plain)
        undo()
    finally:
        layer.eval()


def test_it_says_where_it_does_not_apply() -> None:
    with pytest.raises(UserError, match="no eager attention"):
        FusedAttention().apply(tiny("diffusion"))
    with pytest.raises(UserError, match="'sdpa' is the only"):
        catalogue.make({"attention": "flash"})
    assert attention.ENTRY.candidates(tiny("diffusion")) == []
    assert attention.ENTRY.candidates(tiny("smolvla")) == [{"attention": "sdpa"}]
    spec = {"attention": "sdpa"}
    assert attention.ENTRY.parts(tiny("pi05"), spec) == ("prefix KV cache", "denoise step", "action expert")
    assert attention.ENTRY.parts(tiny("smolvla"), spec) == ("prefix KV cache", "denoise step", "action expert")
    assert attention.ENTRY.parts(tiny("act"), spec) == ("encoder", "decoder")
