"""A pi0.5 that names its joints backwards (lerobot #4122): it is stopped before the arm moves, and --anyway runs it.

LeRobot loads the checkpoint and drives an emulated arm, which takes the seconds. A pi0.5's config names no size below
two billion weights, so these tests replace LeRobot's table of sizes while it loads the policy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.builders.checkpoints import tiny_for_robot
from support.builders.stage import change_json

from strobe.core.cli.main import main
from strobe.core.families.registry import building
from strobe.core.runs import store
from strobe.lerobot.policies import lerobot_policies
from strobe.lerobot.policies.standins import stand_ins
from strobe.loops.results.rollout import RolloutResult
from strobe.preflight.results.wiring import PreflightResult
from strobe.rehearse import run as rehearse

pytest.importorskip("scservo_sdk", reason="Strobe's extra 'robot' is not installed")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="emulated arms need Linux")

JOINTS = [
    f"{name}.pos" for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
]
CENTRES = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]  # of the policy's actions, by their place in its chunk
SIDE = 64
CAMERA = f"{{front: {{type: opencv, index_or_path: 0, fps: 30, width: {SIDE}, height: {SIDE}}}}}"
RTC = ("--inference.type=rtc", "--inference.rtc.execution_horizon=10")


@pytest.fixture(scope="module")
def backwards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny pi0.5 that names its joints backwards; each dimension of its actions has a centre of its own."""
    folder = tmp_path_factory.mktemp("backwards")
    tiny_for_robot("pi05", folder, len(JOINTS), ["front"], SIDE)
    change_json(
        folder / "config.json", lambda config: config | {"action_feature_names": JOINTS[::-1], "num_inference_steps": 2}
    )
    centres = torch.tensor(CENTRES)
    for file in folder.glob("policy_*.safetensors"):
        tensors = load_file(file)
        tensors |= {"action.q01": centres - 0.01, "action.q99": centres + 0.01}
        save_file(tensors, file)
    return folder


@pytest.fixture(autouse=True)
def _tiny(patient_drivers: None) -> Iterator[None]:
    config = lerobot_policies.config_from_type("pi05", ["--device=cpu", "--image_resolution=[28,28]"])
    with stand_ins("pi05", random_weights=True, tiny=True), building(config, True):
        yield


def run_rehearsal(policy: Path, folder: Path, *flags: str, theirs: tuple[str, ...] = ()) -> tuple[int, Any]:
    """Return the exit code of a rehearsal and its answer."""
    code = main(
        [
            "rehearse", *flags, f"--output_dir={folder}", "--", "--robot.type=so101_follower",
            f"--robot.cameras={CAMERA}", f"--policy.path={policy}", "--device=cpu", "--task=push",
            "--return_to_initial_position=false", "--play_sounds=false", "--duration=6", *theirs,
        ]
    )  # fmt: skip
    (run,) = folder.iterdir()
    return code, store.load_answer(run)


def first_sent_action(result: Any) -> dict[str, float]:
    """Return the first action that the arm was sent, by its joint."""
    assert isinstance(result, RolloutResult)
    assert result.rollout.rehearsal is not None
    assert result.rollout.rehearsal.goals > 0
    assert result.rollout.first_action is not None
    return {action.joint: action.sent for action in result.rollout.first_action}


def test_with_the_sync_engine_it_is_stopped_before_the_arm_is_there(
    backwards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rehearse, "stage_rehearsal", lambda *_: pytest.fail("an arm was started"))
    code, result = run_rehearsal(backwards, tmp_path)
    assert code == 1
    assert isinstance(result, PreflightResult)
    assert result.refused == "strobe rehearse"
    (finding,) = [finding for finding in result.findings if finding.rule == "action-order"]
    assert finding.level == "warning"
    assert "Dimension 0 of the action is gripper.pos in the policy" in finding.found
    assert "the sync engine sends it to shoulder_pan.pos" in finding.found
    assert "RTC sends it to gripper.pos" in finding.found


@pytest.mark.slow("a rollout in real time")
def test_anyway_the_sync_engine_sends_each_action_to_another_joint_as_the_finding_says(backwards: Path, tmp_path: Path):
    code, result = run_rehearsal(backwards, tmp_path, "--anyway")
    assert code == 0
    assert first_sent_action(result) == pytest.approx(dict(zip(JOINTS, CENTRES, strict=True)), abs=1)
    assert "action-order" in {finding.rule for finding in result.findings}


@pytest.mark.slow("a rollout in real time")
def test_real_time_chunking_sends_by_the_policys_names_and_is_not_stopped(backwards: Path, tmp_path: Path):
    code, result = run_rehearsal(backwards, tmp_path, theirs=RTC)
    assert code == 0
    assert first_sent_action(result) == pytest.approx(dict(zip(JOINTS[::-1], CENTRES, strict=True)), abs=1)
    assert not [each.rule for each in result.findings if each.rule.startswith("action-order") and each.level != "info"]
