"""A prompt that the tokenizer cuts is found with its own file, and counted as LeRobot's own steps count it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builders.stage import Wired, change_json, make_wired

from strobe.preflight.results.wiring import Prompt
from strobe.preflight.wiring.checkpoint import read_checkpoint
from strobe.preflight.wiring.prompt import read_prompt

LONG = "push the cube onto the green target, then open the top drawer and put it in, then close it with the left arm"
SHORT = "push the cube"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small tokenizer that begins each text with a token of its own."""
    from strobe.lerobot.families import pi
    from strobe.lerobot.policies.standins import tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer(pi.VOCABULARY, tiny=True).save_pretrained(folder)
    return folder


def copy_with_tokenizer(policy: Path, folder: Path, name: str, **config: Any) -> Path:
    """Return a copy of ``policy`` whose tokenizer step has this name and these settings."""
    shutil.copytree(policy, folder)

    def change_tokenizer(document: dict[str, Any]) -> dict[str, Any]:
        (step,) = [step for step in document["steps"] if step["registry_name"] == "tokenizer_processor"]
        step["config"] |= {"tokenizer_name": name, **config}
        return document

    change_json(folder / "policy_preprocessor.json", change_tokenizer)
    return folder


def prompt(policy: Path, given: str | None = None, tasks: tuple[str, ...] = ()) -> Prompt:
    read = read_prompt(read_checkpoint(policy), given, tasks)
    assert read is not None
    return read


@pytest.mark.parametrize("kind", ["smolvla", "pi05"])
@pytest.mark.parametrize("most", [6, 20, 200])
def test_what_is_cut_is_what_lerobots_own_steps_cut(
    kind: str, most: int, saved_policies: Any, tokenizer: Path, tmp_path: Path
):
    import torch
    from lerobot.policies.factory import make_pre_post_processors

    policy = copy_with_tokenizer(saved_policies[kind][0], tmp_path / "policy", str(tokenizer), max_length=most)
    config = saved_policies[kind][1].policy.config
    pre, _ = make_pre_post_processors(config, pretrained_path=str(policy))
    state = torch.full((1, 6), -100.0)  # far below: its numbers have one digit
    batch = {"observation.state": state, "task": LONG}
    for name, feature in config.image_features.items():
        batch[name] = torch.zeros((1, *feature.shape))
    step: Any = next(step for step in pre.steps if hasattr(step, "input_tokenizer"))
    seen = pre(batch)["observation.language.tokens"][0]
    text = step.input_tokenizer.decode(seen, skip_special_tokens=True)
    found = prompt(policy, LONG)
    assert found.uncounted is None
    assert found.most_tokens == most
    if most == 200 and kind == "smolvla":
        assert found.cut == []
        assert text.strip() == LONG
        return
    if most == 200:
        assert found.cut == []
        return
    assert found.cut is not None
    (cut,) = found.cut
    assert cut.always
    assert cut.tokens > most
    # LeRobot puts the numbers of a state there that the shortest ones stand for here.
    assert cut.text[: len(cut.text) - len(cut.cut)] == text


def test_a_state_of_long_numbers_may_be_what_is_cut(saved_policies: Any, tokenizer: Path, tmp_path: Path):
    found = prompt(
        copy_with_tokenizer(saved_policies["pi05"][0], tmp_path / "one", str(tokenizer), max_length=1), SHORT
    )
    assert found.cut is not None
    fits = found.cut[0].tokens  # with numbers of one digit
    found = prompt(
        copy_with_tokenizer(saved_policies["pi05"][0], tmp_path / "all", str(tokenizer), max_length=fits), SHORT
    )
    assert found.cut is not None
    (cut,) = found.cut
    assert not cut.always
    assert cut.text.startswith(f"Task: {SHORT}, State: 255 255")
    assert "255" in cut.cut


def test_without_its_tokenizer_it_is_not_judged(saved_policies: Any, tmp_path: Path):
    policy = saved_policies["smolvla"][0]
    found = prompt(policy, LONG * 9)
    assert found.cut is None
    assert "HuggingFaceTB/SmolVLM2-500M-Video-Instruct is not on this machine" in (found.uncounted or "")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tokenizer.json").write_text("{}")
    found = prompt(copy_with_tokenizer(policy, tmp_path / "policy", str(broken)), LONG * 9)
    assert found.cut is None
    assert "cannot be read" in (found.uncounted or "")


def test_a_step_of_somebody_else_may_change_the_text(saved_policies: Any, tokenizer: Path, tmp_path: Path):
    policy = copy_with_tokenizer(saved_policies["smolvla"][0], tmp_path / "policy", str(tokenizer))

    def insert_step(document: dict[str, Any]) -> dict[str, Any]:
        document["steps"].insert(0, {"registry_name": "rewords_the_task", "config": {}})
        return document

    change_json(policy / "policy_preprocessor.json", insert_step)
    assert "rewords_the_task" in (prompt(policy, LONG).uncounted or "")


def test_a_line_end_that_is_cut_off_is_no_word(saved_policies: Any, tokenizer: Path, tmp_path: Path):
    """SmolVLA's processor puts one behind every task."""
    found = prompt(
        copy_with_tokenizer(saved_policies["smolvla"][0], tmp_path / "one", str(tokenizer), max_length=1), LONG
    )
    assert found.cut is not None
    whole = found.cut[0].tokens
    for most, cut in ((whole, 0), (whole - 1, 0), (whole - 2, 1)):
        policy = copy_with_tokenizer(
            saved_policies["smolvla"][0], tmp_path / str(most), str(tokenizer), max_length=most
        )
        assert len(prompt(policy, LONG).cut or []) == cut


def test_a_tokenizer_that_cuts_nothing_cuts_nothing(saved_policies: Any, tokenizer: Path, tmp_path: Path):
    policy = copy_with_tokenizer(
        saved_policies["smolvla"][0], tmp_path / "p", str(tokenizer), max_length=3, truncation=False
    )
    assert prompt(policy, LONG).cut == []


@pytest.fixture
def stage(saved_policies: Any, tokenizer: Path, tmp_path: Path) -> Wired:
    """A SmolVLA that sees 24 tokens, and a robot without cameras."""
    policy = copy_with_tokenizer(saved_policies["smolvla"][0], tmp_path / "smolvla", str(tokenizer), max_length=24)
    made = make_wired(policy, tmp_path / "stage")
    kept = {name: made.robot.features[name] for name in ("action", "observation.state")}
    made.robot = replace(made.robot, features=kept)
    return made


def prompt_findings(stage: Wired) -> dict[str, Any]:
    return {finding.rule: finding for finding in stage.findings() if finding.rule.startswith("prompt")}


def test_a_long_task_of_a_rollout_is_a_serious_finding_that_shows_the_end(stage: Wired):
    stage.robot = replace(stage.robot, task=LONG)
    cut = prompt_findings(stage)["prompt-cut"]
    assert cut.level == "warning"
    assert "prompt-unknown" in prompt_findings(stage)
    assert "of which the policy sees 24" in cut.found
    assert "left arm'." in cut.found
    stage.robot = replace(stage.robot, task=SHORT)
    assert prompt_findings(stage) == {}


def test_a_task_that_the_data_has_too_was_cut_in_training(stage: Wired):
    stage.set_tasks([LONG])
    stage.robot = replace(stage.robot, task=LONG)
    cut = prompt_findings(stage)["prompt-cut"]
    assert cut.level == "info"
    assert "It cuts 1 of the data set's 1 tasks." in cut.found


def test_two_tasks_that_read_the_same_once_they_are_cut_are_a_serious_finding(stage: Wired):
    stage.set_tasks([LONG, f"{LONG}, slowly"])
    stage.robot = replace(stage.robot, task=LONG)
    cut = prompt_findings(stage)["prompt-cut"]
    assert cut.level == "warning"
    assert "Two tasks become the same text" in cut.found
