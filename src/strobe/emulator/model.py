"""A model of servo: where its registers lie, and what they do. A brand's models fill in what the shared servo asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strobe.emulator.motion import Motion
from strobe.emulator.register import Register

if TYPE_CHECKING:
    from strobe.emulator.servo import Servo


class Model(ABC):
    """Registers by what they are for, and the rules of those that differ from brand to brand.

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
    def calibrated(self, drive_mode: int) -> Mapping[Register, int]:
        """Further registers that a calibration file's joint tells."""

    @abstractmethod
    def position(self, servo: Servo, shaft: float) -> float:
        """Position that the host reads (counts) when the encoder counts ``shaft``."""

    @abstractmethod
    def shaft(self, servo: Servo, position: float) -> float:
        """The inverse of `position`."""

    @abstractmethod
    def holds_position(self, servo: Servo) -> bool:
        """Whether the servo's mode is one that drives to the goal."""

    @abstractmethod
    def limited(self, servo: Servo) -> bool:
        """Whether its mode holds the goal to the limits."""

    @abstractmethod
    def wraps(self, servo: Servo) -> bool:
        """Whether positions begin again after a turn."""

    @abstractmethod
    def max_speed(self, servo: Servo) -> float:
        """The speed (counts/s) that registers allow; infinite where they set no limit."""

    @abstractmethod
    def answers_writes(self, servo: Servo) -> bool:
        """Whether it confirms what is written to it."""

    @abstractmethod
    def protected(self, servo: Servo) -> bool:
        """Whether its EEPROM is protected now."""

    @abstractmethod
    def refusal(self, servo: Servo, address: int, size: int) -> int:
        """The error with which it refuses a write, which then changes nothing; 0 where it takes it."""

    @abstractmethod
    def identity(self, servo: Servo) -> bytes:
        """Its answer to a ping, about itself."""

    @abstractmethod
    def restarted(self, servo: Servo) -> Mapping[Register, int]:
        """Registers outside the EEPROM that do not begin as 0 after a loss of power."""

    @abstractmethod
    def measured(self, servo: Servo, speed: float, load: float) -> Mapping[Register, int]:
        """Other registers of measurements, at ``speed`` (counts/s) and ``load`` (-1 to 1)."""
