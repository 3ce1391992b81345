"""Attention in bfloat16 as matrix products: close to exact attention under every mask, in real policies, no trace."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from support.suite.matrix import matrix
from torch import Tensor

from strobe.core.errors import UserError
from strobe.core.treatments import catalogue
from strobe.core.treatments.treatment import Undo, Variant
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import PolicyOptions
from strobe.treatments.layers import packed, products
from strobe.treatments.layers.attention import Masks, attend

LOW = -2.3819763e38  # LeRobot's

pytestmark = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="a CPU without AVX-512 has no such products"
)


@cache
def subject(kind: str) -> Any:
    return load_subject(PolicyOptions(type=kind, size="tiny", overrides=["--device=cpu"]))


def apply_treatments(text: str, kind: str) -> Undo:
    return Variant("v", (*catalogue.compose(catalogue.parse(text)),)).apply(subject(kind))


def chunk(text: str, kind: str) -> Tensor:
    undo = apply_treatments(text, kind)
    try:
        return subject(kind).model_chunk(0)
    finally:
        undo()


@pytest.fixture
def all_sizes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Have tiny attention computed as products too; the shapes of queries that were."""
    monkeypatch.setattr(products, "SMALLEST", 1)
    seen: list[tuple[int, ...]] = []
    gains = products._gains

    def record_gain(query: Tensor, *more: Any) -> bool:
        if gains(query, *more):
            seen.append(tuple(query.shape))
        return gains(query, *more)

    monkeypatch.setattr(products, "_gains", record_gain)
    return seen


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (8, 1), (6, 3)])
@pytest.mark.parametrize("mask", ["none", "shared", "for each head", "for all of the batch"])
@pytest.mark.parametrize("piece", [1, 2**20])
def test_it_is_attention(
    heads: int, shared: int, mask: str, piece: int, all_sizes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "PIECE", piece)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(2, count, length, 16, generator=generator).bfloat16()
        for count, length in ((heads, 5), (shared, 7), (shared, 7))
    )
    shape = {"shared": (2, 1, 5, 7), "for each head": (2, heads, 5, 7), "for all of the batch": (1, 1, 5, 7)}.get(mask)
    added = None
    if shape is not None:
        look = torch.rand(shape, generator=generator) < 0.6
        look[-1, :, 3] = False  # a query that is padding
        added = Masks().additive_mask(torch.where(look, 0.0, LOW), torch.bfloat16)
    with torch.no_grad():
        ours = products.products(query, key, value, added, 0.4)
    keys, values = (each.double().repeat_interleave(heads // shared, 1) for each in (key, value))
    exact = attend(query.double(), keys, values, None if added is None else added.double(), 0.4)
    assert all_sizes, "computed as before"
    assert torch.allclose(ours.double(), exact, atol=0.03)


# SmolVLA's vision tower and its own method; pi0.5's vision tower is on torch's fused attention as it is, its language
# model and its expert are eager.
@pytest.mark.parametrize("kind", matrix(["pi05", "smolvla"]))
@pytest.mark.parametrize("beside", ["precision=bf16", "precision=bf16, attention=sdpa"])
def test_a_policy_acts_the_same_and_nothing_is_left_behind(kind: str, beside: str, all_sizes: list[Any]) -> None:
    plain = chunk(beside, kind)
    assert not all_sizes
    ours = chunk(f"scores=products, {beside}", kind)
    assert len({shape[2] for shape in all_sizes}) >= 3, "vision, prefix and steps have rows of their own"
    assert 0 < float((ours - plain).norm() / plain.norm()) < 0.02
    assert torch.equal(chunk(beside, kind), plain)


def test_what_gains_nothing_is_computed_as_before(all_sizes: list[Any]) -> None:
    query = torch.randn(1, 2, 8, 16)
    with torch.no_grad():
        assert torch.equal(products.products(query, query, query, None, None), attend(query, query, query, None, None))
    half = query.bfloat16()
    assert products.products(query.bfloat16().requires_grad_(), half, half, None, None).requires_grad
    assert not all_sizes


def test_small_attention_is_left_to_torch() -> None:
    query = torch.randn(1, 2, 8, 16).bfloat16()
    with torch.no_grad():
        assert torch.equal(products.products(query, query, query, None, None), attend(query, query, query, None, None))


def test_where_it_cannot_gain_it_says_so() -> None:
    with pytest.raises(UserError, match="add precision=bf16"):
        apply_treatments("scores=products", "act")
    with pytest.raises(UserError, match="no attention of transformers"):
        apply_treatments("scores=products, precision=bf16", "act")
    with pytest.raises(UserError, match="'products' is the only value"):
        catalogue.compose(catalogue.parse("scores=fused"))
    with pytest.raises(UserError, match="scores=products is for CPUs"):
        packed.require_bfloat16(torch.device("meta"), "scores=products")


def test_it_is_offered_where_there_is_attention_to_compute() -> None:
    assert list(products.ENTRY.candidates(subject("smolvla"))) == [{"scores": "products"}]
    assert not products.ENTRY.candidates(subject("act"))
