"""One emulated servo: registers and a shaft, of whatever model.

Assumed, because nobody has looked at a real servo for it: switching the torque on makes the present position the goal;
a shaft without torque stays where it is; there is no gravity. Only modes that hold a position move the shaft.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from strobe.emulator.model import Model
from strobe.emulator.motion import Motion
from strobe.emulator.register import TURN, Register

AMBIENT = 30.0  # °C
_HEATING = 35.0  # °C above ambient at full load, after a long time
_HEATING_S = 300.0  # time constant of the motor's temperature


class Servo:
    """Registers, as the host reads and writes them, over a shaft that moves while torque is on.

    ``shaft`` is the encoder's own count; the host sees what the model makes of it with the homing offset. ``error`` is
    in the error byte of every answer. ``hand`` turns the shaft while torque is off: from the time to the position that
    the host then reads (counts). All times are seconds of one monotonic clock, which the caller reads.
    """

    def __init__(
        self,
        model: Model,
        id: int,
        *,
        low: int = 0,
        high: int = TURN - 1,
        offset: int = 0,
        drive_mode: int = 0,
        present: int | None = None,
        motion: Motion | None = None,
        now: float = 0.0,
    ) -> None:
        self.model = model
        self.error = 0
        self.motion = motion or model.motion
        self.hand: Callable[[float], float] | None = None
        self._temperature = AMBIENT
        self._at = now
        self._memory = bytearray(model.memory)
        own = {model.id: id, model.low: low, model.high: high, model.offset: offset, **model.calibrated(drive_mode)}
        for register, value in {**model.factory, **own}.items():
            self.set(register, value)
        self._saved = bytes(self._memory[: model.eeprom_end])
        self.shaft = model.shaft(self, float((low + high) // 2 if present is None else present))
        self._show(0.0, 0.0)
        self.set(model.goal, self.get(model.present))

    @property
    def id(self) -> int:
        return self.get(self.model.id)

    @property
    def baud(self) -> int:
        """Bits per second on the wire."""
        rates = self.model.baud_rates
        return rates[min(self.get(self.model.baud_rate), len(rates) - 1)]

    def get(self, register: Register) -> int:
        """Value of a register, as of the last `advance`."""
        return register.decode(self._memory[register.address : register.address + register.size])

    def set(self, register: Register, value: int) -> None:
        """Put ``value`` into a register, past all protection."""
        self._memory[register.address : register.address + register.size] = register.encode(value)

    def place(self, position: int) -> None:
        """Turn the shaft by hand until the host would read ``position`` (counts)."""
        self.shaft = self.model.shaft(self, float(position))
        self._show(0.0, 0.0)

    def advance(self, now: float) -> None:
        """Bring shaft and present registers up to ``now``. Nothing runs in between, however long that is."""
        seconds, self._at = max(0.0, now - self._at), max(now, self._at)
        load = speed = 0.0
        if self.hand is not None and not self.get(self.model.torque):
            self.shaft = self.model.shaft(self, self.hand(now))
        elif self.get(self.model.torque) and self.model.holds_position(self):
            limit = min(self.model.max_speed(self), self.motion.max_speed)
            here = self.model.position(self, self.shaft)
            distance = self._goal() - here
            left = self.motion.after(distance, seconds, limit)
            self.shaft = self.model.shaft(self, here + distance - left)
            speed = max(-limit, min(limit, left / self.motion.lag_s))
            load = speed / self.motion.max_speed
        share = -math.expm1(-seconds / _HEATING_S)
        self._temperature += (AMBIENT + _HEATING * load * load - self._temperature) * share
        self._show(speed, load)

    def read(self, address: int, size: int) -> bytes:
        """Bytes from ``address``; past the last register there are zeros."""
        return bytes(self._memory[address : address + size]).ljust(size, b"\0")

    def write(self, address: int, data: bytes) -> int:
        """Write as the host does, and return the error of the answer, 0 for none.

        Measured registers stay. What is written to the EEPROM while it is protected is forgotten at a restart.
        """
        if error := self.model.refusal(self, address, len(data)):
            return error
        model = self.model
        had_torque, protected = self.get(model.torque), model.protected(self)
        saved = bytearray(self._saved)
        for at, byte in enumerate(data, address):
            if at < len(self._memory) and at not in model.read_only:
                self._memory[at] = byte
                if at < model.eeprom_end and not protected:
                    saved[at] = byte
        self._saved = bytes(saved)
        self._show(0.0, 0.0)  # a new offset shows at once
        if self.get(model.torque) and not had_torque:
            self.set(model.goal, self.get(model.present))
        return 0

    def restart(self) -> None:
        """Lose power for a moment: torque off, and only what was saved is still there. The shaft stays."""
        self._memory = bytearray(self._saved).ljust(self.model.memory, b"\0")
        for register, value in self.model.restarted(self).items():
            self.set(register, value)
        self._show(0.0, 0.0)
        self.set(self.model.goal, self.get(self.model.present))

    def _goal(self) -> int:
        model = self.model
        goal, low, high = self.get(model.goal), self.get(model.low), self.get(model.high)
        # The servo clips; LeRobot's driver does not.
        return min(high, max(low, goal)) if model.limited(self) and low < high else goal

    def _show(self, speed: float, load: float) -> None:
        model = self.model
        position = round(model.position(self, self.shaft))
        self.set(model.present, position % TURN if model.wraps(self) else position)
        self.set(model.temperature, round(self._temperature))
        for register, value in model.measured(self, speed, load).items():
            self.set(register, value)
