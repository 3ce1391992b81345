"""The range of actions that will be sent: from the statistics, beside a calibration file's limits and the data's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builders.stage import JOINTS, Wired, change_json

from strobe.core.kinds import document
from strobe.preflight.findings.wiring import wiring_findings
from strobe.preflight.run import make_answer
from strobe.preflight.wiring.read import read_wiring
from strobe.rehearse.emulator import calibration as cal


def test_ranges_are_of_the_statistics_the_calibration_and_the_data(stage: Wired):
    reach = stage.read().reach
    assert reach is not None
    assert [joint.joint for joint in reach.joints] == JOINTS
    (first, *_) = reach.joints
    assert (first.low, first.high, reach.basis) == (-5.0, 5.0, "mean ± σ")
    assert (first.limit_low, first.limit_high, reach.unit) == (-60.0, 60.0, "degrees")
    assert (first.data_low, first.data_high) == (-40.0, 40.0)


def made_relative(stage: Wired, extremes: bool = True, **step: Any) -> None:
    """Make the policy's actions relative to the state, from −2 to 3 in its statistics."""

    def add(processor: dict[str, Any]) -> dict[str, Any]:
        config = {"enabled": True, "exclude_joints": [], "action_names": JOINTS} | step
        processor["steps"].insert(0, {"registry_name": "relative_actions_processor", "config": config})
        return processor

    change_json(stage.policy / "policy_preprocessor.json", add)
    if extremes:
        ends = {"action.min": np.full(6, -2, np.float32), "action.max": np.full(6, 3, np.float32)}
        stage.change_statistics("post", lambda tensors: tensors | ends)


def test_relative_actions_reach_from_the_datas_states_which_is_an_outer_bound(stage: Wired):
    made_relative(stage, exclude_joints=["gripper"])
    reach = stage.read().reach
    assert reach is not None
    (first, *_, gripper) = reach.joints
    assert (first.low, first.high, first.outer) == (-42.0, 43.0, True)
    assert (gripper.low, gripper.high, gripper.outer) == (-2.0, 3.0, False)
    assert first.data_high is None
    assert any("In the data" in reason for reason in reach.unjudged)
    stage.limit("shoulder_pan", -10.0, 10.0)
    assert stage.findings() == [], "an outer bound need not be reached"


def test_a_step_that_is_switched_off_makes_nothing_relative(stage: Wired):
    made_relative(stage, enabled=False)
    reach = stage.read().reach
    assert reach is not None
    assert (reach.joints[0].low, reach.joints[0].high, reach.joints[0].outer) == (-2.0, 3.0, False)
    assert reach.unjudged == []


def test_relative_actions_without_data_or_without_their_ends_are_not_judged(stage: Wired):
    made_relative(stage, extremes=False)
    reach = stage.read().reach
    assert reach is not None
    assert {joint.low for joint in reach.joints} == {None}
    assert any("statistics have no min and max" in reason for reason in reach.unjudged)
    made_relative(stage)
    alone = read_wiring(stage.policy, None, stage.robot).reach
    assert alone is not None
    assert {joint.low for joint in alone.joints} == {None}
    assert any("give --dataset.root" in reason for reason in alone.unjudged)
    assert alone.joints[0].limit_high == 60.0


def test_without_statistics_the_joints_stand_there_with_the_reason(stage: Wired):
    stage.change_statistics("post", lambda tensors: {"other": np.zeros(1, np.float32)})
    reach = stage.read().reach
    assert reach is not None
    assert [joint.joint for joint in reach.joints] == JOINTS
    assert reach.basis is None
    assert "has no statistics of the action" in reach.unjudged[0]
    text = [note for section in document(make_answer(stage.read())).sections for note in section.text]
    assert any(note.startswith("Not judged. What will be sent: ") for note in text)


def test_data_in_another_order_keeps_its_joints(stage: Wired):
    stage.describe_feature("action", names=JOINTS[::-1])
    statistics = json.loads((stage.dataset / "meta/stats.json").read_text())
    statistics["action"]["max"] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    (stage.dataset / "meta/stats.json").write_text(json.dumps(statistics))
    reach = stage.read().reach
    assert reach is not None
    assert [joint.data_high for joint in reach.joints] == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


def test_the_finding_names_the_joint_and_the_flag(stage: Wired):
    stage.limit("elbow_flex", -4.0, 4.0)
    (found,) = stage.findings()
    assert found.title == "The policy will send elbow_flex beyond its limits"
    assert "-5 to 5 degrees" in found.found
    assert "--robot.max_relative_target='{elbow_flex: 5}'" in found.do
    stage.limit("elbow_flex", -4.0, 4.0, capped=True)
    assert "max_relative_target" not in stage.findings()[0].do


def test_limits_are_those_that_lerobots_driver_makes_of_the_file(stage: Wired, tmp_path: Path):
    pytest.importorskip("scservo_sdk", reason="Strobe's extra 'robot' is not installed")
    from strobe.loops.rollout import rollout_config
    from strobe.preflight.wiring.robot import read_robot

    joints = cal.so101()
    cal.write(joints, tmp_path / "arm" / "mine.json")
    cameras = "{front: {type: opencv, index_or_path: 0, fps: 30, width: 64, height: 64}, "
    cameras += "wrist: {type: opencv, index_or_path: 1, fps: 30, width: 64, height: 64}}"
    flags = ["--robot.type=so101_follower", "--robot.port=/dev/none", "--robot.id=mine", f"--robot.cameras={cameras}"]
    flags += [f"--robot.calibration_dir={tmp_path / 'arm'}", f"--policy.path={stage.policy}", "--task=push"]
    robot = read_robot(rollout_config(flags))
    assert robot.limits.calibration == str(tmp_path / "arm" / "mine.json")
    assert "gripper" not in robot.limits.joints, "LeRobot clamps it"
    assert robot.features["action"].units == ["degrees"] * 5 + ["0 to 100"]
    # The driver's degree of the highest position that the calibration allows.
    from lerobot.robots import make_robot_from_config

    config: Any = rollout_config(flags).robot
    made: Any = make_robot_from_config(config)
    for joint in ("shoulder_pan", "wrist_roll"):
        degrees = made.bus._normalize({joints[joint].id: joints[joint].range_max})[joints[joint].id]
        assert robot.limits.joints[joint] == pytest.approx((-degrees, degrees))
    assert wiring_findings(read_wiring(stage.policy, stage.dataset, robot)) == []
