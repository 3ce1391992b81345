"""Dynamixel servos, of the Koch and OMX arms: packets of protocol 2, registers and models of the X series.

A packet, which `build` makes and `Parser` finds in a stream of bytes:

    FF FF FD 00 | id | length (2) | instruction | parameters | CRC (2)

Numbers have their low byte first. The length counts what follows it. A servo's instruction is 55, and its first
parameter is the error. FF FF FD between length and CRC is followed by one more FD, which is no part of the packet
("byte stuffing").

Registers have LeRobot's names. XL330 and XL430 agree in what is here. Assumed of the servos: addresses that the control
tables leave out can be written, and a goal outside the limits is clipped, where a real servo answers with an error and
keeps its goal.

Sources: https://emanual.robotis.com/docs/en/dxl/protocol2/ and dynamixel-sdk 3.8.4 (packets); the control tables of
https://emanual.robotis.com/docs/en/dxl/x/ (factory values, units, speed without load, stall current, voltage, the rules
on writes); LeRobot's ``tests/mocks/mock_dynamixel.py`` and ``lerobot/motors/dynamixel/tables.py`` (addresses, sizes).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from strobe_servos import wire
from strobe_servos.servo import TURN, Model, Motion, Register, Servo
from strobe_servos.wire import BROADCAST, Packet

HEADER = b"\xff\xff\xfd\x00"
STATUS = 0x55
LONGEST = 1000  # bytes of a packet's parameters; the SDK takes packets of 1024 bytes
_HEAD = 7  # bytes up to the length
_LEAST = 3  # what the length counts in a packet without parameters
_BARE, _STUFFED = b"\xff\xff\xfd", b"\xff\xff\xfd\xfd"
_MOST = _LEAST + LONGEST * 4 // 3 + 1  # longest packet, with every third byte stuffed


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x8005 if crc & 0x8000 else crc << 1) & 0xFFFF
        table.append(crc)
    return tuple(table)


_CRC = _table()


def checksum(data: bytes | bytearray) -> int:
    """Return the CRC-16 of a packet without its last two bytes (polynomial 0x8005, from 0: "CRC-16/BUYPASS")."""
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFF00) ^ _CRC[crc >> 8 ^ byte]
    return crc


def build(packet: Packet) -> bytes:
    """Return ``packet`` as bytes. Raises ValueError for an id above 254 and for more than 1000 bytes."""
    wire.check(packet, LONGEST)
    body = (bytes([packet.code]) + packet.parameters).replace(_BARE, _STUFFED)
    data = HEADER + bytes([packet.id]) + (len(body) + 2).to_bytes(2, "little") + body
    return data + checksum(data).to_bytes(2, "little")


class Parser(wire.Parser):
    """Finds packets of protocol 2."""

    def _next(self) -> Packet | None:
        buffer = self._buffer
        while True:
            start = buffer.find(HEADER)
            if start < 0:
                begun = next(size for size in (3, 2, 1, 0) if buffer.endswith(HEADER[:size]))
                self._drop(len(buffer) - begun)
                return None
            self._drop(start)
            if len(buffer) < _HEAD:
                return None
            length = int.from_bytes(buffer[5:_HEAD], "little")
            if buffer[4] > BROADCAST or not _LEAST <= length <= _MOST:
                self._drop(1)
                continue
            size = _HEAD + length
            if len(buffer) < size:
                return None
            if checksum(buffer[: size - 2]) != int.from_bytes(buffer[size - 2 : size], "little"):
                self.corrupt += 1
                self._drop(1)  # a good packet may begin inside
                continue
            body = bytes(buffer[_HEAD : size - 2]).replace(_STUFFED, _BARE)
            packet = Packet(buffer[4], body[0], body[1:])
            del buffer[:size]
            return packet


class Dynamixel(wire.BusProtocol):
    """Protocol 2 on a bus."""

    overload = 0x80  # "alert": Hardware_Error_Status has the details
    number = 2
    longest = LONGEST - 1  # the error takes one

    def parser(self) -> Parser:
        return Parser()

    def build(self, packet: Packet) -> bytes:
        return build(packet)

    def status(self, id: int, error: int, data: bytes) -> bytes:
        return build(Packet(id, STATUS, bytes([error]) + data))


MEMORY = 256
EEPROM_END = 64
BAUD_RATES = (9_600, 57_600, 115_200, 1_000_000, 2_000_000, 3_000_000, 4_000_000)  # bits/s, by Baud_Rate
REVERSED = 1  # bit of Drive_Mode: positions count the other way
POSITION, EXTENDED, CURRENT_POSITION = 3, 4, 5  # of Operating_Mode: those that drive to a position

MODEL = Register(0, 2)
FIRMWARE = Register(6)
ID = Register(7)
BAUD_RATE = Register(8)
RETURN_DELAY = Register(9)  # 2 µs
DRIVE_MODE = Register(10)
MODE = Register(11)
PROTOCOL = Register(13)
HOMING_OFFSET = Register(20, 4, twos=True)
MOVING_THRESHOLD = Register(24, 4)
MAX_TEMPERATURE = Register(31)
PWM_LIMIT = Register(36, 2)
VELOCITY_LIMIT = Register(44, 4)
MAX_LIMIT = Register(48, 4)
MIN_LIMIT = Register(52, 4)
SHUTDOWN = Register(63)
TORQUE_ENABLE = Register(64)
STATUS_LEVEL = Register(68)  # 0: only pings are answered; 1: reads too; 2: all
HARDWARE_ERROR = Register(70)
D_GAIN = Register(80, 2)
I_GAIN = Register(82, 2)
P_GAIN = Register(84, 2)
GOAL_VELOCITY = Register(104, 4, twos=True)
PROFILE_VELOCITY = Register(112, 4)  # 0: as fast as it can
GOAL_POSITION = Register(116, 4, twos=True)
MOVING = Register(122)
PRESENT_CURRENT = Register(126, 2, twos=True)  # 1 mA; the XL430 has its load here, in 0.1 %
PRESENT_VELOCITY = Register(128, 4, twos=True)
PRESENT_POSITION = Register(132, 4, twos=True)
PRESENT_VOLTAGE = Register(144, 2)  # 0.1 V
PRESENT_TEMPERATURE = Register(146)  # °C

READ_ONLY = frozenset((*range(0, 7), 70, *range(120, 147)))

# As LeRobot leaves a servo that it has set up: 1 Mbaud. A new one has 57,600.
FACTORY = {
    FIRMWARE: 50, BAUD_RATE: 3, RETURN_DELAY: 250, MODE: POSITION, PROTOCOL: 2, MOVING_THRESHOLD: 10,
    MAX_TEMPERATURE: 70, PWM_LIMIT: 885, MAX_LIMIT: TURN - 1, SHUTDOWN: 52, STATUS_LEVEL: 2, P_GAIN: 800,
}  # fmt: skip


ACCESS_ERROR = 7  # the register is read-only, or in the EEPROM while torque is on
SPEED_UNIT = 0.229 / 60 * TURN  # counts/s of one step of a velocity: 0.229 rpm


class XSeries(Model):
    """One model of the series.

    Args:
        number: the model number.
        rpm: turns a minute without load.
        stall: value of ``Present_Current`` at full load (mA; the XL430's 0.1 % of load).
        voltage: 0.1 V.
    """

    memory = MEMORY
    eeprom_end = EEPROM_END
    read_only = READ_ONLY
    baud_rates = BAUD_RATES
    id, baud_rate, return_delay = ID, BAUD_RATE, RETURN_DELAY
    low, high, offset = MIN_LIMIT, MAX_LIMIT, HOMING_OFFSET
    torque, goal, present, temperature = TORQUE_ENABLE, GOAL_POSITION, PRESENT_POSITION, PRESENT_TEMPERATURE

    def __init__(self, number: int, rpm: float, stall: int, voltage: int) -> None:
        self.number, self.stall, self.voltage = number, stall, voltage
        self.motion = Motion(max_speed=rpm / 60 * TURN)
        self.factory = {**FACTORY, MODEL: number, VELOCITY_LIMIT: round(self.motion.max_speed / SPEED_UNIT)}

    def calibration_registers(self, drive_mode: int) -> Mapping[Register, int]:
        return {DRIVE_MODE: drive_mode}

    def position(self, servo: Servo, shaft: float) -> float:
        return self._sign(servo) * shaft + servo.get(HOMING_OFFSET)

    def shaft(self, servo: Servo, position: float) -> float:
        return self._sign(servo) * (position - servo.get(HOMING_OFFSET))

    def holds_position(self, servo: Servo) -> bool:
        return servo.get(MODE) in (POSITION, EXTENDED, CURRENT_POSITION)

    def is_goal_clipped(self, servo: Servo) -> bool:
        return servo.get(MODE) == POSITION

    def wraps(self, servo: Servo) -> bool:
        return servo.get(MODE) == POSITION and bool(servo.get(TORQUE_ENABLE))

    def max_speed(self, servo: Servo) -> float:
        return servo.get(PROFILE_VELOCITY) * SPEED_UNIT or math.inf

    def answers_writes(self, servo: Servo) -> bool:
        return servo.get(STATUS_LEVEL) > 1

    def is_eeprom_protected(self, servo: Servo) -> bool:
        return bool(servo.get(TORQUE_ENABLE))

    def refusal(self, servo: Servo, address: int, size: int) -> int:
        touched = range(address, address + size)
        if not READ_ONLY.isdisjoint(touched) or (self.is_eeprom_protected(servo) and address < EEPROM_END and size):
            return ACCESS_ERROR
        return 0

    def identity(self, servo: Servo) -> bytes:
        return MODEL.encode(servo.get(MODEL)) + FIRMWARE.encode(servo.get(FIRMWARE))

    def power_on_registers(self, servo: Servo) -> Mapping[Register, int]:
        return {register: value for register, value in FACTORY.items() if register.address >= EEPROM_END}

    def measured_registers(self, servo: Servo, speed: float, load: float) -> Mapping[Register, int]:
        return {
            PRESENT_VELOCITY: round(speed / SPEED_UNIT),
            PRESENT_CURRENT: round(self.stall * load),
            PRESENT_VOLTAGE: round(self.voltage * (1 - 0.08 * abs(load))),
            MOVING: abs(speed / SPEED_UNIT) > servo.get(MOVING_THRESHOLD),
        }

    def _sign(self, servo: Servo) -> int:
        return -1 if servo.get(DRIVE_MODE) & REVERSED else 1


X_SERIES = {
    "xl330-m077": XSeries(1190, rpm=383, stall=1470, voltage=50),
    "xl330-m288": XSeries(1200, rpm=104, stall=1470, voltage=50),
    "xl430-w250": XSeries(1060, rpm=57, stall=1000, voltage=111),
    "xm540-w270": XSeries(1120, rpm=30, stall=4400, voltage=120),
}
