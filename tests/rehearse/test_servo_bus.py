"""Requests in, answers out, with their times: no terminal, no clock, no process."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strobe.rehearse import faults
from strobe.rehearse.emulator import calibration
from strobe.rehearse.emulator.bus import Bus, UnpluggedError, make_bus
from strobe_servos import feetech as r
from strobe_servos.feetech import BROADCAST, Feetech, Packet, Parser, build
from strobe_servos.servo import Register
from strobe_servos.wire import Instruction

ALL = (1, 2, 3, 4, 5, 6)


def bus(latency_s: float = 0.0) -> Bus:
    joints = calibration.so101()
    made = make_bus(joints, dict.fromkeys(joints, "sts3215"), latency_s=latency_s)
    for servo in made.servos.values():
        servo.set(r.RETURN_DELAY, 0)
    return made


def ask(bus: Bus, packet: Packet, now: float = 0.0) -> list[Packet]:
    return Parser().feed(b"".join(each.data for each in bus.receive(build(packet), now)))


def ping(id: int) -> Packet:
    return Packet(id, Instruction.PING)


def read(id: int, register: Register) -> Packet:
    return Packet(id, Instruction.READ, bytes([register.address, register.size]))


def write(id: int, register: Register, value: int) -> Packet:
    return Packet(id, Instruction.WRITE, bytes([register.address]) + register.encode(value))


def sync_read(*ids: int, register: Register = r.PRESENT_POSITION) -> Packet:
    return Packet(BROADCAST, Instruction.SYNC_READ, bytes([register.address, register.size, *ids]))


def test_each_instruction_gets_the_answer_of_the_protocol() -> None:
    arm = bus()
    assert ask(arm, ping(3)) == [Packet(3, 0)]
    assert ask(arm, ping(9)) == []
    assert [each.id for each in ask(arm, ping(BROADCAST))] == list(ALL)
    assert ask(arm, read(1, r.MODEL)) == [Packet(1, 0, (777).to_bytes(2, "little"))]
    assert ask(arm, write(1, r.TORQUE_ENABLE, 1)) == [Packet(1, 0)]
    assert [each.id for each in ask(arm, sync_read(6, 2))] == [6, 2]
    goals = b"".join(bytes([id]) + r.GOAL_POSITION.encode(1000 + id) for id in ALL)
    assert ask(arm, Packet(BROADCAST, Instruction.SYNC_WRITE, bytes([42, 2]) + goals)) == []
    assert [arm.servos[id].get(r.GOAL_POSITION) for id in ALL] == [1000 + id for id in ALL]
    counted = {"ping": 3, "read": 1, "write": 1, "sync_read": 1, "sync_write": 1}
    assert arm.state(0.0).packets == counted


def test_registers_agree_with_the_calibration() -> None:
    arm = bus()
    for joint in calibration.so101().values():
        servo = arm.servos[joint.id]
        told = [servo.get(each) for each in (r.HOMING_OFFSET, r.MIN_LIMIT, r.MAX_LIMIT)]
        assert told == [joint.homing_offset, joint.range_min, joint.range_max]


def test_a_new_id_is_answered_under_the_old_one_and_heard_under_the_new() -> None:
    arm = bus()
    assert len(ask(arm, write(1, r.ID, 9))) == 1
    assert (ask(arm, ping(1)), ask(arm, ping(9))) == ([], [Packet(9, 0)])


def test_answers_take_the_time_of_their_bytes_and_of_the_adapter() -> None:
    """Six positions are 14 bytes out and 48 back: 0.62 ms at 1 Mbaud."""
    (delivery,) = bus(latency_s=0.001).receive(build(sync_read(*ALL)), 10.0)
    assert delivery.due_s == pytest.approx(10.0 + 62 * 10 / 1e6 + 0.001)
    slow = bus()
    for servo in slow.servos.values():
        servo.set(r.BAUD_RATE, 7)  # 19200
    last = slow.receive(build(sync_read(*ALL)), 10.0)[-1]
    assert last.due_s == pytest.approx(10.0 + 62 * 10 / 19200)


def test_the_factorys_return_delay_is_half_a_millisecond() -> None:
    arm = bus()
    arm.servos[1].set(r.RETURN_DELAY, 250)
    (delivery,) = arm.receive(build(ping(1)), 0.0)
    assert delivery.due_s == pytest.approx(500e-6 + 12 * 10e-6)


@given(st.binary(max_size=200))
def test_no_bytes_bring_the_bus_down(data: bytes) -> None:
    arm = bus()
    arm.receive(data, 0.0)
    arm.quiet(0.0)
    assert ask(arm, ping(BROADCAST), 1.0)


@given(st.sampled_from(list(Instruction)), st.integers(0, BROADCAST), st.binary(max_size=12))
@example(Instruction.READ, 1, b"\x00\xfe")  # asks for more than a packet holds
def test_no_parameters_bring_the_bus_down(instruction: Instruction, id: int, parameters: bytes) -> None:
    arm = bus()
    arm.receive(build(Packet(id, instruction, parameters)), 0.0)
    arm.state(1.0)


def test_an_answer_is_lost_once_and_the_servo_did_it_all_the_same() -> None:
    arm = bus()
    arm.plant(faults.Lost(instruction="write", servo=2))
    assert ask(arm, write(2, r.TORQUE_ENABLE, 1)) == []
    assert arm.state(0.0).holding == [2]
    assert ask(arm, write(2, r.TORQUE_ENABLE, 0)) == [Packet(2, 0)]
    assert arm.state(0.0).struck == {"lost": 1}


def test_a_fault_waits_for_its_request() -> None:
    arm = bus()
    arm.plant(faults.Lost(servo=2, after=1, count=2))
    heard = [[each.id for each in ask(arm, sync_read(1, 2))] for _ in range(4)]
    assert heard == [[1, 2], [1], [1], [1, 2]]
    assert ask(arm, ping(2))


@pytest.mark.parametrize("fault", [faults.Corrupt(servo=2), faults.Short(servo=2)])
def test_a_spoilt_answer_is_no_packet(fault: faults.Fault) -> None:
    arm = bus()
    arm.plant(fault)
    parser = Parser()
    heard = parser.feed(b"".join(each.data for each in arm.receive(build(sync_read(1, 2)), 0.0))) + parser.quiet()
    assert [each.id for each in heard] == [1]


def test_late_answers_hold_up_those_behind_them() -> None:
    arm = bus()
    arm.plant(faults.Late(seconds=0.06))
    (late,) = arm.receive(build(sync_read(*ALL)), 0.0)
    (behind,) = arm.receive(build(sync_read(*ALL)), 0.05)
    (after,) = arm.receive(build(sync_read(*ALL)), 0.10)
    assert late.due_s == pytest.approx(0.06 + 620e-6)
    assert behind.due_s == pytest.approx(late.due_s)
    assert after.due_s == pytest.approx(0.10 + 620e-6)


def test_a_slow_servo_holds_up_those_behind_it_in_a_sync_read() -> None:
    arm = bus()
    arm.plant(faults.Slow(servo=2, seconds=0.01))
    first, rest = arm.receive(build(sync_read(1, 2, 3)), 0.0)
    assert [each.id for each in Parser().feed(first.data)] == [1]
    assert [each.id for each in Parser().feed(rest.data)] == [2, 3]
    assert rest.due_s - first.due_s == pytest.approx(0.01 + 2 * 80e-6)


def test_an_error_bit_is_in_every_answer_of_that_servo() -> None:
    arm = bus()
    arm.plant(faults.ErrorBits(servo=2))
    assert ask(arm, ping(2)) == [Packet(2, Feetech.overload)]
    assert [each.code for each in ask(arm, sync_read(1, 2, 3))] == [0, Feetech.overload, 0]
    arm.faults.clear()
    assert ask(arm, ping(2)) == [Packet(2, 0)]


def test_a_dead_servo_neither_hears_nor_answers() -> None:
    arm = bus()
    ask(arm, write(2, r.TORQUE_ENABLE, 1))
    arm.plant(faults.Dead(servo=2))
    assert ask(arm, write(2, r.TORQUE_ENABLE, 0)) == []
    assert arm.state(0.0).holding == [2]


def test_a_restarted_servo_answers_without_torque() -> None:
    arm = bus()
    for id in ALL:
        ask(arm, write(id, r.TORQUE_ENABLE, 1))
    arm.plant(faults.Restart(servo=4))
    assert len(ask(arm, sync_read(*ALL))) == 6
    assert arm.state(0.0).holding == [1, 2, 3, 5, 6]


def test_an_unplugged_adapter_ends_the_bus() -> None:
    arm = bus()
    arm.plant(faults.Unplugged())
    with pytest.raises(UnpluggedError):
        arm.receive(build(sync_read(1)), 0.0)


@pytest.mark.parametrize("fault", [kind() for kind in faults.FAULTS.values()], ids=list(faults.FAULTS))
def test_a_fault_can_be_written_down(fault: faults.Fault) -> None:
    assert faults.from_content(faults.fault_content(fault)) == fault


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"fault": "slwo"}, "did you mean 'slow'"),
        ({"fault": "late", "second": 1}, "did you mean 'seconds'"),
        ({"fault": "late", "seconds": "1"}, "cannot take '1'"),
        ({"fault": "lost", "instruction": "sync_raed"}, "did you mean 'sync_read'"),
        ({"fault": "lost", "count": 0}, "0 times"),
        ({"fault": "lost", "after": -1}, "-1 requests"),
        ({"fault": "lost", "servo": True}, "cannot take True"),
    ],
)
def test_a_fault_that_cannot_be_says_why(content: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        faults.from_content(content)


def test_a_fault_of_a_servo_that_is_not_there_says_so() -> None:
    with pytest.raises(ValueError, match="no servo has the id 9"):
        bus().plant(faults.Lost(servo=9))
