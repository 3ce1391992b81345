"""One emulated STS3215: 256 registers and a shaft.

Assumed, because nobody has looked at a real servo for it: switching the torque on makes the present position the goal;
registers below 40 that are written under Lock 1 count until the next restart; a shaft without torque stays where it is;
there is no gravity. Only position mode moves the shaft.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from strobe.subjects.robot import registers as r
from strobe.subjects.robot.registers import Register

AMBIENT = 30.0  # °C
_HEATING = 35.0  # °C above ambient at full load, after a long time
_HEATING_S = 300.0  # time constant of the motor's temperature
_VOLTAGE = 74  # 0.1 V, without load
_SAG = 6  # 0.1 V at full load
_STALL_CURRENT = 415  # 6.5 mA: 2.7 A
_MOVING = 5  # counts/s


@dataclass(frozen=True)
class Motion:
    """First-order motion: the speed is the distance to the goal over ``lag_s``, held to ``max_speed``.

    An unloaded STS3215 turns with about 50 rpm at 7.4 V, which is 3400 counts/s.
    """

    max_speed: float = 3000.0  # counts/s
    lag_s: float = 0.04

    def after(self, distance: float, seconds: float, max_speed: float) -> float:
        """Distance to the goal that is left after ``seconds`` (counts), in closed form."""
        size = abs(distance)
        near = max_speed * self.lag_s  # from here on the speed falls with the distance
        if size > near:
            straight = min(seconds, (size - near) / max_speed)
            size -= straight * max_speed
            seconds -= straight
        return math.copysign(size * math.exp(-seconds / self.lag_s), distance)


class Servo:
    """Registers, as the host reads and writes them, over a shaft that moves while torque is on.

    ``shaft`` is the encoder's own count; the host sees it less the homing offset. ``error`` is the byte that every
    answer carries. All times are seconds of one monotonic clock, which the caller reads.
    """

    def __init__(
        self,
        id: int,
        *,
        low: int = 0,
        high: int = r.TURN - 1,
        offset: int = 0,
        present: int | None = None,
        motion: Motion | None = None,
        now: float = 0.0,
    ) -> None:
        self.error = 0
        self.motion = motion or Motion()
        self.shaft = float((low + high) // 2 if present is None else present) + offset
        self._temperature = AMBIENT
        self._at = now
        self._memory = bytearray(256)
        own = {r.ID: id, r.MIN_LIMIT: low, r.MAX_LIMIT: high, r.HOMING_OFFSET: offset}
        for register, value in (r.FACTORY | own).items():
            self.set(register, value)
        self._saved = bytes(self._memory[: r.EEPROM_END])
        self._show(0.0, 0.0)
        self.set(r.GOAL_POSITION, self.get(r.PRESENT_POSITION))

    @property
    def id(self) -> int:
        return self.get(r.ID)

    def get(self, register: Register) -> int:
        """Value of a register, as of the last `advance`."""
        return register.decode(self._memory[register.address : register.address + register.size])

    def set(self, register: Register, value: int) -> None:
        """Put ``value`` into a register, past all protection."""
        self._memory[register.address : register.address + register.size] = register.encode(value)

    def place(self, position: int) -> None:
        """Turn the shaft by hand until the host would read ``position`` (counts)."""
        self.shaft = float(position + self.get(r.HOMING_OFFSET))
        self._show(0.0, 0.0)

    def advance(self, now: float) -> None:
        """Bring shaft and present registers up to ``now``. Nothing runs in between, however long that is."""
        seconds, self._at = max(0.0, now - self._at), max(now, self._at)
        load = speed = 0.0
        if self.get(r.TORQUE_ENABLE) and self.get(r.MODE) == 0:
            offset = self.get(r.HOMING_OFFSET)
            limit = abs(self.get(r.GOAL_VELOCITY)) or self.motion.max_speed
            limit = min(limit, self.motion.max_speed)
            distance = self._goal() + offset - self.shaft
            left = self.motion.after(distance, seconds, limit)
            self.shaft += distance - left
            speed = max(-limit, min(limit, left / self.motion.lag_s))
            load = speed / self.motion.max_speed
        share = -math.expm1(-seconds / _HEATING_S)
        self._temperature += (AMBIENT + _HEATING * load * load - self._temperature) * share
        self._show(speed, load)

    def read(self, address: int, size: int) -> bytes:
        """Bytes from ``address``; past the last register there are zeros."""
        return bytes(self._memory[address : address + size]).ljust(size, b"\0")

    def write(self, address: int, data: bytes) -> None:
        """Write as the host does: measured registers stay, and a restart forgets EEPROM written under Lock 1."""
        had_torque = self.get(r.TORQUE_ENABLE)
        locked = self.get(r.LOCK)
        saved = bytearray(self._saved)
        for at, byte in enumerate(data, address):
            if at < len(self._memory) and at not in r.READ_ONLY:
                self._memory[at] = byte
                if at < r.EEPROM_END and not locked:
                    saved[at] = byte
        self._saved = bytes(saved)
        self._show(0.0, 0.0)  # a new offset shows at once
        if self.get(r.TORQUE_ENABLE) and not had_torque:
            self.set(r.GOAL_POSITION, self.get(r.PRESENT_POSITION))

    def restart(self) -> None:
        """Lose power for a moment: torque off, and only what was saved is still there. The shaft stays."""
        self._memory = bytearray(self._saved).ljust(256, b"\0")
        self.set(r.LOCK, r.FACTORY[r.LOCK])
        self.set(r.TORQUE_LIMIT, self.get(r.MAX_TORQUE))
        self._show(0.0, 0.0)
        self.set(r.GOAL_POSITION, self.get(r.PRESENT_POSITION))

    def _goal(self) -> int:
        goal, low, high = self.get(r.GOAL_POSITION), self.get(r.MIN_LIMIT), self.get(r.MAX_LIMIT)
        return min(high, max(low, goal)) if low < high else goal  # the servo clips; LeRobot's driver does not

    def _show(self, speed: float, load: float) -> None:
        position = round(self.shaft) - self.get(r.HOMING_OFFSET)
        if not self.get(r.PHASE) & r.PHASE_MULTI_TURN:
            position %= r.TURN
        self.set(r.PRESENT_POSITION, position)
        self.set(r.PRESENT_VELOCITY, round(speed))
        self.set(r.PRESENT_LOAD, round(1000 * load))
        self.set(r.PRESENT_CURRENT, round(_STALL_CURRENT * load))
        self.set(r.PRESENT_VOLTAGE, round(_VOLTAGE - _SAG * abs(load)))
        self.set(r.PRESENT_TEMPERATURE, round(self._temperature))
        self.set(r.MOVING, abs(speed) > _MOVING)
