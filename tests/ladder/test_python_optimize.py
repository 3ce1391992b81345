"""`strobe.optimize`, `put_on` and `take_off`: a recipe for an object of anybody's, found and put on in Python.

The policy is tests/support/factories/arm.py; it takes its time by a clock of the test's own.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.fakes.sleeper import Clock
from support.suite.places import TESTS
from torch import nn

import strobe
from strobe.core.cli.main import main
from strobe.core.errors import UserError
from strobe.core.measure.guard import OF_OUTPUTS
from strobe.core.results.recipe import Recipe
from strobe.core.results.subject import Ceiling
from strobe.core.runs import recipe_file

FACTORIES = TESTS / "support" / "factories"


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FACTORIES))
    import arm  # pyright: ignore[reportMissingImports]

    yield arm
    for name in ("arm", "arm_parts"):
        sys.modules.pop(name, None)


@pytest.fixture
def slow(arm: Any, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The policy with its inputs. Its encoder takes 4 ms, and 1 ms where its convolutions have the channels last."""
    clock = Clock().wind(monkeypatch)
    monkeypatch.setenv("STROBE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr("strobe.core.measure.ceiling.measure", lambda *_: Ceiling())
    policy, observations = arm.make()
    plain = policy.vision.forward

    def forward(images: torch.Tensor) -> torch.Tensor:
        last = policy.vision.near.weight.is_contiguous(memory_format=torch.channels_last)
        clock.sleep((0.001 if last else 0.004) + 0.0005)
        return plain(images)

    policy.vision.forward = forward
    return policy, observations


def call_policy(policy: Any, observation: Any) -> np.ndarray:
    torch.manual_seed(0)
    return policy.infer(observation)["actions"]


def recipe(*treatments: dict[str, Any], object: str = "ArmPolicy") -> Recipe:
    return Recipe(policy="object with infer()", object=object, treatments=list(treatments))


def test_a_ladder_finds_a_recipe_and_put_on_applies_it(slow: Any, tmp_path: Path):
    policy, observations = slow
    answer = strobe.optimize(policy, observations, target_ms=2.0, seconds=60)
    assert "channels_last=true" in [rung.treatment for rung in answer.ladder.rungs]
    assert answer.ladder.met
    assert answer.recipe is not None
    assert (answer.recipe.object, answer.recipe.guard) == ("ArmPolicy", OF_OUTPUTS)
    assert answer.recipe.agreement.of == "outputs"
    assert not policy.vision.near.weight.is_contiguous(memory_format=torch.channels_last), "nothing is left on it"
    folder = answer.save(tmp_path)
    assert "strobe.apply_recipe" in (folder / "recipe.yaml").read_text()

    before = call_policy(policy, observations[0])
    assert strobe.apply_recipe(folder, policy) is policy
    assert policy.vision.near.weight.is_contiguous(memory_format=torch.channels_last)
    assert np.abs(call_policy(policy, observations[0]) - before).max() < 1e-3
    assert strobe.revert_recipe(policy) is policy
    assert np.array_equal(call_policy(policy, observations[0]), before)


def test_a_treatment_that_moves_the_outputs_too_far_is_refused(slow: Any):
    policy, observations = slow
    answer = strobe.optimize(policy, observations, target_ms=2.0, seconds=60, guard="largest_error<=0")
    (tried,) = [tried for tried in answer.ladder.tries if tried.treatment == "channels_last=true"]
    assert tried.outcome == ("kept" if tried.agreement.largest_error == 0 else "guard")


@pytest.mark.slow("a whole climb from the command line")
def test_the_command_writes_the_recipe_too(slow: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from types import ModuleType

    module = ModuleType("slow_arm")
    vars(module)["make"] = lambda: slow
    monkeypatch.setitem(sys.modules, "slow_arm", module)
    flags = ["--target-hz=500", "--only=channels_last", "--time_limit=60", f"--output_dir={tmp_path}"]
    assert main(["optimize", "--policy.factory=slow_arm:make", *flags]) == 0
    (run,) = tmp_path.iterdir()
    assert recipe_file.load(run / "recipe.yaml").object == "ArmPolicy"
    assert "strobe.apply_recipe" in (run / "recipe.yaml").read_text()
    strobe.revert_recipe(strobe.apply_recipe(run, slow[0]))


def test_a_recipe_names_the_module_that_is_missing_and_leaves_nothing_on(arm: Any):
    policy, _ = arm.make()
    made = recipe({"channels_last": True}, {"precision": "bf16", "precision.part": "expret"})
    with pytest.raises(UserError, match=r"step 2 \(precision=bf16, .*\): no part 'expret' in ArmPolicy"):
        strobe.apply_recipe(made, policy)
    assert not policy.vision.near.weight.is_contiguous(memory_format=torch.channels_last)
    assert "forward" not in vars(policy.vision)


def test_other_versions_and_another_class_are_warnings(arm: Any):
    made = recipe({"channels_last": True}, object="OtherPolicy")
    made.versions = {"torch": "1.0"}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        strobe.apply_recipe(made, arm.make()[0])
    said = [str(each.message) for each in seen]
    assert any("was made with torch 1.0" in line for line in said)
    assert any("was found on a OtherPolicy, and this is a ArmPolicy" in line for line in said)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (recipe({"channels_last": True}, object=""), "strobe.load_policy loads a policy with it"),
        (recipe({"policy.num_steps": 2}), "ArmPolicy is not a policy: this applies to policies only"),
        (recipe({"prefix_cache": "static"}), "prefix_cache"),
    ],
)
def test_what_cannot_be_put_on_is_one_line(arm: Any, made: Recipe, words: str):
    with pytest.raises(UserError, match=words) as refused:
        strobe.apply_recipe(made, arm.make()[0])
    assert "\n" not in str(refused.value)


def test_a_second_recipe_and_a_second_removal_are_refused(arm: Any, tmp_path: Path):
    policy, _ = arm.make()
    strobe.apply_recipe(recipe({"channels_last": True}), policy)
    with pytest.raises(UserError, match="is already applied to this policy"):
        strobe.apply_recipe(recipe({"channels_last": True}), policy)
    strobe.revert_recipe(policy)
    with pytest.raises(UserError, match="there is nothing to revert"):
        strobe.revert_recipe(policy)
    with pytest.raises(UserError, match=r"there is no recipe.yaml in"):
        strobe.apply_recipe(tmp_path, policy)
    with pytest.raises(UserError, match="cannot read the recipe"):
        strobe.apply_recipe(tmp_path / "none.yaml", policy)


def test_a_policy_that_shares_a_module_is_named_and_a_module_replaced_later_is_seen(arm: Any):
    policy, observations = arm.make()
    strobe.compare({"one": policy, "two": policy}, observations[0], seconds=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = arm.ArmPolicy()
        strobe.revert_recipe(strobe.apply_recipe(recipe({"channels_last": True}), policy))
    alone.vision = policy.vision
    with pytest.warns(UserWarning, match="recipe changes ArmPolicy too: it shares modules or weights with this policy"):
        strobe.apply_recipe(recipe({"channels_last": True}), policy)
    policy.expert = type(policy.expert)()
    with pytest.raises(UserError, match="was given other modules or parameters: revert it first"):
        [policy.infer(observations[0]) for _ in range(40)]
    strobe.revert_recipe(policy).infer(observations[0])


def test_a_module_is_its_own_subject(arm: Any):
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval().requires_grad_(False)
    x = torch.randn(9, 8)
    before = module(x)
    made = Recipe(policy="torch module", object="Sequential", treatments=[{"precision": "bf16"}])
    strobe.apply_recipe(made, module)
    after = module(x)
    assert module[0].weight.dtype is torch.bfloat16
    assert after.dtype is torch.float32
    assert 0 < float((after - before).abs().max()) < 0.05
    assert torch.equal(strobe.revert_recipe(module)(x), before)


def test_a_function_has_nothing_to_optimize():
    with pytest.raises(UserError, match="contains no torch module, so there is nothing to optimize"):
        strobe.optimize(lambda x: x, np.ones(3))


def test_a_wrong_argument_is_refused_before_torch_loads() -> None:
    code = (
        "import sys, strobe\n"
        "try: strobe.optimize(abs, [1], target_ms=-1)\n"
        "except Exception as error: print(error, 'torch' in sys.modules)"
    )
    answered = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answered.stdout == "target_ms=-1: must be a number above zero False\n"
