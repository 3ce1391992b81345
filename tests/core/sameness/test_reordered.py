"""Sums in another order: the same answer but for rounding, and the program's own noise untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import conv1d, conv2d, scaled_dot_product_attention

from strobe.core.sameness.reordered import ReorderedSums

torch.manual_seed(0)
MATRIX, OTHER, VECTOR = torch.randn(50, 300), torch.randn(300, 40), torch.randn(300)
BATCH, OTHER_BATCH = torch.randn(5, 50, 300), torch.randn(5, 300, 40)
IMAGES, LINE, TOKENS = torch.randn(2, 24, 13, 14), torch.randn(2, 24, 31), torch.randn(3, 20, 64)
QUERY, KEY, VALUE = (torch.randn(2, 4, 33, 16) for _ in range(3))
MASK = torch.rand(2, 1, 33, 33) > 0.3
PADDED = torch.arange(20).expand(3, 20) >= torch.tensor([[20], [15], [9]])
LINEAR, HEADS = nn.Linear(300, 40), nn.MultiheadAttention(64, 4, batch_first=True).eval()
LAYER = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
BEFORE = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True, activation="gelu").eval()
STACKED, GATED = nn.LSTM(64, 48, num_layers=2, bidirectional=True, batch_first=True), nn.GRU(64, 48)
GROUPED, DEPTHWISE = nn.Conv2d(24, 16, 3, groups=4), nn.Conv2d(24, 24, 3, groups=24, padding=1, stride=2)
SPREAD = nn.Conv1d(24, 48, 5, groups=24, padding=3, dilation=2, stride=3)
TRANSPOSED = nn.ConvTranspose1d(24, 6, 4, stride=2, groups=2)

SUMS: dict[str, Callable[[], torch.Tensor]] = {
    "product": lambda: MATRIX @ OTHER,
    "product of columns": lambda: MATRIX @ OTHER.T.contiguous().T,
    "batched product": lambda: BATCH @ OTHER_BATCH,
    "product added to itself": lambda: torch.zeros(50, 40).addmm_(MATRIX, OTHER),
    "products added": lambda: torch.addbmm(torch.ones(50, 40), BATCH, OTHER_BATCH),
    "with a vector": lambda: MATRIX.mv(VECTOR),
    "with a vector, added": lambda: torch.addmv(torch.ones(50), MATRIX, VECTOR),
    "of vectors": lambda: torch.stack([row.dot(VECTOR) for row in MATRIX]),
    "einsum": lambda: torch.einsum("ij,jk->ik", MATRIX, OTHER),
    "distances": lambda: torch.cdist(MATRIX, OTHER.T),
    "few distances": lambda: torch.cdist(MATRIX[:5], OTHER.T[:4]),
    "linear": lambda: LINEAR(BATCH),
    "convolution": lambda: conv2d(IMAGES, IMAGES[:, :, :3, :3]),
    "convolution in one dimension": lambda: conv1d(LINE, LINE[:, :, :3]),
    "grouped convolution": lambda: GROUPED(IMAGES),
    "depthwise convolution": lambda: DEPTHWISE(IMAGES),
    "spread out depthwise convolution": lambda: SPREAD(LINE),
    "transposed convolution": lambda: TRANSPOSED(LINE),
    "attention": lambda: scaled_dot_product_attention(QUERY, KEY, VALUE),
    "attention with a mask": lambda: scaled_dot_product_attention(QUERY, KEY, VALUE, attn_mask=MASK),
    "causal attention": lambda: scaled_dot_product_attention(QUERY, KEY, VALUE, is_causal=True),
    "shared heads": lambda: scaled_dot_product_attention(QUERY, KEY[:, :2], VALUE[:, :2], enable_gqa=True),
    "fast attention": lambda: HEADS(TOKENS, TOKENS, TOKENS, key_padding_mask=PADDED)[0],
    "fast attention's weights": lambda: HEADS(TOKENS, TOKENS, TOKENS)[1],
    "fast encoder layer": lambda: LAYER(TOKENS),
    "fast encoder layer, norm first": lambda: BEFORE(TOKENS),
    "LSTM": lambda: STACKED(TOKENS)[0],
    "LSTM's states": lambda: torch.cat(STACKED(TOKENS)[1]),
    "GRU": lambda: GATED(TOKENS)[0],
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", SUMS)
def test_each_kind_of_sum_rounds_otherwise_and_is_the_same_but_for_that(name: str, mode: Callable[[], Any]) -> None:
    with mode():
        before = SUMS[name]()
        with ReorderedSums(seed=1) as met:
            after = SUMS[name]()
        with ReorderedSums(seed=1):
            again = SUMS[name]()
    assert not torch.equal(before, after), "its sums were not taken in another order"
    torch.testing.assert_close(before, after, rtol=1e-4, atol=1e-4)
    assert torch.equal(after, again), "the order is drawn from the seed"
    assert not met.same


@pytest.mark.parametrize(
    ("call", "operator"),
    [
        (lambda: nn.functional.conv_transpose1d(LINE, LINE[0, :, None, :4], groups=24), "aten::convolution"),
        (lambda: torch.fft.fft(VECTOR).real, "aten::_fft_r2c"),
    ],
    ids=["transposed depthwise convolution", "Fourier transform"],
)
def test_products_whose_sums_stay_as_they_were_are_named(call: Callable[[], torch.Tensor], operator: str) -> None:
    with torch.no_grad():
        before = call()
        with ReorderedSums() as met:
            assert torch.equal(before, call())
    assert met.same == {operator: 1}
    assert operator in str(met)


def test_a_sum_of_nothing_stays_nothing() -> None:
    with ReorderedSums() as met:
        assert torch.equal(torch.ones(3, 0) @ torch.ones(0, 2), torch.zeros(3, 2))
    assert str(met) == ""


def test_the_programs_noise_is_not_drawn_from() -> None:
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    with ReorderedSums():
        torch.ones(4, 4) @ torch.ones(4, 4)
        assert torch.equal(torch.randn(4), expected)
