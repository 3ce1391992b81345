"""A servo's registers and its shaft, on a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.rehearse.emulator.calibration import TURN, Joint
from strobe_servos import feetech as r
from strobe_servos.feetech import STS3215
from strobe_servos.servo import Motion, Register, Servo


def make_holding_servo(present: int | None = None, *, low: int = 0, high: int = TURN - 1) -> Servo:
    servo = Servo(STS3215, Joint(1, range_min=low, range_max=high), present=present)
    servo.write(r.TORQUE_ENABLE.address, b"\1")
    return servo


def goal(servo: Servo, position: int) -> None:
    servo.write(r.GOAL_POSITION.address, r.GOAL_POSITION.encode(position))


@pytest.mark.parametrize("register", [r.PRESENT_POSITION, r.HOMING_OFFSET, r.PRESENT_LOAD])
@pytest.mark.parametrize("value", [0, 1, -1, 777, -777])
def test_signs_are_a_bit_of_the_register(register: Register, value: int) -> None:
    assert register.decode(register.encode(value)) == value


def test_the_first_order_answer_is_the_textbooks() -> None:
    servo = make_holding_servo(present=2000)
    servo.motion = Motion(max_speed=1000, lag_s=0.1)
    goal(servo, 2600)
    servo.advance(0.5)  # 500 counts at full speed, 100 left
    assert servo.get(r.PRESENT_POSITION) == 2500
    assert servo.get(r.PRESENT_VELOCITY) == 1000
    servo.advance(0.6)  # one time constant later
    assert servo.get(r.PRESENT_POSITION) == 2600 - round(100 / 2.71828)
    assert servo.get(r.PRESENT_VELOCITY) == pytest.approx(368, abs=1)
    servo.advance(10.0)
    assert (servo.get(r.PRESENT_POSITION), servo.get(r.MOVING)) == (2600, 0)


@given(st.integers(0, 4095), st.lists(st.floats(0, 2), min_size=1, max_size=20))
def test_where_the_shaft_is_does_not_depend_on_how_often_one_looks(to: int, steps: list[float]) -> None:
    often, once = make_holding_servo(), make_holding_servo()
    for servo in (often, once):
        goal(servo, to)
    at = 0.0
    for step in steps:
        at += step
        often.advance(at)
    once.advance(at)
    assert often.shaft == pytest.approx(once.shaft, abs=1e-6)


def test_without_torque_nothing_moves_and_torque_holds_where_it_is() -> None:
    servo = Servo(STS3215, Joint(1), present=1000)
    goal(servo, 3000)
    servo.advance(5.0)
    assert servo.get(r.PRESENT_POSITION) == 1000
    servo.write(r.TORQUE_ENABLE.address, b"\1")
    servo.advance(10.0)
    assert (servo.get(r.PRESENT_POSITION), servo.get(r.GOAL_POSITION)) == (1000, 1000)


def test_the_servo_keeps_to_its_limits_whatever_the_goal() -> None:
    servo = make_holding_servo(low=900, high=3000)
    goal(servo, 13345)
    servo.advance(10.0)
    assert servo.get(r.PRESENT_POSITION) == 3000


def test_the_host_sees_the_shaft_less_the_offset_within_one_turn() -> None:
    servo = Servo(STS3215, Joint(1, homing_offset=-100), present=50)
    assert servo.get(r.PRESENT_POSITION) == 50
    servo.write(r.HOMING_OFFSET.address, r.HOMING_OFFSET.encode(100))
    assert servo.get(r.PRESENT_POSITION) == 50 - 100 - 100 + r.TURN
    servo.write(r.PHASE.address, bytes([r.PHASE_MULTI_TURN]))
    assert servo.get(r.PRESENT_POSITION) == -150


def test_measured_registers_cannot_be_written() -> None:
    servo = Servo(STS3215, Joint(1), present=1000)
    servo.write(r.MODEL.address, b"\1\1")
    servo.write(r.PRESENT_POSITION.address, b"\0\0")
    assert (servo.get(r.MODEL), servo.get(r.PRESENT_POSITION)) == (r.MODEL_NUMBER, 1000)


def test_a_restart_forgets_the_torque_and_what_was_written_under_lock() -> None:
    servo = make_holding_servo()
    servo.write(r.MAX_LIMIT.address, (3000).to_bytes(2, "little"))  # Lock is 1
    servo.write(r.LOCK.address, b"\0")
    servo.write(r.MIN_LIMIT.address, (500).to_bytes(2, "little"))
    assert (servo.get(r.MIN_LIMIT), servo.get(r.MAX_LIMIT)) == (500, 3000)
    servo.restart()
    assert (servo.get(r.MIN_LIMIT), servo.get(r.MAX_LIMIT)) == (500, 4095)
    assert (servo.get(r.TORQUE_ENABLE), servo.get(r.LOCK)) == (0, 1)


def test_work_shows_as_load_current_voltage_and_heat() -> None:
    servo = make_holding_servo(present=0)
    servo.motion = Motion(max_speed=10)
    goal(servo, 4000)
    servo.advance(1.0)
    cold = servo.get(r.PRESENT_TEMPERATURE)
    assert servo.get(r.PRESENT_LOAD) == 1000
    assert servo.get(r.PRESENT_CURRENT) > 0
    assert servo.get(r.PRESENT_VOLTAGE) == 68
    servo.advance(300.0)
    assert servo.get(r.PRESENT_TEMPERATURE) > cold + 15


def test_reading_past_the_last_register_gives_zeros() -> None:
    assert Servo(STS3215, Joint(1)).read(250, 20)[6:] == bytes(14)
