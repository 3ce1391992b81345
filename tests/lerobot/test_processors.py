"""A checkpoint whose processors are not those of its config: what is not normalised is refused, the rest is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from strobe.core.errors import UserError
from strobe.lerobot.policies.loading import load_subject
from strobe.lerobot.policies.options import InputOptions, PolicyOptions
from strobe.lerobot.processors import NORMALISERS, POSTPROCESSOR, PREPROCESSOR, compare_steps, lacking_normalisation

KINDS = ("act", "diffusion", "smolvla", "pi05")
Steps = list[dict[str, Any]]


def find(steps: Steps, name: str) -> dict[str, Any]:
    return next(step for step in steps if step["registry_name"] == name)


def remove(name: str) -> Callable[[Steps], Steps]:
    return lambda steps: [step for step in steps if step["registry_name"] != name]


def leave_out(name: str, feature: str) -> Callable[[Steps], Steps]:
    def change(steps: Steps) -> Steps:
        del find(steps, name)["config"]["features"][feature]
        return steps

    return change


def set_argument(name: str, **fields: Any) -> Callable[[Steps], Steps]:
    def change(steps: Steps) -> Steps:
        find(steps, name)["config"] |= fields
        return steps

    return change


PRE, POST = NORMALISERS[PREPROCESSOR], NORMALISERS[POSTPROCESSOR]
# Types, which processor, what is planted, and how serious it is.
PLANTED: dict[str, tuple[tuple[str, ...], str, Callable[[Steps], Steps], str]] = {
    "not normalised": (KINDS, PREPROCESSOR, remove(PRE), "danger"),
    "not unnormalised": (KINDS, POSTPROCESSOR, remove(POST), "danger"),
    "no state": (KINDS, PREPROCESSOR, leave_out(PRE, "observation.state"), "danger"),
    "no action": (KINDS, POSTPROCESSOR, leave_out(POST, "action"), "danger"),
    "images not normalised": (("diffusion",), PREPROCESSOR, leave_out(PRE, "observation.images.front"), "danger"),
    "another mode": (KINDS, PREPROCESSOR, set_argument(PRE, norm_map={"STATE": "MIN_MAX"}), "info"),
    "no batches": (KINDS, PREPROCESSOR, remove("to_batch_processor"), "warning"),
    "no device": (KINDS, PREPROCESSOR, remove("device_processor"), "warning"),
    "twice": (KINDS, PREPROCESSOR, lambda steps: [*steps, deepcopy(find(steps, PRE))], "warning"),
    "no new line": (("smolvla",), PREPROCESSOR, remove("smolvla_new_line_processor"), "warning"),
    "words before their new line": (("smolvla",), PREPROCESSOR, lambda steps: steps[::-1], "warning"),
    "the state's words before it is normalised": (("pi05",), PREPROCESSOR, lambda steps: steps[::-1], "warning"),
    "shorter prompts": (
        ("pi05", "smolvla"), PREPROCESSOR, set_argument("tokenizer_processor", max_length=8), "warning"),
    "relative actions": (("pi05",), PREPROCESSOR, set_argument("relative_actions_processor", enabled=True), "warning"),
}  # fmt: skip
SOUND: dict[str, Callable[[Steps], Steps]] = {
    "as it was saved": lambda steps: steps,
    "a step of one's own": lambda steps: [*steps, {"registry_name": "mine", "config": {"much": 1}}],
    "another device": set_argument("device_processor", device="cuda"),
    "other names": set_argument("rename_observations_processor", rename_map={"a": "b"}),
}


def compare(folder: Path, place: str, change: Callable[[Steps], Steps]) -> set[str]:
    config = json.loads((folder / "config.json").read_text())
    made = json.loads((folder / f"policy_{place}.json").read_text())["steps"]
    own, made = (
        [(step["registry_name"], step["config"]) for step in steps] for steps in (change(deepcopy(made)), made)
    )
    return {each.level for each in [*lacking_normalisation(config, place, own), *compare_steps(place, own, made)]}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_named(name: str, saved_policies: Any):
    kinds, place, change, level = PLANTED[name]
    assert [compare(saved_policies[kind][0], place, change) for kind in kinds] == [{level}] * len(kinds)


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_said_of_sound_processors(name: str, saved_policies: Any):
    assert [compare(saved_policies[kind][0], PREPROCESSOR, SOUND[name]) for kind in KINDS] == [set()] * len(KINDS)


def load(folder: Path) -> list[str]:
    return load_subject(PolicyOptions(path=str(folder)), InputOptions()).loaded.notes


def change_file(folder: Path, place: str, change: Callable[[Steps], Steps]) -> None:
    file = folder / f"policy_{place}.json"
    read = json.loads(file.read_text())
    file.write_text(json.dumps(read | {"steps": change(read["steps"])}))


def test_no_study_runs_a_policy_that_gets_raw_numbers(saved_policies: Any, tmp_path: Path):
    """As in lerobot #3674."""
    folder = shutil.copytree(saved_policies["act"][0], tmp_path / "act")
    assert not [note for note in load(folder) if "processor of" in note]
    change_file(folder, PREPROCESSOR, remove("to_batch_processor"))
    assert any("no step to_batch_processor" in note for note in load(folder))
    change_file(folder, POSTPROCESSOR, remove(POST))
    with pytest.raises(UserError, match=r"no step unnormalizer_processor.*the robot gets the policy's normalised"):
        load(folder)
