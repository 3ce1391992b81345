"""Feetech servos, of the SO arms: packets of protocol 0, registers and rules of the STS3215.

A packet, which `build` makes and `Parser` finds in a stream of bytes:

    FF FF | id | length | code | parameters | checksum

The length counts what follows it. The checksum is the inverted low byte of the sum from the id on. The code is the
instruction in a host's packet and the error byte in a servo's.

Registers have LeRobot's names. Assumed, without a check on a real servo: registers below 40 that are written under
Lock 1 count until the next restart.

Sources: LeRobot's ``tests/mocks/mock_feetech.py`` and feetech-servo-sdk 1.0.0 (packets);
``lerobot/motors/feetech/tables.py`` (addresses, sign bits); Feetech's memory table of the STS series (factory values,
units).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from strobe_servos import wire
from strobe_servos.servo import TURN, Model, Motion, Register, Servo
from strobe_servos.wire import BROADCAST, Packet

HEADER = b"\xff\xff"
_AROUND = 6  # bytes of a packet without parameters
LONGEST = 253  # bytes of parameters: the length, which counts two more, is one byte


def checksum(body: bytes | bytearray) -> int:
    """Return the checksum of the bytes between header and checksum."""
    return ~sum(body) & 0xFF


def build(packet: Packet) -> bytes:
    """Return ``packet`` as bytes. Raises ValueError for an id above 254 or more than 253 bytes of parameters."""
    wire.check(packet, LONGEST)
    body = bytes([packet.id, len(packet.parameters) + 2, packet.code]) + packet.parameters
    return HEADER + body + bytes([checksum(body)])


class Parser(wire.Parser):
    """Finds packets of protocol 0."""

    def _next(self) -> Packet | None:
        buffer = self._buffer
        while True:
            start = buffer.find(HEADER)
            if start < 0:
                self._drop(len(buffer) - (buffer[-1:] == HEADER[:1]))
                return None
            self._drop(start)
            if len(buffer) > 2 and buffer[2] > BROADCAST:  # FF FF FF: the header begins one byte later
                self._drop(1)
                continue
            if len(buffer) < 4:
                return None
            size = buffer[3] + 4
            if size < _AROUND:
                self._drop(1)
                continue
            if len(buffer) < size:
                return None
            if checksum(buffer[2 : size - 1]) != buffer[size - 1]:
                self.corrupt += 1
                self._drop(1)  # a good packet may begin inside
                continue
            packet = Packet(buffer[2], buffer[4], bytes(buffer[5 : size - 1]))
            del buffer[:size]
            return packet


class Feetech(wire.BusProtocol):
    """Protocol 0 on a bus."""

    overload = 32  # a bit of the error byte
    number = 1
    longest = LONGEST

    def parser(self) -> Parser:
        return Parser()

    def build(self, packet: Packet) -> bytes:
        return build(packet)

    def status(self, id: int, error: int, data: bytes) -> bytes:
        return build(Packet(id, error, data))


MODEL_NUMBER = 777
EEPROM_END = 40  # registers below survive a restart, if they were written while Lock was 0
BAUD_RATES = (1_000_000, 500_000, 250_000, 128_000, 115_200, 57_600, 38_400, 19_200)  # bits/s, by Baud_Rate
PHASE_MULTI_TURN = 0x10  # bit of Phase: positions count on past one turn

FIRMWARE_MAJOR = Register(0)
FIRMWARE_MINOR = Register(1)
MODEL = Register(3, 2)
ID = Register(5)
BAUD_RATE = Register(6)
RETURN_DELAY = Register(7)  # 2 µs
STATUS_LEVEL = Register(8)  # 0: only pings and reads are answered
MIN_LIMIT = Register(9, 2)
MAX_LIMIT = Register(11, 2)
MAX_TEMPERATURE = Register(13)
MAX_VOLTAGE = Register(14)
MIN_VOLTAGE = Register(15)
MAX_TORQUE = Register(16, 2)  # 0.1 %
PHASE = Register(18)
P_GAIN = Register(21)
D_GAIN = Register(22)
I_GAIN = Register(23)
PROTECTION_CURRENT = Register(28, 2)
HOMING_OFFSET = Register(31, 2, sign=11)
MODE = Register(33)
PROTECTIVE_TORQUE = Register(34)
PROTECTION_TIME = Register(35)
OVERLOAD_TORQUE = Register(36)
TORQUE_ENABLE = Register(40)
ACCELERATION = Register(41)
GOAL_POSITION = Register(42, 2, sign=15)
GOAL_VELOCITY = Register(46, 2, sign=15)  # counts/s; 0: as fast as it can
TORQUE_LIMIT = Register(48, 2)
LOCK = Register(55)
PRESENT_POSITION = Register(56, 2, sign=15)
PRESENT_VELOCITY = Register(58, 2, sign=15)
PRESENT_LOAD = Register(60, 2, sign=10)  # 0.1 % of the motor's voltage
PRESENT_VOLTAGE = Register(62)  # 0.1 V
PRESENT_TEMPERATURE = Register(63)  # °C
STATUS = Register(65)
MOVING = Register(66)
PRESENT_CURRENT = Register(69, 2, sign=15)  # 6.5 mA

READ_ONLY = frozenset((*range(0, 5), *range(56, 71)))

FACTORY = {
    FIRMWARE_MAJOR: 3, FIRMWARE_MINOR: 10, MODEL: MODEL_NUMBER, RETURN_DELAY: 250, STATUS_LEVEL: 1,
    MAX_LIMIT: TURN - 1, MAX_TEMPERATURE: 70, MAX_VOLTAGE: 80, MIN_VOLTAGE: 40, MAX_TORQUE: 1000, PHASE: 12, P_GAIN: 32,
    D_GAIN: 32, PROTECTION_CURRENT: 500, PROTECTIVE_TORQUE: 20, PROTECTION_TIME: 200, OVERLOAD_TORQUE: 80, LOCK: 1,
    TORQUE_LIMIT: 1000,
}  # fmt: skip


_VOLTAGE = 74  # 0.1 V, without load
_SAG = 6  # 0.1 V at full load
_STALL_CURRENT = 415  # 6.5 mA: 2.7 A
_MOVING = 5  # counts/s


class _STS3215(Model):
    memory = 256
    eeprom_end = EEPROM_END
    read_only = READ_ONLY
    factory = FACTORY
    baud_rates = BAUD_RATES
    motion = Motion(max_speed=3000.0)  # unloaded it turns with about 50 rpm at 7.4 V, which is 3400 counts/s
    id, baud_rate, return_delay = ID, BAUD_RATE, RETURN_DELAY
    low, high, offset = MIN_LIMIT, MAX_LIMIT, HOMING_OFFSET
    torque, goal, present, temperature = TORQUE_ENABLE, GOAL_POSITION, PRESENT_POSITION, PRESENT_TEMPERATURE

    def calibration_registers(self, drive_mode: int) -> Mapping[Register, int]:
        return {}

    def position(self, servo: Servo, shaft: float) -> float:
        return shaft - servo.get(HOMING_OFFSET)

    def shaft(self, servo: Servo, position: float) -> float:
        return position + servo.get(HOMING_OFFSET)

    def holds_position(self, servo: Servo) -> bool:
        return servo.get(MODE) == 0

    def is_goal_clipped(self, servo: Servo) -> bool:
        return True

    def wraps(self, servo: Servo) -> bool:
        return not servo.get(PHASE) & PHASE_MULTI_TURN

    def max_speed(self, servo: Servo) -> float:
        return abs(servo.get(GOAL_VELOCITY)) or math.inf

    def answers_writes(self, servo: Servo) -> bool:
        return bool(servo.get(STATUS_LEVEL))

    def is_eeprom_protected(self, servo: Servo) -> bool:
        return bool(servo.get(LOCK))

    def refusal(self, servo: Servo, address: int, size: int) -> int:
        return 0

    def identity(self, servo: Servo) -> bytes:
        return b""

    def power_on_registers(self, servo: Servo) -> Mapping[Register, int]:
        return {LOCK: FACTORY[LOCK], TORQUE_LIMIT: servo.get(MAX_TORQUE)}

    def measured_registers(self, servo: Servo, speed: float, load: float) -> Mapping[Register, int]:
        return {
            PRESENT_VELOCITY: round(speed),
            PRESENT_LOAD: round(1000 * load),
            PRESENT_CURRENT: round(_STALL_CURRENT * load),
            PRESENT_VOLTAGE: round(_VOLTAGE - _SAG * abs(load)),
            MOVING: abs(speed) > _MOVING,
        }


STS3215 = _STS3215()
