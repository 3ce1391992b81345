"""LeRobot's own drivers on emulated arms, the SO-101 and the Koch: what they do when all is well, and with each fault.

They are unmodified but for their patience, 300 ms instead of 50. The positions that the arm is placed at tell which
moment an answer is from, so no test here judges time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.suite.patience import patient

from strobe.rehearse import faults
from strobe.rehearse.emulator import calibration
from strobe.rehearse.emulator.arm import EmulatedArm
from strobe.rehearse.emulator.arms import FOLLOWERS

# The driver gives an answer 50 ms and spins meanwhile: beside other tests on two cores answers come late, which is just
# what it takes for a fault. `STROBE_REAL_TIME=1 pytest -n 0` runs these on a machine with nothing else to do.
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="emulated arms need Linux"),
    pytest.mark.skipif(os.environ.get("STROBE_REAL_TIME") != "1", reason="in real time: STROBE_REAL_TIME=1, alone"),
]

STEP = 40  # counts
ALL = [1, 2, 3, 4, 5, 6]
KOCH = FOLLOWERS["koch_follower"]
SDK = {"so101": "scservo_sdk", "koch": "dynamixel_sdk"}
so101, koch = (pytest.mark.parametrize("kind", [kind], indirect=True) for kind in SDK)


@pytest.fixture(params=SDK)
def kind(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(SDK[request.param], reason="Strobe's extra 'robot' is not installed")
    return request.param


@pytest.fixture
def arm(kind: str) -> Iterator[EmulatedArm]:
    koch = kind == "koch"
    with EmulatedArm(KOCH.plausible if koch else None, models=KOCH.models if koch else None, latency_ms=0.2) as arm:
        yield arm


@pytest.fixture
def robot(kind: str, arm: EmulatedArm, tmp_path: Path) -> Iterator[Any]:
    made = follower(kind, arm, tmp_path)
    made.connect()  # would ask on stdin, if registers and file did not agree
    yield made
    with contextlib.suppress(Exception):
        made.bus.port_handler.closePort()


def follower(kind: str, arm: EmulatedArm, folder: Path) -> Any:
    from lerobot.robots.koch_follower import KochFollower, KochFollowerConfig
    from lerobot.robots.so_follower import SO101Follower, SO101FollowerConfig

    calibration.write(KOCH.plausible if kind == "koch" else calibration.so101(), folder / "arm.json")
    there: dict[str, Any] = {"port": arm.port, "id": "arm", "calibration_dir": folder}
    if kind == "koch":
        return patient(KochFollower(KochFollowerConfig(**there)))
    return patient(SO101Follower(SO101FollowerConfig(**there)))


def elbow(robot: Any, retries: int = 2) -> int:
    """Counts that the driver believes the elbow to be at; the SO-101's asks twice more."""
    return robot.bus.sync_read("Present_Position", ["elbow_flex"], normalize=False, num_retry=retries)["elbow_flex"]


CONNECTING = {"so101": {"ping": 6, "read": 42, "write": 69}, "koch": {"ping": 6, "sync_read": 4}}


def test_connect_move_and_disconnect(kind: str, arm: EmulatedArm, robot: Any) -> None:
    packets = arm.state().packets
    assert packets == CONNECTING[kind] if kind == "so101" else packets | CONNECTING[kind] == packets
    assert arm.state().holding == ALL
    start = robot.get_observation()
    sent = {name: value + 10.0 for name, value in start.items()}
    assert robot.send_action(sent) == sent
    # Each observation is another step of the way, so waiting is looking.
    there: Any = {}
    for _ in range(5000):
        there = robot.get_observation()
        if there == pytest.approx(sent, abs=0.2):
            break
    assert there == pytest.approx(sent, abs=0.2)
    if kind == "so101":
        assert start["elbow_flex.pos"] == 0.0
    else:
        assert robot.bus.broadcast_ping() == {1: 1060, 2: 1060, 3: 1200, 4: 1200, 5: 1200, 6: 1200}
    robot.disconnect()
    state = arm.state()
    assert state.holding == []
    assert kind == "koch" or not any(each.lock for each in state.servos.values())
    assert (state.corrupt, state.noise) == (0, 0)


@so101
def test_a_goal_out_of_range_is_stopped_by_the_servo_alone(arm: EmulatedArm, robot: Any) -> None:
    robot.send_action({"elbow_flex.pos": 1000.0})
    assert robot.bus.sync_read("Goal_Position", ["elbow_flex"], normalize=False)["elbow_flex"] == 13345
    for _ in range(5000):
        if elbow(robot) == calibration.so101()["elbow_flex"].range_max:
            break
    assert arm.state().servos[3].present == calibration.so101()["elbow_flex"].range_max


@so101
@pytest.mark.parametrize("fault", [faults.Lost(servo=3), faults.Corrupt(servo=3), faults.Short(servo=3)])
def test_one_spoilt_answer_costs_one_more_read(arm: EmulatedArm, robot: Any, fault: faults.Fault) -> None:
    robot.bus.disable_torque()
    arm.place(elbow_flex=2000)
    before = arm.state().packets.get("sync_read", 0)
    arm.plant(fault)
    assert elbow(robot) == 2000
    assert arm.state().packets["sync_read"] - before == 2


SPOILT = [faults.Lost(servo=3), faults.Corrupt(servo=3), faults.Short(servo=6), faults.Late(seconds=0.4)]


@koch
@pytest.mark.parametrize("fault", [*SPOILT, faults.Dead(servo=3)])
def test_one_spoilt_answer_ends_the_observation(arm: EmulatedArm, robot: Any, fault: faults.Fault) -> None:
    arm.plant(fault)
    with pytest.raises(ConnectionError, match="after 1 tries"):
        robot.get_observation()
    assert arm.state().struck == {fault.name: 1}


@koch
def test_after_one_late_answer_whoever_asks_on_is_one_answer_behind(arm: EmulatedArm, robot: Any) -> None:
    robot.bus.disable_torque()
    arm.place(elbow_flex=2000)
    arm.plant(faults.Late(seconds=0.4))
    with pytest.raises(ConnectionError):
        elbow(robot, retries=0)
    while not robot.bus.port_handler.ser.in_waiting:
        pass  # until the late answer is there
    arm.place(elbow_flex=2040)
    assert elbow(robot, retries=0) == 2000
    arm.place(elbow_flex=2080)
    assert elbow(robot, retries=0) == 2040


@so101
def test_after_one_late_answer_every_observation_is_one_tick_old(arm: EmulatedArm, robot: Any) -> None:
    """The retry eats the late answers and leaves its own in the input, which the driver never empties."""
    robot.bus.disable_torque()
    arm.place(elbow_flex=2000)
    assert elbow(robot) == 2000
    arm.plant(faults.Late(seconds=0.45))  # the driver waits for 300 ms, twice
    assert elbow(robot) == 2000
    seen, asked = [], arm.state().packets["sync_read"]
    for tick in range(1, 6):
        arm.place(elbow_flex=2000 + tick * STEP)
        seen.append(elbow(robot))
        while arm.state().packets["sync_read"] < asked + tick:
            pass  # the driver has an older answer before the servos have heard it ask
    assert seen == [2000 + tick * STEP for tick in range(5)]
    assert arm.state().struck == {"late": 1}


@so101
def test_a_dead_servo_ends_the_observation(arm: EmulatedArm, robot: Any) -> None:
    arm.plant(faults.Dead(servo=4))
    with pytest.raises(ConnectionError, match=r"after 3 tries.*no status packet"):
        robot.get_observation()


@so101
def test_an_overload_is_not_seen_in_an_observation(arm: EmulatedArm, robot: Any) -> None:
    arm.plant(faults.ErrorBits(servo=4))
    assert len(robot.get_observation()) == 6
    assert arm.state().struck == {"error-bits": 1}


@so101
def test_an_error_bit_in_a_ping_makes_a_motor_missing(kind: str, arm: EmulatedArm, tmp_path: Path) -> None:
    arm.plant(faults.ErrorBits(servo=2))
    robot = follower(kind, arm, tmp_path)
    with pytest.raises(RuntimeError, match=r"(?s)Missing motor IDs.*- 2"):
        robot.connect()
    robot.bus.port_handler.closePort()


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (faults.ErrorBits(servo=3), RuntimeError),
        (faults.Lost(instruction="write", servo=3, count=None), ConnectionError),
        (faults.Dead(servo=3), ConnectionError),
    ],
)
def test_an_error_at_disconnect_leaves_the_later_joints_holding(
    kind: str, arm: EmulatedArm, robot: Any, fault: faults.Fault, raised: type[Exception]
) -> None:
    arm.plant(fault)
    with pytest.raises(raised):
        robot.disconnect()
    held = arm.state().holding
    assert held[-3:] == [4, 5, 6]
    assert kind == "koch" or isinstance(fault, faults.Dead) or len(held) == 3


def test_a_restarted_servo_goes_limp_and_an_alert_is_not_seen(kind: str, arm: EmulatedArm, robot: Any) -> None:
    arm.plant(faults.Restart(servo=2), *([faults.ErrorBits(servo=4)] if kind == "koch" else []))
    assert len(robot.get_observation()) == 6
    assert arm.state().holding == [1, 3, 4, 5, 6]


def test_a_pulled_plug_ends_the_observation(kind: str, arm: EmulatedArm, robot: Any) -> None:
    import serial

    arm.plant(faults.Unplugged())
    with pytest.raises(serial.SerialException):
        robot.get_observation()
    assert kind == "koch" or robot.is_connected
    assert arm.state().holding == ALL
