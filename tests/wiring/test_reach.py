"""The range of actions that will be sent: from the statistics, beside a calibration file's limits and the data's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.arm_policy import save_act
from support.wired import JOINTS, Wired, wired

from strobe.emulator import calibration as cal
from strobe.findings.wiring import findings_of
from strobe.wiring.read import read_wiring


@pytest.fixture
def stage(tmp_path: Path) -> Wired:
    folder = tmp_path / "trained"
    save_act(folder, 64, 64)
    return wired(folder, tmp_path)


def test_ranges_are_of_the_statistics_the_calibration_and_the_data(stage: Wired):
    reach = stage.read().reach
    assert reach is not None
    assert [joint.joint for joint in reach.joints] == JOINTS
    (first, *_) = reach.joints
    assert (first.low, first.high, reach.basis) == (-5.0, 5.0, "mean ± σ")
    assert (first.limit_low, first.limit_high, reach.unit) == (-60.0, 60.0, "degrees")
    assert (first.data_low, first.data_high) == (-40.0, 40.0)


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
    assert found.title == "elbow_flex will be sent beyond its limits"
    assert "-5 to 5 degrees" in found.seen
    assert "--robot.max_relative_target='{elbow_flex: 5}'" in found.do
    stage.limit("elbow_flex", -4.0, 4.0, capped=True)
    assert "max_relative_target" not in stage.findings()[0].do


def test_limits_are_those_that_lerobots_driver_makes_of_the_file(stage: Wired, tmp_path: Path):
    pytest.importorskip("scservo_sdk", reason="Strobe's extra 'robot' is not installed")
    from strobe.loops.rollout import rollout_config
    from strobe.wiring.robot import read_robot

    joints = cal.so101()
    cal.write(joints, tmp_path / "arm" / "mine.json")
    cameras = "{front: {type: opencv, index_or_path: 0, fps: 30, width: 64, height: 64}, "
    cameras += "wrist: {type: opencv, index_or_path: 1, fps: 30, width: 64, height: 64}}"
    flags = ["--robot.type=so101_follower", "--robot.port=/dev/none", "--robot.id=mine", f"--robot.cameras={cameras}"]
    flags += [f"--robot.calibration_dir={tmp_path / 'arm'}", f"--policy.path={stage.policy}", "--task=push"]
    robot = read_robot(rollout_config(flags))
    assert robot.limits.calibration == str(tmp_path / "arm" / "mine.json")
    assert "gripper" not in robot.limits.joints, "LeRobot clamps it"
    # The driver's degree of the highest position that the calibration allows.
    from lerobot.robots import make_robot_from_config

    config: Any = rollout_config(flags).robot
    made: Any = make_robot_from_config(config)
    for joint in ("shoulder_pan", "wrist_roll"):
        degrees = made.bus._normalize({joints[joint].id: joints[joint].range_max})[joints[joint].id]
        assert robot.limits.joints[joint] == pytest.approx((-degrees, degrees))
    assert findings_of(read_wiring(stage.policy, stage.dataset, robot)) == []
