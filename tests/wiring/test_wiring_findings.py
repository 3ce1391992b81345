"""Each rule on a policy's wiring finds the fault that is planted for it, and none in what fits together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import tiny_checkpoint
from support.matrix import matrix
from support.wired import CAMERAS, JOINTS, Tensors, Wired

from strobe.findings.wiring import DANGEROUS, findings_of
from strobe.results.wiring import Weights
from strobe.wiring.of_run import settings_of
from strobe.wiring.read import read_wiring

BACKWARDS = JOINTS[::-1]
TYPES = (
    "act", "diffusion", "eo1", "evo1", "fastwam", "gaussian_actor", "groot", "lingbot_va", "molmoact2",
    "multi_task_dit", "pi0", "pi0_fast", "pi05", "smolvla", "tdmpc", "vla_jepa", "vqbet", "wall_x", "xvla",
)  # fmt: skip


def test_nothing_is_found_in_what_fits_together(stage: Wired):
    assert stage.findings() == []
    wiring = stage.read()
    assert list(wiring.sources) == ["policy", "preprocessor", "postprocessor", "dataset", "robot"]
    state = wiring.wire("observation.state")
    assert state is not None
    assert {place: end.shape for place, end in state.ends.items()} == {place: [6] for place in state.ends}
    assert state.ends["preprocessor"].normalisation is not None
    assert state.ends["preprocessor"].normalisation.statistics["std"] == [5.0] * 6


def renamed(tensors: Tensors, old: str, new: str) -> Tensors:
    return {name.replace(old, new): values for name, values in tensors.items()}


def without(tensors: Tensors, start: str) -> Tensors:
    return {name: values for name, values in tensors.items() if not name.startswith(start)}


def statistics_under_another_name(stage: Wired) -> None:
    stage.change_statistics("pre", lambda tensors: renamed(tensors, "observation.state", "observation.joints"))


def statistics_missing(stage: Wired) -> None:
    stage.change_statistics("post", lambda tensors: without(tensors, "action"))


def statistics_in_the_weights(stage: Wired) -> None:
    for file in stage.policy.glob("policy_p*"):
        file.unlink()
    five = np.full(6, 5.0, np.float32)
    stage.change_weights(lambda tensors: tensors | {"normalize_inputs.buffer_observation_state.std": five})


def statistics_not_numbers(stage: Wired) -> None:
    nan = np.full(6, np.nan, np.float32)
    stage.change_statistics("pre", lambda tensors: tensors | {"observation.state.std": nan})


def a_joint_that_never_moved(stage: Wired) -> None:
    spread = np.array([5, 5, 5, 5, 5, 0], np.float32)
    stage.change_statistics("pre", lambda tensors: tensors | {"observation.state.std": spread})


def statistics_of_other_data(stage: Wired) -> None:
    far = np.full(6, 90.0, np.float32)
    stage.change_statistics("pre", lambda tensors: tensors | {"observation.state.mean": far})


def action_order(stage: Wired) -> None:
    stage.describe_feature("action", names=BACKWARDS)


def state_order(stage: Wired) -> None:
    stage.describe_feature("observation.state", names=BACKWARDS)


def other_joints(stage: Wired) -> None:
    stage.describe_feature("action", names=[*JOINTS[:5], "jaw.pos"])


def another_number_of_joints(stage: Wired) -> None:
    stage.connect("action", shape=[7], dimensions=[*JOINTS, "extra.pos"])


def radians(stage: Wired) -> None:
    text = (stage.dataset / "meta/stats.json").read_text()
    (stage.dataset / "meta/stats.json").write_text(text.replace("40.0", "1.6"))


def camera_missing(stage: Wired) -> None:
    features = {name: feature for name, feature in stage.robot.features.items() if name != CAMERAS[0]}
    stage.robot = replace(stage.robot, features=features)


def camera_unused(stage: Wired) -> None:
    more = stage.robot.features[CAMERAS[0]].model_copy(update={"name": "observation.images.top"})
    stage.robot = replace(stage.robot, features=stage.robot.features | {"observation.images.top": more})


def rename_unknown(stage: Wired) -> None:
    stage.rename = {"observation.images.nobody": CAMERAS[0]}


def cameras_swapped(stage: Wired) -> None:
    stage.rename = {CAMERAS[0]: CAMERAS[1], CAMERAS[1]: CAMERAS[0]}


def camera_cropped(stage: Wired) -> None:
    stage.configure(crop_shape=[16, 16])


def camera_stretched(stage: Wired) -> None:
    stage.connect(CAMERAS[0], shape=[3, 48, 64])


def compiled(stage: Wired) -> None:
    stage.change_weights(lambda tensors: {f"model._orig_mod.{name}": values for name, values in tensors.items()})


def another_version(stage: Wired) -> None:
    stage.configure(use_magic=True)


def too_few_actions(stage: Wired) -> None:
    stage.configure(n_action_steps=31)


def horizon_too_long(stage: Wired) -> None:
    stage.robot = replace(stage.robot, engine="rtc", execution_horizon=40)


def acts_long(stage: Wired) -> None:
    stage.configure(n_action_steps=30)


def another_rate(stage: Wired) -> None:
    stage.describe(fps=15)


def a_slow_camera(stage: Wired) -> None:
    stage.robot = replace(stage.robot, camera_fps={"front": 15.0})


def compiles(stage: Wired) -> None:
    stage.configure(compile_model=True)


def narrow_limits(stage: Wired) -> None:
    stage.limit("elbow_flex", -4.0, 4.0)


# What is planted → the rules that find it.
PLANTED: dict[Callable[[Wired], None], set[str]] = {
    statistics_under_another_name: {"statistics-absent"},  # lerobot #4446, #4415
    statistics_missing: {"statistics-absent"},  # lerobot #2753, #1424, #4047: moves a centimetre
    statistics_in_the_weights: {"statistics-in-weights"},  # lerobot #4655, #4649; strands-labs/robots #1096
    statistics_not_numbers: {"statistics-not-numbers"},
    a_joint_that_never_moved: {"statistics-flat", "statistics-of-other-data"},
    statistics_of_other_data: {"statistics-of-other-data"},  # FlashRT #70
    action_order: {"action-order"},  # lerobot #4122
    state_order: {"state-order"},
    other_joints: {"joints-differ"},
    another_number_of_joints: {"joints-differ"},
    radians: {"units-differ"},
    camera_missing: {"camera-missing"},  # lerobot #3181, #2318
    camera_unused: {"camera-unused"},
    rename_unknown: {"rename-unknown"},  # lerobot #1620
    cameras_swapped: {"cameras-swapped"},
    camera_cropped: {"camera-cropped", "fields-unknown"},  # of an ACT; lerobot #2918
    camera_stretched: {"camera-shape"},  # lerobot #2334
    compiled: {"weights-compiled"},  # lerobot #4114
    another_version: {"fields-unknown"},  # lerobot #3355, #3479
    too_few_actions: {"chunk-short", "acts-long-unseen"},  # lerobot #2277
    horizon_too_long: {"horizon-long"},
    acts_long: {"acts-long-unseen"},  # lerobot #1316, #4614
    another_rate: {"rates-differ"},
    a_slow_camera: {"camera-slow"},
    narrow_limits: {"reach-beyond-limits"},
    compiles: {"compiled-in-part", "fields-unknown"},
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_named(plant: Callable[[Wired], None], stage: Wired):
    plant(stage)
    findings = stage.findings()
    assert {finding.rule for finding in findings} == PLANTED[plant]
    assert all(finding.seen and finding.why and (finding.do or finding.level == "info") for finding in findings)


def test_a_policys_own_order_is_kept_by_rtc_alone(stage: Wired):
    stage.configure(action_feature_names=BACKWARDS)
    (found,) = [finding for finding in stage.findings() if finding.rule != "fields-unknown"]
    assert found.rule == "action-order"
    assert "--inference.type=rtc" in found.do
    stage.robot = replace(stage.robot, engine="rtc", execution_horizon=10)
    assert {finding.rule for finding in stage.findings()} - {"fields-unknown"} == {"action-order-of-sync"}


def test_weights_that_are_missing_are_named(stage: Wired):
    wiring = stage.read().model_copy(update={"weights": Weights(tensors=10, missing=["model.head"], unexpected=[])})
    assert [finding.rule for finding in findings_of(wiring)] == ["weights-missing"]


@pytest.mark.parametrize(
    ("observed", "executed", "there"), [(1, 33, 32), (1, 32, None), (2, 32, 31), (2, 31, None), (1, 8, None)]
)
def test_a_horizon_has_as_many_actions_as_its_observations_leave(
    observed: int, executed: int, there: int | None, saved, stage: Wired
):
    """As in lerobot #2277: 33 actions of a Diffusion Policy's 32."""
    settings = {"n_obs_steps": observed, "n_action_steps": executed, "horizon": 32}
    wiring = read_wiring(saved["diffusion"][0], settings=settings)
    found = [finding for finding in findings_of(wiring) if finding.rule == "chunk-short"]
    assert [finding.evidence["there"] for finding in found] == ([there] if there else [])
    assert all(f"--policy.n_action_steps={there} or fewer" in finding.do for finding in found)


@pytest.mark.parametrize(("executed", "found"), [(50, True), (10, False)])
def test_fifty_executed_actions_are_many_and_ten_are_not(executed: int, found: bool, saved, stage: Wired):
    """As in lerobot #1316, #4614."""
    wiring = read_wiring(saved["smolvla"][0], stage.dataset, settings={"n_action_steps": executed, "chunk_size": 50})
    assert ("acts-long-unseen" in {finding.rule for finding in findings_of(wiring)}) is found


def test_names_of_cameras_that_differ_are_matched_by_the_flag_that_is_named(stage: Wired):
    """As in lerobot #3181, #2318, #1620: a policy of front and wrist, a robot whose front camera is called top."""
    features = dict(stage.robot.features)
    top = features.pop(CAMERAS[0]).model_copy(update={"name": "observation.images.top"})
    stage.robot = replace(stage.robot, features=features | {"observation.images.top": top})
    (found,) = stage.findings()
    assert found.rule == "camera-missing"
    assert found.do.startswith('--rename_map=\'{"observation.images.top": "observation.images.front"}\'')
    stage.rename = {"observation.images.top": CAMERAS[0]}
    assert stage.findings() == []


@pytest.mark.parametrize(("task", "rule"), [("", "prompt-empty"), ("dance", "prompt-unknown"), ("push the cube", "")])
def test_the_prompt_is_one_of_the_data(task: str, rule: str, saved, stage: Wired):
    """As in lerobot #2753."""
    kept = {name: stage.robot.features[name] for name in ("action", "observation.state")}
    stage.robot = replace(stage.robot, task=task, features=kept)
    stage.policy = saved["smolvla"][0]
    assert {finding.rule for finding in stage.findings() if finding.rule.startswith("prompt")} == {rule} - {""}


def test_a_flag_that_mends_a_finding_mends_it(stage: Wired):
    stage.configure(n_action_steps=31)
    settings = {"n_action_steps": 10}
    assert findings_of(read_wiring(stage.policy, stage.dataset, stage.robot, settings=settings)) == []


def test_every_dangerous_finding_is_planted_here():
    assert set().union(*PLANTED.values()) >= DANGEROUS


@pytest.mark.parametrize("kind", matrix(TYPES))
def test_every_type_of_lerobot_is_sound_as_it_is_saved(kind: str, tmp_path: Path):
    tiny_checkpoint(kind, tmp_path)
    found = {(finding.rule, finding.level) for finding in findings_of(read_wiring(tmp_path))}
    assert found - {("camera-cropped", "info")} == set(), "a tiny multi_task_dit cuts a quarter out of its images"


def test_settings_are_read_as_lerobot_reads_its_flags():
    flags = [
        "--n_action_steps=10",
        "--compile_model=False",
        "--crop_shape=[84, 84]",
        "--optimizer.lr=1",
        "--device=[cpu",
    ]
    assert settings_of(flags) == {
        "n_action_steps": 10, "compile_model": False, "crop_shape": [84, 84], "device": "[cpu",
    }  # fmt: skip
