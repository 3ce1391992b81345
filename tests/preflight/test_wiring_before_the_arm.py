"""A dangerous fault in the wiring: rehearsal and rollout are refused before a servo has torque, unless --anyway."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builders.arm_policy import save_act
from support.builders.stage import change_json

from strobe.core.cli.main import main
from strobe.core.runs import store
from strobe.loops import header
from strobe.loops.results.rollout import RolloutResult
from strobe.preflight.findings.wiring import dangerous
from strobe.preflight.results.wiring import PreflightResult
from strobe.rehearse import run as rehearse
from strobe.rollout.command import look_at_wiring, read

pytest.importorskip("scservo_sdk", reason="Strobe's extra 'robot' is not installed")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="emulated arms need Linux"),
    pytest.mark.usefixtures("patient_drivers"),
]

JOINTS = [
    f"{name}.pos" for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
]
CAMERAS = "{front: {type: opencv, index_or_path: 0, fps: 30, width: 64, height: 64}, "
CAMERAS += "wrist: {type: opencv, index_or_path: 1, fps: 30, width: 64, height: 64}}"


@pytest.fixture(scope="module")
def inert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy whose normaliser has the state's statistics under another name."""
    from safetensors.numpy import load_file, save_file

    folder = tmp_path_factory.mktemp("inert")
    save_act(folder, 64, 64)
    (file,) = folder.glob("policy_preprocessor*.safetensors")
    tensors = {name.replace("observation.state", "observation.joints"): t for name, t in load_file(file).items()}
    save_file(tensors, file)
    return folder


@pytest.fixture
def reversed_order(inert: Path, tmp_path: Path) -> Path:
    """The config of a pi0.5 that was trained with the joints in the opposite order, over weights that nothing reads."""
    from lerobot.configs.types import FeatureType, PolicyFeature

    from strobe.lerobot.policies import lerobot_policies

    folder = tmp_path / "reversed"
    shutil.copytree(inert, folder)
    for file in folder.glob("policy_p*"):
        file.unlink()
    config = lerobot_policies.config_from_type("pi05", ["--device=cpu"])
    images = {
        f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, 64, 64)) for name in ("front", "wrist")
    }
    config.input_features = images | {"observation.state": PolicyFeature(FeatureType.STATE, (6,))}
    config.output_features = {"action": PolicyFeature(FeatureType.ACTION, (6,))}
    config._save_pretrained(folder)
    change_json(folder / "config.json", lambda config: config | {"action_feature_names": JOINTS[::-1]})
    return folder


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects the port of each config that Strobe has LeRobot make of a rollout's arguments."""
    ports: list[str] = []
    parsed = header.parsed_flags

    def parse_counted(*args: Any) -> Any:
        config = parsed(*args)
        ports.append(config.robot.port)
        return config

    monkeypatch.setattr(header, "parsed_flags", parse_counted)
    return ports


def arguments(policy: Path, *more: str) -> list[str]:
    return [
        "--robot.type=so101_follower", "--robot.port=/dev/no_such_port", f"--robot.cameras={CAMERAS}",
        f"--policy.path={policy}", "--device=cpu", "--task=push", "--return_to_initial_position=false",
        "--play_sounds=false", "--duration=1.5", *more,
    ]  # fmt: skip


def answer(folder: Path) -> Any:
    (run,) = folder.iterdir()
    return store.load_answer(run)


def test_a_rehearsal_with_an_inert_normaliser_ends_before_an_arm_is_emulated(
    inert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(rehearse, "stage_rehearsal", lambda *_: pytest.fail("an arm was started"))
    assert main(["rehearse", f"--output_dir={tmp_path}", "--", *arguments(inert)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "! Nothing normalises observation.state" in printed
    assert "No robot was connected. --anyway starts the run nevertheless." in printed
    result = answer(tmp_path)
    assert isinstance(result, PreflightResult)
    assert result.refused == "strobe rehearse"
    assert result.command[:2] == ["strobe", "rehearse"]


def test_anyway_rehearses_and_shows_the_finding_before_it_starts_and_beside_its_own(
    inert: Path, tmp_path: Path, parses: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["rehearse", "--anyway", f"--output_dir={tmp_path}", "--", *arguments(inert)]) == 0
    assert parses == ["/dev/no_such_port"], "parsed once; LeRobot then parses those of the emulated arm for itself"
    result = answer(tmp_path)
    assert isinstance(result, RolloutResult)
    assert result.rollout.rehearsal is not None
    assert result.rollout.rehearsal.goals > 0
    assert "! Nothing normalises observation.state" in capsys.readouterr().err
    first = result.rollout.first_action
    assert [action.joint for action in first] == JOINTS
    assert first[0].at == pytest.approx(0, abs=1), "an emulated arm stands in the middle of its range"
    assert "statistics-absent" in {finding.rule for finding in result.findings}
    assert "acts-long-unseen" not in {finding.rule for finding in result.findings}, "only what is serious"
    assert result.wiring is not None


def test_a_swapped_order_is_refused_with_the_sync_engine_alone(
    reversed_order: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    runs = tmp_path / "runs"
    assert main(["rehearse", f"--output_dir={runs}", "--full", "--", *arguments(reversed_order)]) == 1
    assert "--inference.type=rtc keeps the policy's order" in " ".join(capsys.readouterr().out.split())
    assert {finding.rule for finding in answer(runs).findings if finding.level == "warning"} == {"action-order"}
    rtc = arguments(reversed_order, "--inference.type=rtc", "--inference.rtc.execution_horizon=10")
    chosen = read(["--", *rtc]).loop
    assert chosen is not None
    wiring = look_at_wiring(chosen).wiring
    assert wiring is not None
    assert dangerous(wiring) == []


def test_a_rollout_is_refused_before_lerobot_connects(
    inert: Path, tmp_path: Path, parses: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["rollout", f"--output_dir={tmp_path}", "--", *arguments(inert)]) == 1
    assert answer(tmp_path).refused == "strobe rollout"
    assert len(parses) == 1, "the flags are checked and the wiring is read from one config"
    shutil.rmtree(tmp_path)
    assert main(["rollout", "--anyway", f"--output_dir={tmp_path}", "--", *arguments(inert)]) == 1
    assert "/dev/no_such_port" in capsys.readouterr().err, "LeRobot tried to connect"


def test_wiring_that_cannot_be_read_costs_a_note_and_not_the_run(
    inert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def raise_planted_error(*_: object, **__: object) -> None:
        raise RuntimeError("as planted")

    monkeypatch.setattr("strobe.preflight.wiring.of_run.read_wiring", raise_planted_error)
    assert main(["rehearse", f"--output_dir={tmp_path}", "--", *arguments(inert)]) == 0
    result = answer(tmp_path)
    assert result.wiring is None
    assert any("RuntimeError: as planted" in note for note in result.notes)


@pytest.mark.slow("a rehearsal whose arm stands where the training data never was")
def test_a_rehearsal_says_where_the_arm_starts_outside_of_the_training_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from safetensors.numpy import load_file, save_file

    policy = tmp_path / "policy"
    save_act(policy, 64, 64)
    (file,) = policy.glob("policy_preprocessor*.safetensors")
    known = {"mean": 30.0, "std": 1.0, "min": 28.0, "max": 32.0}
    numbers = {f"observation.state.{name}": np.full(6, value, np.float32) for name, value in known.items()}
    save_file(load_file(file) | numbers, file)
    runs = tmp_path / "runs"
    main(["rehearse", "--anyway", f"--output_dir={runs}", "--full", "--", *arguments(policy)])
    captured = capsys.readouterr()
    shown, result = captured.out, answer(runs)
    assert captured.err.count("! Before the arm has torque: The arm starts outside of the training data") == 1
    assert result.wiring is not None
    assert result.wiring.fed is not None
    assert [each.joint for each in result.wiring.fed] == JOINTS
    assert result.wiring.fed[0].first == pytest.approx(0, abs=1), "the arm stands in the middle of its range"
    assert result.wiring.fed[0].normalised == pytest.approx(-30, abs=1)
    assert "starts-outside-training" in {finding.rule for finding in result.findings}
    assert "WHAT THE ARM FED THE POLICY" in shown
