"""Registers of an STS3215 that the emulated servo knows, by LeRobot's names for them.

Source: ``lerobot/motors/feetech/tables.py`` (addresses, sign bits), and Feetech's memory table of the STS series
(factory values, units).
"""

from __future__ import annotations

from strobe.emulator.register import TURN, Register

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
