"""Two policies in one process, with treatments put on and taken off in any order: neither reaches the other.

Whatever a program does in between (it copies a policy, loads other weights, trains it, moves it), an untouched policy
gives the bits that it gives alone, a treated one stays within its guard on the weights that it has then, or one line
refuses what was wanted.
"""

from __future__ import annotations

import copy
import functools
import os
import pickle
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

os.environ["HF_HUB_OFFLINE"] = "1"

from support.checkpoints import EXACT, FEW_STEPS, tiny_recipe

from strobe.deploy.checking import Applied, put_on
from strobe.errors import UserError
from strobe.subjects.loading import load_subject
from strobe.subjects.policy_subject import PolicySubject

FLOW = ("pi0", "pi05", "smolvla")
STEPS = {**FEW_STEPS, "pi0": FEW_STEPS["pi05"]}
ROUNDING = [
    {"precision": "bf16"},
    {"precision": "fp16", "precision.part": "model.encoder"},
    {"attention": "sdpa"},
    {"channels_last": True},
    {"weights": "packed"},
    {"threads": 1},
    {"int8": "dynamic"},
]
ALL = [*EXACT, {"guidance": "closed form"}]
DONE = 14  # things that are done to the two, in one order of chance

Weights = dict[str, Tensor]


@functools.cache
def untouched(kind: str) -> PolicySubject:
    """A policy that nothing is ever put on."""
    return made(kind)


def made(kind: str) -> PolicySubject:
    overrides = ["--device=cpu", *STEPS[kind]]
    return load_subject(policy_type=kind, size="tiny", overrides=overrides, image_size=(48, 64))


@functools.cache
def checkpoints(kind: str) -> tuple[Weights, Weights]:
    """The weights that the policies are made with, and others."""
    first = {name: value.clone() for name, value in untouched(kind).policy.state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    other = {
        name: value + 0.02 * torch.randn(value.shape, generator=generator).to(value.dtype) if value.is_floating_point() else value
        for name, value in first.items()
    }
    return first, other


def chunk(policy: Any, subject: PolicySubject, seed: int, *, inference: bool = False) -> Tensor:
    torch.manual_seed(seed)
    policy.reset()
    batch = subject.loaded.preprocessor(subject.observation(seed))
    with torch.no_grad(), torch.inference_mode(inference):
        return policy.predict_action_chunk(batch).clone()


@functools.cache
def alone(kind: str, weights: int, seed: int) -> Tensor:
    """What the policy does by itself."""
    subject = untouched(kind)
    subject.policy.load_state_dict(checkpoints(kind)[weights])
    return chunk(subject.policy, subject, seed)


def gradients(policy: Any, subject: PolicySubject) -> dict[str, Tensor]:
    """Of the first training step; the policy is in eval mode again after it."""
    torch.manual_seed(3)
    batch = subject.loaded.preprocessor(dict(next(iter(subject.training_batch(1)))))
    policy.train()
    policy.forward(batch)[0].backward()
    found = {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}
    policy.zero_grad(set_to_none=True)
    policy.eval()
    return found


@dataclass
class One:
    """A policy of two: what is on it, and which weights it has."""

    subject: PolicySubject
    weights: int = 0
    applied: Applied | None = None

    @property
    def policy(self) -> Any:
        return self.subject.policy


class Two:
    """Two policies of one type, and what chance does to them."""

    def __init__(self, kind: str, specs: list[dict[str, Any]], chance: random.Random) -> None:
        self.kind, self.specs, self.chance = kind, specs, chance
        self.both = [One(pair) for pair in pairs(kind)]
        for one in self.both:
            one.policy.load_state_dict(checkpoints(kind)[0])

    def holds(self, one: One) -> None:
        seed = self.chance.randrange(2)
        mode = self.chance.random() < 0.5
        expected, got = alone(self.kind, one.weights, seed), chunk(one.policy, one.subject, seed, inference=mode)
        if one.applied is None:
            assert torch.equal(got, expected)
        else:
            found, broken = one.applied.compare(expected, got, "call")
            assert not broken, (broken, found)

    def put_on(self, one: One) -> None:
        if one.applied is None:
            some = self.chance.sample(self.specs, self.chance.randint(1, len(self.specs)))
            one.applied = put_on(one.subject, tiny_recipe(self.kind, *some), "fast.yaml", check=False, twin=True)

    def take_off(self, one: One) -> None:
        if one.applied is not None:
            one.applied.undo()
            one.applied = None

    def copy(self, one: One) -> None:
        """The copy is the untouched policy, with weights of its own."""
        other = copy.deepcopy(one.policy)
        assert torch.equal(chunk(other, one.subject, 0), alone(self.kind, one.weights, 0))
        part = copy.deepcopy(one.policy.model)
        for weight in (*other.parameters(), *part.parameters()):
            weight.data.zero_()
        assert not torch.equal(chunk(other, one.subject, 0), alone(self.kind, one.weights, 0))

    def load(self, one: One) -> None:
        one.weights = self.chance.randrange(2)
        one.policy.load_state_dict(checkpoints(self.kind)[one.weights])
        for name, value in one.policy.state_dict().items():
            assert torch.equal(value, checkpoints(self.kind)[one.weights][name]), name

    def train(self, one: One) -> None:
        if one.applied is not None:
            with pytest.raises(UserError, match="fast.yaml on it is for inference: train the policy without it"):
                one.policy.train()
            with pytest.raises(UserError, match="for inference"):
                one.policy.forward({})
            return
        one.policy.train()
        one.policy.eval()

    def move(self, one: One) -> None:
        """To where it is, and to other memory."""
        one.policy.to("cpu")
        one.policy.share_memory()

    def pickled(self, one: One) -> None:
        if one.applied is not None:
            for module in (one.policy, one.policy.model):
                with pytest.raises(UserError, match="fast.yaml on it cannot be pickled"):
                    pickle.dumps(module)


@functools.cache
def pairs(kind: str) -> tuple[PolicySubject, PolicySubject]:
    return made(kind), made(kind)


def globals_of(kind: str) -> dict[str, Any]:
    modeling = vars(sys.modules[type(untouched(kind).policy).__module__])
    drawn = {name: getattr(torch, name) for name in ("randn", "randn_like", "rand", "rand_like", "normal")}
    return {**{name: value for name, value in modeling.items() if callable(value)}, **drawn}


def played(kind: str, specs: list[dict[str, Any]], seed: int) -> None:
    chance, before = random.Random(f"{seed} {specs}"), globals_of(kind)
    two = Two(kind, specs, chance)
    kinds: list[Callable[[One], None]] = [
        two.put_on, two.put_on, two.take_off, two.copy, two.load, two.train, two.move, two.pickled,
    ]  # fmt: skip
    done: list[str] = []
    try:
        for one in two.both:
            two.put_on(one)
        for _ in range(DONE):
            what, at = chance.choice(kinds), chance.randrange(2)
            done.append(f"{what.__name__} {'AB'[at]}")
            what(two.both[at])
            for one in two.both:
                two.holds(one)
        for one in chance.sample(two.both, 2):
            two.take_off(one)
            for other in two.both:
                two.holds(other)
        after = globals_of(kind)
        assert [name for name, value in before.items() if after[name] is not value] == []
    except Exception as error:
        raise AssertionError(f"seed {seed}, {specs}: {', '.join(done)}: {error}") from error
    finally:
        for one in two.both:
            two.take_off(one)


@pytest.mark.parametrize("spec", [*ALL, None], ids=lambda spec: next(iter(spec)) if spec else "any of them")
@pytest.mark.parametrize("kind", FLOW)
def test_exact_treatments_on_two_flow_policies(kind: str, spec: dict[str, Any] | None) -> None:
    played(kind, [spec] if spec else ALL, seed=1)


@pytest.mark.parametrize("spec", ROUNDING, ids=lambda spec: next(iter(spec)))
def test_rounding_treatments_on_two_policies(spec: dict[str, Any]) -> None:
    played("act", [spec], seed=1)
