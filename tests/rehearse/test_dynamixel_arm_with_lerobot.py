"""LeRobot's own driver of the Koch arm on emulated servos: what it does when all is well, and with each fault.

It is unmodified but for its patience, as in `test_emulated_arm_with_lerobot`: no test here judges time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.patience import patient

from strobe.rehearse import faults
from strobe.rehearse.emulator import calibration
from strobe.rehearse.emulator.arm import EmulatedArm
from strobe.rehearse.emulator.arms import FOLLOWERS

pytest.importorskip("dynamixel_sdk", reason="Strobe's extra 'robot' is not installed")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="emulated arms need Linux"),
    pytest.mark.skipif(os.environ.get("STROBE_REAL_TIME") != "1", reason="in real time: STROBE_REAL_TIME=1, alone"),
]

KOCH = FOLLOWERS["koch_follower"]
ALL = [1, 2, 3, 4, 5, 6]


@pytest.fixture
def arm() -> Iterator[EmulatedArm]:
    with EmulatedArm(KOCH.plausible, models=KOCH.models, latency_ms=0.2) as arm:
        yield arm


@pytest.fixture
def robot(arm: EmulatedArm, tmp_path: Path) -> Iterator[Any]:
    from lerobot.robots.koch_follower import KochFollower, KochFollowerConfig

    calibration.write(KOCH.plausible, tmp_path / "arm.json")
    robot = patient(KochFollower(KochFollowerConfig(port=arm.port, id="arm", calibration_dir=tmp_path)))
    robot.connect()  # would ask on stdin, if registers and file did not agree
    yield robot
    with contextlib.suppress(Exception):
        robot.bus.port_handler.closePort()


def elbow(robot: Any) -> int:
    return robot.bus.sync_read("Present_Position", ["elbow_flex"], normalize=False)["elbow_flex"]


def test_connect_move_and_disconnect(arm: EmulatedArm, robot: Any) -> None:
    told = arm.state().packets
    assert (told["ping"], told["sync_read"]) == (6, 4)
    assert arm.state().holding == ALL
    start = robot.get_observation()
    sent = {name: value + 10.0 for name, value in start.items()}
    assert robot.send_action(sent) == sent
    there: Any = {}
    for _ in range(5000):
        there = robot.get_observation()
        if there == pytest.approx(sent, abs=0.2):
            break
    assert there == pytest.approx(sent, abs=0.2)
    assert robot.bus.broadcast_ping() == {1: 1060, 2: 1060, 3: 1200, 4: 1200, 5: 1200, 6: 1200}
    robot.disconnect()
    state = arm.state()
    assert (state.holding, state.corrupt, state.noise) == ([], 0, 0)


SPOILT = [faults.Lost(servo=3), faults.Corrupt(servo=3), faults.Short(servo=6), faults.Late(seconds=0.4)]


@pytest.mark.parametrize("fault", [*SPOILT, faults.Dead(servo=3)])
def test_one_spoilt_answer_ends_the_observation(arm: EmulatedArm, robot: Any, fault: faults.Fault) -> None:
    arm.plant(fault)
    with pytest.raises(ConnectionError, match="after 1 tries"):
        robot.get_observation()
    assert arm.state().struck == {fault.name: 1}


def test_after_one_late_answer_whoever_asks_on_is_one_answer_behind(arm: EmulatedArm, robot: Any) -> None:
    robot.bus.disable_torque()
    arm.place(elbow_flex=2000)
    arm.plant(faults.Late(seconds=0.4))
    with pytest.raises(ConnectionError):
        elbow(robot)
    while not robot.bus.port_handler.ser.in_waiting:
        pass  # until the late answer is there
    arm.place(elbow_flex=2040)
    assert elbow(robot) == 2000
    arm.place(elbow_flex=2080)
    assert elbow(robot) == 2040


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (faults.ErrorBits(servo=3), RuntimeError),
        (faults.Lost(instruction="write", servo=3, count=None), ConnectionError),
        (faults.Dead(servo=3), ConnectionError),
    ],
)
def test_an_error_at_disconnect_leaves_the_later_joints_holding(
    arm: EmulatedArm, robot: Any, fault: faults.Fault, raised: type[Exception]
) -> None:
    arm.plant(fault)
    with pytest.raises(raised):
        robot.disconnect()
    assert arm.state().holding[-3:] == [4, 5, 6]


def test_an_alert_is_not_seen_in_an_observation_and_a_restart_is_not_noticed(arm: EmulatedArm, robot: Any) -> None:
    arm.plant(faults.ErrorBits(servo=4), faults.Restart(servo=2))
    assert len(robot.get_observation()) == 6
    assert arm.state().holding == [1, 3, 4, 5, 6]


def test_a_pulled_plug_ends_the_observation(arm: EmulatedArm, robot: Any) -> None:
    import serial

    arm.plant(faults.Unplugged())
    with pytest.raises(serial.SerialException):
        robot.get_observation()
    assert arm.state().holding == ALL
