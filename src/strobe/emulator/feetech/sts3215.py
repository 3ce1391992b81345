"""The STS3215 of the SO arms.

Assumed, without a check on a real servo: registers below 40 that are written under Lock 1 count until
the next restart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strobe.emulator.feetech import registers as r
from strobe.emulator.register import Register
from strobe.emulator.servo import Model, Motion

if TYPE_CHECKING:
    from strobe.emulator.servo import Servo

_VOLTAGE = 74  # 0.1 V, without load
_SAG = 6  # 0.1 V at full load
_STALL_CURRENT = 415  # 6.5 mA: 2.7 A
_MOVING = 5  # counts/s


class _STS3215(Model):
    memory = 256
    eeprom_end = r.EEPROM_END
    read_only = r.READ_ONLY
    factory = r.FACTORY
    baud_rates = r.BAUD_RATES
    motion = Motion(max_speed=3000.0)  # unloaded it turns with about 50 rpm at 7.4 V, which is 3400 counts/s
    id, baud_rate, return_delay = r.ID, r.BAUD_RATE, r.RETURN_DELAY
    low, high, offset = r.MIN_LIMIT, r.MAX_LIMIT, r.HOMING_OFFSET
    torque, goal, present, temperature = r.TORQUE_ENABLE, r.GOAL_POSITION, r.PRESENT_POSITION, r.PRESENT_TEMPERATURE

    def calibrated(self, drive_mode: int) -> Mapping[Register, int]:
        return {}

    def position(self, servo: Servo, shaft: float) -> float:
        return shaft - servo.get(r.HOMING_OFFSET)

    def shaft(self, servo: Servo, position: float) -> float:
        return position + servo.get(r.HOMING_OFFSET)

    def holds_position(self, servo: Servo) -> bool:
        return servo.get(r.MODE) == 0

    def limited(self, servo: Servo) -> bool:
        return True

    def wraps(self, servo: Servo) -> bool:
        return not servo.get(r.PHASE) & r.PHASE_MULTI_TURN

    def max_speed(self, servo: Servo) -> float:
        return abs(servo.get(r.GOAL_VELOCITY)) or math.inf

    def answers_writes(self, servo: Servo) -> bool:
        return bool(servo.get(r.STATUS_LEVEL))

    def protected(self, servo: Servo) -> bool:
        return bool(servo.get(r.LOCK))

    def refusal(self, servo: Servo, address: int, size: int) -> int:
        return 0

    def identity(self, servo: Servo) -> bytes:
        return b""

    def restarted(self, servo: Servo) -> Mapping[Register, int]:
        return {r.LOCK: r.FACTORY[r.LOCK], r.TORQUE_LIMIT: servo.get(r.MAX_TORQUE)}

    def measured(self, servo: Servo, speed: float, load: float) -> Mapping[Register, int]:
        return {
            r.PRESENT_VELOCITY: round(speed),
            r.PRESENT_LOAD: round(1000 * load),
            r.PRESENT_CURRENT: round(_STALL_CURRENT * load),
            r.PRESENT_VOLTAGE: round(_VOLTAGE - _SAG * abs(load)),
            r.MOVING: abs(speed) > _MOVING,
        }


STS3215 = _STS3215()
