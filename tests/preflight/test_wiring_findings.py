"""Each rule on a policy's wiring finds the fault that is planted for it, and none in what fits together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.builders.checkpoints import tiny_checkpoint
from support.builders.stage import (
    CAMERAS,
    INERT,
    JOINTS,
    MISSING,
    NOT_NUMBERS,
    OF_OTHER_DATA,
    Plant,
    Wired,
    another_version,
    change_json,
    remove_normaliser,
    statistics,
    weights_called,
)  # fmt: skip
from support.suite.matrix import matrix

from strobe.core.kinds import document
from strobe.lerobot.datasets.results import DataTruth
from strobe.preflight.findings.wiring import DANGEROUS, wiring_findings
from strobe.preflight.results.wiring import Weights
from strobe.preflight.run import make_answer
from strobe.preflight.wiring.fed import add_fed
from strobe.preflight.wiring.of_run import parse_settings
from strobe.preflight.wiring.read import read_wiring

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


def statistics_in_the_weights(stage: Wired) -> None:
    for file in stage.policy.glob("policy_p*"):
        file.unlink()
    five = np.full(6, 5.0, np.float32)
    stage.change_weights(lambda tensors: tensors | {"normalize_inputs.buffer_observation_state.std": five})


def radians(stage: Wired) -> None:
    text = (stage.dataset / "meta/stats.json").read_text()
    (stage.dataset / "meta/stats.json").write_text(text.replace("40.0", "1.6"))


def extents(pose: float, gripper: float) -> Plant:
    """The data's joints reach ``pose``, and its gripper; the robot's gripper is in 0 to 100."""

    def plant(stage: Wired) -> None:
        ends = {"min": [-pose] * 5 + [0.0], "max": [pose] * 5 + [gripper]}
        change_json(stage.dataset / "meta/stats.json", lambda read: {name: each | ends for name, each in read.items()})
        for name in ("action", "observation.state"):
            stage.connect(name, units=["degrees"] * 5 + ["0 to 100"])

    return plant


def set_normalisation(mode: str, names: tuple[str, str], low: float, high: float) -> Plant:
    """The processors normalise by ``mode``, and have these ends for every joint."""

    def plant(stage: Wired) -> None:
        ends = dict(zip(names, (low, high), strict=True))
        for kind in ("pre", "post"):
            stage.change_modes(kind, mode)
            for feature in ("action", "observation.state"):
                for name, end in ends.items():
                    statistics(kind, f"{feature}.{name}", end)(stage)

    return plant


def add_old_buffers(stage: Wired) -> None:
    """The weights keep the statistics of an old format, which complete processors have too."""
    buffer = {"normalize_inputs.buffer_observation_state.mean": np.zeros(6, np.float32)}
    stage.change_weights(lambda tensors: tensors | buffer)


def add_quantiles(stage: Wired) -> None:
    ends = {"q01": [-12.0] * 6, "q99": [12.0] * 6, "q10": [-8.0] * 6, "q90": [8.0] * 6}
    change_json(stage.dataset / "meta/stats.json", lambda read: {name: each | ends for name, each in read.items()})


def exchange_dimensions(stage: Wired) -> None:
    """The state of the data comes in another order than that of the training."""
    change = {"observation.state": {"mean": [50.0, 90.0, *[0.0] * 4], "std": [5.0] * 6}}
    change_json(stage.dataset / "meta/stats.json", lambda read: read | change)
    statistics("pre", "observation.state.mean", [90, 50, 0, 0, 0, 0])(stage)


def rename_cameras(names: dict[str, str]) -> Plant:
    """The robot's cameras have ``names`` → those of the sound robot's."""

    def plant(stage: Wired) -> None:
        joints = {name: stage.robot.features[name] for name in ("action", "observation.state")}
        cameras = {new: stage.robot.features[old].model_copy(update={"name": new}) for new, old in names.items()}
        stage.set_robot(features=joints | cameras)

    return plant


def add_weight(number: float) -> Plant:
    return lambda stage: stage.change_weights(lambda tensors: tensors | {"more": np.full(4, number, np.float32)})


FRONT, WRIST = CAMERAS
NOBODY, FRONT_AND_TOP = "observation.images.nobody", {FRONT: FRONT, WRIST: WRIST, "observation.images.top": FRONT}
# What is planted, and the rules that find it.
PLANTED: dict[str, tuple[Plant, str]] = {
    "statistics under another name": (INERT, "statistics-absent"),  # lerobot #4446, #4415
    "statistics missing": (MISSING, "statistics-absent"),  # lerobot #2753, #1424, #4047: moves a centimetre
    # lerobot #4655, #4649; strands-labs/robots #1096
    "statistics in the weights": (statistics_in_the_weights, "statistics-in-weights"),
    "no normaliser": (remove_normaliser, "normaliser-missing"),  # lerobot #3674
    "statistics not numbers": (NOT_NUMBERS, "statistics-not-numbers"),
    "a joint that never moved": (
        statistics("pre", "observation.state.std", [5, 5, 5, 5, 5, 0]), "statistics-flat statistics-of-other-data"),
    "statistics of other data": (OF_OTHER_DATA, "statistics-of-other-data"),  # FlashRT #70
    "dimensions in another order": (exchange_dimensions, "statistics-in-other-order"),  # Robbyant/lingbot-vla #37
    "action order": (lambda stage: stage.describe_feature("action", names=BACKWARDS), "action-order"),  # lerobot #4122
    "state order": (lambda stage: stage.describe_feature("observation.state", names=BACKWARDS), "state-order"),
    "other joints": (lambda stage: stage.describe_feature("action", names=[*JOINTS[:5], "jaw.pos"]), "joints-differ"),
    "another number of joints": (
        lambda stage: stage.connect("action", shape=[7], dimensions=[*JOINTS, "extra.pos"]), "joints-differ"),
    "radians": (radians, "units-differ"),
    "radians beside a gripper of 0 to 100": (extents(1.6, 98.0), "units-differ"),
    "camera missing": (rename_cameras({WRIST: WRIST}), "camera-missing"),  # lerobot #3181, #2318
    "camera unused": (rename_cameras(FRONT_AND_TOP), ""),
    "rename unknown": (lambda stage: stage.rename.update({NOBODY: FRONT}), "rename-unknown"),  # lerobot #1620
    # of an ACT; lerobot #2918
    "camera cropped": (lambda stage: stage.configure(crop_shape=[16, 16]), "camera-cropped fields-unknown"),
    "camera stretched": (lambda stage: stage.connect(FRONT, shape=[3, 48, 64]), "camera-shape"),  # lerobot #2334
    "compiled": (weights_called("model._orig_mod."), "weights-compiled"),  # lerobot #4114
    "weights of NaN": (add_weight(np.nan), "weights-nan"),
    "a mask of infinite numbers": (add_weight(-np.inf), ""),
    "another version": (another_version, "fields-unknown"),  # lerobot #3355, #3479
    # lerobot #2277
    "too few actions": (lambda stage: stage.configure(n_action_steps=31), "chunk-short acts-long-unseen"),
    "horizon too long": (lambda stage: stage.set_robot(engine="rtc", execution_horizon=40), "horizon-long"),
    "chunks averaged": (
        lambda stage: (stage.set_robot(engine="rtc", execution_horizon=10),
                       stage.configure(temporal_ensemble_coeff=0.01, n_action_steps=1)), "averaging-ignored"),
    "far actions clipped": (
        lambda stage: stage.configure(clip_sample=True, clip_sample_range=1.0), "actions-clipped fields-unknown"),
    "far actions behind a clamp": (lambda stage: stage.configure(type="tdmpc"), "actions-clipped fields-unknown"),
    "near actions clipped": (
        lambda stage: (stage.configure(clip_sample=True, clip_sample_range=1.0),
                       set_normalisation("MIN_MAX", ("min", "max"), -40.0, 40.0)(stage)), "fields-unknown"),
    "acts long": (lambda stage: stage.configure(n_action_steps=30), "acts-long-unseen"),  # lerobot #1316, #4614
    "another rate": (lambda stage: stage.describe(fps=15), "rates-differ"),
    "a slow camera": (lambda stage: stage.set_robot(camera_fps={"front": 15.0}), "camera-slow"),
    "narrow limits": (lambda stage: stage.limit("elbow_flex", -4.0, 4.0), "reach-beyond-limits"),
    "compiles": (lambda stage: stage.configure(compile_model=True), "compiled-in-part fields-unknown"),
    # What is sound, however it looks at first.
    "statistics of an old format besides": (add_old_buffers, ""),
    "motions of 5 degrees": (extents(5.0, 98.0), ""),
    "motions of 5 degrees, the gripper too": (extents(5.0, 5.0), ""),
    "min and max": (set_normalisation("MIN_MAX", ("min", "max"), -38.0, 44.0), ""),
    "more data than the policy's": (set_normalisation("MIN_MAX", ("min", "max"), -14.0, 15.0), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named_and_no_sound_setting(name: str, stage: Wired):
    plant, rules = PLANTED[name]
    plant(stage)
    findings = stage.findings()
    assert {finding.rule for finding in findings} == set(rules.split())
    assert all(finding.found and finding.why and (finding.do or finding.level == "info") for finding in findings)


@pytest.mark.parametrize(("times", "found"), [(1.0, False), (1.5, False), (4.0, True), (5.0, True), (0.2, True)])
@pytest.mark.parametrize(
    ("mode", "ends", "sound"),
    [("MIN_MAX", ("min", "max"), 40.0), ("QUANTILES", ("q01", "q99"), 12.0), ("QUANTILE10", ("q10", "q90"), 8.0)],
)
def test_statistics_are_judged_by_what_their_mode_reads(
    mode: str, ends: tuple[str, str], sound: float, times: float, found: bool, stage: Wired
):
    add_quantiles(stage)
    set_normalisation(mode, ends, -sound * times, sound * times)(stage)
    rules = [finding.rule for finding in stage.findings() if finding.rule != "reach-beyond-limits"]
    assert rules == ["statistics-of-other-data"] * (2 if found else 0)  # of the state, of the action


def test_what_the_data_has_no_numbers_for_is_not_judged(stage: Wired):
    set_normalisation("QUANTILES", ("q01", "q99"), -90.0, 90.0)(stage)
    assert "statistics-of-other-data" not in {finding.rule for finding in stage.findings()}
    wire = stage.read().wire("action")
    assert wire is not None
    assert wire.missing_statistics("postprocessor") == "q01 and q99"
    text = " ".join(note for section in document(make_answer(stage.read())).sections for note in section.text)
    assert "statistics that the data set lacks. Q01 and q99 of observation.state; q01 and q99 of action." in text


def test_cameras_that_lerobot_fills_in_are_not_missing(saved_policies, stage: Wired):
    names = [f"observation.images.empty_camera_{at}" for at in range(2)]
    features = {name: {"type": "VISUAL", "shape": [3, 64, 64]} for name in (*CAMERAS, *names)}

    def missing(count: int) -> list[str]:
        settings = {"empty_cameras": count, "input_features": features}
        found = wiring_findings(read_wiring(saved_policies["smolvla"][0], stage.dataset, settings=settings))
        return [finding.title for finding in found if finding.rule == "camera-missing"]

    assert missing(2) == []
    assert missing(1) == ["The data set has no empty_camera_1 camera"]


def test_a_policys_own_order_is_kept_by_rtc_alone_and_a_state_in_another_order_by_neither(stage: Wired):
    stage.configure(action_feature_names=BACKWARDS)
    (found,) = [finding for finding in stage.findings() if finding.rule != "fields-unknown"]
    assert found.rule == "action-order"
    assert found.do == "--inference.type=rtc keeps the policy's order."
    stage.set_robot(engine="rtc", execution_horizon=10)
    assert {finding.rule for finding in stage.findings()} - {"fields-unknown"} == {"action-order-of-sync"}
    stage.describe_feature("observation.state", names=BACKWARDS)
    found = {finding.rule: finding for finding in stage.findings()}
    assert found.keys() - {"fields-unknown"} == {"action-order", "state-order"}
    assert found["action-order"].do.startswith("Train on data of a robot that names its joints in this order")
    stage.dataset = None  # type: ignore[assignment]
    (order,) = [finding for finding in stage.findings() if finding.rule == "action-order-of-sync"]
    assert "is its state in the robot's order?" in order.do


def test_weights_that_are_missing_are_named(stage: Wired):
    wiring = stage.read().model_copy(update={"weights": Weights(tensors=10, missing=["model.head"], unexpected=[])})
    assert [finding.rule for finding in wiring_findings(wiring)] == ["weights-missing"]


@pytest.mark.parametrize(
    ("observed", "executed", "there"), [(1, 33, 32), (1, 32, None), (2, 32, 31), (2, 31, None), (1, 8, None)]
)
def test_a_horizon_has_as_many_actions_as_its_observations_leave(
    observed: int, executed: int, there: int | None, saved_policies, stage: Wired
):
    """As in lerobot #2277: 33 actions of a Diffusion Policy's 32."""
    settings = {"n_obs_steps": observed, "n_action_steps": executed, "horizon": 32}
    wiring = read_wiring(saved_policies["diffusion"][0], settings=settings)
    found = [finding for finding in wiring_findings(wiring) if finding.rule == "chunk-short"]
    advice = f"Give --policy.n_action_steps={there} or fewer."
    assert [finding.do for finding in found] == ([advice] if there else [])


def test_another_number_of_joints_is_said_once_and_first_and_no_name_is_laid_over_a_place(stage: Wired, monkeypatch):
    statistics("pre", "observation.state.std", [5, 5, 5, 5, 5, 0])(stage)
    monkeypatch.setattr(stage, "dataset", None)
    for name in ("action", "observation.state"):
        stage.connect(name, shape=[7], dimensions=["extra.pos", *JOINTS])
    found = stage.findings()
    assert [each.rule for each in found] == ["joints-differ", "statistics-flat"]
    assert found[1].title.startswith("dimension 5 of observation.state")
    wiring = stage.read()
    add_fed(wiring, ["extra.pos", *JOINTS], [[400.0] * 7] * 50)
    assert wiring.fed is None


@pytest.mark.parametrize(("executed", "found"), [(50, True), (10, False)])
def test_fifty_executed_actions_are_many_and_ten_are_not(executed: int, found: bool, saved_policies, stage: Wired):
    """As in lerobot #1316, #4614."""
    wiring = read_wiring(
        saved_policies["smolvla"][0], stage.dataset, settings={"n_action_steps": executed, "chunk_size": 50}
    )
    assert ("acts-long-unseen" in {finding.rule for finding in wiring_findings(wiring)}) is found


def test_actions_for_most_of_an_episode_are_serious(stage: Wired):
    stage.configure(n_action_steps=20)
    wiring = stage.read()
    wiring.truth = DataTruth(root="", frames=8 * 24, episodes=8)
    (found,) = [each for each in wiring_findings(wiring) if each.rule == "acts-long-unseen"]
    assert found.level == "warning"
    assert "83 % of an episode" in found.title
    assert "a chunk 30 actions: over all frames 58 % of them lie after the episode's end" in found.found


def test_names_of_cameras_that_differ_are_matched_by_the_flag_that_is_named(stage: Wired):
    """As in lerobot #3181, #2318, #1620: a policy of front and wrist, a robot whose front camera is called top."""
    rename_cameras({WRIST: WRIST, "observation.images.top": FRONT})(stage)
    (found,) = stage.findings()
    assert found.rule == "camera-missing"
    assert found.do.startswith('Give --rename_map=\'{"observation.images.top": "observation.images.front"}\'')
    stage.rename = {"observation.images.top": FRONT}
    assert stage.findings() == []


@pytest.mark.parametrize(("task", "rule"), [("", "prompt-empty"), ("dance", "prompt-unknown"), ("push the cube", "")])
def test_the_prompt_is_one_of_the_data(task: str, rule: str, saved_policies, stage: Wired):
    """As in lerobot #2753."""
    kept = {name: stage.robot.features[name] for name in ("action", "observation.state")}
    stage.set_robot(task=task, features=kept)
    stage.policy = saved_policies["smolvla"][0]
    assert {finding.rule for finding in stage.findings() if finding.rule.startswith("prompt")} == {rule} - {""}


def test_a_flag_that_fixes_a_finding_fixes_it(stage: Wired):
    stage.configure(n_action_steps=31)
    settings = {"n_action_steps": 10}
    assert wiring_findings(read_wiring(stage.policy, stage.dataset, stage.robot, settings=settings)) == []


def test_every_dangerous_finding_is_planted_here():
    assert {rule for _, rules in PLANTED.values() for rule in rules.split()} >= DANGEROUS


@pytest.mark.parametrize("kind", matrix(TYPES))
def test_every_type_of_lerobot_is_sound_as_it_is_saved(kind: str, tmp_path: Path):
    tiny_checkpoint(kind, tmp_path)
    found = {(finding.rule, finding.level) for finding in wiring_findings(read_wiring(tmp_path))}
    assert found - {("camera-cropped", "info")} == set(), "a tiny multi_task_dit cuts a quarter out of its images"


def test_settings_are_read_as_lerobot_reads_its_flags():
    flags = [
        "--n_action_steps=10",
        "--compile_model=False",
        "--crop_shape=[84, 84]",
        "--optimizer.lr=1",
        "--device=[cpu",
    ]
    assert parse_settings(flags) == {
        "n_action_steps": 10, "compile_model": False, "crop_shape": [84, 84], "device": "[cpu",
    }  # fmt: skip
