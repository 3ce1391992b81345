"""A thread draws the noise that the program would draw, and the program's generators do not see it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from strobe.core.devices.accelerators import generator_states as noise_state
from strobe.deploy.twin import OwnNoise

DRAWS: dict[str, Callable[[], Tensor]] = {
    "randn": lambda: torch.randn(5, 7), "rand": lambda: torch.rand(3, dtype=torch.float64),
    "randn_like": lambda: torch.randn_like(torch.zeros(33)), "rand_like": lambda: torch.rand_like(torch.zeros(33)),
    "normal": lambda: torch.normal(mean=0.0, std=2.0, size=(4, 20)),
    "normal of a tensor": lambda: torch.normal(torch.zeros(20), 1.0),
    "normal_": lambda: torch.empty(40).normal_(1.0, 3.0), "uniform_": lambda: torch.empty(40).uniform_(-1, 1),
    "randint": lambda: torch.randint(3, 1000, (9,)), "randint of one bound": lambda: torch.randint(1000, (9,)),
    "randint_like": lambda: torch.randint_like(torch.zeros(9), 1000), "randperm": lambda: torch.randperm(50),
    "bernoulli": lambda: torch.bernoulli(torch.full((30,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(30), 10),
    "a distribution": lambda: torch.distributions.Beta(1.5, 1.0).sample((4,)),
}  # fmt: skip


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", DRAWS)
def test_the_same_numbers_from_a_generator_of_ones_own(name: str, inference: bool) -> None:
    """Also in inference mode, where torch hands over operators as they are called."""
    with torch.inference_mode(inference):
        same_numbers(DRAWS[name])


def same_numbers(draw: Callable[[], Tensor]) -> None:
    torch.manual_seed(5)
    states = noise_state(torch.device("cpu"))
    expected = draw(), draw()
    torch.manual_seed(99)
    before = torch.get_rng_state()
    with OwnNoise(states):
        found = draw(), draw()
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(expected, found, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("inference", [False, True])
def test_what_drops_nothing_out_draws_nothing(inference: bool) -> None:
    with torch.inference_mode(inference), OwnNoise(noise_state(torch.device("cpu"))):
        ones = torch.ones(2, 2, 4, 8)
        assert torch.equal(torch.nn.functional.dropout(ones, 0.5, training=False), ones)
        torch.nn.functional.scaled_dot_product_attention(ones, ones, ones)


def test_only_its_own_thread_draws_from_it() -> None:
    torch.manual_seed(1)
    expected = torch.randn(3)
    torch.manual_seed(1)
    found: list[Tensor] = []
    with OwnNoise(noise_state(torch.device("cpu"))):
        torch.randn(100)
        thread = threading.Thread(target=lambda: found.append(torch.randn(3)))
        thread.start()
        thread.join()
    assert torch.equal(found[0], expected)
