"""Projections of one input as one product: the same numbers, whoever calls them, and no trace."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from support.builders.tiny_policies import load_short_subject
from support.checks.treatment_block import treat
from support.fakes.module_subject import Bare
from support.suite.matrix import matrix
from torch import Tensor, nn
from transformers import VJEPA2Config, VJEPA2Model

from strobe.core.errors import UserError
from strobe.core.timeline.probe import Attached, Hook
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Treatment, Variant
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.treatments.layers import projections
from strobe.treatments.layers.attention import FusedAttention
from strobe.treatments.layers.projections import FusedProjections
from strobe.treatments.numbers.precision import Precision

tiny = functools.cache(load_short_subject)


def chunk(subject: PolicySubject, *treatments: Treatment, index: int = 0) -> Tensor:
    with treat(subject, Variant("v", treatments)):
        return subject.model_chunk(index)


def fingerprint(module: nn.Module) -> list[Any]:
    """Everything that a treatment could leave behind."""
    found: list[Any] = []
    for child in module.modules():
        found.append({name: id(value) for name, value in vars(child).items()})
        for tensor in (*child._parameters.values(), *child._buffers.values()):
            if tensor is not None:
                found.append((tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor._version))
    return found


class OneAttention(nn.Module):
    """Query, key and value as transformers has them; ``others`` is what key and value see."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(6, 8), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor, others: Tensor | None = None) -> list[Tensor]:
        others = x if others is None else others
        return [self.q_proj(x), self.k_proj(others), self.v_proj(others)]


def products(run: Any) -> int:
    """How many matrix products ``run`` makes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    return sum(event.count for event in profile.key_averages() if event.key == "aten::linear")


@pytest.mark.parametrize(
    ("kind", "path", "before", "after"),
    [
        ("pi05", "model.paligemma_with_expert.gemma_expert.model.layers.0.mlp", 3, 2),
        ("smolvla", "model.vlm_with_expert.vlm.model.vision_model.encoder.layers.0.self_attn", 4, 2),
    ],
)
def test_in_float64_it_is_the_same_and_there_are_fewer_products(kind: str, path: str, before: int, after: int) -> None:
    module = copy.deepcopy(tiny(kind).module.get_submodule(path)).double()
    x = torch.randn(2, 5, next(module.parameters()).shape[1], dtype=torch.float64)

    def run() -> Tensor:
        out: Any = module(x)
        return out[0] if isinstance(out, tuple) else out

    with torch.no_grad():
        plain = run()
        undo = FusedProjections().apply(Bare(module))  # type: ignore[arg-type]
        together, count = run(), products(run)
        undo()
        assert torch.allclose(together, plain, rtol=1e-12, atol=1e-15)
        assert (products(run), count) == (before, after)


@pytest.mark.parametrize("kind", matrix(["pi05", "smolvla"]))
def test_chunks_agree_and_nothing_is_left_behind(kind: str) -> None:
    subject = tiny(kind)
    plain = chunk(subject)
    before = fingerprint(subject.module)
    fused = FusedProjections()
    for index in range(2):
        together = chunk(subject, fused, index=index)
        assert torch.allclose(together, chunk(subject, index=index), atol=1e-4)
    assert torch.equal(chunk(subject), plain)
    assert fingerprint(subject.module) == before
    assert all(not group.separate for group in fused._groups)  # all share their input; no cross-attention is there


@pytest.mark.parametrize("kind", matrix(["pi05", "smolvla"]))
def test_with_attention_in_both_orders_and_in_bf16(kind: str) -> None:
    subject = tiny(kind)
    plain = chunk(subject)
    before = fingerprint(subject.module)
    pair = (FusedProjections(), FusedAttention())
    for both in (pair, pair[::-1]):
        assert torch.allclose(chunk(subject, *both), plain, atol=1e-3 if kind == "pi05" else 1e-2)  # SmolVLA is in bf16
        low = Precision("bf16")
        for ordered in ((low, *both), (*both, low)):
            rounded = chunk(subject, *ordered)
            cosine = torch.nn.functional.cosine_similarity(rounded.flatten(), plain.flatten(), dim=0)
            assert cosine > 0.999
    vision = Precision("bf16", "model.paligemma_with_expert.paligemma.model.vision_tower") if kind == "pi05" else None
    if vision is not None:
        assert torch.allclose(chunk(subject, vision, *pair), chunk(subject, vision), atol=0.05)
    assert torch.equal(chunk(subject), plain)
    assert fingerprint(subject.module) == before


def test_v_jepa_2_and_new_weights() -> None:
    fields: dict[str, Any] = {
        "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "crop_size": 32, "frames_per_clip": 4,
        "pred_hidden_size": 24, "pred_num_hidden_layers": 1, "pred_num_attention_heads": 2, "pred_num_mask_tokens": 2,
    }  # fmt: skip
    model: Any = VJEPA2Model(VJEPA2Config(**fields)).double().eval()
    subject: Any = Bare(model)
    fused = FusedProjections()
    clip = torch.randn(1, 4, 3, 32, 32, dtype=torch.float64)

    def features() -> Tensor:
        with torch.no_grad():
            return model(clip, skip_predictor=True).last_hidden_state

    plain = features()
    undo = fused.apply(subject)
    assert torch.allclose(features(), plain, rtol=1e-12, atol=1e-12)
    undo()
    with torch.no_grad():
        model.encoder.layer[0].attention.value.weight.mul_(-20)
    changed = features()
    assert not torch.allclose(changed, plain)
    undo = fused.apply(subject)
    assert torch.allclose(features(), changed, rtol=1e-12, atol=1e-12)
    undo()


def test_another_input_is_computed_apart_and_soon_everything_is() -> None:
    attention = OneAttention().double()
    fused = FusedProjections()
    undo = fused.apply(Bare(attention))  # type: ignore[arg-type]
    x, others = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 6, dtype=torch.float64)
    plain = OneAttention().double()
    plain.load_state_dict(attention.state_dict())
    with torch.no_grad():
        for given in (None, others, others, others, others, None):
            for ours, theirs in zip(attention(x, given), plain(x, given), strict=True):
                assert torch.allclose(ours, theirs, rtol=1e-12)
        assert fused._groups[0].separate
        assert products(lambda: attention(x, others)) == 3
    undo()


def test_gradients_reach_the_weights() -> None:
    attention = OneAttention()
    undo = FusedProjections().apply(Bare(attention))  # type: ignore[arg-type]
    sum(part.sum() for part in attention(torch.randn(2, 6))).backward()  # type: ignore[union-attr]
    undo()
    assert all(parameter.grad is not None for parameter in attention.parameters())


def test_probes_on_a_projection_stay_around_it() -> None:
    attention = OneAttention()
    entered = []

    def wrap_call(inner: Any, hook: Hook, _: bool) -> Any:
        def call(*args: Any) -> Any:
            entered.append(hook.name)
            return inner(*args)

        return call

    x = torch.randn(2, 6)
    with torch.no_grad(), Attached([Hook(attention.q_proj, "forward", "query")], wrap_call):
        undo = FusedProjections().apply(Bare(attention))  # type: ignore[arg-type]
        assert products(lambda: attention(x)) == 1
        undo()
    assert entered == ["query"]
    assert "forward" not in vars(attention.q_proj)


def test_it_says_where_it_does_not_apply() -> None:
    with pytest.raises(UserError, match="no projections with the same input"):
        FusedProjections().apply(tiny("act"))
    unequal = OneAttention()
    unequal.k_proj.bfloat16()
    with pytest.raises(UserError, match="different dtypes"):
        FusedProjections().apply(Bare(unequal))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="'fused' is the only"):
        catalogue.make({"projections": "apart"})
    assert projections.ENTRY.candidates(tiny("act")) == []
    assert projections.ENTRY.candidates(tiny("pi05")) == [{"projections": "fused"}]
    parts = projections.ENTRY.parts(tiny("pi05"), {"projections": "fused"})
    assert parts == ("vision tower", "prefix KV cache", "denoise step", "action expert")


def test_what_computes_in_its_own_way_is_left_alone() -> None:
    attention = OneAttention()
    vars(attention.k_proj)["forward"] = lambda x: torch.full((2, 4), 7.0)  # as a quantised weight's kernel is put there
    with pytest.raises(UserError, match="quantised, hooked"):
        FusedProjections().apply(Bare(attention))  # type: ignore[arg-type]


def test_a_compiled_region_takes_it_in_whole() -> None:
    attention = OneAttention()
    x = torch.randn(2, 6)
    with torch.no_grad():
        plain = attention(x)
        undo = FusedProjections().apply(Bare(attention))  # type: ignore[arg-type]
        whole = torch.compile(attention, backend="eager", fullgraph=True)
        for _ in range(2):
            assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(whole(x), plain, strict=True))
        undo()
        assert all(torch.equal(a, b) for a, b in zip(attention(x), plain, strict=True))
