"""Servos of Dynamixel's X series on a bus: what differs from Feetech's, and that the rest is shared."""

from __future__ import annotations

import pytest

from strobe.rehearse import faults
from strobe.rehearse.emulator import arms
from strobe.rehearse.emulator.bus import Bus, make_bus
from strobe.rehearse.emulator.calibration import Joint
from strobe_servos import dynamixel as r
from strobe_servos.dynamixel import ACCESS_ERROR, STATUS, X_SERIES, Packet, Parser, build
from strobe_servos.servo import Register, Servo
from strobe_servos.wire import BROADCAST, Instruction

KOCH = arms.FOLLOWERS["koch_follower"]
ALL = tuple(joint.id for joint in KOCH.plausible.values())


def bus() -> Bus:
    made = make_bus(KOCH.plausible, KOCH.models)
    for servo in made.servos.values():
        servo.set(r.RETURN_DELAY, 0)
    return made


def ask(bus: Bus, packet: Packet, now: float = 0.0) -> list[Packet]:
    return Parser().feed(b"".join(each.data for each in bus.receive(build(packet), now)))


def address_bytes(register: Register, size: bool = False) -> bytes:
    return register.address.to_bytes(2, "little") + (register.size.to_bytes(2, "little") if size else b"")


def write(id: int, register: Register, value: int) -> Packet:
    return Packet(id, Instruction.WRITE, address_bytes(register) + register.encode(value))


def test_each_instruction_gets_the_answer_of_the_protocol() -> None:
    arm = bus()
    assert ask(arm, Packet(3, Instruction.PING)) == [Packet(3, STATUS, bytes([0, *(1200).to_bytes(2, "little"), 50]))]
    everyone = ask(arm, Packet(BROADCAST, Instruction.PING))
    assert [(each.id, int.from_bytes(each.parameters[1:3], "little")) for each in everyone] == [
        (1, 1060), (2, 1060), (3, 1200), (4, 1200), (5, 1200), (6, 1200),
    ]  # fmt: skip
    offset = KOCH.plausible["shoulder_lift"].homing_offset
    told = offset.to_bytes(4, "little", signed=True)
    assert ask(arm, Packet(2, Instruction.READ, address_bytes(r.HOMING_OFFSET, True))) == [
        Packet(2, STATUS, b"\0" + told)
    ]
    assert ask(arm, write(1, r.TORQUE_ENABLE, 1)) == [Packet(1, STATUS, b"\0")]
    asked = Packet(BROADCAST, Instruction.SYNC_READ, address_bytes(r.PRESENT_POSITION, True) + bytes([6, 2]))
    assert [each.id for each in ask(arm, asked)] == [6, 2]
    goals = b"".join(bytes([id]) + r.GOAL_POSITION.encode(id - 3000) for id in ALL)
    assert ask(arm, Packet(BROADCAST, Instruction.SYNC_WRITE, address_bytes(r.GOAL_POSITION, True) + goals)) == []
    assert [arm.servos[id].get(r.GOAL_POSITION) for id in ALL] == [id - 3000 for id in ALL]
    assert ask(arm, Packet(1, 0x92)) == []
    assert arm.state(0.0).packets == {
        "ping": 2, "read": 1, "write": 1, "sync_read": 1, "sync_write": 1, "unknown": 1,
    }  # fmt: skip


def test_the_eeprom_is_refused_while_torque_is_on_and_measurements_always() -> None:
    arm = bus()
    ask(arm, write(1, r.TORQUE_ENABLE, 1))
    (answer,) = ask(arm, write(1, r.MODE, r.EXTENDED))
    assert (answer.parameters[0], arm.servos[1].get(r.MODE)) == (ACCESS_ERROR, r.POSITION)
    ask(arm, write(1, r.TORQUE_ENABLE, 0))
    assert ask(arm, write(1, r.MODE, r.EXTENDED)) == [Packet(1, STATUS, b"\0")]
    (answer,) = ask(arm, write(1, r.PRESENT_POSITION, 0))
    assert answer.parameters[0] == ACCESS_ERROR


@pytest.mark.parametrize("drive_mode", [0, r.REVERSED])
def test_the_host_sees_the_offset_added_and_may_see_the_other_direction(drive_mode: int) -> None:
    servo = Servo(X_SERIES["xl330-m288"], Joint(1, drive_mode), present=500)
    assert servo.get(r.PRESENT_POSITION) == 500
    servo.write(r.HOMING_OFFSET.address, r.HOMING_OFFSET.encode(-700))
    assert servo.get(r.PRESENT_POSITION) == -200, "without torque positions count on past a turn"
    before = servo.shaft
    servo.write(r.MODE.address, bytes([r.EXTENDED]))
    servo.write(r.TORQUE_ENABLE.address, b"\1")
    servo.write(r.GOAL_POSITION.address, r.GOAL_POSITION.encode(-300))
    servo.advance(60.0)
    assert servo.get(r.PRESENT_POSITION) == -300
    assert servo.shaft - before == pytest.approx(100 if drive_mode else -100)


@pytest.mark.parametrize(("mode", "there"), [(r.POSITION, 3120), (r.EXTENDED, 9000), (r.CURRENT_POSITION, 9000)])
def test_limits_hold_in_position_mode_alone(mode: int, there: int) -> None:
    servo = Servo(X_SERIES["xl430-w250"], Joint(1, range_min=890, range_max=3120))
    servo.write(r.MODE.address, bytes([mode]))
    servo.write(r.TORQUE_ENABLE.address, b"\1")
    servo.write(r.GOAL_POSITION.address, r.GOAL_POSITION.encode(9000))
    servo.advance(60.0)
    assert servo.get(r.PRESENT_POSITION) == there


def test_a_restart_keeps_the_eeprom_and_lets_go() -> None:
    arm = bus()
    for register, value in ((r.MODE, r.EXTENDED), (r.P_GAIN, 1500), (r.TORQUE_ENABLE, 1)):
        ask(arm, write(3, register, value))
    arm.plant(faults.Restart(servo=3, instruction="ping"))
    assert len(ask(arm, Packet(3, Instruction.PING))) == 1
    servo = arm.servos[3]
    assert [servo.get(each) for each in (r.MODE, r.P_GAIN, r.TORQUE_ENABLE)] == [r.EXTENDED, 800, 0]


def test_faults_are_the_shared_ones() -> None:
    arm = bus()
    asked = Packet(BROADCAST, Instruction.SYNC_READ, address_bytes(r.PRESENT_POSITION, True) + bytes(ALL))
    arm.plant(faults.ErrorBits(servo=2))
    assert [each.parameters[0] for each in ask(arm, asked)] == [0, 0x80, 0, 0, 0, 0]
    arm.faults.clear()
    for fault in (faults.Lost(servo=4), faults.Corrupt(servo=4), faults.Dead(servo=4)):
        arm.plant(fault)
        assert [each.id for each in ask(arm, asked)] == [1, 2, 3, 5, 6]
        arm.faults.clear()
    (whole,) = arm.receive(build(asked), 10.0)
    assert whole.due_s == pytest.approx(10.0 + (14 + 6 + 6 * 15) * 10 / 1e6)
