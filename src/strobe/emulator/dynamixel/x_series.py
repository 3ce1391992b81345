"""Servos of Dynamixel's X series: the XL330 and XL430 of the Koch and OMX arms, and the XM540.

Source: https://emanual.robotis.com/docs/en/dxl/x/ (speed without load, stall current, voltage; the rules on writes).
Assumed: addresses that the control tables leave out can be written, and a goal outside the limits is clipped, where a
real servo answers with an error and keeps its goal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strobe.emulator.dynamixel import registers as r
from strobe.emulator.register import TURN, Register
from strobe.emulator.servo import Model, Motion

if TYPE_CHECKING:
    from strobe.emulator.servo import Servo

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

    memory = r.MEMORY
    eeprom_end = r.EEPROM_END
    read_only = r.READ_ONLY
    baud_rates = r.BAUD_RATES
    id, baud_rate, return_delay = r.ID, r.BAUD_RATE, r.RETURN_DELAY
    low, high, offset = r.MIN_LIMIT, r.MAX_LIMIT, r.HOMING_OFFSET
    torque, goal, present, temperature = r.TORQUE_ENABLE, r.GOAL_POSITION, r.PRESENT_POSITION, r.PRESENT_TEMPERATURE

    def __init__(self, number: int, rpm: float, stall: int, voltage: int) -> None:
        self.number, self.stall, self.voltage = number, stall, voltage
        self.motion = Motion(max_speed=rpm / 60 * TURN)
        self.factory = {**r.FACTORY, r.MODEL: number, r.VELOCITY_LIMIT: round(self.motion.max_speed / SPEED_UNIT)}

    def calibrated(self, drive_mode: int) -> Mapping[Register, int]:
        return {r.DRIVE_MODE: drive_mode}

    def position(self, servo: Servo, shaft: float) -> float:
        return self._sign(servo) * shaft + servo.get(r.HOMING_OFFSET)

    def shaft(self, servo: Servo, position: float) -> float:
        return self._sign(servo) * (position - servo.get(r.HOMING_OFFSET))

    def holds_position(self, servo: Servo) -> bool:
        return servo.get(r.MODE) in (r.POSITION, r.EXTENDED, r.CURRENT_POSITION)

    def limited(self, servo: Servo) -> bool:
        return servo.get(r.MODE) == r.POSITION

    def wraps(self, servo: Servo) -> bool:
        return servo.get(r.MODE) == r.POSITION and bool(servo.get(r.TORQUE_ENABLE))

    def max_speed(self, servo: Servo) -> float:
        return servo.get(r.PROFILE_VELOCITY) * SPEED_UNIT or math.inf

    def answers_writes(self, servo: Servo) -> bool:
        return servo.get(r.STATUS_LEVEL) > 1

    def protected(self, servo: Servo) -> bool:
        return bool(servo.get(r.TORQUE_ENABLE))

    def refusal(self, servo: Servo, address: int, size: int) -> int:
        touched = range(address, address + size)
        if not r.READ_ONLY.isdisjoint(touched) or (self.protected(servo) and address < r.EEPROM_END and size):
            return ACCESS_ERROR
        return 0

    def identity(self, servo: Servo) -> bytes:
        return r.MODEL.encode(servo.get(r.MODEL)) + r.FIRMWARE.encode(servo.get(r.FIRMWARE))

    def restarted(self, servo: Servo) -> Mapping[Register, int]:
        return {register: value for register, value in r.FACTORY.items() if register.address >= r.EEPROM_END}

    def measured(self, servo: Servo, speed: float, load: float) -> Mapping[Register, int]:
        return {
            r.PRESENT_VELOCITY: round(speed / SPEED_UNIT),
            r.PRESENT_CURRENT: round(self.stall * load),
            r.PRESENT_VOLTAGE: round(self.voltage * (1 - 0.08 * abs(load))),
            r.MOVING: abs(speed / SPEED_UNIT) > servo.get(r.MOVING_THRESHOLD),
        }

    def _sign(self, servo: Servo) -> int:
        return -1 if servo.get(r.DRIVE_MODE) & r.REVERSED else 1


X_SERIES = {
    "xl330-m077": XSeries(1190, rpm=383, stall=1470, voltage=50),
    "xl330-m288": XSeries(1200, rpm=104, stall=1470, voltage=50),
    "xl430-w250": XSeries(1060, rpm=57, stall=1000, voltage=111),
    "xm540-w270": XSeries(1120, rpm=30, stall=4400, voltage=120),
}
