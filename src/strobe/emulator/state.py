"""The state of an emulated arm: its servos, and counts of its bus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ServoState:
    """Registers of one servo. Positions are counts, less the homing offset."""

    torque: bool
    lock: bool
    goal: int
    present: int
    temperature: int  # °C


@dataclass(frozen=True)
class ArmState:
    """Servos by id at ``time_s`` of the monotonic clock, and counts since the start.

    ``packets`` counts requests by instruction, ``corrupt`` those with a wrong checksum, ``noise`` bytes in no packet,
    ``struck`` the requests that planted faults struck, by the fault's name.
    """

    time_s: float
    servos: dict[int, ServoState]
    packets: dict[str, int]
    corrupt: int = 0
    noise: int = 0
    struck: Mapping[str, int] | None = None

    @property
    def holding(self) -> list[int]:
        """Ids of the servos whose torque is on."""
        return [id for id, servo in sorted(self.servos.items()) if servo.torque]

    def content(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_content(content: Mapping[str, Any]) -> ArmState:
        """Return the state that `content` gave, also after JSON."""
        servos = {int(id): ServoState(**registers) for id, registers in content["servos"].items()}
        return ArmState(**{**content, "servos": servos})
