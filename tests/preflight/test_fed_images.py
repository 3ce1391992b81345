"""The first images of a run are compared with the statistics of the training's images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.builders.stage import CAMERAS, JOINTS, SIZE, Wired

from strobe.core.results.finding import Finding
from strobe.loops.results.rollout import RolloutResult
from strobe.preflight.findings.fed import first_observation_findings
from strobe.preflight.pages import fed
from strobe.preflight.results.wiring import Wiring
from strobe.preflight.wiring.fed import add_first
from strobe.preflight.wiring.read import read_wiring

MEANS = {"front": (0.6, 0.45, 0.3), "wrist": (0.3, 0.35, 0.5)}
SPREAD = 0.2


def frame(mean: Any, spread: float = SPREAD) -> np.ndarray:
    noise = np.random.default_rng(0).uniform(-1.7, 1.7, (SIZE, SIZE, 1)) * spread
    return ((np.array(mean) + noise).clip(0, 1) * 255).astype(np.uint8)


def look(stage: Wired, statistics: bool = True, scale: float = 1.0, **frames: np.ndarray) -> Wiring:
    if statistics:
        numbers = {}
        for name in CAMERAS:
            camera = name.rpartition(".")[2]
            numbers[f"{name}.mean"] = (np.array(MEANS[camera], np.float32) * scale).reshape(3, 1, 1)
            numbers[f"{name}.std"] = np.full((3, 1, 1), SPREAD * scale, np.float32)
        stage.change_statistics("pre", lambda tensors: tensors | numbers)
    else:
        stage.change_statistics(
            "pre", lambda tensors: {name: each for name, each in tensors.items() if "images" not in name}
        )
    wiring = read_wiring(stage.policy, None, stage.robot)
    add_first(wiring, dict.fromkeys(JOINTS, 0.0) | {name: frame(mean) for name, mean in MEANS.items()} | frames)
    return wiring


def rules(wiring: Wiring) -> dict[str, Finding]:
    return {each.rule: each for each in first_observation_findings(wiring)}


@pytest.mark.parametrize(
    ("front", "rule"),
    [
        (frame((0, 0, 0), 0.0), "image-black"),
        (frame((0.015, 0.01, 0.01), 0.004), "image-black"),
        (frame((0.6, 0.45, 0.3), 0.0), "image-one-colour"),
        (frame((0.3, 0.45, 0.6)), "image-red-blue"),
        (frame((0.6, 0.45, 0.3)).astype(np.float32), "image-range"),
        (frame((0.97, 0.97, 0.97), 0.03), "image-unlike-training"),
    ],
)
def test_an_image_unlike_the_training_is_named_with_its_camera(front: np.ndarray, rule: str, stage: Wired):
    found = rules(look(stage, front=front))
    assert list(found) == [rule]
    assert found[rule].level == "warning"
    assert "front" in found[rule].title


def test_two_exchanged_cameras_are_one_finding(stage: Wired):
    found = rules(look(stage, front=frame(MEANS["wrist"]), wrist=frame(MEANS["front"])))
    assert list(found) == ["images-exchanged"]


def test_statistics_of_another_range_are_found(stage: Wired):
    assert set(rules(look(stage, scale=255.0))) == {"image-range"}


@pytest.mark.parametrize("shift", [0.0, 0.12, -0.12])
def test_the_trainings_own_scene_in_other_light_is_sound(shift: float, stage: Wired):
    front, wrist = (frame(np.array(mean) + shift) for mean in MEANS.values())
    assert rules(look(stage, front=front, wrist=wrist)) == {}


def test_without_statistics_only_an_empty_image_is_judged_and_the_page_says_so(stage: Wired):
    wiring = look(stage, statistics=False, front=frame((0.97, 0.97, 0.97), 0.03))
    assert rules(wiring) == {}
    (section,) = fed.sections(RolloutResult.model_construct(wiring=wiring))[-1:]
    assert section.table is not None
    assert all("not judged" in str(row.cells[-1]) for row in section.table.rows)


def test_imagenets_statistics_are_not_those_of_the_data(stage: Wired):
    imagenet = {f"{name}.mean": np.array((0.485, 0.456, 0.406), np.float32).reshape(3, 1, 1) for name in CAMERAS}
    look(stage)
    stage.change_statistics("pre", lambda tensors: tensors | imagenet)
    wiring = read_wiring(stage.policy, None, stage.robot)
    add_first(wiring, {"front": frame((0.97, 0.97, 0.97), 0.03), "wrist": frame((0, 0, 0), 0.0)})
    assert list(rules(wiring)) == ["image-black"]
    assert wiring.fed_images is not None
    assert "ImageNet" in (wiring.fed_images[0].unjudged or "")


def test_a_rehearsals_test_pattern_is_not_judged(stage: Wired):
    wiring = look(stage)
    black = {name: frame((0, 0, 0), 0.0) for name in MEANS}
    add_first(wiring, black, filmed=["wrist"])
    assert [each.title for each in first_observation_findings(wiring)] == ["Camera wrist is black"]
    add_first(wiring, black, filmed=[""])
    assert len(first_observation_findings(wiring)) == 2
