"""Sums in another order: the same answer but for rounding, and the program's own noise untouched."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import conv1d, conv2d, scaled_dot_product_attention

from strobe.sameness.reordered import reordered


def _products() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    images, kernels = torch.randn(2, 24, 9, 9), torch.randn(8, 24, 3, 3)
    query, key, value = (torch.randn(2, 4, 33, 16) for _ in range(3))
    mask = torch.rand(2, 1, 33, 33) > 0.3
    linear = nn.Linear(300, 40)
    return {
        "product": torch.randn(50, 300) @ torch.randn(300, 40),
        "batched product": torch.randn(5, 50, 300) @ torch.randn(5, 300, 40),
        "linear": linear(torch.randn(7, 300)),
        "convolution": conv2d(images, kernels),
        "convolution in one dimension": conv1d(torch.randn(2, 24, 30), torch.randn(8, 24, 3)),
        "attention": scaled_dot_product_attention(query, key, value),
        "attention with a mask": scaled_dot_product_attention(query, key, value, attn_mask=mask),
    }


def test_each_kind_of_sum_rounds_otherwise_and_is_the_same_but_for_that() -> None:
    with torch.no_grad():
        before = _products()
        with reordered(seed=1):
            after = _products()
        with reordered(seed=1):
            again = _products()
    for name, one in before.items():
        assert not torch.equal(one, after[name]), f"{name}: its sums were not taken in another order"
        torch.testing.assert_close(one, after[name], rtol=1e-4, atol=1e-4)
        assert torch.equal(after[name], again[name]), "the order is drawn from the seed"


@pytest.mark.parametrize(
    "call",
    [
        lambda: scaled_dot_product_attention(*(torch.ones(1, 2, 8, 4) for _ in range(3)), is_causal=True),
        lambda: conv2d(torch.ones(1, 4, 5, 5), torch.ones(4, 1, 3, 3), groups=4),
        lambda: nn.functional.conv_transpose2d(torch.ones(1, 4, 5, 5), torch.ones(4, 2, 3, 3)),
        lambda: torch.ones(3, 0) @ torch.ones(0, 2),
    ],
    ids=["causal attention", "grouped convolution", "transposed convolution", "a sum of nothing"],
)
def test_what_cannot_be_shuffled_is_left_as_it_is(call) -> None:
    with torch.no_grad():
        before = call()
        with reordered():
            assert torch.equal(before, call())


def test_the_programs_noise_is_not_drawn_from() -> None:
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    with reordered():
        torch.ones(4, 4) @ torch.ones(4, 4)
        assert torch.equal(torch.randn(4), expected)
