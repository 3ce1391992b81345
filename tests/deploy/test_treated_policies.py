"""Two policies in one process, with treatments applied and reverted in any order: neither reaches the other.

Whatever a program does in between (it copies a policy, loads other weights, trains it, moves it), a baseline
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

import numpy as np
import pytest
import torch
from support.builders.tiny_policies import load_tiny_subject
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

os.environ["HF_HUB_OFFLINE"] = "1"

from support.builders.checkpoints import EXACT, FEW_STEPS, tiny_recipe
from support.suite.matrix import matrix

from strobe.core.errors import UserError
from strobe.core.treatments.recipe import make_treatments
from strobe.core.treatments.treated import Treated
from strobe.core.treatments.treatment import Variant
from strobe.deploy import Watch
from strobe.deploy.checking import Applied, apply_checked_recipe
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.policies.policy_subject import PolicySubject

FLOW = ("pi05", "pi0", "smolvla")
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

Spec = dict[str, Any]
Weights = dict[str, Tensor]


@functools.cache
def baseline_policy(kind: str) -> PolicySubject:
    """A policy that nothing is ever applied."""
    return load_tiny_policy(kind)


def load_tiny_policy(kind: str) -> PolicySubject:
    overrides = ["--device=cpu", *STEPS[kind]]
    return load_subject(PolicyOptions(type=kind, size="tiny", overrides=overrides), InputOptions(image_size=(48, 64)))


@functools.cache
def checkpoints(kind: str) -> tuple[Weights, Weights]:
    """The weights that the policies are made with, and others."""
    first = {name: value.clone() for name, value in baseline_policy(kind).policy.state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    other = {
        name: value + 0.02 * torch.randn(value.shape, generator=generator).to(value.dtype)
        if value.is_floating_point()
        else value
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
def baseline_actions(kind: str, weights: int, seed: int) -> Tensor:
    """What the policy does by itself."""
    subject = baseline_policy(kind)
    subject.policy.load_state_dict(checkpoints(kind)[weights])
    return chunk(subject.policy, subject, seed)


@functools.cache
def make_batch(kind: str) -> dict[str, Any]:
    return baseline_policy(kind).inputs.batch(2)


def gradient(policy: Any, subject: PolicySubject) -> Weights:
    """Of a training step; the policy is in eval mode again after it."""
    torch.manual_seed(3)
    batch = subject.loaded.preprocessor(dict(make_batch(subject.info.kind)))
    policy.train()
    policy.forward(batch)[0].backward()
    found = {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}
    policy.zero_grad(set_to_none=True)
    policy.eval()
    return found


@functools.cache
def gradient_alone(kind: str, weights: int) -> Weights:
    subject = baseline_policy(kind)
    subject.policy.load_state_dict(checkpoints(kind)[weights])
    return gradient(subject.policy, subject)


@functools.cache
def ruler(kind: str) -> tuple[Any, Any]:
    """The spread of the actions, and how far reordered sums move them: what guards measure by."""
    spec = EXACT[0] if kind in FLOW else {"channels_last": True}
    measured = apply_checked_recipe(
        load_tiny_policy(kind), tiny_recipe(kind, spec), "fast.yaml", check=False, twin=True
    )
    return measured.scale, measured.reordered


@functools.cache
def pair(kind: str) -> tuple[PolicySubject, PolicySubject]:
    return load_tiny_policy(kind), load_tiny_policy(kind)


@dataclass
class One:
    """A policy of two: which weights it has, what is on it, and whether its next call is in inference mode."""

    subject: PolicySubject
    weights: int = 0
    applied: Applied | None = None
    inference: bool = False

    @property
    def policy(self) -> Any:
        return self.subject.policy


class Two:
    """Two policies of one type, and what chance does to them."""

    def __init__(self, kind: str, specs: list[Spec], chance: random.Random) -> None:
        self.kind, self.specs, self.chance = kind, specs, chance
        self.both = [One(each) for each in pair(kind)]
        for one in self.both:
            one.policy.load_state_dict(checkpoints(kind)[0])

    def holds(self, one: One) -> None:
        seed, one.inference = self.chance.randrange(2), not one.inference
        expected = baseline_actions(self.kind, one.weights, seed)
        got = chunk(one.policy, one.subject, seed, inference=one.inference)
        if one.applied is None:
            assert torch.equal(got, expected)
        else:
            found, judged = one.applied.compare(expected, got, "call")
            assert judged.outcome == "held", (judged, found)

    def apply_recipe(self, one: One) -> None:
        if one.applied is None:
            some = self.chance.sample(self.specs, self.chance.randint(1, len(self.specs)))
            one.applied = apply_checked_recipe(one.subject, tiny_recipe(self.kind, *some), "fast.yaml", check=False)
            one.applied.scale, one.applied.reordered = ruler(self.kind)

    def revert_recipe(self, one: One) -> None:
        if one.applied is not None:
            one.applied.undo()
            one.applied = None

    def copy(self, one: One) -> None:
        """The copy is the baseline, with weights of its own."""
        other = copy.deepcopy(one.policy)
        assert torch.equal(chunk(other, one.subject, 0), baseline_actions(self.kind, one.weights, 0))
        part = copy.deepcopy(one.policy.model)
        for weight in (*other.parameters(), *part.parameters()):
            weight.data.zero_()
        assert not torch.equal(chunk(other, one.subject, 0), baseline_actions(self.kind, one.weights, 0))

    def load(self, one: One) -> None:
        one.weights = 1 - one.weights
        wanted = checkpoints(self.kind)[one.weights]
        one.policy.load_state_dict(wanted)
        self.holds(one)
        assert all(torch.equal(value, wanted[name]) for name, value in one.policy.state_dict().items())

    def train(self, one: One) -> None:
        """A baseline takes the step that it takes alone; a treated one is neither trained nor pickled."""
        if one.applied is None:
            found, wanted = gradient(one.policy, one.subject), gradient_alone(self.kind, one.weights)
            assert found.keys() == wanted.keys()
            assert all(torch.equal(value, wanted[name]) for name, value in found.items())
            return
        for refused in (one.policy.train, one.policy.model.train, lambda: one.policy.forward({})):
            with pytest.raises(UserError, match=r"fast\.yaml on it is for inference: train the policy without it"):
                refused()
        for module in (one.policy, one.policy.model):
            with pytest.raises(UserError, match=r"fast\.yaml on it cannot be pickled"):
                pickle.dumps(module)

    def move(self, one: One) -> None:
        """To where it is, and to other memory."""
        one.policy.to("cpu")
        one.policy.share_memory()


def read_globals(kind: str) -> dict[str, Any]:
    """What others in the process call too."""
    modeling = vars(sys.modules[type(baseline_policy(kind).policy).__module__])
    drawing = {name: getattr(torch, name) for name in ("randn", "randn_like", "rand", "rand_like", "normal")}
    return {**{name: value for name, value in modeling.items() if callable(value)}, **drawing}


def play_sequence(kind: str, specs: list[Spec], seed: int) -> None:
    chance, before, threads = random.Random(f"{seed} {specs}"), read_globals(kind), torch.get_num_threads()
    two = Two(kind, specs, chance)
    deck = [
        (what, at)
        for what in (two.apply_recipe, two.revert_recipe, two.copy, two.load, two.train, two.move)
        for at in (0, 1)
    ]
    chance.shuffle(deck)
    done: list[str] = []
    try:
        for one in two.both:
            two.apply_recipe(one)
        for what, at in [*deck, (two.revert_recipe, 0), (two.revert_recipe, 1)]:
            done.append(f"{what.__name__} {'AB'[at]}")
            what(two.both[at])
            for one in two.both:
                two.holds(one)
    except Exception as error:
        raise AssertionError(f"seed {seed}, {specs}, {', '.join(done)}: {error}") from error
    finally:
        for one in two.both:
            two.revert_recipe(one)
    after = read_globals(kind)
    assert [name for name, value in before.items() if after[name] is not value] == []
    assert torch.get_num_threads() == threads


# They take half a minute together: each plays fourteen moves, and calls both policies after each.
@pytest.mark.parametrize("spec", matrix([None, *ALL]), ids=lambda spec: next(iter(spec)) if spec else "all of them")
@pytest.mark.parametrize("kind", matrix(FLOW))
def test_exact_treatments_on_two_flow_policies(kind: str, spec: Spec | None) -> None:
    play_sequence(kind, [spec] if spec else ALL, seed=1)


@pytest.mark.slow("two policies under each precision")
@pytest.mark.parametrize("spec", matrix(ROUNDING, keep=2), ids=lambda spec: next(iter(spec)))
def test_rounding_treatments_on_two_policies(spec: Spec) -> None:
    play_sequence("act", [spec], seed=1)


def apply_specs(subject: PolicySubject, *specs: Spec, keep: bool = True) -> Applied:
    found = apply_checked_recipe(subject, tiny_recipe("act", *specs), "fast.yaml", check=False)
    if not keep:
        found.settle()
    return found


@pytest.fixture
def act() -> PolicySubject:
    return load_tiny_policy("act")


@pytest.mark.parametrize("keep", [True, False])
def test_what_casts_a_policy_casts_the_untouched_one(act: PolicySubject, keep: bool) -> None:
    found = apply_specs(act, {"precision": "bf16"}, keep=keep)
    act.policy.double()
    assert next(act.policy.parameters()).dtype is torch.bfloat16
    assert (chunk(act.policy, act, 0) - baseline_actions("act", 0, 0)).abs().max() < 0.2
    found.undo()
    assert {weight.dtype for weight in act.policy.parameters()} == {torch.float64}


def test_without_the_untouched_weights_there_is_no_copy_and_others_are_loaded(act: PolicySubject) -> None:
    apply_specs(act, {"precision": "bf16"}, keep=False)
    with pytest.raises(UserError, match=r"fast\.yaml on it cannot be copied, as its original weights were let go"):
        copy.deepcopy(act.policy)
    act.policy.load_state_dict(checkpoints("act")[1])
    assert (chunk(act.policy, act, 0) - baseline_actions("act", 1, 0)).abs().max() < 0.2
    with pytest.raises(UserError, match="leave out assign=True"):
        act.policy.load_state_dict(checkpoints("act")[0], assign=True)


def test_treatments_that_do_not_fit_what_the_policy_has_become_stay_off(act: PolicySubject) -> None:
    apply_specs(act, {"weights": "packed"})
    with pytest.warns(UserWarning, match=r"fast.yaml cannot be applied again after to\(\): .*policy runs unchanged"):
        act.policy.double()
    assert torch.equal(chunk(act.policy.float(), act, 0), baseline_actions("act", 0, 0))
    act.policy.train()


@pytest.mark.parametrize("spec", [{"weights": "packed"}, {"channels_last": True}, {"precision": "bf16"}, {"engine": 1}])
def test_weights_that_change_in_place_are_refused_rather_than_stale(act: PolicySubject, spec: Spec) -> None:
    """As the average of a training's weights is put into a policy; what packed them would go on with the old ones."""
    if "engine" in spec:
        pytest.importorskip("openvino")
        spec = {"engine": "openvino", "engine.part": "model.encoder.layers.0", "engine.precision": "fp32"}
    part: Any = act.policy.get_submodule("model.encoder.layers.0")
    shared = part.linear2.weight.data.numpy()
    ways: dict[str, Callable[[list[nn.Parameter]], object]] = {
        "copy_": lambda weights: weights[0].detach().copy_(torch.ones(())),
        "data.copy_": lambda weights: [one.data.copy_(one.data * 1.5) for one in weights],
        "data =": lambda weights: [setattr(one, "data", one.data * 1.5) for one in weights],
        "vector": lambda weights: vector_to_parameters(1.5 * parameters_to_vector(weights).detach(), weights),
        "one": lambda weights: weights[-1].data.add_(0.1),
    }
    if "precision" not in spec:  # which has copies of its own in place of the memory, and of a parameter
        ways["numpy"] = lambda _: np.multiply(shared, 1.5, out=shared)
        ways["a parameter"] = lambda _: setattr(part.linear1, "weight", nn.Parameter(part.linear1.weight * 1.5))
    for way in sorted(ways, key=lambda way: way != "numpy"):
        treated = Treated(act, Variant("fast.yaml", make_treatments(tiny_recipe("act", spec), "fast.yaml")))
        act.chunk(0)
        ways[way](list(part.parameters()))
        with pytest.raises(UserError, match=r"was given other (weights in place|modules or parameters): revert it fi"):
            [act.chunk(0) for _ in range(120)]  # more than there are shares of the weights
        treated.revert()
        expected = act.chunk(0)
        treated._apply_treatments()  # the same, which hold copies of what the weights were
        assert (act.chunk(0) - expected).abs().max() < 0.03 * expected.abs().max(), way
        treated.revert()


def test_a_second_recipe_on_one_policy_is_refused(act: PolicySubject) -> None:
    found = apply_specs(act, {"channels_last": True})
    with pytest.raises(UserError, match=r"fast\.yaml is on this policy already"):
        apply_specs(act, {"precision": "bf16"})
    found.undo()
    apply_specs(act, {"precision": "bf16"}).undo()


def test_a_watched_policy_is_watched_on_after_other_weights_are_loaded(act: PolicySubject) -> None:
    recipe = tiny_recipe("act", {"precision": "bf16"})
    watch = Watch(apply_checked_recipe(act, recipe, "fast.yaml", check=False, twin=True), 1.0)
    try:
        for weights in (0, 1):
            act.policy.load_state_dict(checkpoints("act")[weights])
            got = chunk(act.policy, act, 0)
            assert 0 < (got - baseline_actions("act", weights, 0)).abs().max() < 0.2
            assert watch.wait()
        assert torch.equal(chunk(copy.deepcopy(act.policy), act, 0), baseline_actions("act", 1, 0))
        assert (watch.checked, watch.fallen_back) == (2, None)
    finally:
        watch.close()


def test_an_engine_is_one_of_the_weights_that_the_policy_has(act: PolicySubject) -> None:
    """Loaded ones; its gradients are all there."""
    pytest.importorskip("openvino")
    apply_specs(act, {"engine": "openvino", "engine.part": "model.encoder.layers.0", "engine.precision": "fp32"})
    act.policy.load_state_dict(checkpoints("act")[1])
    assert (chunk(act.policy, act, 0) - baseline_actions("act", 1, 0)).abs().max() < 1e-3
    part: Any = act.policy.get_submodule("model.encoder.layers.0")
    part(torch.randn(3, 1, part.linear1.in_features)).sum().backward()
    assert all(weight.grad is not None for weight in part.parameters())


def test_a_recipe_of_what_is_executed_is_checked_on_what_both_predict_and_loads():
    """Diffusion's chunk is as long as the actions that it executes."""
    subject = load_tiny_subject("diffusion", "--n_action_steps=4")
    applied = apply_checked_recipe(
        subject, tiny_recipe("diffusion", {"policy.n_action_steps": 6}), "fast.yaml", seconds=0.1
    )
    assert applied.agreement is not None
    assert applied.agreement.predicted == 4
    assert applied.agreement.worst == 0
    assert subject.chunk(0).shape[1] == 6
