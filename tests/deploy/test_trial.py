"""A recipe that LeRobot's own program gets is on trial on the first observation, and never stops the robot."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

os.environ["HF_HUB_OFFLINE"] = "1"

from support.builders.checkpoints import EXACT, FEW_STEPS, Saved, tiny_recipe
from support.suite.matrix import matrix

from strobe.core.results.recipe import Recipe
from strobe.core.runs.recipe_file import dump
from strobe.deploy import checking, trial
from strobe.deploy.trial import RecipeTrial, apply_on_trial
from strobe.lerobot.policies import inputs, lerobot_policies
from strobe.lerobot.policies.policy_subject import PolicySubject
from strobe.lerobot.policies.standins import stand_ins

BF16 = {"precision": "bf16"}


@pytest.fixture(autouse=True)
def _short_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SECONDS", 0.3)


@pytest.fixture(autouse=True)
def _tiny_tokenizers() -> Iterator[None]:
    """Stand in for what LeRobot has from the Hub, for the whole test: the tiny policies know few words."""
    with stand_ins("smolvla", random_weights=True, tiny=True), stand_ins("pi05", random_weights=True, tiny=True):
        yield


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """Return the log's lines of Strobe."""
    caplog.set_level(logging.INFO, "strobe")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "strobe"]


def load(folder: Path) -> Any:
    """The policy as a program has it once it has loaded it. LeRobot itself cannot build the tiny ones of all types."""
    config = lerobot_policies.config_from_path(folder)
    return lerobot_policies.load(config, inputs.synthetic(config, count=1), size="tiny").policy


def apply_trial_recipe(saved: Saved, made: Recipe, folder: Path, watch: float = 0.0) -> tuple[Any, RecipeTrial | None]:
    """A policy with the recipe on trial."""
    dump(made, folder / "recipe.yaml")
    source = saved[made.policy][0]
    policy = load(source)
    return policy, apply_on_trial(policy, source, folder / "recipe.yaml", watch)


def act(policy: Any, subject: PolicySubject, seed: int, **options: Any) -> Tensor:
    torch.manual_seed(seed)
    policy.reset()
    return policy.predict_action_chunk(subject.loaded.preprocessor(subject.observation(seed)), **options)


@pytest.mark.parametrize("kind", matrix(FEW_STEPS))
def test_the_first_observation_decides_and_one_line_tells(
    kind: str, saved_policies: Saved, tmp_path: Path, lines: Any
) -> None:
    subject = saved_policies[kind][1]
    exact = EXACT if kind in ("smolvla", "pi05") else []
    policy, _ = apply_trial_recipe(saved_policies, tiny_recipe(kind, *exact, BF16), tmp_path)
    assert lines() == []
    plain = load(saved_policies[kind][0])
    expected = act(plain, subject, 0)
    state = torch.get_rng_state()
    chunk = act(policy, subject, 0)
    assert torch.equal(torch.get_rng_state(), state)  # as if the baseline alone had been called
    assert 0 < (chunk - expected).abs().max() < 0.2
    count = len(exact) + 1
    (line,) = lines()
    assert line.startswith(f"strobe: recipe.yaml on {kind}: {count} treatment{'s' * (count > 1)}, on the first observa")
    assert "actions move by 0.00" in line
    assert next(policy.parameters()).dtype == torch.bfloat16
    act(policy, subject, 1)
    assert len(lines()) == 1


def test_a_recipe_that_fails_on_the_first_observation_is_taken_off(
    saved_policies: Saved, tmp_path: Path, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The robot gets the baseline's action, to the bit."""
    subject = saved_policies["diffusion"][1]
    policy, found = apply_trial_recipe(saved_policies, tiny_recipe("diffusion", BF16), tmp_path)
    assert found is not None
    weight = next(policy.parameters())
    assert weight.dtype == torch.bfloat16
    weight.data *= 3
    chunk = act(policy, subject, 0)
    state = torch.get_rng_state()
    (line,) = lines()
    assert line.startswith("strobe: recipe.yaml is not used: on the first observation RMS ")
    assert line.endswith("limits: rms<=0.02, worst<=0.2, flips<=0; the policy runs unchanged")
    plain = load(saved_policies["diffusion"][0])
    assert torch.equal(chunk, act(plain, subject, 0))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(act(policy, subject, 1), act(plain, subject, 1))
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    assert "predict_action_chunk" not in vars(policy)


def test_queues_are_those_of_the_untouched_policy_after_a_fall(saved_policies: Saved, tmp_path: Path) -> None:
    subject = saved_policies["diffusion"][1]
    policy, _ = apply_trial_recipe(saved_policies, tiny_recipe("diffusion", BF16), tmp_path)
    next(policy.parameters()).data *= 3
    plain = load(saved_policies["diffusion"][0])
    seen = {k: v[:, -1] if isinstance(v, Tensor) else v for k, v in subject.observation(0).items()}
    for one in (policy, plain):
        one.reset()
    for step in range(10):
        actions = []
        for one in (policy, plain):
            torch.manual_seed(step)
            actions.append(one.select_action(subject.loaded.preprocessor(dict(seen))))
        assert torch.equal(*actions)


def test_a_treated_call_that_raises_is_no_end(saved_policies: Saved, tmp_path: Path, lines: Any) -> None:
    subject = saved_policies["act"][1]
    policy, _ = apply_trial_recipe(saved_policies, tiny_recipe("act", BF16), tmp_path)

    def failing(*_: Any) -> Any:
        raise RuntimeError("no such\nkernel")

    policy.model.forward = failing  # where the treatment has put its own
    chunk = act(policy, subject, 0)
    assert lines() == ["strobe: recipe.yaml is not used: RuntimeError: no such kernel; the policy runs unchanged"]
    assert torch.equal(chunk, act(load(saved_policies["act"][0]), subject, 0))


@pytest.mark.parametrize("broken", [False, True])
def test_the_first_call_with_rtc_decides_again(broken: bool, saved_policies: Saved, tmp_path: Path, lines: Any) -> None:
    from lerobot.policies.rtc.configuration_rtc import RTCConfig

    subject = saved_policies["smolvla"][1]
    policy, found = apply_trial_recipe(
        saved_policies, tiny_recipe("smolvla", {"guidance": "closed form"}, BF16), tmp_path
    )
    plain = load(saved_policies["smolvla"][0])
    for one in (policy, plain):  # as lerobot-rollout does, once it has loaded the policy
        one.config.rtc_config = RTCConfig(enabled=True, execution_horizon=6)
        one.init_rtc_processor()
    first = act(policy, subject, 0, inference_delay=0, prev_chunk_left_over=None)
    assert not torch.equal(first, act(plain, subject, 0))
    assert len(lines()) == 1
    if broken:
        next(policy.parameters()).data *= 3
        policy.model.action_out_proj.weight.data *= 2
    left_over = torch.full((6, 6), 0.7)
    guided = act(policy, subject, 1, inference_delay=2, prev_chunk_left_over=left_over)
    expected = act(plain, subject, 1, inference_delay=2, prev_chunk_left_over=left_over)
    assert torch.equal(guided, expected) == broken
    assert len(lines()) == 1 + broken
    assert found is not None
    assert found.applied.twin is None  # and the original weights with it
    if broken:
        assert "on the first call with Real-Time Chunking" in lines()[1]
        assert torch.equal(act(policy, subject, 2), act(plain, subject, 2))


def test_it_may_be_watched_from_then_on(saved_policies: Saved, tmp_path: Path) -> None:
    subject = saved_policies["act"][1]
    policy, found = apply_trial_recipe(saved_policies, tiny_recipe("act", BF16), tmp_path, watch=1.0)
    assert found is not None
    for seed in range(3):
        act(policy, subject, seed)
        assert found.watch is not None
        assert found.watch.wait()
    assert found.watch is not None
    assert found.watch.checked == 2
    found.watch.close()


def test_the_untouched_weights_are_let_go_once_it_has_passed(saved_policies: Saved, tmp_path: Path) -> None:
    policy, found = apply_trial_recipe(saved_policies, tiny_recipe("act", BF16), tmp_path)
    assert found is not None
    assert found.applied.twin is not None
    act(policy, saved_policies["act"][1], 0)
    assert found.applied.twin is None
    assert found.applied.is_settled


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("treatments: [", "is not YAML: line 1"),
        ("version: 1\npolicy: act\n", "treatments: missing"),
        ("policy: pi05\ntreatments: [{precision: bf16}]\n", "a recipe for the type 'pi05', and this is 'act'"),
        ("policy: act\ntreatments: [{precision: bf17}]\n", "unknown precision 'bf17'"),
        ("policy: act\ntreatments: [{prefix_cache: static}]\n", r"step 1 \(prefix_cache=static\)"),
        ("policy: act\nguard: rms<=1e-9\ntreatments: [{precision: bf16}]\n", "the policy exceeds the recipe's limits"),
    ],
)
def test_whatever_is_wrong_with_a_recipe_the_policy_runs_as_it_is(
    content: str, words: str, saved_policies: Saved, tmp_path: Path, lines: Any
) -> None:
    folder, subject = saved_policies["act"]
    (tmp_path / "fast.yaml").write_text(content)
    policy = load(folder)
    assert apply_on_trial(policy, folder, tmp_path / "fast.yaml") is None
    (line,) = lines()
    assert line.startswith("strobe: fast.yaml is not used: ")
    assert re.search(words, line)
    assert line.endswith("; the policy runs unchanged")
    assert "\n" not in line
    assert torch.equal(act(policy, subject, 0), act(load(folder), subject, 0))
    assert "predict_action_chunk" not in vars(policy)


def test_what_nobody_foresaw_stops_no_robot_either(
    saved_policies: Saved, tmp_path: Path, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lerobot_policies, "adopt", lambda *_: 1 / 0)
    policy, found = apply_trial_recipe(saved_policies, tiny_recipe("act", BF16), tmp_path)
    assert found is None
    assert lines() == [
        "strobe: recipe.yaml is not used: ZeroDivisionError: division by zero; the policy runs unchanged"
    ]
    assert checking.policy_device(policy) == torch.device("cpu")
