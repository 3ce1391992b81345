"""Model FLOP of a step, against sums by hand: what checkpoints and fused attention compute again does not count."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from strobe.train.utilisation import ModelFlop

BATCH, IN, WIDTH, OUT = 5, 7, 11, 3
FIRST, SECOND = 2 * BATCH * IN * WIDTH, 2 * BATCH * WIDTH * OUT  # FLOP of a layer's forward pass
# Backward a layer has two products of the size of its forward one, but the inputs of the first need no gradient.
STEP = (FIRST + SECOND) + FIRST + 2 * SECOND


def count_flop(step):
    with ModelFlop() as counter:
        step()
    assert not counter.uncounted
    return sum(counter.flop.values()), sum(counter.again.values())


@pytest.fixture
def layers():
    return nn.Linear(IN, WIDTH), nn.Linear(WIDTH, OUT)


def test_a_small_model_s_step_is_as_computed_by_hand(layers):
    first, second = layers
    assert count_flop(lambda: second(first(torch.randn(BATCH, IN))).sum().backward()) == (STEP, 0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_again_is_counted_apart(layers, reentrant):
    first, second = layers
    body = nn.Sequential(first, nn.Tanh(), second)
    clips = torch.randn(BATCH, IN, requires_grad=reentrant)  # the reentrant form needs it, and computes its gradient

    def step():
        checkpoint(body, clips, use_reentrant=reentrant).sum().backward()

    model, again = count_flop(step)
    assert model == STEP + FIRST * reentrant
    # torch stops the second forward pass where nothing after it is needed: before the last product.
    assert again in (FIRST, FIRST + SECOND)


def test_a_checkpoint_within_a_checkpoint_is_computed_again_each_time(layers):
    first, second = layers

    def inner(values) -> Any:
        return checkpoint(second, torch.tanh(first(values)), use_reentrant=False)

    def step():
        outer = checkpoint(lambda values: torch.tanh(inner(values)), torch.randn(BATCH, IN), use_reentrant=False)
        outer.sum().backward()

    model, again = count_flop(step)
    assert model == STEP
    assert again >= FIRST + SECOND


def test_what_needs_no_gradient_inside_a_checkpoint_is_computed_again_too(layers):
    first, second = layers

    def body(values):
        with torch.no_grad():
            features = first(values)
        return torch.tanh(second(features))

    def step():
        checkpoint(body, torch.randn(BATCH, IN), use_reentrant=False).sum().backward()

    assert count_flop(step) == (FIRST + 2 * SECOND, FIRST + SECOND)


def test_fused_attention_counts_as_attention_in_steps():
    def step():
        query, key = torch.randn(2, 4, 6, 8, requires_grad=True), torch.randn(2, 4, 9, 8, requires_grad=True)
        scaled_dot_product_attention(query, key, key).sum().backward()

    found = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            found[backend] = count_flop(step)
    product = 2 * 2 * 4 * 6 * 9 * 8  # two forward, four backward; the fused one makes the scores once more
    assert found == {SDPBackend.FLASH_ATTENTION: (6 * product, product), SDPBackend.MATH: (6 * product, 0)}


def test_an_operator_of_which_nothing_is_known_is_named():
    with ModelFlop() as counter:
        torch.linalg.inv(torch.eye(4))
    assert counter.uncounted
