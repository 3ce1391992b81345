"""One emulated servo: registers and a shaft, of whatever model.

Assumed, without a check on a real servo: switching the torque on makes the present position the goal;
a shaft without torque stays where it is; there is no gravity. Only modes that hold a position move the shaft.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

TURN = 4096  # counts of one turn


@dataclass(frozen=True)
class Joint:
    """The calibration of one joint, as LeRobot saves it. ``homing_offset`` and the range are counts, 4096 a turn."""

    id: int
    drive_mode: int = 0
    homing_offset: int = 0
    range_min: int = 0
    range_max: int = TURN - 1


@dataclass(frozen=True)
class Register:
    """``size`` bytes from ``address``, low byte first.

    Negative numbers have the bit ``sign`` set above their size, or, with ``twos``, are stored as two's complement.
    Without either the register holds no negative numbers.
    """

    address: int
    size: int = 1
    sign: int | None = None
    twos: bool = False

    def decode(self, data: bytes | bytearray) -> int:
        """Return the number that the register's bytes hold."""
        raw = int.from_bytes(data, "little", signed=self.twos)
        if self.sign is None:
            return raw
        size = raw & ((1 << self.sign) - 1)
        return -size if raw >> self.sign & 1 else size

    def encode(self, value: int) -> bytes:
        """Return the bytes of ``value``, clipped to the register's range."""
        if self.twos:
            top = 1 << 8 * self.size - 1
            return min(max(value, -top), top - 1).to_bytes(self.size, "little", signed=True)
        if self.sign is None:
            raw = min(max(value, 0), (1 << 8 * self.size) - 1)
        else:
            raw = min(abs(value), (1 << self.sign) - 1) | (1 << self.sign if value < 0 else 0)
        return raw.to_bytes(self.size, "little")


@dataclass(frozen=True)
class Motion:
    """First-order motion: the speed is the distance to the goal over ``lag_s``, at most ``max_speed``."""

    max_speed: float = 3000.0  # counts/s
    lag_s: float = 0.04

    def remaining_distance(self, distance: float, seconds: float, max_speed: float) -> float:
        """Return the distance to the goal that remains after ``seconds`` (counts), in closed form."""
        size = abs(distance)
        slowing = max_speed * self.lag_s  # from here on the speed falls with the distance
        if size > slowing:
            straight = min(seconds, (size - slowing) / max_speed)
            size -= straight * max_speed
            seconds -= straight
        return math.copysign(size * math.exp(-seconds / self.lag_s), distance)


_SWING = 0.2  # share of a joint's range, from end to end
_SWING_S = 4.0


def swing(low: int, high: int, begun: float) -> Callable[[float], float]:
    """Return the motion of a hand that swings a joint slowly around the middle of its range.

    Args:
        low, high: the joint's range, in counts.
        begun: seconds, when the joint is in the middle.
    """

    def swing_position(now: float) -> float:
        return (low + high) / 2 + _SWING / 2 * (high - low) * math.sin(math.tau * (now - begun) / _SWING_S)

    return swing_position


class Model(ABC):
    """Registers by their purpose, and the rules that differ from brand to brand.

    Attributes:
        memory: bytes of all registers.
        eeprom_end: registers below survive a restart.
        read_only: addresses that the host cannot write.
        factory: values of a new servo.
        baud_rates: bits per second by the value of ``baud_rate``.
        motion: of the shaft, without load.
    """

    memory: int
    eeprom_end: int
    read_only: frozenset[int]
    factory: Mapping[Register, int]
    baud_rates: tuple[int, ...]
    motion: Motion

    id: Register
    baud_rate: Register
    return_delay: Register  # 2 µs
    low: Register
    high: Register
    offset: Register
    torque: Register
    goal: Register
    present: Register
    temperature: Register

    @abstractmethod
    def calibration_registers(self, drive_mode: int) -> Mapping[Register, int]:
        """Return further registers that a calibration file's joint sets."""

    @abstractmethod
    def position(self, servo: Servo, shaft: float) -> float:
        """Return the position that the host reads (counts) when the encoder counts ``shaft``."""

    @abstractmethod
    def shaft(self, servo: Servo, position: float) -> float:
        """Return the encoder's count for ``position``: the inverse of `position`."""

    @abstractmethod
    def holds_position(self, servo: Servo) -> bool:
        """Return whether the servo's mode drives to the goal."""

    @abstractmethod
    def is_goal_clipped(self, servo: Servo) -> bool:
        """Return whether its mode clips the goal to the limits."""

    @abstractmethod
    def wraps(self, servo: Servo) -> bool:
        """Return whether positions begin again after a turn."""

    @abstractmethod
    def max_speed(self, servo: Servo) -> float:
        """Return the speed (counts/s) that registers allow; infinite without a limit."""

    @abstractmethod
    def answers_writes(self, servo: Servo) -> bool:
        """Return whether it confirms writes."""

    @abstractmethod
    def is_eeprom_protected(self, servo: Servo) -> bool:
        """Return whether its EEPROM is protected now."""

    @abstractmethod
    def refusal(self, servo: Servo, address: int, size: int) -> int:
        """Return the error with which it refuses a write, which then changes nothing; 0 if it accepts the write."""

    @abstractmethod
    def identity(self, servo: Servo) -> bytes:
        """Return the data of its answer to a ping."""

    @abstractmethod
    def power_on_registers(self, servo: Servo) -> Mapping[Register, int]:
        """Return the registers outside the EEPROM that do not begin as 0 after a loss of power."""

    @abstractmethod
    def measured_registers(self, servo: Servo, speed: float, load: float) -> Mapping[Register, int]:
        """Return further measured registers, at ``speed`` (counts/s) and ``load`` (-1 to 1)."""


AMBIENT = 30.0  # °C
_HEATING = 35.0  # °C above ambient at full load, after a long time
_HEATING_S = 300.0  # time constant of the motor's temperature


class Servo:
    """Registers, as the host reads and writes them, over a shaft that moves while torque is on.

    All times are seconds of one monotonic clock, which the caller reads.

    Args:
        joint: id, limits, homing offset and drive mode.
        present: the position that the host reads at first (counts); None for the middle of the range.
        motion: of the shaft; None for the model's.
        now: time of the first state.

    Attributes:
        shaft: the encoder's own count; the host reads the position that the model computes from it.
        error: bits in the error byte of every answer.
        hand: turns the shaft while torque is off: time → the position that the host then reads (counts).
    """

    def __init__(
        self,
        model: Model,
        joint: Joint,
        *,
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
        own = {model.id: joint.id, model.low: joint.range_min, model.high: joint.range_max}
        own |= {model.offset: joint.homing_offset, **model.calibration_registers(joint.drive_mode)}
        for register, value in {**model.factory, **own}.items():
            self.set(register, value)
        self._saved = bytes(self._memory[: model.eeprom_end])
        middle = (joint.range_min + joint.range_max) // 2
        self.shaft = model.shaft(self, float(middle if present is None else present))
        self._show(0.0, 0.0)
        self.set(model.goal, self.get(model.present))

    @property
    def id(self) -> int:
        """The number by which the bus addresses it."""
        return self.get(self.model.id)

    @property
    def baud(self) -> int:
        """Bits per second on the wire."""
        rates = self.model.baud_rates
        return rates[min(self.get(self.model.baud_rate), len(rates) - 1)]

    def get(self, register: Register) -> int:
        """Return the value of a register, as of the last `advance`."""
        return register.decode(self._memory[register.address : register.address + register.size])

    def set(self, register: Register, value: int) -> None:
        """Put ``value`` into a register without regard to protection."""
        self._memory[register.address : register.address + register.size] = register.encode(value)

    def place(self, position: int) -> None:
        """Turn the shaft by hand until the host would read ``position`` (counts)."""
        self.shaft = self.model.shaft(self, float(position))
        self._show(0.0, 0.0)

    def advance(self, now: float) -> None:
        """Bring shaft and present registers up to ``now``, in one step of any length."""
        seconds, self._at = max(0.0, now - self._at), max(now, self._at)
        load = speed = 0.0
        if self.hand is not None and not self.get(self.model.torque):
            self.shaft = self.model.shaft(self, self.hand(now))
        elif self.get(self.model.torque) and self.model.holds_position(self):
            limit = min(self.model.max_speed(self), self.motion.max_speed)
            here = self.model.position(self, self.shaft)
            distance = self._goal() - here
            remaining = self.motion.remaining_distance(distance, seconds, limit)
            self.shaft = self.model.shaft(self, here + distance - remaining)
            speed = max(-limit, min(limit, remaining / self.motion.lag_s))
            load = speed / self.motion.max_speed
        share = -math.expm1(-seconds / _HEATING_S)
        self._temperature += (AMBIENT + _HEATING * load * load - self._temperature) * share
        self._show(speed, load)

    def read(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes from ``address``; zeros beyond the last register."""
        return bytes(self._memory[address : address + size]).ljust(size, b"\0")

    def write(self, address: int, data: bytes) -> int:
        """Write as the host does, and return the error of the answer, 0 for none.

        Measured registers stay. Bytes that are written to the EEPROM while it is protected are lost at a restart.
        """
        if error := self.model.refusal(self, address, len(data)):
            return error
        model = self.model
        had_torque, protected = self.get(model.torque), model.is_eeprom_protected(self)
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
        """Lose power for a moment: torque goes off, only saved registers remain. The shaft stays."""
        self._memory = bytearray(self._saved).ljust(self.model.memory, b"\0")
        for register, value in self.model.power_on_registers(self).items():
            self.set(register, value)
        self._show(0.0, 0.0)
        self.set(self.model.goal, self.get(self.model.present))

    def _goal(self) -> int:
        model = self.model
        goal, low, high = self.get(model.goal), self.get(model.low), self.get(model.high)
        # The servo clips; LeRobot's driver does not.
        return min(high, max(low, goal)) if model.is_goal_clipped(self) and low < high else goal

    def _show(self, speed: float, load: float) -> None:
        model = self.model
        position = round(model.position(self, self.shaft))
        self.set(model.present, position % TURN if model.wraps(self) else position)
        self.set(model.temperature, round(self._temperature))
        for register, value in model.measured_registers(self, speed, load).items():
            self.set(register, value)
