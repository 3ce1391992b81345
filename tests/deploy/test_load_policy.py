"""A checkpoint is loaded with a recipe on it, ready for LeRobot's own calls, and never as another policy in silence."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from support.builders.checkpoints import EXACT, FEW_STEPS, Saved
from support.builders.checkpoints import tiny_recipe as recipe
from support.suite import warm
from support.suite.matrix import matrix

import strobe
from strobe.core.errors import UserError
from strobe.core.results.agreement import Agreement
from strobe.core.results.recipe import Recipe
from strobe.core.runs.recipe_file import dump
from strobe.deploy import attach_recipe_on_load, checking
from strobe.lerobot.policies.policy_subject import PolicySubject

# A robot's program: loads a policy with a recipe, and prints what of the lab that brought in.
ROBOT = """
import sys
from strobe.deploy import load_policy
load_policy(sys.argv[1], sys.argv[2], device="cpu")
lab = ("strobe.core.cli", "strobe.sweep.execute", "strobe.core.studies", "strobe.core.report", "strobe.core.findings")
lab += ("plotly", "statsmodels")
print(*(name for name in lab if name in sys.modules), sep=",")
"""


@pytest.fixture(autouse=True)
def _short_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check at loading makes the fewest calls, of the same kinds."""
    monkeypatch.setattr(checking, "SECONDS", 0.1)


def observation(subject: PolicySubject) -> dict[str, Any]:
    """As a robot hands it over: one tick."""
    seen = subject.observation(0)
    if getattr(subject.policy.config, "n_obs_steps", 1) == 1:
        return seen
    return {key: value[:, -1] if isinstance(value, torch.Tensor) else value for key, value in seen.items()}


@pytest.mark.parametrize("kind", matrix(FEW_STEPS))
def test_lerobots_own_calls_work_on_the_treated_policy(kind: str, saved_policies: Saved, tmp_path: Path) -> None:
    folder, subject = saved_policies[kind]
    exact = EXACT if kind in ("smolvla", "pi05") else []
    dump(recipe(kind, *exact, {"precision": "bf16"}, guard="cosine>=0.99"), tmp_path / "fast.yaml")
    loaded = strobe.load_policy(folder, tmp_path / "fast.yaml", device="cpu")
    policy, preprocessor, postprocessor = loaded
    assert type(policy) is type(subject.policy)
    assert {parameter.dtype for parameter in policy.parameters() if parameter.is_floating_point()} == {torch.bfloat16}
    assert loaded.agreement is not None
    assert 0.99 <= loaded.agreement.cosine < 1
    subject.policy.reset()
    policy.reset()
    for _ in range(2):
        torch.manual_seed(3)
        ours = policy.select_action(preprocessor(observation(subject)))
        assert ours.dtype == torch.float32
        ours = postprocessor(ours)
        torch.manual_seed(3)
        theirs = subject.policy.select_action(subject.loaded.preprocessor(observation(subject)))
        theirs = subject.loaded.postprocessor(theirs)
        assert torch.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) > 0.98
    if kind != "diffusion":  # whose chunks are made from its queues
        chunk = policy.predict_action_chunk(preprocessor(observation(subject)))
        assert chunk.dtype == torch.float32


def test_the_preprocessor_is_the_treated_one(saved_policies: Saved, tmp_path: Path) -> None:
    folder, subject = saved_policies["act"]
    dump(recipe("act", {"images": 24}), tmp_path / "small.yaml")
    loaded = strobe.load_policy(folder, tmp_path / "small.yaml", device="cpu", check=False)
    batch = loaded.preprocessor(observation(subject))
    assert {min(batch[key].shape[-2:]) for key in loaded.policy.config.image_features} == {24}


def test_a_robots_process_loads_nothing_of_the_lab(saved_policies: Saved, tmp_path: Path) -> None:
    dump(recipe("act", {"precision": "bf16"}), tmp_path / "fast.yaml")
    ran = warm.run("-c", ROBOT, saved_policies["act"][0], tmp_path / "fast.yaml")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == ""


def test_without_a_recipe_it_is_lerobots_policy(saved_policies: Saved) -> None:
    folder, subject = saved_policies["act"]
    state = torch.random.get_rng_state()
    loaded = strobe.load_policy(str(folder))
    assert loaded.agreement is None
    assert not loaded.policy.training
    for name, value in subject.policy.state_dict().items():
        assert torch.equal(loaded.policy.state_dict()[name], value)
    strobe.load_policy(folder, recipe("act", {"precision": "bf16"}))
    assert torch.equal(torch.random.get_rng_state(), state)  # the check drew nothing from the program's generator


def test_overrides_reach_the_policy(saved_policies: Saved) -> None:
    loaded = strobe.load_policy(saved_policies["act"][0], overrides=["--n_action_steps=7"])
    assert loaded.policy.config.n_action_steps == 7


def test_the_untouched_weights_are_let_go(saved_policies: Saved) -> None:
    """A policy deployed in bfloat16 takes bfloat16's memory."""
    before = _living_float32()
    loaded = strobe.load_policy(saved_policies["act"][0], recipe("act", {"precision": "bf16"}))
    gc.collect()
    weights = sum(parameter.numel() for parameter in loaded.policy.parameters())
    assert _living_float32() - before < weights / 4


def _living_float32() -> int:
    found = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.dtype == torch.float32:
            found[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes() // 4
    return sum(found.values())


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            recipe("act", {"precision": "bf16"}, guard="cosine>=0.99999999"),
            r"recipe: the policy exceeds the recipe's limits: cosine .*actions move by .* limits: cosine>=0.99",
        ),
        (
            recipe(
                "act",
                {"precision": "bf16"},
                agreement=Agreement(cosine=0.99999999, largest_error=0, mean_error=0, observations=4),
            ),
            "limits: cosine>=0.9999989",
        ),
        (recipe("act", {"channels_last": True}, {"policy.dim_model": 3}), r"recipe: step 2 \(policy.dim_model=3\): "),
        (recipe("pi05", {"precision": "bf16"}), "recipe is a recipe for the type 'pi05', and this is 'act'"),
    ],
)
def test_it_never_runs_another_policy_in_silence(made: Recipe, words: str, saved_policies: Saved) -> None:
    with pytest.raises(UserError, match=words) as caught:
        strobe.load_policy(saved_policies["act"][0], made)
    assert "\n" not in str(caught.value)


def test_without_the_check_it_is_loaded_all_the_same(saved_policies: Saved) -> None:
    demanding = recipe("act", {"precision": "bf16"}, guard="cosine>=0.99999999")
    loaded = strobe.load_policy(saved_policies["act"][0], demanding, check=False)
    assert loaded.agreement is None
    assert next(loaded.policy.parameters()).dtype == torch.bfloat16


def test_other_versions_are_a_warning(saved_policies: Saved) -> None:
    with pytest.warns(UserWarning, match=r"recipe was made with torch 1.0 \(here .*its agreement may not hold"):
        strobe.load_policy(saved_policies["act"][0], recipe("act", {"channels_last": True}, versions={"torch": "1.0"}))


def test_what_is_no_checkpoint_or_no_recipe_is_told(saved_policies: Saved, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no config"):
        strobe.load_policy(tmp_path)
    with pytest.raises(UserError, match="cannot read the recipe"):
        strobe.load_policy(saved_policies["act"][0], tmp_path / "none.yaml")


def test_closed_form_guidance_waits_for_rtc(saved_policies: Saved) -> None:
    """lerobot-rollout turns RTC on after it has loaded the policy."""
    from lerobot.policies.rtc.configuration_rtc import RTCConfig

    folder, subject = saved_policies["smolvla"]
    loaded = strobe.load_policy(folder, recipe("smolvla", {"guidance": "closed form"}))
    assert loaded.agreement is not None
    assert loaded.agreement.largest_error == 0
    batch = loaded.preprocessor(subject.observation(0))
    chunks = []
    policies: list[Any] = [loaded.policy, subject.policy]
    for policy in policies:
        policy.config.rtc_config = RTCConfig(enabled=True, execution_horizon=6)
        policy.init_rtc_processor()
        left_over = torch.ones(6, 6)
        torch.manual_seed(0)
        chunks.append(policy.predict_action_chunk(dict(batch), inference_delay=2, prev_chunk_left_over=left_over))
    assert torch.equal(*chunks)
    assert ["denoise_step" in vars(policy.model.rtc_processor) for policy in policies] == [True, False]


def test_policies_that_lerobot_loads_carry_the_recipe(saved_policies: Saved) -> None:
    from lerobot.configs import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_policy

    folder, subject = saved_policies["act"]
    kind: Any = get_policy_class("act")
    config = PreTrainedConfig.from_pretrained(folder)
    config.pretrained_path = folder
    with attach_recipe_on_load(recipe("act", {"precision": "bf16"})):
        policy = make_policy(config, ds_meta=subject.inputs.meta)
    assert type(policy) is kind
    assert next(policy.parameters()).dtype == torch.bfloat16
    assert "from_pretrained" not in vars(kind)
    plain = kind.from_pretrained(folder)
    assert next(plain.parameters()).dtype == torch.float32
    batch = subject.loaded.preprocessor(subject.observation(0))
    ours, theirs = policy.predict_action_chunk(dict(batch)), plain.predict_action_chunk(dict(batch))
    assert torch.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) > 0.99


def test_a_recipe_that_was_put_on_nothing_is_told() -> None:
    with (
        pytest.warns(UserWarning, match="no policy of the type 'act' was loaded"),
        attach_recipe_on_load(recipe("act", {"precision": "bf16"})),
    ):
        pass
    with (
        pytest.raises(UserError, match="recipe: no policy type 'atc': did you mean 'act'"),
        attach_recipe_on_load(recipe("atc", {"precision": "bf16"})),
    ):
        pass


def test_within_the_block_the_guard_holds_too(saved_policies: Saved) -> None:
    from lerobot.policies.factory import get_policy_class

    folder, _ = saved_policies["act"]
    kind: Any = get_policy_class("act")
    with (
        pytest.raises(UserError, match="the policy exceeds the recipe's limits"),
        attach_recipe_on_load(recipe("act", {"precision": "bf16"}, guard="cosine>=0.99999999")),
    ):
        kind.from_pretrained(folder)
